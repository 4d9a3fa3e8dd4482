"""What every ledger promises about leases: one worker drives a run, and one that lost it cannot write."""

import asyncio

import pytest

from gert.errors import InputError, LeaseLost
from gert.kernel.agent.ledger import Written

from .ledgers import LEDGERS, RUN, Clock, check, gathered, in_loop, note, says, written


class TestALease:
    @in_loop
    async def test_is_held_by_one(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
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


class TestAFence:
    @in_loop
    async def test_lets_its_holder_write_and_nobody_else(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, clock=Clock()) as ledger:
            await written(ledger, note("free"))
            lease = await ledger.acquire(RUN, "a", 10)
            assert lease is not None
            await written(ledger, note("mine"), fence=lease.token)
            with pytest.raises(LeaseLost, match="worker `a` holds the run"):
                await ledger.append(RUN, says(note("theirs")))
            with pytest.raises(LeaseLost, match="taken over"):
                await ledger.append(RUN, says(note("theirs")), fence=7)
            await ledger.release(RUN, "a")
            await written(ledger, note("free again"))
            assert len(await check(ledger)) == 3

    @in_loop
    async def test_that_was_never_given_is_refused(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            with pytest.raises(LeaseLost):
                await ledger.append(RUN, says(note()), fence=1)
            assert await ledger.head(RUN) is None

    @pytest.mark.parametrize("is_given_back", [False, True], ids=["the other one holds it", "the other one is gone"])
    @in_loop
    async def test_of_before_is_refused_for_ever(self, kind: str, place: str, is_given_back: bool) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            old = await ledger.acquire(RUN, "a", 10)
            assert old is not None
            clock.passes(11)
            new = await ledger.acquire(RUN, "b", 10)
            assert new is not None
            if is_given_back:
                await ledger.release(RUN, "b")
            with pytest.raises(LeaseLost):
                await ledger.append(RUN, says(note("stale")), fence=old.token)
            if is_given_back:
                with pytest.raises(LeaseLost, match="run out"):
                    await ledger.append(RUN, says(note("gone")), fence=new.token)
            else:
                await written(ledger, note("new"), fence=new.token)
                assert len(await check(ledger)) == 1

    @pytest.mark.parametrize("begun", [False, True], ids=["a run without events", "a run with events"])
    @in_loop
    async def test_ends_with_the_time_of_its_lease(self, kind: str, place: str, begun: bool) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            old = await ledger.acquire(RUN, "a", 10)
            assert old is not None
            if begun:
                await written(ledger, note("in time"), fence=old.token)
            clock.passes(10)
            with pytest.raises(LeaseLost, match="run out"):
                await ledger.append(RUN, says(note("late")), fence=old.token)
            # Nobody has the lease: whoever writes without one may, and the worker of before does not know of it.
            await written(ledger, note("between"))
            with pytest.raises(LeaseLost, match="run out") as caught:
                await ledger.append(RUN, says(note("later")), fence=old.token)
            assert caught.value.hint is not None
            new = await ledger.acquire(RUN, "a", 10)
            assert new is not None
            assert new.token == old.token + 1
            with pytest.raises(LeaseLost, match="taken over"):
                await ledger.append(RUN, says(note("old token")), fence=old.token)
            await written(ledger, note("again"), fence=new.token)
            assert len(await check(ledger)) == 2 + begun

    @in_loop
    async def test_lasts_as_long_as_its_lease_is_prolonged(self, kind: str, place: str) -> None:
        clock = Clock()
        async with LEDGERS[kind](place, clock=clock) as ledger:
            lease = await ledger.acquire(RUN, "a", 10)
            assert lease is not None
            for _ in range(3):
                clock.passes(9)
                assert await ledger.renew(RUN, "a", 10) is not None
                await written(ledger, note(), fence=lease.token)
            assert len(await check(ledger)) == 3

    @in_loop
    async def test_of_nothing_is_no_fence(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            for _ in range(2):
                with pytest.raises(LeaseLost):
                    await ledger.append(RUN, says(note()), fence=0)
                await written(ledger, note())

    @in_loop
    async def test_is_judged_for_each_append_on_its_own(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            lease = await ledger.acquire(RUN, "a", 60)
            assert lease is not None
            fences = [lease.token, None, lease.token, 99] * 10
            done = await gathered(*(ledger.append(RUN, says(note()), fence=fence) for fence in fences))
            assert [type(each) for each in done[:4]] == [Written, LeaseLost, Written, LeaseLost]
            assert len(await check(ledger)) == 20


@in_loop
async def test_a_heartbeat_while_appending_never_fails(kind: str, place: str) -> None:
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
                await written(ledger, note(str(number)), fence=lease.token)

        await asyncio.gather(beats(), *map(appends, range(5)), beats())
        assert len(await check(ledger)) == 100
        assert await ledger.release(RUN, "a")
