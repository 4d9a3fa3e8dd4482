"""Disks that fail at any call, processes that die at any call, and power that fails after it: what was said holds."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.jsonl_ledger import JsonlLedger
from gert.errors import TraceError
from gert.kernel.events.chain import read_chain

from .ledgers import ROOT, check, note, place_of, written
from .lines import RUN, answers, events
from .lossy import KilledError, Lossy

LINES = events(9)
ANSWERS = answers(9)
MOST = 400

Fails = Callable[[str, int], BaseException | None]


def at(number: int, problem: Callable[[], BaseException], *, again: bool = False) -> Fails:
    """Fails at one call, or from it on."""
    return lambda _, made: problem() if made == number or (again and made > number) else None


def broken(code: int) -> Callable[[], BaseException]:
    return lambda: OSError(code, os.strerror(code))


PROBLEMS = [
    pytest.param(broken(errno.ENOSPC), False, id="there is no room for a moment"),
    pytest.param(broken(errno.ENOSPC), True, id="there is no room any more"),
    pytest.param(broken(errno.EDQUOT), False, id="the quota is used up"),
    pytest.param(broken(errno.EIO), False, id="the disk fails once"),
    pytest.param(broken(errno.EIO), True, id="the disk fails for good"),
    pytest.param(broken(errno.EINTR), False, id="a call is interrupted"),
    pytest.param(KilledError, True, id="the process is killed"),
]


class Places:
    """A folder for each attempt, and one for each failure of the power."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = count()

    def __call__(self) -> Path:
        return self._root / str(next(self._numbers))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


# --- a run in two files


def paths(folder: Path) -> tuple[Path, Path]:
    return folder / "trace.jsonl", folder / "answers.jsonl"


def opened(folder: Path) -> JsonlStore:
    """The run as it was left, or a new one."""
    trace, _ = paths(folder)
    if trace.exists() and trace.stat().st_size:
        return JsonlStore.reopen(*paths(folder))
    return JsonlStore(*paths(folder))


def appended(store: JsonlStore, until: int = len(LINES)) -> Iterator[int]:
    """Append three events and one answer at a time, and go on after a failure as if there had been none."""
    done = len(list(store.events(RUN)))
    while done < until:
        store.append(RUN, done + 1, LINES[done : done + 3], ANSWERS[done : done + 1])
        done += 3
        yield done


def require_there(folder: Path, said: int) -> None:
    """What was said to be written is there, whole, with the answers it rests on."""
    if not said and not (folder / "trace.jsonl").exists():
        return
    with JsonlStore.reopen(*paths(folder)) as store:
        kept = list(store.events(RUN))
        assert kept == LINES[: len(kept)]
        assert len(kept) >= said
        assert read_chain(kept).break_count == 0 or not kept
        assert len(list(store.answers(RUN))) >= said // 3


@pytest.mark.parametrize(("problem", "again"), PROBLEMS)
def test_what_a_trace_took_is_on_disk_whichever_call_fails(
    problem: Callable[[], BaseException], again: bool, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, MOST):
        folder = places()
        folder.mkdir()
        disk, last, failed = Lossy(folder), 0, False
        disk.fails = at(number, problem, again=again)
        with disk.in_use(monkeypatch):
            for _ in range(3):  # a caller who does not give up
                try:
                    with opened(folder) as store:
                        try:
                            for said in appended(store):
                                last = said
                        except TraceError:
                            for said in appended(store):
                                last = said
                except (TraceError, KilledError):
                    failed = True
            reached = disk.made >= number
        require_there(disk.survivors(places()), last)
        require_there(folder, last)
        if not reached:
            assert not failed
        if not again:
            assert last == len(LINES)
        if not reached:
            return
    pytest.fail("it never came to an end")


def test_who_goes_on_with_a_run_rests_on_nothing_that_can_still_be_lost(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, MOST):
        folder = places()
        folder.mkdir()
        disk = Lossy(folder)
        disk.fails = at(number, KilledError, again=True)
        with disk.in_use(monkeypatch), suppress(KilledError), closing(JsonlStore(*paths(folder))) as store:
            for _ in appended(store, 6):
                pass
        reached = disk.made >= number
        disk.fails = lambda name, made: None
        believed = 0
        if (folder / "trace.jsonl").exists():
            with disk.in_use(monkeypatch), JsonlStore.reopen(*paths(folder)) as store:
                done, believed = len(list(store.events(RUN))), len(list(store.answers(RUN)))
                # As one who goes on does: something is said first, and rests on all answers that were found.
                store.append(RUN, done + 1, LINES[done : done + 1])
            with JsonlStore.reopen(*paths(disk.survivors(places()))) as store:
                assert list(store.events(RUN)) == LINES[: done + 1]
                assert len(list(store.answers(RUN))) == believed
        if not reached:
            assert believed == 2
            return
    pytest.fail("it never came to an end")


# --- a ledger of files


async def ledger_of(folder: Path, said: list[str], texts: Iterator[str]) -> None:
    """Append some notes to two runs, whatever fails on the way."""
    ledger = JsonlLedger(folder)
    try:
        for text in texts:
            try:
                await written(ledger, note(f"<{text}>"), run_id=f"run-{int(text) % 2}")
                said.append(text)
            except TraceError:
                continue
    finally:
        with suppress(KilledError):
            await ledger.close()


async def require_notes(folder: Path, said: list[str]) -> None:
    async with JsonlLedger(folder, read_only=True) as ledger:
        for number in range(2):
            mine = [text for text in said if int(text) % 2 == number]
            if not mine and await ledger.head(f"run-{number}") is None:
                continue
            found = b"".join(await check(ledger, f"run-{number}"))
            for text in mine:
                assert found.count(f"<{text}>".encode()) == 1


@pytest.mark.parametrize(("problem", "again"), PROBLEMS)
def test_what_a_ledger_took_is_on_disk_whichever_call_fails(
    problem: Callable[[], BaseException], again: bool, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, MOST):
        folder = places()
        folder.mkdir()
        disk = Lossy(folder)
        said: list[str] = []
        disk.fails = at(number, problem, again=again)
        with disk.in_use(monkeypatch), suppress(KilledError):
            asyncio.run(ledger_of(folder, said, map(str, range(4))))
        reached = disk.made >= number
        asyncio.run(require_notes(disk.survivors(places()), said))
        # The next process goes on, and what it is told holds as well.
        disk.fails = lambda name, made: None
        with disk.in_use(monkeypatch):
            asyncio.run(ledger_of(folder, said, map(str, range(4, 6))))
        assert said[-2:] == ["4", "5"]
        asyncio.run(require_notes(disk.survivors(places()), said))
        asyncio.run(require_notes(folder, said))
        if not reached:
            assert said == [str(each) for each in range(6)]
            return
    pytest.fail("it never came to an end")


# --- files that may not grow


@pytest.mark.parametrize(
    ("what", "kind"),
    [("store", "jsonl"), ("store", "sqlite"), ("ledger", "jsonl"), ("ledger", "sqlite"), ("ledger", "sqlite-threads")],
)
def test_what_was_refused_for_want_of_room_is_taken_once_there_is_some(what: str, kind: str, tmp_path: Path) -> None:
    place = tmp_path if what == "store" else place_of(kind, tmp_path)
    command = [sys.executable, "-m", "tests.ecosystem.stores.filling", what, kind, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
