from collections.abc import Iterable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.events.traces import Chain, stamped, trace

from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS, MAX_BREAKS, ChainReader, ChainReport, read_chain
from gert.kernel.events.envelope import decode, encode
from gert.kernel.foundation.canonical import sha256_hex

LINES = trace()


def kinds(report: ChainReport) -> list[tuple[int, str]]:
    return [(found.line, found.kind) for found in report.breaks]


def webhook(lines: list[bytes]) -> bytes:
    chain = Chain(sha256_hex(lines[-1]), len(lines))
    return encode(stamped(chain, says.WebhookSent(url="https://example.com", delivered=True, attempts=1)))


def test_a_whole_trace_is_intact_and_complete() -> None:
    report = read_chain(LINES)
    assert report.intact
    assert report.complete
    assert (report.events, report.run_id, report.torn) == (6, "run-2026-02-28-001", None)
    assert report.head == sha256_hex(LINES[-1])
    assert report.completion is not None
    assert report.completion.head == sha256_hex(LINES[-2])


def test_line_breaks_are_not_part_of_a_line() -> None:
    assert read_chain(line + b"\n" for line in LINES) == read_chain(LINES)


def test_a_chain_that_is_written_knows_what_comes_next() -> None:
    chain = Chain()
    assert (chain.head, chain.count + 1) == (GENESIS, 1)
    for line in LINES:
        chain.append(line)
    assert (chain.head, chain.count + 1) == (read_chain(LINES).head, 7)


def test_the_short_genesis_is_accepted_at_the_start_only() -> None:
    short = [LINES[0].replace(GENESIS.encode(), b"0" * 16)]
    assert read_chain(short).intact
    later = [LINES[0], LINES[1].replace(sha256_hex(LINES[0]).encode(), b"0" * 16)]
    assert kinds(read_chain(later)) == [(2, "prev_hash")]


def test_a_trace_by_others_need_not_number_its_events() -> None:
    lines: list[bytes] = []
    for line in LINES:
        unnumbered = b"{" + line.partition(b",")[2]
        if lines:
            old = line.partition(b'"prev_hash":"')[2][:64]
            unnumbered = unnumbered.replace(old, sha256_hex(lines[-1]).encode(), 1)
        lines.append(unnumbered)
    assert read_chain(lines).intact


def told(lines: Iterable[bytes]) -> ChainReport:
    """The report of a reader that was told the type of each event, as a ledger tells it."""
    reader = ChainReader()
    for line in lines:
        reader.add(line, line.partition(b'"type":"')[2].partition(b'"')[0].decode())
    return reader.report()


@pytest.mark.parametrize("type_name", ["", "run_start", "step_start", "no such type"])
def test_the_type_that_a_reader_is_told_decides_nothing(type_name: str) -> None:
    reader = ChainReader()
    events = [reader.add(line, type_name) for line in LINES]
    assert reader.report() == read_chain(LINES) == told(LINES)
    assert [event.payload for event in events if event is not None] == [decode(line).payload for line in LINES]


def test_nothing_is_not_intact() -> None:
    report = read_chain([])
    assert not report.intact
    assert not report.complete
    assert report.head == GENESIS


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        pytest.param(b'"step_id":', b'"step_id":"x","step_id":', "`step_id` occurs twice", id="a key twice"),
        pytest.param(b'"type":', b'"type":"x","type":', "`type` occurs twice", id="a key of the envelope twice"),
        pytest.param(b'"data":{', b'"data":{"a":[{"b":1,"b":2}],', "`b` occurs twice", id="a key twice, deep inside"),
        pytest.param(b'"data":{', b'"data":{"a":1,"\\u0061":2,', "`a` occurs twice", id="a key twice, once escaped"),
        pytest.param(b'"data":{', b'"data":{"a":9007199254740993,', "beyond", id="a number few readers keep"),
        pytest.param(b'"data":{', b'"data":{"a":1e999,', "", id="a number that is infinite"),
        pytest.param(b'"data":{', b'"data":{"a":NaN,', "", id="no number"),
        pytest.param(b'"data":{', b'"data":{"a":"\\ud800",', "", id="half a character"),
        pytest.param(b'"data":{', b'"data":{"a":"\xff",', "not UTF-8", id="bytes that are no text"),
        pytest.param(b'"data":{', b'"data":{\r', "carriage return", id="a carriage return"),
        pytest.param(b'"data":{', b'"data":{\0', "", id="a zero byte"),
        pytest.param(b'{"seq"', b'\xef\xbb\xbf{"seq"', "", id="a byte order mark"),
        pytest.param(b"}", b"} {}", "", id="something after the event"),
    ],
)
@pytest.mark.parametrize("at", [2, 3])
def test_a_line_that_readers_may_read_differently_is_a_break(at: int, old: bytes, new: bytes, why: str) -> None:
    line = LINES[at]
    where = line.rindex(old) if old == b"}" else line.index(old)
    changed = line[:where] + new + line[where + len(old) :]
    report = read_chain([*LINES[:at], changed, LINES[at + 1]])
    first = report.breaks[0]
    assert (first.line, first.kind in ("ambiguous", "unreadable")) == (at + 1, True), report.breaks
    assert why in first.message
    assert told([*LINES[:at], changed, LINES[at + 1]]) == report


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(LINES[1:], [(1, "prev_hash"), (1, "seq")], id="the beginning is missing"),
        pytest.param([*LINES[:2], *LINES[3:]], [(3, "prev_hash"), (3, "seq")], id="a line is missing"),
        pytest.param([*LINES[:2], *LINES[1:]], [(3, "prev_hash"), (3, "seq")], id="a line stands twice"),
        pytest.param(
            [LINES[0], LINES[2], LINES[1], *LINES[3:]],
            [(2, "prev_hash"), (2, "seq"), (3, "prev_hash"), (3, "seq"), (4, "prev_hash"), (4, "seq")],
            id="two lines are exchanged",
        ),
        pytest.param([LINES[0].replace(b"alice", b"mallo"), *LINES[1:]], [(2, "prev_hash")], id="a value was changed"),
        pytest.param([LINES[0] + b" ", *LINES[1:]], [(2, "prev_hash")], id="a space was added at the end of a line"),
        pytest.param(
            [line + b"\r" for line in LINES[:2]],
            [(1, "ambiguous"), (2, "prev_hash"), (2, "ambiguous")],
            id="line ends were converted",
        ),
        pytest.param([LINES[0], b"", *LINES[1:]], [(2, "unreadable"), (3, "prev_hash")], id="an empty line"),
        pytest.param([b"junk", *LINES], [(1, "unreadable"), (2, "prev_hash")], id="junk before the first event"),
        pytest.param(
            [LINES[0], LINES[1].replace(b"run-2026", b"run-1999"), *LINES[2:]],
            [(2, "run_id"), (3, "prev_hash")],
            id="an event of another run",
        ),
        pytest.param(
            [LINES[0], LINES[1].replace(b'"seq":2', b'"seq":9'), LINES[2].replace(b'"seq":3', b'"seq":10')],
            [(2, "seq"), (3, "prev_hash")],
            id="a gap in the numbers",
        ),
        pytest.param([LINES[0], LINES[1].replace(b'"seq":2,', b"")], [(2, "seq")], id="an event without its number"),
        pytest.param([*LINES, LINES[-1]], [(7, "prev_hash"), (7, "seq"), (7, "after_complete")], id="two ends"),
    ],
)
def test_breaks_are_found_where_they_are(lines: list[bytes], expected: list[tuple[int, str]]) -> None:
    report = read_chain(lines)
    assert not report.intact
    assert kinds(report) == expected
    assert told(lines) == report


def test_an_event_after_the_end_is_a_break_unless_it_may_follow() -> None:
    lines = [*LINES, webhook(LINES)]
    report = read_chain(lines)
    assert report.intact
    assert report.complete
    assert report.after_complete == 1
    late = encode(stamped(Chain(report.head, 7), says.RunCancelled(reason="late")))
    assert kinds(read_chain([*lines, late])) == [(8, "after_complete")]


def test_a_torn_last_line_is_no_break_and_not_complete() -> None:
    report = read_chain([*LINES[:3], LINES[3][:40]])
    assert report.intact
    assert not report.complete
    assert report.torn is not None
    assert report.events == 3


def test_a_torn_line_after_the_end_is_not_complete() -> None:
    assert not read_chain([*LINES, b'{"seq":7']).complete


@pytest.mark.parametrize("length", range(len(LINES)))
def test_a_trace_cut_short_is_incomplete(length: int) -> None:
    assert not read_chain(LINES[:length]).complete


def test_a_long_trace_is_read_as_it_comes() -> None:
    def lines() -> Iterator[bytes]:
        chain = Chain()
        template = stamped(chain, says.RepeatStart(step_id="a", max=1))
        for _ in range(10_000):
            line = encode(msgspec.structs.replace(template, seq=chain.count + 1, prev_hash=chain.head))
            chain.append(line)
            yield line

    report = read_chain(lines())
    assert report.intact
    assert report.events == 10_000


def test_junk_is_counted_and_not_kept() -> None:
    report = read_chain([b"junk"] * (MAX_BREAKS + 10))
    assert len(report.breaks) == MAX_BREAKS
    assert report.break_count == MAX_BREAKS + 9


@given(st.data())
def test_any_edit_before_the_last_line_is_found(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(LINES) - 2))
    place = data.draw(st.integers(0, len(LINES[at]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != LINES[at][place] and byte != ord("\n")))
    edited = LINES[at][:place] + bytes([byte]) + LINES[at][place + 1 :]
    assert not read_chain([*LINES[:at], edited, *LINES[at + 1 :]]).intact
