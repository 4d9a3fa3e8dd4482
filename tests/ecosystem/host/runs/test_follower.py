"""Reading a run on as it grows."""

from pathlib import Path
from threading import Event

import pytest
from tests.kernel.events.traces import trace
from tests.stored_runs import remove_run, store_run

from gert.ecosystem.host.runs.ledger_reader import Follower, LedgerReader
from gert.kernel.events.envelope import decode

LINES = trace()
RUN = decode(LINES[0]).run_id


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    store_run(path, LINES[:3])
    return path


def test_lines_come_once(ledger: Path) -> None:
    with LedgerReader(str(ledger)) as reader:
        run = Follower(RUN, reader)
        assert (list(run.lines()), run.seen, list(run.lines())) == (LINES[:3], 3, [])


def test_lines_that_are_appended_later_come_later(ledger: Path) -> None:
    with LedgerReader(str(ledger)) as reader:
        run = Follower(RUN, reader)
        assert list(run.lines()) == LINES[:3]
        remove_run(ledger, RUN)
        store_run(ledger, LINES)
        run.wait(30, Event())
        assert (list(run.lines()), run.seen) == (LINES[3:], len(LINES))


def test_lines_before_a_number_are_passed_over(ledger: Path) -> None:
    with LedgerReader(str(ledger)) as reader:
        run = Follower(RUN, reader, since=2)
        assert (list(run.lines()), run.seen) == (LINES[2:3], 3)


def test_waiting_ends_when_it_is_told_to(ledger: Path) -> None:
    stop = Event()
    stop.set()
    with LedgerReader(str(ledger)) as reader:
        Follower(RUN, reader, since=3).wait(3600, stop)
