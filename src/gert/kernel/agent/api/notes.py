"""Summaries, checkpoints and artifacts of a run, and the context its agent read."""

from collections.abc import Awaitable, Callable

import msgspec

from gert.errors import InputError, ReplayConsistencyError
from gert.kernel.agent.replay.run_log import RunLog
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.agent.types.payload_models import RunSummaryPayload
from gert.kernel.agent.types.serde import plain_value
from gert.kernel.events.agent import ContextRead, RunSummary
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.ledger.agent_fold import TASK_PROGRESS, read_units
from gert.kernel.ledger.build_batch import Entry
from gert.kernel.ledger.projection import key_of
from gert.kernel.ledger.record import Expect, Written

ARTIFACT = "artifact::"
CHECKPOINT = "checkpoint::"


class Notes:
    """Records and finds the notes of runs."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    async def summarize(
        self,
        run_id: str,
        tenant: TenantContext,
        summary_type: str,
        summary_json: str,
        step_key: str | None,
        parent_step_key: str | None,
    ) -> int:
        """Record a summary and return the number of its event."""
        if not summary_type.strip():
            raise InputError("a summary needs a type")
        _checked(summary_json, summary_type)
        if summary_type == TASK_PROGRESS and read_units(summary_json) is None:
            raise InputError('expected tasks such as {"units":[{"id":"deploy","state":"pending"}]}')
        payload = RunSummary(summary_type=summary_type, summary_json=summary_json, step_key=step_key)
        written = await self._log.append(run_id, tenant.tenant_id, (Entry(payload, parent_step_key),))
        return written.last

    async def latest(
        self, run_id: str, summary_type: str, tenant: TenantContext | None = None
    ) -> RunSummaryPayload | None:
        """Return the newest summary of a type."""
        if tenant is not None:
            await self._log.head(run_id, tenant)
        line = await self._log.ledger.summary(run_id, summary_type)
        if line is None:
            # An unknown run is an error; a run without such a summary is not.
            await self._log.head(run_id)
            return None
        payload = _summary(line)
        return RunSummaryPayload(
            summary_type=payload.summary_type, summary_json=payload.summary_json, step_key=payload.step_key
        )

    async def artifact(self, run_id: str, key: str, tenant: TenantContext | None = None) -> object | None:
        """Return the newest value of an artifact."""
        found = await self.latest(run_id, ARTIFACT + key, tenant)
        return None if found is None else _value(found.summary_json)

    async def artifacts(self, run_id: str, tenant: TenantContext | None = None) -> dict[str, object]:
        """Return the newest value of every artifact, by key."""
        await self._log.head(run_id, tenant)
        lines = await self._log.ledger.latest_summaries(run_id, ARTIFACT)
        payloads = [_summary(line) for line in lines]
        return {each.summary_type.removeprefix(ARTIFACT): _value(each.summary_json) for each in payloads}

    async def recorded(self, run_id: str, tenant: TenantContext, step_key: str) -> str | None:
        """Return what was read under a step key; None if nothing was."""
        calls = await self._log.calls(run_id, tenant.tenant_id, "read", step_key, "")
        return (await self._log.payload(run_id, calls[0].seq, ContextRead)).content if calls else None

    async def read(
        self,
        run_id: str,
        tenant: TenantContext,
        source: str,
        step_key: str,
        look: Callable[[], Awaitable[str]],
        parent_step_key: str | None,
    ) -> str:
        """Read from outside the run once; a replay returns the recorded content."""
        while True:
            calls = await self._log.calls(run_id, tenant.tenant_id, "read", step_key, "")
            if calls and calls[0].name != source:
                raise ReplayConsistencyError(
                    f"step `{step_key}` was recorded with another source, `{calls[0].name}`",
                    drift_fields=("source",),
                    hint="use another step key",
                )
            if calls:
                return (await self._log.payload(run_id, calls[0].seq, ContextRead)).content
            content = await look()
            payload = ContextRead(source=source, step_key=step_key, content=content)
            expect = Expect(key_of("read", step_key, ""), 0)
            entry = Entry(payload, parent_step_key)
            written = await self._log.write(run_id, tenant.tenant_id, (entry,), expect=expect, step=True)
            if isinstance(written, Written):
                return content


def as_json(value: object) -> str:
    """Return a value as canonical JSON; InputError if it has no JSON form."""
    return canonical_json_dumps(plain_value(value))


def artifact_json(value: object, schema_version: str | None) -> str:
    """Return the JSON envelope of an artifact."""
    held: dict[str, object] = {"value": plain_value(value)}
    if schema_version is not None:
        held["schema_version"] = schema_version
    return canonical_json_dumps(held)


def _summary(line: bytes) -> RunSummary:
    payload = decode(line).payload
    if not isinstance(payload, RunSummary):
        raise InputError(f"expected a `run_summary` in the ledger, found `{payload.type}`")
    return payload


def _checked(text: str, what: str) -> None:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"the summary `{what}` is not JSON: {error}") from None


def _value(text: str) -> object | None:
    held = msgspec.json.decode(text)
    return held.get("value") if isinstance(held, dict) else held
