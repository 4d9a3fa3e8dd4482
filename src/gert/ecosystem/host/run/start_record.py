"""What a run was started with, read back from its first event: resume, rerun, abandon and show all use this."""

from typing import Any, cast

import msgspec
from msgspec import field

from gert.ecosystem.host.run.options import ApprovalMode
from gert.errors import UsageError
from gert.kernel.engine.frame import Recent
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.runbook import RunStart, Start
from gert.kernel.events.vocabulary import RunMode


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a run, and how it was started.

    trace: the file of its mirror
    working: the folder its tools run in
    state_dir: where its tickets are
    started: when it began, for its timeout
    documents: the digest of every document it was started with, by path
    inputs: without those that are secret; they are found again, and never written
    recent: what was executed in the hour before it, so that driven again it is decided the same
    """

    run_id: str
    runbook: str
    file: str
    runbook_hash: str
    mode: RunMode
    actor: str
    host: str
    gert_version: str
    working: str
    started: str
    state_dir: str | None = None
    trace: str | None = None
    documents: dict[str, str] = field(default_factory=dict)
    tool_hashes: dict[str, str] = field(default_factory=dict)
    policy_hashes: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    parent_run_id: str | None = None
    input_sources: dict[str, str] = field(default_factory=dict)
    secret_inputs: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    config: str | None = None
    evidence: str | None = None
    approvals: ApprovalMode = "terminal"
    break_glass: str | None = None
    max_parallel: int = 16
    timeout: float | None = None
    recent: Recent | None = None
    start: Start | None = None


def state_of(event: Envelope) -> RunState:
    """What a run was started with; UsageError where its first event does not say."""
    said = event.payload
    if not isinstance(said, RunStart) or said.start is None:
        raise UsageError(f"run `{event.run_id}` does not say how it was started", hint="run it with `gert exec`")
    start = said.start
    secret = frozenset(start.secret_inputs)
    return RunState(
        run_id=event.run_id,
        runbook=said.runbook,
        file=start.file,
        runbook_hash=said.runbook_hash,
        mode=said.mode,
        actor=said.actor,
        host=said.host,
        gert_version=said.gert_version,
        working=start.working,
        started=event.timestamp,
        state_dir=start.state_dir,
        trace=start.trace,
        documents=start.documents,
        tool_hashes=start.tools,
        policy_hashes=said.policy_hashes,
        inputs={name: value for name, value in said.inputs.items() if name not in secret},
        parent_run_id=said.parent_run_id,
        input_sources=said.input_sources,
        secret_inputs=start.secret_inputs,
        policies=start.policies,
        config=start.config,
        evidence=start.evidence,
        approvals=cast("ApprovalMode", start.approvals),
        break_glass=start.break_glass,
        max_parallel=start.max_parallel,
        timeout=start.timeout,
        recent=None if start.recent is None else msgspec.convert(start.recent, Recent),
        start=start,
    )
