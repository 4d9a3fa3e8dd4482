"""The tools that every agent brings: its memory, its skills, and the history of its run."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from gert.errors import ToolPermanentError
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.agent.loop.own_tools import OwnTool
from gert.kernel.agent.ports.tool import ToolExecutionResult
from gert.kernel.events.agent import RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.names import did_you_mean

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel

LOAD_SKILL: Final = "load_skill"
MEMORY_WRITES: Final = frozenset({"memory_append", "memory_replace"})
"""They run one after the other, so that it can be found out which of them happened."""

_LONGEST_TEXT: Final = 16_000
_LONGEST_SUMMARY: Final = 1000

_NOT_HAPPENED: Final = ToolExecutionResult("transient_error", "null", error_message="the memory was not changed")


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Text(_Arguments):
    text: Annotated[str, Field(max_length=_LONGEST_TEXT)]


class _Content(_Arguments):
    content: Annotated[str, Field(max_length=_LONGEST_TEXT)]


class _Query(_Arguments):
    query: Annotated[str, Field(max_length=_LONGEST_TEXT)]
    max_results: Annotated[int, Field(ge=1, le=50)] = 5


class _Skill(_Arguments):
    skill_name: str


class _History(_Arguments):
    summary_type: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class RunMemory:
    """The memory of a run as its agent knows it.

    text: the memory when it was last read
    """

    def __init__(self, store: MemoryStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self.text = ""

    async def load(self) -> str:
        """Read the memory from its store."""
        return await self._store.load(self._run_id)

    def tools(self) -> list[OwnTool]:
        """Return the tools that read and change it."""
        return [
            OwnTool("memory_append", "Add a line to your memory.", _Text, self._append, True, self._is_appended),
            OwnTool("memory_replace", "Replace your whole memory.", _Content, self._replace, True, self._is_replaced),
            OwnTool("memory_search", "Find lines in your memory.", _Query, self._search),
        ]

    async def _append(self, given: _Text) -> object:
        await self._store.append(self._run_id, given.text)
        return {"appended": True}

    async def _is_appended(self, given: _Text) -> ToolExecutionResult:
        """Only this run writes its memory: if it is not what it was, the text was added."""
        happened = await self.load() != self.text
        return ToolExecutionResult("success", '{"appended":true}') if happened else _NOT_HAPPENED

    async def _replace(self, given: _Content) -> object:
        await self._store.replace(self._run_id, given.content)
        return {"replaced": True}

    async def _is_replaced(self, given: _Content) -> ToolExecutionResult:
        happened = await self.load() == given.content
        return ToolExecutionResult("success", '{"replaced":true}') if happened else _NOT_HAPPENED

    async def _search(self, given: _Query) -> object:
        return {"found": await self._store.search(self._run_id, given.query, max_results=given.max_results)}


def skill_tool(skills: Mapping[str, str]) -> OwnTool:
    """Return the tool that makes a skill visible.

    skills: the skills that can be loaded, and what each does
    """

    async def load(given: _Skill) -> object:
        if given.skill_name not in skills:
            meant = did_you_mean(given.skill_name, skills)
            end = f"; did you mean `{meant}`?" if meant else ""
            raise ToolPermanentError(f"there is no skill `{given.skill_name[:64]}`{end}")
        return {"loaded": given.skill_name, "description": skills[given.skill_name]}

    return OwnTool(LOAD_SKILL, "Load a skill: from the next turn on you can call it as a tool.", _Skill, load)


def history_tool(kernel: "AgentKernel", run_id: Callable[[], str]) -> OwnTool:
    """Return the tool that reads what is on record about the steps of a run."""

    async def query(given: _History) -> object:
        lines = await kernel.ledger.summaries(run_id(), given.summary_type, given.limit)
        found: list[object] = []
        for line in lines:
            event = decode(line)
            said = event.payload
            if isinstance(said, RunSummary):
                found.append(
                    {
                        "seq": event.seq,
                        "type": said.summary_type,
                        "step_key": said.step_key,
                        "summary": said.summary_json[:_LONGEST_SUMMARY],
                    }
                )
        return {"events": found}

    about = "Read what is on record about the earlier steps of this run, the newest first."
    return OwnTool("query_event_history", about, _History, query)
