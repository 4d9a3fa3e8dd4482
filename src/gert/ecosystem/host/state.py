"""The state of a run beside its record: everything a process needs to go on with it, checked by digest."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import field

from gert.ecosystem.host.options import ApprovalMode
from gert.errors import IntegrityError
from gert.kernel.engine.frame import Recent
from gert.kernel.events.vocabulary import RunMode
from gert.kernel.foundation.canonical import digest

STATE_VERSION: Final = 2
MAX_STATE_BYTES: Final = 64 * 1024 * 1024


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies a run, and how it was started.

    trace, db: where it is recorded: in a file, or in a database
    working: the folder its tools run in
    state_dir: where its tickets are
    started: when it began, for its timeout
    inputs: without those that are secret; they are found again, and never written
    recent: what was executed in the hour before it, so that driven again it is decided the same
    approval_key: HMACs of secret inputs in requests for approval are made with it; it is written nowhere else
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
    db: str | None = None
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
    approval_key: str = ""


def encode_state(state: RunState) -> bytes:
    """A state as it is written."""
    body = msgspec.to_builtins(state, enc_hook=str)
    document = {"version": STATE_VERSION, **body}
    return (
        msgspec.json.format(msgspec.json.encode({**document, "digest": _digest(document)}, enc_hook=str), indent=2)
        + b"\n"
    )


def decode_state(data: bytes, where: str) -> RunState:
    """Read a state; one that was changed or cut is refused."""
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IntegrityError(f"`{where}` is not the state of a run") from None
    if document.get("version") != STATE_VERSION:
        raise IntegrityError(
            f"`{where}` was written by another version of gert: expected version {STATE_VERSION},"
            f" found `{document.get('version')}`"
        )
    claimed = document.pop("digest", None)
    if claimed != _digest(document):
        raise IntegrityError(f"`{where}` was changed: its digest does not hold")
    document.pop("version")
    try:
        return msgspec.convert(document, RunState)
    except msgspec.ValidationError as problem:
        raise IntegrityError(f"`{where}` is not the state of a run: {problem}") from None


def _digest(document: Mapping[str, Any]) -> str:
    # Not canonical JSON: inputs may hold numbers that it has no form for, and nobody else has to make this digest.
    return digest(msgspec.json.encode(document, order="sorted", enc_hook=str))
