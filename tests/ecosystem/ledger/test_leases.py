"""What every ledger promises about leases: one worker drives a run, and one that lost it cannot write."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import (
    LEDGERS,
    RUN,
    SHARED,
    STARTED,
    Clock,
    check,
    drives,
    in_loop,
    note,
    outcome_of,
    process,
    says,
    written,
)
from tests.soak import sampled

from gert.errors import InputError, LeaseLost

shared = pytest.mark.parametrize("kind", sampled(SHARED, ["sqlite", "postgres"]))


class TestALease:
    @in_loop
    async def test_is_held_by_one(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            mine = await ledger.acquire(RUN, "a", 10)
            assert mine is not None
            assert (mine.worker_id, mine.token) == ("a", 1)
            assert await ledger.acquire(RUN, "b", 10) is None
            assert await ledger.renew(RUN, "b", 10) is None
            assert await ledger.release(RUN, "b") is False
            assert await ledger.lease(RUN) == mine
            assert await ledger.head(RUN) is None
            assert await ledger.runs() == []

    @in_loop
    async def test_is_won_by_one_of_many(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            won = await asyncio.gather(*(ledger.acquire(RUN, f"w{n}", 30) for n in range(20)))
            assert len([lease for lease in won if lease is not None]) == 1

    @in_loop
    async def test_is_prolonged_by_its_holder_under_the_same_token(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            first = await ledger.acquire(RUN, "a", 10)
            clock.passes(6)
            second = await ledger.renew(RUN, "a", 10)
            clock.passes(6)
            third = await ledger.acquire(RUN, "a", 10)
            assert first is not None
            assert second is not None
            assert third is not None
            assert first.token == second.token == third.token
            assert first.expires_at < second.expires_at < third.expires_at
            assert await ledger.lease(RUN) == third

    @in_loop
    async def test_ends_with_its_time_and_the_next_has_a_greater_token(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            await ledger.acquire(RUN, "a", 10)
            clock.passes(10)
            assert await ledger.lease(RUN) is None
            assert await ledger.renew(RUN, "a", 10) is None
            assert await ledger.release(RUN, "a") is False
            other = await ledger.acquire(RUN, "b", 10)
            assert other is not None
            assert (other.worker_id, other.token) == ("b", 2)
            assert await ledger.renew(RUN, "a", 10) is None

    @in_loop
    async def test_that_was_given_back_keeps_its_token(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await ledger.acquire(RUN, "a", 10)
            assert await ledger.release(RUN, "a") is True
            assert await ledger.release(RUN, "a") is False
            assert await ledger.lease(RUN) is None
            again = await ledger.acquire(RUN, "a", 10)
            assert again is not None
            assert again.token == 2

    @pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), 1e12])
    @in_loop
    async def test_has_a_time_to_live(self, kind: str, place: str, ttl: float) -> None:
        async with LEDGERS[kind](place) as ledger:
            with pytest.raises(InputError):
                await ledger.acquire(RUN, "a", ttl)
            with pytest.raises(InputError, match="needs a name"):
                await ledger.acquire(RUN, "", 5)
            assert await ledger.lease(RUN) is None


class TestAppendingUnderALease:
    @shared
    @in_loop
    async def test_only_its_holder_appends(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as mine, LEDGERS[kind](place, clock=clock) as theirs:
            await written(theirs, note("free"))
            assert await mine.acquire(RUN, "a", 10)
            await written(mine, note("mine"))
            with pytest.raises(LeaseLost, match="worker `a` drives run"):
                await theirs.append(RUN, says(note("theirs")))
            assert await mine.release(RUN, "a")
            await written(theirs, note("free again"))
            assert len(await check(mine)) == 3

    @shared
    @pytest.mark.parametrize("is_given_back", [False, True], ids=["the other holds it", "the other gave it back"])
    @in_loop
    async def test_who_lost_it_is_refused_until_it_acquires_it_again(
        self, kind: str, place: str, is_given_back: bool
    ) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as old, LEDGERS[kind](place, clock=clock) as new:
            assert await old.acquire(RUN, "a", 10)
            clock.passes(11)
            assert await new.acquire(RUN, "b", 10)
            await written(new, note("new"))
            if is_given_back:
                assert await new.release(RUN, "b")
            for _ in range(2):
                with pytest.raises(LeaseLost, match="another process has taken over"):
                    await old.append(RUN, says(note("stale")))
            clock.passes(11)
            again = await old.acquire(RUN, "a", 10)
            assert again is not None
            assert again.token == 3
            await written(old, note("again"))
            assert len(await check(old)) == 2

    @pytest.mark.parametrize("begun", [False, True], ids=["a run without events", "a run with events"])
    @in_loop
    async def test_a_lease_that_ran_out_is_renewed_by_an_append(self, kind: str, place: str, begun: bool) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            first = await ledger.acquire(RUN, "a", 10)
            assert first is not None
            if begun:
                await written(ledger, note("in time"))
            clock.passes(100)
            await written(ledger, note("after a sleep"))
            renewed = await ledger.lease(RUN)
            assert renewed is not None
            assert (renewed.token, renewed.expires_at) == (first.token, first.expires_at + (clock() - Clock()()))
            assert await ledger.acquire(RUN, "b", 10) is None

    @shared
    @in_loop
    async def test_a_lease_that_ran_out_and_was_never_taken_binds_no_other(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as slept, LEDGERS[kind](place, clock=clock) as other:
            assert await slept.acquire(RUN, "a", 10)
            clock.passes(11)
            await written(other, note("between"))
            await written(slept, note("and on"))
            with pytest.raises(LeaseLost):
                await other.append(RUN, says(note()))

    @in_loop
    async def test_a_runbook_run_is_appended_to_only_under_its_lease(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            assert await ledger.acquire(RUN, "driver", 60)
            await ledger.append(RUN, drives(STARTED))
            assert await ledger.release(RUN, "driver")
            with pytest.raises(LeaseLost, match="only under its lease"):
                await ledger.append(RUN, drives(answers=[b"{}"]))

    @in_loop
    async def test_a_heartbeat_while_appending_never_fails(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            lease = await ledger.acquire(RUN, "a", 60)
            assert lease is not None

            async def beats() -> None:
                for _ in range(40):
                    held = await ledger.renew(RUN, "a", 60)
                    assert held is not None
                    assert held.token == lease.token

            async def appends(number: int) -> None:
                for _ in range(20):
                    await written(ledger, note(str(number)))

            await asyncio.gather(beats(), *map(appends, range(5)), beats())
            assert len(await check(ledger)) == 100
            assert await ledger.release(RUN, "a")


DRIVES = """
import signal
assert await ledger.acquire(RUN, "child", float(rest[0])) is not None
os.write(1, b"holds\\n")
if rest[1:]:
    # Between two appends: in the middle of one, SQLite would keep all others waiting.
    await written(ledger, note("child"))
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    try:
        await written(ledger, note("child"))
    except LeaseLost as error:
        os.write(1, b"lost\\n")
        return
    await asyncio.sleep(0.01)
"""


async def frozen(pid: int) -> None:
    """Wait until a process has stopped."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        await asyncio.sleep(0.01)


@shared
class TestProcesses:
    @in_loop
    async def test_the_lease_of_a_dead_process_is_taken_at_once(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            child = process(kind, place, DRIVES, "3600")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == b"holds\n"
            assert await ledger.acquire(RUN, "parent", 60) is None
            child.kill()
            await asyncio.to_thread(child.communicate)
            taken = await ledger.acquire(RUN, "parent", 60)
            assert taken is not None
            assert taken.token == 2
            await written(ledger, note("parent"))

    @in_loop
    async def test_another_process_of_the_same_name_takes_over_with_a_new_token(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            first = await ledger.acquire(RUN, "worker", 60)
            assert first is not None
            work = 'print((await ledger.acquire(RUN, "worker", 60)).token)\nawait written(ledger, note("second"))'
            assert await outcome_of(process(kind, place, work)) == [b"2"]
            with pytest.raises(LeaseLost, match="another process has taken over"):
                await ledger.append(RUN, says(note("first")))

    @in_loop
    async def test_a_frozen_process_that_lost_the_run_stops_at_its_next_append(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            child = process(kind, place, DRIVES, "0.5", "freezes")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == b"holds\n"
            await frozen(child.pid)
            while await ledger.acquire(RUN, "parent", 60) is None:
                await asyncio.sleep(0.05)
            os.kill(child.pid, signal.SIGCONT)
            assert await outcome_of(child) == [b"lost"]
            await written(ledger, note("parent"))
            lines = await check(ledger)
            assert b'"parent"' in lines[-1]

    @in_loop
    async def test_a_frozen_process_whose_run_no_other_took_goes_on(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            child = process(kind, place, DRIVES, "0.2", "freezes")
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == b"holds\n"
            await frozen(child.pid)
            while await ledger.lease(RUN) is not None:
                await asyncio.sleep(0.05)
            head = await ledger.head(RUN)
            count = 0 if head is None else head.count
            os.kill(child.pid, signal.SIGCONT)
            assert await ledger.wait(RUN, count + 3, 30)
            child.kill()
            await asyncio.to_thread(child.communicate)


@shared
@in_loop
async def test_a_worker_learns_before_it_acts_that_another_has_taken_its_run(kind: str, place: str) -> None:
    clock = Clock()
    async with LEDGERS[kind](place, clock=clock) as mine, LEDGERS[kind](place, clock=clock) as other:
        await mine.acquire(RUN, "a", 10)
        await mine.confirm(RUN)
        clock.passes(60)
        await mine.confirm(RUN)  # the time is over, and no other worker has taken it
        await other.acquire(RUN, "b", 10)
        with pytest.raises(LeaseLost, match="another process has taken over"):
            await mine.confirm(RUN)
        await other.confirm(RUN)
