"""What every store checks before it writes: each line is the event its place says, and fits on one line."""

from collections.abc import Sequence
from itertools import repeat
from operator import contains
from typing import Final

import msgspec

from gert.errors import TraceError
from gert.kernel.events.envelope import MAX_LINE_BYTES
from gert.kernel.foundation.names import is_safe_name

MAX_ANSWER_BYTES: Final = 4 * MAX_LINE_BYTES
"""An answer holds what a tool printed beside what was extracted from it, so it may be larger than an event."""


class Columns(msgspec.Struct, frozen=True):
    """What a store may know of an event; the rest of the line is skipped, not read."""

    seq: int
    run_id: str
    type: str
    timestamp: str


_COLUMNS: Final = msgspec.json.Decoder(Columns)


def check_batch(run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes]) -> None:
    """Refuse lines that could not be read back as what they are."""
    for answer in answers:
        if not answer or b"\n" in answer:
            raise TraceError("an answer is one line of JSON without its line break")
        if len(answer) > MAX_ANSWER_BYTES:
            raise TraceError(f"an answer is too large: expected at most {MAX_ANSWER_BYTES} bytes, found {len(answer)}")
    if not _are_ours(run_id, first_seq, events):
        for seq, line in enumerate(events, start=first_seq):
            _check_event(run_id, seq, line)


def _are_ours(run_id: str, first_seq: int, events: Sequence[bytes]) -> bool:
    """Whether lines begin and end as all lines of ours: reading each of them back would cost more than writing it."""
    if len(events) == 1:
        [line] = events
        begin = b'{"seq":%d,"run_id":"%b","type":"' % (first_seq, run_id.encode())
        return line.startswith(begin) and line.endswith(b"}}") and b"\n" not in line and len(line) <= MAX_LINE_BYTES
    begins = b'{"seq":%%d,"run_id":"%b","type":"' % run_id.encode().replace(b"%", b"%%")
    starts = [begins % seq for seq in range(first_seq, first_seq + len(events))]
    return (
        all(map(bytes.startswith, events, starts))
        and all(map(bytes.endswith, events, repeat(b"}}")))
        and not any(map(contains, events, repeat(b"\n")))
        and max(map(len, events), default=0) <= MAX_LINE_BYTES
    )


def check_next(run_id: str, last_seq: int, first_seq: int) -> None:
    """Refuse a number that is taken, and one that leaves a gap."""
    if first_seq <= last_seq:
        raise TraceError(
            f"event {first_seq} of run `{run_id}` is written already",
            hint="another process may be writing the same run",
        )
    if first_seq != last_seq + 1:
        raise TraceError(f"expected event {last_seq + 1} of run `{run_id}`, found {first_seq}")
    if last_seq == 0 and not is_safe_name(run_id):
        raise TraceError(f"`{run_id}` is not a run id")


def columns_of(line: bytes) -> Columns:
    """What a line says it is; for stores that look events up by it."""
    return _COLUMNS.decode(line)


def _check_event(run_id: str, seq: int, line: bytes) -> None:
    if b"\n" in line:
        raise TraceError(f"event {seq} has a line break in it")
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(f"event {seq} is too large: expected at most {MAX_LINE_BYTES} bytes, found {len(line)}")
    try:
        columns = _COLUMNS.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TraceError(f"event {seq} cannot be read back as an event") from None
    if (columns.seq, columns.run_id) != (seq, run_id):
        found = f"event {columns.seq} of run `{columns.run_id}`"
        raise TraceError(f"expected event {seq} of run `{run_id}`, found {found}")
