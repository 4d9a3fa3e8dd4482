"""What only a ledger in a folder can do wrong: files that were torn, cut, exchanged or renamed."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import time
import traceback
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.stores import jsonl_reader, run_file
from gert.ecosystem.stores.jsonl_ledger import JsonlLedger
from gert.ecosystem.stores.run_file import file_name, read_end
from gert.ecosystem.stores.verifying import verify_run
from gert.errors import Busy, TraceError
from gert.kernel.agent.ledger import Held
from gert.kernel.events.chain import read_chain

from . import dying
from .ledgers import ROOT, RUN, TENANT, answers, asks, check, in_loop, note, outcome_of, process, says, written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@in_loop
async def test_a_run_is_a_trace_and_a_file_that_says_where_it_ends(folder: Path) -> None:
    async with JsonlLedger(folder) as ledger:
        done = await written(ledger, note("a"), note("b"))
    assert files(folder) == [f"{RUN}.head", f"{RUN}.jsonl", "ledger.lock"]
    assert (folder / f"{RUN}.jsonl").read_bytes() == b"".join(row.line + b"\n" for row in done.batch.rows)
    assert all((folder / name).stat().st_mode & 0o077 == 0 for name in files(folder))
    assert folder.stat().st_mode & 0o077 == 0


class TestNames:
    @pytest.mark.parametrize(
        ("run_id", "name"),
        [
            pytest.param("20260228-a_b", "20260228-a_b", id="as it is"),
            pytest.param("a.b:c@D", "a%2eb%3ac%40%44", id="signs and capitals"),
            pytest.param("con", "%63on", id="a device"),
            pytest.param("COM1", "%43%4f%4d1", id="a device in capitals"),
        ],
    )
    def test_are_safe_everywhere(self, run_id: str, name: str) -> None:
        assert file_name(run_id) == name

    def test_are_never_too_long_and_never_shared(self) -> None:
        ids = ["a" * 512, "a" * 511, "a" * 511 + "b", "A" * 512, "." + "a" * 200, "A" * 60, "a" * 60]
        names = [file_name(run_id) for run_id in ids]
        assert len({name.lower() for name in names}) == len(ids)
        assert max(map(len, names)) <= 125


class TestWhatWasTorn:
    @pytest.mark.parametrize(
        "left",
        [
            pytest.param(b'{"seq":3', id="half a line"),
            pytest.param(b"\x00" * 600, id="zeros"),
            pytest.param(b'{"a":1}\n{"b":2}\n', id="whole lines that nobody finished"),
            pytest.param(b"\n", id="a line break"),
        ],
    )
    @in_loop
    async def test_is_set_aside_and_never_lost(self, folder: Path, left: bytes) -> None:
        trace = folder / f"{RUN}.jsonl"
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("a"), note("b"))
        before = trace.read_bytes()
        trace.write_bytes(before + left)
        async with JsonlLedger(folder) as ledger:
            # Whoever reads does not see what was never finished.
            assert len(await check(ledger)) == 2
            assert trace.read_bytes() == before + left
            assert ledger.torn == {}
            await written(ledger, note("c"))
            assert len(await check(ledger)) == 3
            assert ledger.torn == {RUN: left}
        assert (folder / f"{RUN}.jsonl.torn").read_bytes() == left + b"\n"
        assert read_chain(trace.read_bytes().splitlines()).events == 3

    @in_loop
    async def test_before_the_first_append_was_finished_is_set_aside_too(self, folder: Path) -> None:
        folder.mkdir()
        (folder / f"{RUN}.jsonl").write_bytes(b"left")
        async with JsonlLedger(folder) as ledger:
            assert await ledger.head(RUN) is None
            assert await ledger.runs() == []
            await written(ledger, note())
            assert len(await check(ledger)) == 1


class TestTampering:
    @pytest.mark.parametrize(
        ("cut", "message"),
        [
            pytest.param(lambda lines: lines[:-1], "expected 4 events, found 3", id="the last line is gone"),
            pytest.param(lambda lines: [], "expected 4 events, found 0", id="all are gone"),
            pytest.param(lambda lines: [*lines[:-1], lines[-1][:20]], "expected 4 events, found", id="half a line"),
            pytest.param(lambda lines: [lines[0], *lines[2:]], "expected 4 events, found 3", id="one in the middle"),
            pytest.param(
                lambda lines: [*lines[:-1], lines[-1].replace(b"n4", b"n9")], "head of run", id="the last line is new"
            ),
            pytest.param(
                lambda lines: [lines[0].replace(b"n1", b"n9"), *lines[1:]], "line 2 of run", id="the first line is new"
            ),
        ],
    )
    @in_loop
    async def test_shows_and_keeps_others_from_adding_to_it(self, folder: Path, cut: object, message: str) -> None:
        trace = folder / f"{RUN}.jsonl"
        async with JsonlLedger(folder) as ledger:
            await written(ledger, *[note(f"n{number}") for number in range(1, 5)])
        trace.write_bytes(b"".join(cut(trace.read_bytes().splitlines(keepends=True))))  # type: ignore[operator]
        before = trace.read_bytes()
        async with JsonlLedger(folder) as ledger:
            for _ in range(2):
                with pytest.raises(TraceError, match=message):
                    await ledger.append(RUN, says(note()))
                await ledger.acquire(RUN, "w", 60)
                await ledger.release(RUN, "w")
            head = await ledger.head(RUN)
            assert head is not None
            assert head.count == 4
            assert not (await verify_run(ledger, RUN)).holds
            await written(ledger, note(), run_id="another")
        assert trace.read_bytes() == before

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            pytest.param(b"", "does not say where", id="nothing"),
            pytest.param(b"{}", "does not say where", id="not even its run"),
            pytest.param(b'{"version":2,"run_id":"x"}', "made by a newer gert", id="a newer version"),
            pytest.param(b'{"version":1,"run_id":"other"}', "belongs to run `other`", id="the end of another run"),
        ],
    )
    @in_loop
    async def test_with_the_end_is_said(self, folder: Path, data: bytes, message: str) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
        (folder / f"{RUN}.head").write_bytes(data)
        async with JsonlLedger(folder) as ledger:
            for use in (ledger.head(RUN), ledger.lines(RUN), ledger.append(RUN, says(note()))):
                with pytest.raises(TraceError, match=message):
                    await use

    @in_loop
    async def test_links_are_not_followed(self, folder: Path, tmp_path: Path) -> None:
        folder.mkdir()
        (folder / f"{RUN}.jsonl").symlink_to(tmp_path / "target")
        async with JsonlLedger(folder) as ledger:
            with pytest.raises(TraceError, match="symbolic link"):
                await written(ledger, note())
        assert not (tmp_path / "target").exists()

    @in_loop
    async def test_is_said_anew_each_time(self, folder: Path) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("a"))
        (folder / f"{RUN}.jsonl").write_bytes(b"")
        async with JsonlLedger(folder) as ledger:
            said = []
            for _ in range(3):
                with pytest.raises(TraceError) as caught:
                    await ledger.append(RUN, says(note()))
                said.append(caught.value)
                assert caught.value.__context__ is None
            # An error that is raised again keeps every frame it ever went through.
            assert len({len(traceback.extract_tb(each.__traceback__)) for each in said}) == 1
            assert len({id(each) for each in said}) == 3

    @pytest.mark.parametrize("gone", [pytest.param(False, id="cut"), pytest.param(True, id="removed")])
    @in_loop
    async def test_while_it_is_written_shows_too(self, folder: Path, gone: bool) -> None:
        trace = folder / f"{RUN}.jsonl"
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("a"), note("b"))
            whole = trace.read_bytes()
            if gone:
                trace.unlink()
            else:
                trace.write_bytes(whole[:-30])
            with pytest.raises(TraceError, match=r"does not end where|there is no file"):
                await written(ledger, note("c"))
            assert trace.exists() is not gone
            trace.write_bytes(whole)
            await written(ledger, note("c"))
            assert len(await check(ledger)) == 3

    @pytest.mark.parametrize(
        "more",
        [
            pytest.param('"count":1,"size":1000000000000000000', id="more bytes than any memory has"),
            pytest.param('"count":-1', id="less than no events"),
            pytest.param('"size":-1', id="less than no bytes"),
            pytest.param('"token":1,"worker_id":"w","expires_at":"2026-02-28T12:00:00"', id="a time nobody knows"),
        ],
    )
    @in_loop
    async def test_with_numbers_of_the_end_is_refused(self, folder: Path, more: str) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
        (folder / f"{RUN}.head").write_text(f'{{"version":1,"run_id":"{RUN}",{more}}}')
        async with JsonlLedger(folder) as ledger:
            with pytest.raises(TraceError, match=r"does not (say|end) where"):
                await ledger.append(RUN, says(note()))

    @in_loop
    async def test_lets_nobody_make_a_call_that_may_stand_in_what_is_gone(self, folder: Path) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note(), asks("k", "order-1"))
        trace = folder / f"{RUN}.jsonl"
        trace.write_bytes(trace.read_bytes().splitlines(keepends=True)[0])
        async with JsonlLedger(folder) as ledger:
            with pytest.raises(TraceError, match="expected 2 events, found 1"):
                await ledger.append("another", says(asks("k", "order-1")))
            with pytest.raises(TraceError, match="expected 2 events, found 1"):
                await ledger.holder(TENANT, "pay", "order-1")
            await written(ledger, note(), run_id="another")


class TestWhatGoesWrong:
    @in_loop
    async def test_with_reading_for_a_moment_is_forgotten(self, folder: Path) -> None:
        trace, away = folder / f"{RUN}.jsonl", folder / "away"
        async with JsonlLedger(folder) as one, JsonlLedger(folder) as two:
            await written(one, note("a"))
            await written(two, note("b"), asks("k"))
            trace.rename(away)
            trace.mkdir()
            for use in (one.head(RUN), one.append(RUN, says(note()))):
                with pytest.raises(TraceError, match="cannot be read"):
                    await use
            trace.rmdir()
            away.rename(trace)
            assert len(await one.calls(RUN, "tool:k")) == 1
            await written(one, note("c"))
            assert len(await check(one)) == 4

    @in_loop
    async def test_with_half_a_write_leaves_no_half_of_an_end(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:10]))
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("a"))
            assert len(await check(ledger)) == 1

    @in_loop
    async def test_after_the_exchange_does_not_say_that_nothing_was_kept(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(path: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("a"))
            with monkeypatch.context() as patched:
                patched.setattr(run_file, "sync_folder_of", fails)
                with pytest.raises(TraceError, match="may be lost") as caught:
                    await written(ledger, note("b"))
            assert caught.value.hint != "nothing of the batch was kept"
            await written(ledger, note("c"))
            assert len(await check(ledger)) == 3

    @in_loop
    async def test_with_those_who_are_killed_piles_up_no_files(self, folder: Path) -> None:
        killed = """
from gert.ecosystem.stores import run_file
run_file.os.replace = lambda *_: os._exit(9)
await written(ledger, note())
"""
        for _ in range(3):
            child = process("jsonl", str(folder), killed)
            await asyncio.to_thread(child.communicate, None, 60)
            assert child.returncode == 9
        assert len([name for name in files(folder) if name.startswith(".")]) <= 1
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
            assert len(await check(ledger)) == 1
        assert [name for name in files(folder) if name.startswith(".")] == []

    def test_with_whoever_dies_at_any_moment_is_that_an_append_is_there_or_not(self, folder: Path) -> None:
        command = [sys.executable, "-m", dying.__name__, str(folder)]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert ran.returncode == 0, ran.stderr
        *died, ended = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
        assert ended == (0, 1, 1)
        # Nothing until the end was exchanged, and then all of it.
        assert died == sorted(died)
        assert set(died) == {(dying.KILLED, 0, 0), (dying.KILLED, 1, 1)}
        assert len(died) > 15

    @in_loop
    async def test_with_locks_is_said(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", fails)
        async with JsonlLedger(folder) as ledger:
            with pytest.raises(TraceError, match="cannot be locked: no locks available"):
                await written(ledger, note())

    @in_loop
    async def test_with_the_whole_folder_is_said(self, folder: Path) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
            shutil.rmtree(folder)
            for use in (ledger.runs(), ledger.holder(TENANT, "pay", "order-1")):
                with pytest.raises(TraceError, match="cannot be read"):
                    await use

    @in_loop
    async def test_is_never_a_matter_of_memory(self, folder: Path) -> None:
        async with JsonlLedger(folder, sync=False) as ledger:
            for _ in range(40):
                await written(ledger, note("x" * 500_000))
        async with JsonlLedger(folder) as ledger:
            tracemalloc.start()
            try:
                head = await ledger.head(RUN)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert head is not None
            assert head.count == 40
            assert peak < 10_000_000


class TestTheFolder:
    @in_loop
    async def test_is_never_made_by_reading(self, folder: Path) -> None:
        with pytest.raises(TraceError, match="there is no folder"):
            JsonlLedger(folder, read_only=True)
        assert not folder.exists()
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
        before = files(folder)
        async with JsonlLedger(folder, read_only=True) as ledger:
            assert len(await check(ledger)) == 1
            with pytest.raises(TraceError, match="open only for reading"):
                await ledger.append(RUN, says(note()))
        assert files(folder) == before

    @in_loop
    async def test_that_is_a_file_is_refused(self, folder: Path) -> None:
        folder.write_bytes(b"")
        with pytest.raises(TraceError, match="cannot hold a ledger"):
            JsonlLedger(folder)

    @in_loop
    async def test_that_another_process_holds_is_waited_for(self, folder: Path) -> None:
        hold = """
import fcntl
lock = open(place + "/ledger.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
        async with JsonlLedger(folder, busy_timeout_ms=50) as ledger:
            await written(ledger, note())
            child = process("jsonl", str(folder), hold.replace("sys.stdin.read()", "await asyncio.sleep(60)"))
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == b"held\n"
            with pytest.raises(Busy):
                await written(ledger, note())
            assert len(await ledger.lines(RUN)) == 1
            child.kill()
            await asyncio.to_thread(child.communicate)
            await written(ledger, note())
            assert len(await check(ledger)) == 2

    @in_loop
    async def test_is_read_again_only_where_it_changed(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[str] = []

        def counting(path: str) -> Any:
            read.append(Path(path).stem)
            return read_end(path)

        async with JsonlLedger(folder) as other:
            for number in range(20):
                await written(other, note(), run_id=f"run-{number}")
            # As if that had been a while ago: what was written just now may look as it did before.
            for path in folder.glob("*.head"):
                os.utime(path, ns=(0, 0))
            monkeypatch.setattr(jsonl_reader, "read_end", counting)
            async with JsonlLedger(folder) as ledger:
                await ledger.append(RUN, says(asks("a", "order-1")))
                assert len(set(read)) == 21
                read.clear()
                await ledger.append(RUN, says(asks("b", "order-2")))
                assert set(read) == {RUN}
                await other.append("run-7", says(asks("c", "order-3")))
                read.clear()
                held = await ledger.append(RUN, says(asks("d", "order-3")))
                assert isinstance(held, Held)
                assert held.call.run_id == "run-7"
                assert set(read) == {RUN, "run-7"}

    @in_loop
    async def test_is_looked_through_only_where_somebody_else_wrote(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[str] = []
        real = os.scandir

        def scandir(path: str) -> Any:
            looks.append(path)
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        async with JsonlLedger(folder) as ledger, JsonlLedger(folder) as other:
            await written(ledger, note())
            for number in range(5):
                await written(ledger, asks(f"k{number}", f"order-{number}"), run_id=f"run-{number}")
                assert await ledger.holder(TENANT, "pay", f"order-{number}") is not None
                assert await ledger.acquire(f"run-{number}", "w", 60) is not None
            assert len(looks) == 1
            await written(other, asks("k", "order-9"))
            assert isinstance(await ledger.append("run-9", says(asks("k", "order-9"))), Held)
            assert isinstance(await other.append("run-9", says(asks("k", "order-1"))), Held)
            assert len(looks) == 3

    @in_loop
    async def test_is_looked_through_where_somebody_died_while_writing(self, folder: Path) -> None:
        dies = """
from gert.ecosystem.stores import jsonl_writer, run_file
jsonl_writer.write_end = lambda *a, **k: (run_file.write_end(*a, **k), os._exit(9))
await written(ledger, asks("k", "order-1"))
"""
        async with JsonlLedger(folder) as ledger:
            await written(ledger, asks("k", "order-0"), run_id="run-1")
            child = process("jsonl", str(folder), dies)
            await asyncio.to_thread(child.communicate, None, 60)
            assert child.returncode == 9
            for _ in range(2):
                held = await ledger.append("run-2", says(asks("k", "order-1")))
                assert isinstance(held, Held)
                assert held.call.run_id == RUN
                await written(ledger, note(), run_id="run-2")

    @in_loop
    async def test_what_looks_as_before_and_is_new_is_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Files that are exchanged within one tick of the clock may have the same time, size and number.
        just_now = time.time_ns()
        monkeypatch.setattr(jsonl_reader, "_TICK_NS", 10**15)
        monkeypatch.setattr(jsonl_reader, "_look_of", lambda _: jsonl_reader._Look(just_now, 1, 1))
        async with JsonlLedger(folder) as one, JsonlLedger(folder) as two:
            for number in range(3):
                await one.append("run-1", says(asks("k", f"order-{number}")))
                assert isinstance(await two.append("run-2", says(asks("k", f"order-{number}"))), Held)

    @pytest.mark.parametrize(("first", "second"), [("run-a", "run-b"), ("run-b", "run-a")])
    @in_loop
    async def test_who_holds_a_key_does_not_depend_on_which_run_is_read_first(
        self, folder: Path, first: str, second: str
    ) -> None:
        async with JsonlLedger(folder) as one, JsonlLedger(folder) as two:
            await written(one, asks("k", "order-1"), run_id=first)
            await written(two, answers(1, "transient_error"), run_id=first)
            await written(two, asks("k", "order-1"), run_id=second)
            held = await one.append("run-c", says(asks("k", "order-1")))
            assert isinstance(held, Held)
            assert held.call.run_id == second

    @in_loop
    async def test_what_is_exchanged_within_one_tick_wakes_who_waits(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note())
        reader, head = jsonl_reader.JsonlReader(str(folder)), folder / f"{RUN}.head"
        os.utime(head)
        before, found = head.stat(), reader.look([RUN])
        head.write_bytes(head.read_bytes())  # the same number, and the same time
        os.utime(head, ns=(before.st_atime_ns, before.st_mtime_ns))
        later = time.time_ns() + 10**9
        monkeypatch.setattr(time, "time_ns", lambda: later)
        assert reader.look([RUN]) != found
        assert reader.look([RUN]) == reader.look([RUN])

    @in_loop
    async def test_what_others_wrote_is_known(self, folder: Path) -> None:
        work = """
await written(ledger, note("a", "kind"), asks("k", "order-7"))
await written(ledger, answers(2, "transient_error"), stage("done"))
"""
        async with JsonlLedger(folder) as ledger:
            await written(ledger, note("first"))
            await outcome_of(process("jsonl", str(folder), work))
            [call] = await ledger.calls(RUN, "tool:k")
            assert (call.seq, call.outcome) == (3, "open")
            head = await ledger.head(RUN)
            assert head is not None
            assert head.snapshot is not None
            assert (head.snapshot.last_stage, head.snapshot.tool_calls) == ("done", 1)
            assert len(await ledger.latest_summaries(RUN, "")) == 2
