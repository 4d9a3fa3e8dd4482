"""Runbook runs on Postgres keep the promises of every store, and share the ledger with agents."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
from tests.postgres import execute

from gert.ecosystem.stores.port import Store
from gert.ecosystem.stores.postgres import PostgresLedger
from gert.ecosystem.stores.postgres_store import PostgresRunStore
from gert.errors import Busy, RunError, TraceError

from . import test_promises as promises
from .ledgers import note, written
from .lines import RUN, answers, events

LINES = events(6)
ANSWERS = answers(3)
# A session that is told to end has its locks until it has ended.
KILL = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE application_name = 'gert' AND datname = current_database()
"""
KILL_HOLDER = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND datname = current_database()
"""


@pytest.fixture
def kind() -> str:
    return "postgres"


@pytest.fixture
def store(dsn: str) -> Iterator[Store]:
    with PostgresRunStore(dsn) as opened:
        yield opened


class TestWhatIsKept(promises.TestWhatIsKept):
    pass


class TestWhatIsRefused(promises.TestWhatIsRefused):
    pass


class TestReadingWhileWriting(promises.TestReadingWhileWriting):
    pass


class TestItself:
    def test_everything_is_there_and_goes_on(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as store:
            store.append(RUN, 1, LINES[:3], ANSWERS[:2])
            store.write_state(RUN, b"one")
            store.write_state(RUN, b"two")
        with PostgresRunStore(dsn) as store:
            store.append(RUN, 4, LINES[3:], ANSWERS[2:])
            assert (list(store.events(RUN)), list(store.answers(RUN))) == (LINES, ANSWERS)
            assert (store.state(RUN), store.state("other")) == (b"two", None)
            assert store.last_lines(RUN, 2) == [LINES[5], LINES[4]]
            assert store.last_time(RUN) == "2026-02-28T14:30:00.000000Z"
            assert store.last_time("other") == ""
            assert list(store.runs()) == [RUN]

    def test_a_run_has_an_end_as_agent_runs_have(self, dsn: str) -> None:
        async def main() -> None:
            async with PostgresLedger(dsn) as ledger:
                head = await ledger.head(RUN)
                assert head is not None
                assert (head.count, head.tenant, head.snapshot) == (6, None, None)
                assert [run.run_id for run in await ledger.runs()] == [RUN]
                with pytest.raises(RunError, match="is not an agent run"):
                    await written(ledger, note("by an agent"), run_id=RUN)

        with PostgresRunStore(dsn) as store:
            store.append(RUN, 1, [], ANSWERS)
            assert list(store.runs()) == []
            store.append(RUN, 1, LINES)
            asyncio.run(main())
            with pytest.raises(TraceError, match="written already"):
                store.append(RUN, 6, LINES[5:])

    def test_more_lines_than_fit_on_a_page(self, dsn: str) -> None:
        lines, said = events(1203), answers(1203)
        with PostgresRunStore(dsn) as store:
            store.append(RUN, 1, lines, said)
            assert list(store.events(RUN)) == lines
            assert list(store.events(RUN, 600)) == lines[600:]
            assert list(store.answers(RUN)) == said

    def test_one_process_drives_a_run(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as one, PostgresRunStore(dsn) as two:
            with one.lease(RUN):
                with pytest.raises(Busy, match="is being driven by another process"), two.lease(RUN):
                    pass
                with two.lease("another"):
                    pass
            with two.lease(RUN):
                pass

    def test_everybody_sees_who_drives_a_run(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as one, PostgresRunStore(dsn, read_only=True) as two:
            assert not two.is_driven(RUN)
            with one.lease(RUN):
                assert two.is_driven(RUN)
                assert not two.is_driven("another")
            assert not two.is_driven(RUN)

    def test_a_store_that_is_closed_drives_nothing(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as other:
            store = PostgresRunStore(dsn)
            with store.lease(RUN):
                store.close()
                with other.lease(RUN):
                    pass

    def test_who_lost_a_run_does_not_write_to_it(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as one, PostgresRunStore(dsn) as two:
            with one.lease(RUN):
                one.append(RUN, 1, LINES[:1])
                execute(dsn, KILL)
                one.append(RUN, 2, LINES[1:2])
                assert two.is_driven(RUN)
                execute(dsn, KILL)
                with two.lease(RUN), pytest.raises(Busy, match="is being driven by another process"):
                    one.append(RUN, 3, LINES[2:3])
            assert list(two.events(RUN)) == LINES[:2]

    def test_who_did_not_notice_that_a_run_was_lost_does_not_write_to_it(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as one, PostgresRunStore(dsn) as two, one.lease(RUN):
            one.append(RUN, 1, LINES[:1])
            stalled = Event()
            one._loop.call_soon_threadsafe(stalled.wait)
            execute(dsn, KILL_HOLDER)
            with two.lease(RUN), ThreadPoolExecutor(1) as beside:
                try:
                    appended = beside.submit(one.append, RUN, 2, LINES[1:2])
                finally:
                    stalled.set()
                with pytest.raises(Busy, match="is being driven by another process"):
                    appended.result()
            assert list(two.events(RUN)) == LINES[:1]

    def test_a_session_the_server_has_not_missed_yet_keeps_nobody_out(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as one, PostgresRunStore(dsn) as two, one.lease(RUN):
            one.append(RUN, 1, LINES[:1])
            line = one._held[RUN].link.connection._transport
            # As when a network breaks: closed on our side, and not on the other.
            other_side = os.dup(line.get_extra_info("socket").fileno())
            try:
                one._loop.call_soon_threadsafe(line.abort)
                assert two.is_driven(RUN)
                one.append(RUN, 2, LINES[1:2])
                with pytest.raises(Busy, match="is being driven by another process"), two.lease(RUN):
                    pass
            finally:
                os.close(other_side)
            assert list(two.events(RUN)) == LINES[:2]

    def test_several_write_through_one_lock(self, dsn: str) -> None:
        runs = [f"{RUN}-{number}" for number in range(3)]
        with PostgresRunStore(dsn) as store, ExitStack() as stack, ThreadPoolExecutor(6) as beside:
            for run_id in runs:
                stack.enter_context(store.lease(run_id))
            sent = [
                beside.submit(store.append, run_id, 1, [], [b"%d" % number]) for number in range(20) for run_id in runs
            ]
            for each in sent:
                each.result()
            for run_id in runs:
                assert sorted(map(int, store.answers(run_id))) == list(range(20))

    def test_what_is_said_is_masked(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError) as caught:
            PostgresRunStore(f"postgresql:///x?host={tmp_path}", masked=lambda _: "***", retry_backoff_seconds=0.001)
        assert (caught.value.message, str(caught.value), caught.value.__cause__) == ("***", "***", None)

    def test_whoever_only_reads_makes_nothing_and_writes_nothing(self, dsn: str) -> None:
        with pytest.raises(TraceError, match="there is no ledger"):
            PostgresRunStore(dsn, read_only=True)
        PostgresRunStore(dsn).close()
        with PostgresRunStore(dsn, read_only=True) as store:
            assert list(store.events(RUN)) == []
            with pytest.raises(TraceError, match="open only for reading"):
                store.append(RUN, 1, LINES)
            with pytest.raises(TraceError, match="open only for reading"):
                store.write_state(RUN, b"")

    def test_a_run_that_lost_its_end_is_not_continued(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as store:
            store.append(RUN, 1, LINES[:4])
            execute(dsn, "DELETE FROM gert.events WHERE seq = 4", "SELECT 1")
            for first in (4, 5):
                with pytest.raises(TraceError, match="expected 4 events, found 3"):
                    store.append(RUN, first, [LINES[first - 1]])

    def test_connections_that_are_cut_cost_nothing(self, dsn: str) -> None:
        with PostgresRunStore(dsn) as store:
            for number, line in enumerate(LINES, start=1):
                store.append(RUN, number, [line])
                execute(dsn, KILL)
                assert list(store.events(RUN)) == LINES[:number]
                execute(dsn, KILL)

    def test_closing_twice_is_closing_once(self, dsn: str, tmp_path: Path) -> None:
        store = PostgresRunStore(dsn)
        store.close()
        store.close()
        with pytest.raises(TraceError, match="the store is closed"):
            list(store.events(RUN))
        with pytest.raises(TraceError, match="cannot be reached"):
            PostgresRunStore(f"postgresql:///x?host={tmp_path}", retry_backoff_seconds=0.001)
