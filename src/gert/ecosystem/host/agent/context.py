"""The documented context builder: it also reads a file of the workspace, such as `AGENTS.md`."""

import asyncio
from typing import Final

from gert.errors import InputError
from gert.kernel.agent.loop import context
from gert.kernel.agent.loop.experience import ExperienceStore
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.foundation.arguments import checks_arguments

MAX_BYTES: Final = 256 * 1024
"""Bytes of the file that are read."""


@checks_arguments
class ContextBuilder(context.ContextBuilder):
    """Builds the messages of each model step of an agent.

    workspace_context_path: a file whose text is part of every context; a file that does not exist adds nothing
    """

    def __init__(
        self,
        *,
        identity: str = context.IDENTITY,
        memory_store: MemoryStore | None = None,
        experience_store: ExperienceStore | None = None,
        task_category: str | None = None,
        progressive_skills: bool = True,
        workspace_context_path: str | None = None,
    ) -> None:
        super().__init__(
            identity=identity,
            memory_store=memory_store,
            experience_store=experience_store,
            task_category=task_category,
            progressive_skills=progressive_skills,
        )
        self.workspace_context_path = workspace_context_path

    async def workspace_text(self) -> str:
        """Return the text of the file; a run reads it once."""
        path = self.workspace_context_path
        if path is None:
            return ""

        async def look() -> str:
            return await asyncio.to_thread(_text_of, path)

        return await self.read("workspace", look)


def _text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InputError(f"the workspace file `{path}` cannot be read: {error}") from error
