"""Files of a SQLite ledger that are removed, moved, exchanged or full while it is written."""

import asyncio
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import check, in_loop, note, written

from gert.ecosystem.ledger.sqlite import executor
from gert.ecosystem.ledger.sqlite.executor import LOOK_EVERY
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import TraceError


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


@pytest.mark.parametrize("take", TAKEN)
@pytest.mark.parametrize("quick", [pytest.param(0.0, id="on a thread"), pytest.param(9.0, id="at once")])
@in_loop
async def test_nothing_is_written_where_it_would_not_be_found(
    path: Path, take: Callable[[Path], object], quick: float
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(executor, "QUICK_SECONDS", quick)
        async with SqliteLedger(path) as ledger:
            await written(ledger, note("1"))
            take(path)
            # Files are looked for now and then, not for each append.
            await asyncio.sleep(LOOK_EVERY)
            for _ in range(2):
                with pytest.raises(TraceError, match="was removed or exchanged while it was open"):
                    await written(ledger, note("2"))


@in_loop
async def test_a_file_that_is_put_back_is_written_on(path: Path) -> None:
    async with SqliteLedger(path) as ledger:
        await written(ledger, note("1"))
        path.rename(path.with_name("old.db"))
        await asyncio.sleep(LOOK_EVERY)
        with pytest.raises(TraceError, match="was removed"):
            await written(ledger, note("2"))
        path.with_name("old.db").rename(path)
        await written(ledger, note("2"))
        assert len(await check(ledger)) == 2


@in_loop
async def test_a_file_is_where_it_was_when_it_was_opened(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(path.parent)
        await SqliteLedger(path).close()
        Path("link.db").symlink_to(path)
        async with SqliteLedger("runs.db") as ledger, SqliteLedger("link.db") as linked:
            for each in (ledger, linked, ledger, linked):
                await written(each, note())
                patched.chdir("/")
            path.with_name("link.db").unlink()
            await asyncio.sleep(LOOK_EVERY)
            await written(linked, note())
            assert len(await check(ledger)) == 5


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file grows beyond a size; Python has told the system not to end the process for that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@in_loop
async def test_a_full_disk_refuses_appends_and_keeps_none_of_them_by_halves(path: Path) -> None:
    done = refused = 0
    async with SqliteLedger(path) as ledger:
        for size in range(1_000, 400_000, 7_000):
            try:
                with at_most(size):
                    await written(ledger, note("x" * 400), note("y" * 400))
                done += 2
            except TraceError:
                refused += 1
            if refused % 7 == 3:
                await written(ledger, note("z"))
                done += 1
        assert len(await check(ledger)) == done
    assert refused > 3
    async with SqliteLedger(path) as ledger:
        assert len(await check(ledger)) == done
