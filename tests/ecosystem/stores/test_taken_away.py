"""Files and locks that somebody removes, moves or exchanges while a record is being written."""

import asyncio
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.stores import append_file, jsonl_mark
from gert.ecosystem.stores.append_file import TORN_SUFFIX, exclusive
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.jsonl_ledger import JsonlLedger
from gert.ecosystem.stores.jsonl_writer import JsonlWriter
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.ecosystem.stores.sqlite_ledger import SqliteLedger
from gert.ecosystem.stores.sqlite_writer import LOOK_EVERY
from gert.errors import Busy, TraceError

from .ledgers import check, in_loop, note, written
from .lines import RUN, events

LINES = events(5)


def exchange(path: Path) -> None:
    """Put a copy in the place of a file."""
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


TAKEN = [
    pytest.param(lambda path: path.unlink(), id="the database is removed"),
    pytest.param(lambda path: path.rename(path.with_name("old.db")), id="the database is moved"),
    pytest.param(exchange, id="a copy is put in its place"),
    pytest.param(lambda path: path.with_name("runs.db-wal").unlink(), id="the latest commits are removed"),
    pytest.param(lambda path: shutil.rmtree(path.parent), id="its folder is removed"),
    pytest.param(lambda path: path.parent.rename(path.parent.with_name("old")), id="its folder is moved"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "runs.db"


class TestADatabase:
    @pytest.mark.parametrize("take", TAKEN)
    @pytest.mark.parametrize("quick", [pytest.param(0.0, id="on a thread"), pytest.param(9.0, id="at once")])
    @in_loop
    async def test_of_agent_runs_takes_nothing_that_nobody_would_find(
        self, path: Path, take: Callable[[Path], object], quick: float
    ) -> None:
        async with SqliteLedger(path, quick_seconds=quick) as ledger:
            await written(ledger, note("1"))
            take(path)
            # Files are looked for now and then, not for each append.
            await asyncio.sleep(LOOK_EVERY)
            for _ in range(2):
                with pytest.raises(TraceError, match="was removed or exchanged while it was open"):
                    await written(ledger, note("2"))

    @pytest.mark.parametrize("take", TAKEN)
    def test_of_runbook_runs_takes_nothing_that_nobody_would_find(
        self, path: Path, take: Callable[[Path], object]
    ) -> None:
        with SqliteStore(path) as store:
            store.append(RUN, 1, LINES[:1])
            take(path)
            for _ in range(2):
                with pytest.raises(TraceError, match="was removed or exchanged while it was open"):
                    store.append(RUN, 2, LINES[1:2])
            with pytest.raises(TraceError, match="was removed or exchanged while it was open"):
                store.write_state(RUN, b"{}")

    def test_that_is_put_back_is_written_on(self, path: Path) -> None:
        with SqliteStore(path) as store:
            store.append(RUN, 1, LINES[:1])
            path.rename(path.with_name("old.db"))
            with pytest.raises(TraceError, match="was removed"):
                store.append(RUN, 2, LINES[1:2])
            path.with_name("old.db").rename(path)
            store.append(RUN, 2, LINES[1:2])
            assert list(store.events(RUN)) == LINES[:2]

    def test_is_where_it_was_when_it_was_opened(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(path.parent)
        SqliteStore(path).close()
        Path("link.db").symlink_to(path)
        with SqliteStore("runs.db") as store, SqliteStore("link.db") as linked:
            for first, each in enumerate((store, linked, store, linked), start=1):
                each.append(RUN, first, LINES[first - 1 : first])
                monkeypatch.chdir("/")
            path.with_name("link.db").unlink()
            linked.append(RUN, 5, LINES[4:])

    def test_that_others_open_and_close_stays_in_place(self, path: Path) -> None:
        with SqliteStore(path) as store:
            for number, line in enumerate(LINES, start=1):
                with SqliteStore(path) as other:
                    other.append("other", number, [LINES[number - 1].replace(RUN.encode(), b"other")])
                store.append(RUN, number, [line])


class TestALock:
    def test_that_is_removed_ends_the_lease_of_a_run(self, path: Path) -> None:
        with SqliteStore(path) as store, store.lease(RUN):
            store.append(RUN, 1, LINES[:1])
            [lock] = path.parent.glob("*.lock")
            lock.unlink()
            with pytest.raises(TraceError, match=f"which keeps others from run `{RUN}`, was removed or exchanged"):
                store.append(RUN, 2, LINES[1:2])
            # Whoever comes now is the only one.
            with SqliteStore(path) as other, other.lease(RUN):
                other.append(RUN, 2, LINES[1:2])
                with pytest.raises(TraceError, match="removed or exchanged"):
                    store.append(RUN, 3, LINES[2:3])

    @pytest.mark.parametrize("comes", [pytest.param(False, id="removed"), pytest.param(True, id="exchanged")])
    @in_loop
    async def test_that_is_taken_away_in_the_middle_of_an_append_ends_it(
        self, tmp_path: Path, comes: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put, lock = JsonlWriter._put, tmp_path / "ledger.lock"

        def put_without_a_lock(*args: Any) -> Any:
            end = put(*args)
            lock.unlink()
            if comes:
                lock.write_bytes(b"x" * 32)
            return end

        async with JsonlLedger(tmp_path) as ledger:
            await written(ledger, note("1"))
            monkeypatch.setattr(JsonlWriter, "_put", put_without_a_lock)
            with pytest.raises(TraceError, match="which keeps others from the ledger, was removed or exchanged"):
                await written(ledger, note("2"))
            monkeypatch.undo()
            await written(ledger, note("3"))
            found = b"".join(await check(ledger))
            assert (b'"2"' in found, b'"3"' in found) == (False, True)

    def test_that_is_exchanged_before_it_is_held_keeps_nobody_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flock, path = fcntl.flock, tmp_path / "lock"

        def late(descriptor: int, how: int) -> None:
            path.unlink()
            path.touch()
            flock(descriptor, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with pytest.raises(Busy), exclusive(str(path), "it"):
            pytest.fail("two would have it")

    @in_loop
    async def test_whose_mark_cannot_be_left_does_not_undo_an_append(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = jsonl_mark._write

        def fail_after(descriptor: int, mark: bytes) -> None:
            if mark.strip():
                raise OSError(errno.ENOSPC, "No space left on device")
            write(descriptor, mark)

        async with JsonlLedger(tmp_path) as ledger, JsonlLedger(tmp_path) as other:
            await written(ledger, note("1"), run_id="a")
            assert [head.run_id for head in await other.runs()] == ["a"]
            monkeypatch.setattr(jsonl_mark, "_write", fail_after)
            await written(ledger, note("2"), run_id="b")
            assert [head.run_id for head in await other.runs()] == ["b", "a"]


class TestAFolder:
    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP], ids=errno.errorcode.__getitem__)
    @in_loop
    async def test_that_cannot_be_synced_is_written_all_the_same(
        self, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folders_fail(monkeypatch, code)
        with JsonlStore(tmp_path / "trace.jsonl", tmp_path / "answers.jsonl") as store:
            store.append(RUN, 1, LINES, [b"{}"])
        with SqliteStore(tmp_path / "runs.db") as database:
            database.append(RUN, 1, LINES)
        async with JsonlLedger(tmp_path / "runs") as ledger:
            await written(ledger, note())

    def test_that_fails_to_be_synced_is_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders_fail(monkeypatch, errno.EIO)
        for _ in range(2):
            with pytest.raises(TraceError, match=r"trace.jsonl` cannot be made durable"):
                JsonlStore(tmp_path / "trace.jsonl", tmp_path / "answers.jsonl")

    @staticmethod
    def folders_fail(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        fsync = os.fsync

        def fail(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fail)


class TestWhatIsSetAside:
    @in_loop
    async def test_on_a_full_disk_does_not_fill_it_further(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write

        def full(descriptor: int, data: bytes) -> int:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(TORN_SUFFIX):
                if len(data) <= 3:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return write(descriptor, data[:3])
            return write(descriptor, data)

        async with JsonlLedger(tmp_path) as ledger:
            await written(ledger, note("1"), run_id="run")
            with (tmp_path / "run.jsonl").open("ab") as lines:
                lines.write(b"torn")
            monkeypatch.setattr(os, "write", full)
            for _ in range(3):
                with pytest.raises(TraceError, match=r"run.jsonl.torn` cannot be written: no space left"):
                    await written(ledger, note("2"), run_id="run")
            assert (tmp_path / "run.jsonl.torn").read_bytes() == b""
            monkeypatch.undo()
            await written(ledger, note("2"), run_id="run")
        assert (tmp_path / "run.jsonl.torn").read_bytes() == b"torn\n"


def test_a_file_that_takes_nothing_is_not_asked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with JsonlStore(tmp_path / "trace.jsonl", None) as store:
        monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
        with pytest.raises(TraceError, match="cannot be written: input/output error"):
            store.append(RUN, 1, LINES)
        monkeypatch.undo()
        store.append(RUN, 1, LINES)


def test_where_answers_could_not_be_kept_no_events_are_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = append_file.sync_data

    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("answers.jsonl"):
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    with JsonlStore(tmp_path / "trace.jsonl", tmp_path / "answers.jsonl") as store:
        store.append(RUN, 1, LINES[:1])
        monkeypatch.setattr(append_file, "sync_data", fail)
        with pytest.raises(TraceError, match=r"answers.jsonl` cannot be written"):
            store.append(RUN, 2, [], [b"{}"])
        monkeypatch.undo()
        with pytest.raises(TraceError, match=r"answers.jsonl` takes nothing more"):
            store.append(RUN, 2, LINES[1:2])
        assert list(store.events(RUN)) == LINES[:1]
