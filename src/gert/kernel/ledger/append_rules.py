"""The rules of an append, for every ledger: whether a batch follows the head, and the calls it opens and ends."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gert.errors import TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES
from gert.kernel.ledger.limits import check_call, check_name
from gert.kernel.ledger.record import HOLDING, Batch, Call, CallEnd, Head, ended

MAX_ANSWER_BYTES: Final = 4 * MAX_LINE_BYTES
"""An answer holds what a tool printed beside what was extracted from it, so it may be larger than an event."""


class _Columns(msgspec.Struct, frozen=True):
    """What a ledger checks of a line; the rest is skipped, not read."""

    seq: int
    run_id: str
    type: str
    timestamp: str


_COLUMNS: Final = msgspec.json.Decoder(_Columns)


def check_follows(head: Head, batch: Batch) -> None:
    """Refuse a batch that does not follow the head: TraceError; or names that cannot be looked up: InputError."""
    after = batch.head
    counts = (head.count + len(batch.events), head.answers + len(batch.answers))
    if (after.count, after.answers) != counts or after.run_id != head.run_id:
        raise TraceError(f"the batch does not follow event {head.count} of run `{head.run_id}`")
    if not batch.events and (batch.calls or batch.ends or batch.tickets or batch.ticket_ends or batch.responses):
        raise TraceError(f"the batch for run `{head.run_id}` has calls or tickets and no events")
    if head.count and (after.tenant, after.kind) != (head.tenant, head.kind):
        raise TraceError(f"the batch changes the kind or the tenant of run `{head.run_id}`")
    check_name("tenant", after.tenant)
    for call in batch.calls:
        check_call(call)
    for answer in batch.answers:
        _check_answer(answer)
    _check_lines(head, batch)


def _check_lines(head: Head, batch: Batch) -> None:
    name, seq = head.run_id.encode(), head.count
    for number, kind, _, summary_type, line in batch.events:
        seq += 1
        if summary_type is not None:
            check_name("summary type", summary_type)
        # All lines that gert writes begin and end like this; any other is decoded to find out.
        begins = b'{"seq":%d,"run_id":"%b","type":"%b",' % (seq, name, kind.encode())
        is_ours = line[: len(begins)] == begins and line[-2:] == b"}}"
        if number != seq or b"\n" in line or len(line) > MAX_LINE_BYTES or not (is_ours or _is(line, seq, head, kind)):
            raise TraceError(f"event {seq} of run `{head.run_id}` is not the event its number says, or is too large")


def _is(line: bytes, seq: int, head: Head, kind: str) -> bool:
    try:
        found = _COLUMNS.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return (found.seq, found.run_id, found.type) == (seq, head.run_id, kind)


def _check_answer(answer: bytes) -> None:
    if not answer or b"\n" in answer:
        raise TraceError("an answer is one line of JSON without its line break")
    if len(answer) > MAX_ANSWER_BYTES:
        raise TraceError(f"an answer is too large: expected at most {MAX_ANSWER_BYTES} bytes, found {len(answer)}")


def final_calls(batch: Batch) -> tuple[Sequence[Call], Sequence[CallEnd]]:
    """The new calls with their ends in the same batch applied, and the ends of earlier calls."""
    if not (batch.calls and batch.ends):
        return batch.calls, batch.ends
    calls = {call.seq: call for call in batch.calls}
    before = [end for end in batch.ends if end.seq not in calls]
    for end in batch.ends:
        if end.seq in calls:
            calls[end.seq] = ended(calls[end.seq], end)
    return list(calls.values()), before


def rival(
    run_id: str, calls: Sequence[Call], ends: Sequence[CallEnd], holders: Callable[[Call], Iterable[Call]]
) -> Call | None:
    """The call that prevents one of the new ones: it holds the same semantic key, and still does after the batch.

    holders: all calls that may have happened and have the same semantic key; there are several where one turned out
        to have happened after another was made
    """
    freed = {end.seq for end in ends if end.outcome is not None and end.outcome not in HOLDING}
    taken: dict[tuple[str, str, str | None], Call] = {}
    for call in calls:
        if not call.held:
            continue
        other = taken.setdefault((call.tenant, call.name, call.semantic_key), call)
        if other is not call:
            return other
        for kept in holders(call):
            if not (kept.run_id == run_id and kept.seq in freed):
                return kept
    return None
