"""The record of an execution, written last: what was done, by whom, what was enforced, and the digests of artifacts."""

from typing import Any, Literal

import msgspec

from gert.errors import Refused
from gert.kernel.foundation.canonical import canonical
from gert.kernel.runner.plan import Plan

IsolationLevel = Literal["declared", "sandbox", "none"]
"""`declared`: the runner itself sends one declared request; `sandbox`: a program under bubblewrap; `none`: neither."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What separated the execution from the machine, in words: what was enforced, and what was not."""

    level: IsolationLevel
    enforced: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()


class ExecutionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's report to the kernel (runner-kernel interface v0.1).

    exit_code: see `docs/runners.md`; `rule` and `message` say why it is not 0
    requests: how many requests left the runner
    outputs: the declared outputs of the skill, without secrets
    hashes: `sha256:` of each artifact as it was written
    """

    plan_id: str
    plan_digest: str
    runner_id: str
    vendor: str
    skill_id: str
    scope: tuple[str, ...]
    secret_ref: str | None
    started_at: str
    ended_at: str
    exit_code: int
    isolation: Isolation
    request_artifact: str
    response_artifact: str
    log_artifact: str
    hashes: dict[str, str]
    host: str
    gert_version: str
    requests: int = 0
    outputs: dict[str, Any] = msgspec.field(default_factory=dict)
    rule: str | None = None
    message: str | None = None


def record_bytes(record: ExecutionRecord) -> bytes:
    """Return the bytes of the file of a record."""
    return canonical(msgspec.to_builtins(record))


def read_record(data: bytes, plan: Plan, plan_digest: str) -> ExecutionRecord:
    """Read the record of a plan; one of another plan is refused."""
    try:
        record = msgspec.json.decode(data, type=ExecutionRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refused("record/form", "the file is not the record of an execution") from None
    if (record.plan_id, record.plan_digest, record.runner_id) != (plan.plan_id, plan_digest, plan.runner_id):
        raise Refused("record/plan", "the record belongs to another plan")
    return record
