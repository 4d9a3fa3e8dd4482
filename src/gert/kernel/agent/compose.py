"""From what is to be said to what a ledger writes: lines, the index of calls, and the end of the run after them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from gert.errors import RunError, TraceError
from gert.kernel.agent.ledger import Batch, Call, CallKind, End, Head, Row
from gert.kernel.agent.snapshot import Snapshot, fold
from gert.kernel.events.agent import (
    ContextRead,
    ModelCompleted,
    ModelFailed,
    ModelRequested,
    PauseRequested,
    ReplayedWithDrift,
    ResumeRequested,
    RunSummary,
    ToolCompleted,
    ToolRequested,
    WorkflowStepCompleted,
    WorkflowStepFailed,
    WorkflowStepRequested,
)
from gert.kernel.events.envelope import MAX_LINE_BYTES, encode_payload
from gert.kernel.events.payload import Payload, plain, said
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.names import is_run_id

ROOM = 64 * 1024
"""Bytes of a line that are kept for what stands around a payload."""


class Entry(NamedTuple):
    """An event to be written, and the step it belongs to."""

    payload: Payload
    parent_step_key: str | None = None


def compose(head: Head, moment: str, tenant: str, entries: Sequence[Entry]) -> Batch:
    """Number, chain, fold and index events at the end of a run."""
    if not head.count and not is_run_id(head.run_id):
        raise RunError(f"`{head.run_id}` is not a run id", hint="letters, digits and ._:@+=~- only")
    require_agent_run(head, tenant)
    rows: list[Row] = []
    calls: list[Call] = []
    ends: list[End] = []
    seq, chain, snapshot = head.count, head.hash, head.snapshot or Snapshot()
    for payload, path in entries:
        seq += 1
        line = _line(payload, seq, head.run_id, moment, path, chain, tenant)
        chain = sha256_hex(line)
        summary_type = payload.summary_type if isinstance(payload, RunSummary) else None
        rows.append(Row(seq, payload.type, moment, summary_type, line))
        snapshot = fold(snapshot, payload, seq)
        kind = type(payload)
        if kind in _OPENS and (opened := opened_by(payload, seq, head.run_id, tenant, moment)) is not None:
            calls.append(opened)
        if kind in _ENDS:
            ends.extend(ended_by(payload, seq))
    after = Head(head.run_id, tenant, seq, chain, snapshot, head.started_at or moment, moment)
    return Batch(after, rows, calls, ends)


def require_agent_run(head: Head, tenant: str | None = None) -> None:
    """Refuse a run of another kind, which has a seal of its own, and one of another tenant: RunError."""
    if head.count and head.snapshot is None:
        raise RunError(f"run `{head.run_id}` is not an agent run", hint="`gert run show` tells what it is")
    if tenant is not None and head.tenant is not None and head.tenant != tenant:
        raise RunError(f"run `{head.run_id}` belongs to another tenant")


def key_of(kind: CallKind, step_key: str | None, input_hash: str) -> str:
    """What a request is found by: its step key, or what it asks."""
    return f"{kind}:{step_key}" if step_key is not None else f"{kind}#{input_hash}"


def tool_hash(tool_name: str, arguments_json: str) -> str:
    """The hash of a tool call: which tool, and its canonical arguments."""
    return sha256_hex(msgspec.json.encode((tool_name, arguments_json)))


def idempotency_key(run_id: str, tool_name: str, seq: int) -> str:
    """The key a tool is handed, from the number of the `tool_requested` itself."""
    return sha256_hex(f"{run_id}:{tool_name}:{seq}".encode())


def opened_by(payload: Payload, seq: int, run_id: str, tenant: str, moment: str) -> Call | None:
    """The request an event makes, if it makes one."""
    make = _OPENS.get(type(payload))
    if make is None:
        return None
    kind, step_key, name, input_hash, semantic_key = make(payload)
    key = key_of(kind, step_key, input_hash)
    call = Call(run_id, seq, kind, key, name, tenant, moment, input_hash, semantic_key)
    # What was read is known at once: it is asked and answered by one event.
    return msgspec.structs.replace(call, outcome="success", done_seq=seq) if kind == "read" else call


def ended_by(payload: Payload, seq: int) -> Sequence[End]:
    """What an event says about requests made before."""
    make = _ENDS.get(type(payload))
    return () if make is None else make(payload, seq)


def event_id(run_id: str, seq: int) -> str:
    """The id of an event: nobody else can have it, and everybody finds the event by it."""
    return f"{run_id}#{seq}"


def seq_of(event: str) -> int:
    """The number in the id of an event."""
    number = event.rpartition("#")[2]
    if not number.isdecimal():
        raise TraceError(f"`{event}` is not the id of an event")
    return int(number)


_Opens = tuple[CallKind, str | None, str, str, str | None]


def _opens_model(said: ModelRequested) -> _Opens:
    return "model", said.step_key, said.model, said.input_hash, None


def _opens_tool(said: ToolRequested) -> _Opens:
    hashed = said.input_hash or tool_hash(said.tool_name, said.arguments_json)
    return "tool", said.step_key, said.tool_name, hashed, said.semantic_idempotency_key


def _opens_workflow(said: WorkflowStepRequested) -> _Opens:
    step_key = said.step_key if said.step_key is not None else str(said.step_index)
    return "workflow", step_key, said.step_name, "", None


def _opens_read(said: ContextRead) -> _Opens:
    return "read", said.step_key, said.source, "", None


def _opens_pause(said: PauseRequested) -> _Opens:
    return "pause", said.step_key, said.reason, "", None


_OPENS: Mapping[type[Payload], Callable[[Any], _Opens]] = {
    ModelRequested: _opens_model,
    ToolRequested: _opens_tool,
    WorkflowStepRequested: _opens_workflow,
    ContextRead: _opens_read,
    PauseRequested: _opens_pause,
}


def _ends_tool(said: ToolCompleted, seq: int) -> Sequence[End]:
    return (End(said.request_seq, said.outcome, seq, None),)


def _ends_well(said: ModelCompleted | WorkflowStepCompleted, seq: int) -> Sequence[End]:
    return (End(said.request_seq, "success", seq, None),)


def _ends_badly(said: ModelFailed | WorkflowStepFailed, seq: int) -> Sequence[End]:
    return (End(said.request_seq, said.reason, seq, None),)


def _ends_pauses(said: ResumeRequested, seq: int) -> Sequence[End]:
    return tuple(End(pause, "success", seq, None) for pause in said.pause_seqs)


def _notes_drift(said: ReplayedWithDrift, _: int) -> Sequence[End]:
    return (End(seq_of(said.source_model_requested_event_id), None, None, said.input_hash),)


_ENDS: Mapping[type[Payload], Callable[[Any, int], Sequence[End]]] = {
    ToolCompleted: _ends_tool,
    ModelCompleted: _ends_well,
    WorkflowStepCompleted: _ends_well,
    ModelFailed: _ends_badly,
    WorkflowStepFailed: _ends_badly,
    ResumeRequested: _ends_pauses,
    ReplayedWithDrift: _notes_drift,
}


def check_writable(payload: Payload) -> None:
    """Refuse an event nobody could read again, or that fits no line: TraceError.

    Nothing checks the fields of an event when it is made, and some of them come from ports, hooks and callers.
    """
    _written(payload)


@cache
def _decoder(kind: type[Payload]) -> "msgspec.json.Decoder[Payload]":
    return msgspec.json.Decoder(kind)


_encode = msgspec.json.Encoder(enc_hook=plain).encode


def _written(payload: Payload) -> bytes:
    """The data of an event as it stands in its line."""
    try:
        data = _encode(payload)
        again = _decoder(type(payload)).decode(data)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TraceError(f"the event `{payload.type}` cannot be written: {said(error)}") from error
    # What is no number is written as nothing.
    if again != payload:
        raise TraceError(f"the event `{payload.type}` cannot be written: it would be read as something else")
    if len(data) > MAX_LINE_BYTES - ROOM:
        raise TraceError(f"the event `{payload.type}` is too large: expected at most {MAX_LINE_BYTES - ROOM} bytes")
    return data


def _line(payload: Payload, seq: int, run_id: str, moment: str, path: str | None, prev_hash: str, tenant: str) -> bytes:
    data = msgspec.Raw(_written(payload))
    try:
        return encode_payload(payload, seq, run_id, moment, None, path, prev_hash, tenant, data)
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the event `{payload.type}` cannot be written: {said(error)}") from error
