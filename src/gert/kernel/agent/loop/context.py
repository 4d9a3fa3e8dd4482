"""Builds what a model sees in a turn: instructions, what is known, and the conversation."""

from abc import ABC
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from gert.kernel.agent.loop.experience import ExperienceStore, rules_text
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.arguments import checks_arguments

VERSION: Final = "context_builder.v1"
IDENTITY: Final = "You are a helpful autonomous agent."
LONGEST_SECTION: Final = 32_000
"""Characters of one section; of a longer text the end is kept, where the newest is."""

Look = Callable[[], Awaitable[str]]
Reader = Callable[[str, Look], Awaitable[str]]
"""Reads a source by its name; in a run it reads once and records what it read."""

_READER: ContextVar[Reader | None] = ContextVar("gert_context_reader", default=None)


@contextmanager
def reading_with(reader: Reader) -> Iterator[None]:
    """Let context builders read through a reader while this is entered."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


@checks_arguments
class ContextBuilder(ABC):  # noqa: B024  documented as a base class that can also be used as it is
    """Builds the messages of each model step of an agent.

    Subclasses may override `build_messages`. What they read from outside a run they read with `read`, so that a run
    that is resumed sees what it saw before.
    """

    def __init__(
        self,
        *,
        identity: str = IDENTITY,
        memory_store: MemoryStore | None = None,
        experience_store: ExperienceStore | None = None,
        task_category: str | None = None,
        progressive_skills: bool = True,
    ) -> None:
        self.identity = identity
        self.memory_store = memory_store
        self.experience_store = experience_store
        self.task_category = task_category
        self.progressive_skills = progressive_skills

    @property
    def version(self) -> str:
        """Return the version of the builder, which is recorded with each model step."""
        return VERSION

    async def build_messages(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        short_term_messages: tuple[ChatMessage, ...],
        system_prompt: str,
        active_skills: frozenset[str],
        available_skill_summaries: Mapping[str, str] | None,
        memory_text: str | None,
    ) -> tuple[ChatMessage, ...]:
        """Return the messages of a model step: one system message, then the conversation.

        memory_text: the memory of the run; read from the builder's own store if it is None
        """
        sections = {
            "Workspace": await self.workspace_text(),
            "Memory": await self._memory(run_id) if memory_text is None else memory_text,
            "Lessons from earlier runs": await self._experience(tenant),
            "Skills in use": ", ".join(sorted(active_skills)),
            "Skills that you can load with `load_skill`": _listed(available_skill_summaries or {}),
        }
        instructions = dict.fromkeys(text for text in (self.identity, system_prompt) if text)
        parts = [*instructions, *(f"## {title}\n{_end(text)}" for title, text in sections.items() if text)]
        system = (ChatMessage(role="system", content="\n\n".join(parts)),) if parts else ()
        return (*system, *short_term_messages)

    async def read(self, source: str, look: Look) -> str:
        """Read from outside the run: in a run once, and recorded; elsewhere at every call."""
        reader = _READER.get()
        return await look() if reader is None else await reader(source, look)

    async def workspace_text(self) -> str:
        """Return what the workspace says to agents."""
        return ""

    async def _memory(self, run_id: str) -> str:
        return "" if self.memory_store is None else await self.memory_store.load(run_id)

    async def _experience(self, tenant: TenantContext) -> str:
        store, category = self.experience_store, self.task_category
        if store is None or category is None:
            return ""

        async def look() -> str:
            return rules_text(await store.get_rules(tenant.tenant_id, category))

        return await self.read("experience", look)


def _listed(skills: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {skills[name]}" for name in sorted(skills))


def _end(text: str) -> str:
    return text if len(text) <= LONGEST_SECTION else f"…{text[-LONGEST_SECTION:]}"
