"""A handle on one run that adds its id and tenant to every call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.steps.tools import Arguments
from gert.kernel.agent.types.api import (
    ModelInput,
    PauseTicket,
    ResumePoint,
    RunLease,
    RunProgress,
    RunRef,
    RunStatus,
    StepModelResult,
    StepToolResult,
    TenantContext,
)
from gert.kernel.agent.types.payloads import KernelEvent
from gert.kernel.foundation.arguments import checks_arguments

if TYPE_CHECKING:
    from gert.kernel.agent.api.kernel import AgentKernel


@checks_arguments
class BoundRun:
    """One run of one tenant; further keywords are passed to the kernel's method."""

    def __init__(self, kernel: "AgentKernel", run_id: str, tenant: TenantContext) -> None:
        self.kernel = kernel
        self.run_id = run_id
        self.tenant = tenant

    async def model(
        self, model: str, asked: str | ModelInput | Sequence[ChatMessage], output_schema: type[OutputT], **more: Any
    ) -> StepModelResult[OutputT]:
        """Call a model with a prompt or the messages of a conversation."""
        if isinstance(asked, str):
            given = ModelInput.from_prompt(asked)
        else:
            given = asked if isinstance(asked, ModelInput) else ModelInput.from_messages(asked)
        return await self.kernel.step_model(
            run_id=self.run_id, tenant=self.tenant, model=model, input=given, output_schema=output_schema, **more
        )

    async def tool(self, tool_name: str, arguments: Arguments, **more: Any) -> StepToolResult:
        """Call a tool."""
        return await self.kernel.step_tool(
            run_id=self.run_id, tenant=self.tenant, tool_name=tool_name, arguments=arguments, **more
        )

    async def reconcile(self, tool_name: str, arguments: Arguments, **more: Any) -> str:
        """Reconcile a tool call of unknown outcome."""
        return await self.kernel.reconcile_tool(
            run_id=self.run_id, tenant=self.tenant, tool_name=tool_name, arguments=arguments, **more
        )

    async def read(self, source: str, step_key: str, look: Callable[[], Awaitable[str]]) -> str:
        """Read from outside the run, once."""
        return await self.kernel.read_context(
            run_id=self.run_id, tenant=self.tenant, source=source, step_key=step_key, look=look
        )

    async def checkpoint(self, name: str, payload: object, **more: Any) -> int:
        """Record a checkpoint."""
        return await self.kernel.checkpoint(run_id=self.run_id, tenant=self.tenant, name=name, payload=payload, **more)

    async def set_artifact(self, key: str, value: object, **more: Any) -> int:
        """Record a value under a key."""
        return await self.kernel.set_artifact(run_id=self.run_id, tenant=self.tenant, key=key, value=value, **more)

    async def get_artifact(self, key: str) -> object | None:
        """Return the newest value under a key."""
        return await self.kernel.get_artifact(run_id=self.run_id, key=key, tenant=self.tenant)

    async def pause(self, reason: str, context: BaseModel | None = None) -> PauseTicket:
        """Pause the run."""
        return await self.kernel.pause(run_id=self.run_id, tenant=self.tenant, reason=reason, context=context)

    async def resume(self, human_input: BaseModel | None = None) -> RunRef:
        """Resume the run."""
        return await self.kernel.resume(run_id=self.run_id, tenant=self.tenant, human_input=human_input)

    async def block(
        self, reason: str, unblock_key: str | None = None, metadata: Mapping[str, object] | None = None
    ) -> PauseTicket:
        """Block the run."""
        return await self.kernel.block_run(
            run_id=self.run_id, tenant=self.tenant, reason=reason, unblock_key=unblock_key, metadata=metadata
        )

    async def unblock(self, unblock_key: str | None = None) -> RunRef:
        """End the blocks with this key."""
        return await self.kernel.unblock_run(run_id=self.run_id, tenant=self.tenant, unblock_key=unblock_key)

    async def status(self) -> RunStatus:
        """Return the status of the run."""
        return await self.kernel.get_run_status(run_id=self.run_id, tenant=self.tenant)

    async def progress(self) -> RunProgress:
        """Return the progress of the run."""
        return await self.kernel.get_run_progress(run_id=self.run_id, tenant=self.tenant)

    async def resume_point(self) -> ResumePoint:
        """Return where the run resumes."""
        return await self.kernel.resume_point(run_id=self.run_id, tenant=self.tenant)

    async def events(self) -> tuple[KernelEvent, ...]:
        """Return every event of the run."""
        return await self.kernel.get_events(run_id=self.run_id, tenant=self.tenant)

    async def acquire_lease(self, worker_id: str, ttl_seconds: int) -> bool:
        """Acquire the lease of the run."""
        return await self.kernel.acquire_run_lease(
            run_id=self.run_id, worker_id=worker_id, ttl_seconds=ttl_seconds, tenant=self.tenant
        )

    async def renew_lease(self, worker_id: str, ttl_seconds: int) -> bool:
        """Renew the lease of the run."""
        return await self.kernel.renew_run_lease(
            run_id=self.run_id, worker_id=worker_id, ttl_seconds=ttl_seconds, tenant=self.tenant
        )

    async def release_lease(self, worker_id: str) -> bool:
        """Release the lease of the run."""
        return await self.kernel.release_run_lease(run_id=self.run_id, worker_id=worker_id, tenant=self.tenant)

    async def lease(self) -> RunLease | None:
        """Return the current lease of the run."""
        return await self.kernel.get_run_lease(run_id=self.run_id, tenant=self.tenant)
