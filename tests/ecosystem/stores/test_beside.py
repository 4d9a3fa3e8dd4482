"""A file made durable beside another: nobody goes on before it is, and nobody is told of another one's end."""

import threading
from typing import cast

import pytest

from gert.ecosystem.stores.append_file import AppendFile
from gert.ecosystem.stores.beside import Beside, Ends

PATIENCE = 10.0


class Disk:
    """A file whose disk takes as long as the test wants."""

    def __init__(self, problem: BaseException | None = None, *, slow: bool = False) -> None:
        self._problem = problem
        self.may_end = threading.Event()
        self.is_durable = False
        if not slow:
            self.may_end.set()

    def make_durable(self) -> None:
        assert self.may_end.wait(PATIENCE)
        if self._problem is not None:
            raise self._problem
        self.is_durable = True


def begin(beside: Beside, disk: Disk) -> Ends:
    return beside.begin(cast("AppendFile", disk))


def test_whoever_waits_goes_on_when_the_file_is_durable() -> None:
    beside, disk = Beside(), Disk(slow=True)
    ends = begin(beside, disk)
    threading.Timer(0.02, disk.may_end.set).start()
    beside.wait(ends)
    assert disk.is_durable
    beside.close()


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(OSError(5, "Input/output error"), id="the disk fails"),
        pytest.param(MemoryError(), id="there is no memory"),
        pytest.param(SystemExit(1), id="somebody wants to end the thread"),
    ],
)
def test_what_kept_a_file_from_being_durable_is_raised_where_it_is_waited_for(problem: BaseException) -> None:
    beside = Beside()
    ends = begin(beside, Disk(problem))
    with pytest.raises(type(problem)) as raised:
        beside.wait(ends)
    assert raised.value is problem
    later = Disk()
    beside.wait(begin(beside, later))
    assert later.is_durable
    beside.close()


def test_whoever_stopped_waiting_leaves_nothing_that_passes_for_the_end_of_another() -> None:
    beside, left, mine = Beside(), Disk(), Disk(slow=True)
    begin(beside, left)  # nobody waits for it
    ends = begin(beside, mine)
    threading.Timer(0.02, mine.may_end.set).start()
    beside.wait(ends)
    assert mine.is_durable
    beside.close()


def test_closing_waits_for_what_was_begun_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    beside, disk = Beside(), Disk()
    begin(beside, disk)
    beside.close()
    assert disk.is_durable
    assert set(threading.enumerate()) == before
