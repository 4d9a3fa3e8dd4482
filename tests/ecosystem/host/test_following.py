"""Reading on in a trace that grows, and in one that was cut back before it grew again."""

from pathlib import Path
from threading import Event

import pytest

from gert.ecosystem.host.following import Following


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def following(trace: Path, since: int = 0) -> Following:
    return Following("r", None, str(trace), since)


def test_lines_come_once_they_are_whole(trace: Path) -> None:
    run = following(trace)
    assert list(run.lines()) == []
    trace.write_bytes(b"one\ntw")
    assert list(run.lines()) == [b"one"]
    trace.write_bytes(b"one\ntwo\n")
    assert list(run.lines()) == [b"two"]
    assert (run.seen, list(run.lines())) == (2, [])


def test_lines_before_a_number_are_passed_over(trace: Path) -> None:
    trace.write_bytes(b"one\ntwo\nthree\n")
    run = following(trace, since=2)
    assert (list(run.lines()), run.seen) == ([b"three"], 3)


@pytest.mark.parametrize(
    ("after", "more"),
    [
        pytest.param(b"one\n", [], id="shorter"),
        pytest.param(b"one\nother\nthird\n", [b"third"], id="other lines that are longer"),
        pytest.param(b"one\nx\ny\nlast\n", [b"y", b"last"], id="other lines that are shorter"),
        pytest.param(b"one\nseveral and longer by far\nlast", [], id="one that is being written"),
    ],
)
def test_no_piece_of_a_line_comes_from_a_trace_that_was_cut_back(trace: Path, after: bytes, more: list[bytes]) -> None:
    trace.write_bytes(b"one\ntwo\n")
    run = following(trace)
    assert list(run.lines()) == [b"one", b"two"]
    trace.write_bytes(after)
    assert list(run.lines()) == more
    trace.write_bytes(b"one\nx\ny\nlast\nvery last\n")
    assert list(run.lines())[-1:] == [b"very last"]


def test_waiting_ends_when_it_is_told_to(trace: Path) -> None:
    stop = Event()
    stop.set()
    following(trace).wait(3600, stop)
