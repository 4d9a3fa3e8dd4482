"""What a harness notes in its run: summaries, artifacts and traces."""

from typing import Final

import msgspec

from gert.errors import HarnessStateError
from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.api.notes import ARTIFACT, artifact_json, as_json
from gert.kernel.agent.harness.scope import SCOPE, Scope, current_scope
from gert.kernel.agent.harness.types import HarnessContext, TraceLevel
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.arguments import checks_arguments
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps

LEVELS: Final = ("minimal", "stage", "verbose")


@checks_arguments
class HarnessNotes:
    """Reads and writes the notes of the run that is worked on, or of another one that is named.

    A note that repeats the newest one of its type under the same step key is not written again: work that is resumed
    passes the notes it wrote before.
    """

    def __init__(
        self, kernel: AgentKernel, tenant: TenantContext | None, default_model: str, trace_level: TraceLevel
    ) -> None:
        self._kernel = kernel
        self._tenant = tenant
        self._default_model = default_model
        self._trace_level: TraceLevel = trace_level

    @property
    def kernel(self) -> AgentKernel:
        """Return the kernel that this harness works with."""
        return self._kernel

    @property
    def tenant(self) -> TenantContext:
        """Return the tenant of the run that is worked on, or of the harness."""
        return self._tenant_of(None)

    async def emit_summary(
        self,
        *,
        run_id: str,
        tenant: TenantContext,
        summary_type: str,
        payload: object,
        step_key: str,
        parent_step_key: str | None = None,
    ) -> int:
        """Record a summary and return the number of its event; 0 if it is the newest of its type already."""
        return await self._note(run_id, tenant, summary_type, as_json(payload), step_key, parent_step_key)

    async def summary_payload(self, *, run_id: str, summary_type: str) -> object | None:
        """Return the newest summary of a type in a run."""
        found = await self._kernel.get_latest_run_summary(run_id=run_id, summary_type=summary_type)
        return None if found is None else msgspec.json.decode(found.summary_json)

    async def write_summary(
        self,
        summary_type: str,
        payload: object,
        *,
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
    ) -> int:
        """Record a summary in the run that is worked on."""
        return await self._note(
            self._run_of(run_id), self._tenant_of(tenant), summary_type, as_json(payload), step_key, None
        )

    async def read_summary(self, summary_type: str, *, run_id: str | None = None) -> object | None:
        """Return the newest summary of a type in the run that is worked on."""
        return await self.summary_payload(run_id=self._run_of(run_id), summary_type=summary_type)

    async def set_artifact(
        self,
        *,
        key: str,
        value: object,
        step_key: str | None = None,
        run_id: str | None = None,
        tenant: TenantContext | None = None,
    ) -> int:
        """Record a value under a key."""
        if not key.strip():
            raise HarnessStateError("an artifact needs a key")
        kind = ARTIFACT + key
        return await self._note(
            self._run_of(run_id), self._tenant_of(tenant), kind, artifact_json(value, None), step_key, None
        )

    async def get_artifact(self, *, key: str, run_id: str | None = None) -> object | None:
        """Return the newest value under a key."""
        return await self._kernel.get_artifact(run_id=self._run_of(run_id), key=key)

    async def _note(
        self, run_id: str, tenant: TenantContext, kind: str, text: str, step_key: str | None, parent: str | None
    ) -> int:
        newest = await self._kernel.get_latest_run_summary(run_id=run_id, summary_type=kind)
        if newest is not None and (newest.summary_json, newest.step_key) == (text, step_key):
            return 0
        return await self._kernel.append_run_summary(
            run_id=run_id,
            tenant=tenant,
            summary_type=kind,
            summary_json=text,
            step_key=step_key,
            parent_step_key=parent,
        )

    async def _trace(
        self, level: TraceLevel, run_id: str, tenant: TenantContext, kind: str, facts: dict[str, object], key: str
    ) -> None:
        """Note something that is traced from a level on."""
        scope = current_scope()
        chosen = self._trace_level if scope is None else scope.trace_level
        if LEVELS.index(chosen) >= LEVELS.index(level):
            await self._note(run_id, tenant, f"trace::{kind}", canonical_json_dumps(facts), key, None)

    def _run_of(self, run_id: str | None) -> str:
        scope = current_scope()
        if run_id is not None:
            return run_id
        if scope is None:
            raise HarnessStateError("no run is worked on", hint="pass `run_id`, or call this inside `run`")
        return scope.context.run_id

    def _tenant_of(self, tenant: TenantContext | None) -> TenantContext:
        scope = current_scope()
        found = tenant or (None if scope is None else scope.context.tenant) or self._tenant
        if found is None:
            raise HarnessStateError("the harness has no tenant", hint="pass `tenant` to it, or to `run`")
        return found

    def _scope(self, run_id: str | None, tenant: TenantContext | None) -> Scope:
        """Return the scope of the current work; outside of it, every call has one of its own."""
        scope = current_scope()
        if scope is not None and run_id in (None, scope.context.run_id):
            return scope
        context = HarnessContext(self._run_of(run_id), self._tenant_of(tenant), self._default_model, run_created=False)
        return Scope(context, self._trace_level, SCOPE)
