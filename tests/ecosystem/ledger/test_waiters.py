"""What every ledger promises to those who wait: they are woken, miss nothing, and see nothing twice."""

import asyncio
from contextlib import aclosing

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, LONG, RUN, SHARED, in_loop, note, outcome_of, process, written

from gert.errors import TraceError
from gert.kernel.events.envelope import decode

APPENDS = """
for number in range(int(rest[0])):
    await written(ledger, note(str(number)))
    await asyncio.sleep(0.01)
"""


class TestWaiting:
    @in_loop
    async def test_ends_at_once_where_there_is_more_already(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, note(), note())
            assert await ledger.wait(RUN, 1, LONG) is True
            assert await ledger.wait(RUN, 0, 0) is True

    @in_loop
    async def test_ends_in_vain_after_its_time(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, note())
            assert await ledger.wait(RUN, 1, 0.02) is False
            assert await ledger.wait("other", 0, 0) is False

    @in_loop
    async def test_is_woken_by_an_append_and_not_by_the_clock(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, poll_interval=LONG) as ledger:
            waits = [asyncio.create_task(ledger.wait(RUN, after, LONG)) for after in (0, 0, 1)]
            other = asyncio.create_task(ledger.wait("other", 0, LONG))
            await asyncio.sleep(0.02)
            await written(ledger, note())
            assert await asyncio.gather(*waits[:2]) == [True, True]
            assert not waits[2].done()
            await written(ledger, note())
            assert await waits[2] is True
            assert not other.done()
            other.cancel()

    @in_loop
    async def test_is_woken_by_an_append_whose_author_was_cancelled(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, poll_interval=LONG) as ledger:
            waits = asyncio.create_task(ledger.wait(RUN, 0, LONG))
            await asyncio.sleep(0.02)
            appends = [asyncio.create_task(written(ledger, note())) for _ in range(20)]
            await asyncio.sleep(0)
            for append in appends:
                append.cancel()
            assert await waits is True

    @pytest.mark.parametrize("kind", SHARED)
    @in_loop
    async def test_is_woken_by_another_process(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            child = process(kind, place, APPENDS, "3")
            assert await ledger.wait(RUN, 0, LONG) is True
            assert await ledger.wait(RUN, 2, LONG) is True
            await outcome_of(child)


class TestFollowing:
    @in_loop
    async def test_sees_every_event_once(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, *[note("before")] * 5)

            last = 5 + sum(number % 4 + 1 for number in range(60))

            async def follow(since: int) -> list[int]:
                seen = []
                async with aclosing(ledger.stream(RUN, since, follow=True)) as lines:  # type: ignore[type-var]
                    async for line in lines:
                        seen.append(decode(line).seq)
                        if seen[-1] >= last:
                            break
                return seen

            follows = [asyncio.create_task(follow(since)) for since in (0, 3, 5)]
            for number in range(60):
                await written(ledger, *[note(str(number))] * (number % 4 + 1))
                await asyncio.sleep(0.001 if number % 10 == 0 else 0)
            seen = await asyncio.gather(*follows)
        assert seen == [list(range(since + 1, last + 1)) for since in (0, 3, 5)]

    @pytest.mark.parametrize("kind", SHARED)
    @in_loop
    async def test_sees_what_other_processes_write(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            children = [process(kind, place, APPENDS, "20") for _ in range(2)]
            seen: list[int] = []
            async with aclosing(ledger.stream(RUN, follow=True)) as lines:  # type: ignore[type-var]
                async for line in lines:
                    seen.append(decode(line).seq)
                    if len(seen) == 40:
                        break
            await asyncio.gather(*map(outcome_of, children))
        assert seen == list(range(1, 41))

    @in_loop
    async def test_waits_for_a_run_that_has_not_begun(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:

            async def first() -> bytes:
                async with aclosing(ledger.stream(RUN, follow=True)) as lines:  # type: ignore[type-var]
                    async for line in lines:
                        return line
                return b""

            follows = asyncio.create_task(first())
            await asyncio.sleep(0.02)
            done = await written(ledger, note())
            assert await follows == done.batch.events[0].line

    @in_loop
    async def test_ends_when_nothing_came_for_a_while(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, note())
            assert len([line async for line in ledger.stream(RUN, follow=True, idle_timeout=0.02)]) == 1

    @in_loop
    async def test_needs_no_more_room_than_a_page(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            for _ in range(4):
                await written(ledger, *[note("x" * 3_000_000)] * 2)
            assert [decode(line).seq async for line in ledger.stream(RUN)] == list(range(1, 9))


@in_loop
async def test_a_waiter_is_told_when_its_ledger_is_closed(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        waits = asyncio.create_task(ledger.wait(RUN, 0, LONG))

        async def follow() -> None:
            async for _ in ledger.stream(RUN, follow=True):
                pass

        follows = asyncio.create_task(follow())
        await asyncio.sleep(0.02)
    for task in (_result(waits), _result(follows)):
        with pytest.raises(TraceError, match="the ledger is closed"):
            await task


async def _result(task: "asyncio.Task[object] | asyncio.Task[bool] | asyncio.Task[None]") -> object:
    return await task
