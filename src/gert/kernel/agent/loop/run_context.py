"""The context of one run of an agent: its tools, memory and skills, and the messages built from them."""

from collections.abc import Mapping

import msgspec

from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.loop.agent_tools import LOAD_SKILL, MEMORY_WRITES, RunMemory, history_tool, skill_tool
from gert.kernel.agent.loop.context import ContextBuilder, Look, reading_with
from gert.kernel.agent.loop.memory import MemoryStore
from gert.kernel.agent.loop.own_tools import AgentTools
from gert.kernel.agent.loop.tool_round import CallReply
from gert.kernel.agent.ports.model import ToolCall
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, loads


class RunContext:
    """What a model sees of a run beside its conversation; everything read from outside is on record."""

    def __init__(
        self,
        kernel: AgentKernel,
        builder: ContextBuilder,
        memory_store: MemoryStore | None,
        tenant: TenantContext,
        run_id: str,
        system_prompt: str,
        prefix: str,
    ) -> None:
        self.run_id = run_id
        self._kernel = kernel
        self._builder = builder
        self._tenant = tenant
        self._system_prompt = system_prompt
        self._prefix = prefix
        self._memory = None if memory_store is None else RunMemory(memory_store, run_id)
        self._skills: Mapping[str, str] = {}
        self._active: set[str] = set()
        self._own: frozenset[str] = frozenset()

    async def open(self) -> AgentKernel:
        """Read the memory and the list of skills, and return the kernel with the agent's own tools."""
        tools = [history_tool(self._kernel, lambda: self.run_id)]
        if self._memory is not None:
            self._memory.text = await self.read("memory", self._memory.load)
            tools += self._memory.tools()
        if self._builder.progressive_skills:
            # Recorded: a deployment that registers one more tool does not change runs in flight.
            self._skills = msgspec.json.decode(await self.read("skills", self._list_skills), type=dict[str, str])
            tools += [skill_tool(self._skills)] if self._skills else []
        mine = AgentTools(self._kernel.tools, {tool.name: tool for tool in tools})
        self._own = mine.own_names
        self._kernel = self._kernel.with_tools(mine)
        return self._kernel

    @property
    def visible(self) -> set[str] | None:
        """Return the tools that a turn offers; None for all."""
        return {*self._own, *self._active} if self._builder.progressive_skills else None

    async def messages(self, turn: int, history: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
        """Build the messages of a turn."""
        left = {name: about for name, about in self._skills.items() if name not in self._active}
        memory = None if self._memory is None else self._memory.text
        built = self._builder.build_messages

        async def build() -> tuple[ChatMessage, ...]:
            with reading_with(self.read):
                return await built(
                    run_id=self.run_id,
                    tenant=self._tenant,
                    short_term_messages=history,
                    system_prompt=self._system_prompt,
                    active_skills=frozenset(self._active),
                    available_skill_summaries=left if self._builder.progressive_skills else None,
                    memory_text=memory,
                )

        if type(self._builder).build_messages is ContextBuilder.build_messages:
            return await build()
        # A builder of the caller's own may read anything: what it built is recorded, for what it was built from.
        given = [self._system_prompt, memory, sorted(self._active), left, [_plain(message) for message in history]]
        named = sha256_hex(canonical_json_dumps(given).encode())[:12]

        async def look() -> str:
            return canonical_json_dumps([_plain(message) for message in await build()])

        text = await self.read(f"turn_{turn}_{named}", look)
        return tuple(ChatMessage.model_validate(each) for each in msgspec.json.decode(text))

    async def called(self, key: str, call: ToolCall, reply: CallReply) -> None:
        """Take in what a tool call changed: a loaded skill, or the memory, which is read again."""
        if call.tool_name in self._skills:
            # A skill that is called without being loaded is in use as well.
            self._active.add(call.tool_name)
        if not reply.succeeded or call.tool_name not in self._own:
            return
        if call.tool_name == LOAD_SKILL:
            found = loads(reply.text)
            self._active.update({found["loaded"]} & self._skills.keys() if isinstance(found, dict) else ())
        elif call.tool_name in MEMORY_WRITES and self._memory is not None:
            self._memory.text = await self._read_once("memory", key, self._memory.load)

    async def read(self, source: str, look: Look) -> str:
        """Read a source once in the run."""
        return await self._read_once(source, f"{self._prefix}context_{source}", look)

    async def _read_once(self, source: str, key: str, look: Look) -> str:
        return await self._kernel.read_context(
            run_id=self.run_id, tenant=self._tenant, source=source, step_key=key, look=look
        )

    async def _list_skills(self) -> str:
        tools = self._kernel.list_tools_for_tenant(tenant=self._tenant)
        return canonical_json_dumps({tool.name: tool.description.partition("\n")[0] for tool in tools})


def _plain(message: ChatMessage) -> object:
    return message.model_dump(mode="json", exclude_none=True)
