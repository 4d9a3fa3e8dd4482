"""A ledger as commands look at it: from any thread, and not after it was closed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.stored_runs import store_notes

from gert.ecosystem.host.runs.ledger_reader import LedgerReader
from gert.errors import TraceError

RUN = "run-1"


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "runs.db")
    store_notes(path, RUN, 600)
    return path


def test_any_thread_may_be_the_first_to_ask(place: str) -> None:
    for _ in range(10):
        together = Barrier(8)

        def ask(reader: LedgerReader, together: Barrier) -> int:
            together.wait()
            head = reader.head(RUN)
            assert head is not None
            return head.count

        with LedgerReader(place) as reader, ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, reader, together) for _ in range(8)]
            assert [each.result() for each in asked] == [600] * 8


def test_all_lines_come_in_order(place: str) -> None:
    with LedgerReader(place) as reader:
        lines = list(reader.lines(RUN))
        assert len(lines) == 600
        assert list(reader.lines(RUN, 590)) == lines[590:]


def test_what_was_closed_says_so(place: str) -> None:
    reader = LedgerReader(place)
    lines = reader.lines(RUN)
    assert next(lines)
    reader.close()
    reader.close()
    for ask in (lambda: reader.head(RUN), lambda: list(reader.lines(RUN))):
        with pytest.raises(TraceError, match="is closed"):
            ask()
    lines.close()
    assert not reader._thread.is_alive()
