"""The ends of traces: read from as little as it takes, whatever lies between, before and after."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from gert.ecosystem.host.ledger import MOST_LAST, first_line, last_lines, open_file
from gert.kernel.agent.ledger import Head
from tests.kernel.events.traces import trace

from gert.ecosystem.host.run_entry import Entry, Place, place_for
from gert.ecosystem.host.run_list import Runs, moment_of
from gert.ecosystem.host.runs import new_run_id
from gert.errors import TraceError, UsageError

LINES = trace()
WHOLE = b"".join(line + b"\n" for line in LINES)
RUN = "run-2026-02-28-001"


def runs(state: Path) -> Runs:
    return Runs(Place(str(state)), {})


def keep(state: Path, data: bytes, run_id: str = RUN) -> None:
    folder = state / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "trace.jsonl").write_bytes(data)


@pytest.mark.parametrize(
    ("data", "first", "last"),
    [
        pytest.param(b"", b"", [], id="nothing"),
        pytest.param(b"torn", b"", [], id="only a torn line"),
        pytest.param(b"one\n", b"one", [b"one"], id="one line"),
        pytest.param(b"one\ntwo\ntorn", b"one", [b"two", b"one"], id="what is torn is left out"),
        pytest.param(b"one\n" + b"x" * 300_000 + b"\n", b"one", [b"x" * 300_000], id="a line longer than a look"),
        pytest.param(b"y" * 200_000 + b"\nend\n", b"y" * 200_000, [b"end"], id="a long first line"),
    ],
)
def test_the_ends_of_a_file(data: bytes, first: bytes, last: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)
    with open_file(str(path)) as file:
        assert first_line(file) == first
        assert last_lines(file)[: len(last)] == last


def test_only_a_few_last_lines_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    with open_file(str(path)) as file:
        assert last_lines(file) == [b"%d" % number for number in range(99, 99 - MOST_LAST, -1)]


@pytest.mark.parametrize("name", ["none", "a\0b"])
def test_a_file_that_cannot_be_opened(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        open_file(str(tmp_path / name))


def test_a_run_that_ended_is_told_from_its_ends(tmp_path: Path) -> None:
    keep(tmp_path, WHOLE)
    entry = runs(tmp_path).entry(RUN)
    assert entry.standing == "completed"
    assert entry.events == len(LINES)
    assert entry.summary is not None
    assert entry.summary.runbook


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_run_without_its_end_was_cut_off(cut: int, tmp_path: Path) -> None:
    keep(tmp_path, WHOLE[:-cut])
    entry = runs(tmp_path).entry(RUN)
    assert (entry.standing, entry.end) == ("cut-off", None)
    assert 0 < entry.events < len(LINES)


@pytest.mark.parametrize(
    "data", [b"", b"hello\n", b"{}\n", LINES[1] + b"\n"], ids=["empty", "text", "JSON", "no start"]
)
def test_what_is_no_run_is_passed_over_and_noted(data: bytes, tmp_path: Path) -> None:
    keep(tmp_path, data, "foreign")
    keep(tmp_path, WHOLE)
    found = runs(tmp_path)
    entries = list(found.newest())
    assert [entry.run_id for entry in entries if entry.start is not None] == [RUN]
    assert len(found.problems) + len(entries) == 2


@pytest.mark.parametrize(
    ("run_id", "moment"),
    [
        pytest.param(
            new_run_id(datetime(2026, 2, 28, 14, 30, 0, 120_000, UTC)),
            datetime(2026, 2, 28, 14, 30, 0, 120_000, UTC),
            id="an id of gert",
        ),
        pytest.param("my-run", None, id="somebody else's"),
        pytest.param("20269999-000000-000-abc", None, id="no date"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_an_id_says_when_a_run_began(run_id: str, moment: datetime | None) -> None:
    assert moment_of(run_id) == moment


@pytest.mark.parametrize("moment", ["yesterday", "2026-02-28T14:30:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_nobody_can_read_is_none(moment: str, tmp_path: Path) -> None:
    entry = Entry(run_id=RUN, place=Place(str(tmp_path)), trace=None, head=Head(RUN, started_at=moment))
    assert entry.started is None


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        place_for(None, str(tmp_path / "none.db"), {})
    assert runs(tmp_path / "nowhere").ids() == []
