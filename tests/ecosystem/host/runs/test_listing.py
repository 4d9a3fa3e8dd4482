"""The runs of a ledger: listed, found by the beginning of their id, and read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kernel.events.traces import trace
from tests.stored_runs import store_run

from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.place import Place, place_for
from gert.errors import TraceError, UsageError
from gert.kernel.ledger.record import Head

LINES = trace()
RUN = "run-2026-02-28-001"


@contextmanager
def runs(state: Path) -> Iterator[Runs]:
    with Runs(Place(str(state))) as found:
        yield found


def keep(state: Path, *run_ids: str, lines: list[bytes] = LINES) -> None:
    (state / "runs").mkdir(exist_ok=True)
    for run_id in run_ids:
        named = [line.replace(RUN.encode(), run_id.encode()) for line in lines]
        store_run(state / "runs" / "ledger.db", named)


def test_a_run_that_ended(tmp_path: Path) -> None:
    keep(tmp_path, RUN)
    with runs(tmp_path) as found:
        entry = found.whole_entry(RUN)
    assert (entry.status, entry.events) == ("completed", len(LINES))
    assert entry.end is not None
    assert entry.end.type == "run_complete"


@pytest.mark.parametrize("cut", [1, 3])
def test_a_run_without_its_end_was_cut_off(cut: int, tmp_path: Path) -> None:
    keep(tmp_path, RUN, lines=LINES[:-cut])
    with runs(tmp_path) as found:
        entry = found.whole_entry(RUN)
    assert (entry.status, entry.end, entry.events) == ("cut-off", None, len(LINES) - cut)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param("20260228-1430", "20260228-1430-a", id="the beginning of one"),
        pytest.param("20260228-1431-b", "20260228-1431-b", id="a whole id"),
        pytest.param("2026", "2026", id="a whole id that others begin with"),
    ],
)
def test_a_run_is_found_by_the_beginning_of_its_id(start: str, found: str, tmp_path: Path) -> None:
    keep(tmp_path, "2026", "20260228-1430-a", "20260228-1431-b")
    with runs(tmp_path) as kept:
        assert kept.find(start) == found


@pytest.mark.parametrize(
    ("start", "says", "hint"),
    [
        pytest.param("run-0", "matches more than 5 runs", "write more of the id: ", id="several"),
        pytest.param("none", "there is no run `none`", "gert run list", id="none"),
        pytest.param("%", "is not a run id", "gert run list", id="a pattern"),
        pytest.param("r_n", "there is no run `r_n`", "gert run list", id="what is a pattern to a database"),
        pytest.param("", "is not a run id", "gert run list", id="nothing"),
    ],
)
def test_what_is_not_one_run(start: str, says: str, hint: str, tmp_path: Path) -> None:
    keep(tmp_path, *(f"run-0{number}" for number in range(8)))
    with runs(tmp_path) as kept, pytest.raises(UsageError, match=says) as refusal:
        kept.find(start)
    assert hint in str(refusal.value.hint)
    assert str(refusal.value.hint).count("`run-0") <= 5


@pytest.mark.parametrize("moment", ["yesterday", "2026-02-28T14:30:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_cannot_be_read_is_none(moment: str, tmp_path: Path) -> None:
    assert ListedRun(place=Place(str(tmp_path)), head=Head(RUN, started_at=moment)).started is None


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        place_for(None, str(tmp_path / "none.db"), {})
    with runs(tmp_path / "nowhere") as found:
        assert list(found.newest()) == []
        with pytest.raises(UsageError, match="there is no run `x`"):
            found.find("x")
        with pytest.raises(TraceError, match="there is no run `x`"):
            found.entry("x")
