"""What every ledger promises about its own life: cancelled callers, closing, and the event loop it belongs to."""

import asyncio
import gc
import random
import threading

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, RUN, check, gathered, in_loop, note, says, written

from gert.errors import TraceError
from gert.kernel.ledger.record import Written

# Those that hold no connection to a server, which belongs to its event loop.
LOCAL = [kind for kind in LEDGERS if kind != "postgres"]


class TestCancelling:
    @pytest.mark.parametrize("seed", range(3))
    @in_loop
    async def test_a_storm_leaves_a_ledger_that_works(self, kind: str, place: str, seed: int) -> None:
        chance = random.Random(seed)
        async with LEDGERS[kind](place) as ledger:
            asked: list[int] = []
            told: list[int] = []

            async def append(number: int) -> None:
                asked.append(number)
                done = await ledger.append(f"run-{number % 3}", says(note(str(number))))
                assert isinstance(done, Written)
                told.append(number)

            async def look(number: int) -> None:
                await ledger.lines(f"run-{number % 3}")
                await ledger.renew(f"run-{number % 3}", "w", 5)
                await ledger.wait(f"run-{number % 3}", 1000, 0.05)

            for _ in range(8):
                tasks = [asyncio.create_task(chance.choice((append, append, look))(n)) for n in range(40)]
                for task in chance.sample(tasks, 25):
                    if chance.random() < 0.5:
                        await asyncio.sleep(chance.random() * 0.003)
                    task.cancel()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    assert result is None or isinstance(result, asyncio.CancelledError), result
            kept = 0
            for number in range(3):
                await written(ledger, note("after"), run_id=f"run-{number}")
                kept += len(await check(ledger, f"run-{number}"))
            # What was told is there, and so is what was asked for by those who did not wait.
            assert kept == len(asked) + 3
            assert set(told) <= set(asked)

    @in_loop
    async def test_an_append_that_was_asked_for_happens(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            appends = [asyncio.create_task(written(ledger, note(str(n)))) for n in range(10)]
            await asyncio.sleep(0)
            for task in appends:
                task.cancel()
            await gathered(*map(_result, appends))
            after = await written(ledger, note("after"))
            assert len(await check(ledger)) == after.last == 11

    @in_loop
    async def test_closing_waits_for_appends_whose_callers_were_cancelled(self, kind: str, place: str) -> None:
        if kind == "memory":
            return
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, note("before"))
            appends = [asyncio.create_task(written(ledger, note(str(n)))) for n in range(10)]
            await asyncio.sleep(0)
            for task in appends:
                task.cancel()
        async with LEDGERS[kind](place) as again:
            assert len(await check(again)) == 11

    @in_loop
    async def test_time_that_runs_out_is_a_cancel_like_any_other(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            for _ in range(30):
                try:
                    async with asyncio.timeout(0.0002):
                        await asyncio.gather(*(written(ledger, note()) for _ in range(3)))
                except TimeoutError:
                    pass
            await written(ledger, note("after"))
            await check(ledger)


async def _result(task: "asyncio.Task[object]") -> object:
    return await task


class TestClosing:
    @in_loop
    async def test_finishes_what_was_begun(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)
        appends = [asyncio.create_task(written(ledger, note(str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        await ledger.close()
        done = await asyncio.gather(*appends)
        assert sorted(each.last for each in done) == list(range(1, 51))
        if kind != "memory":
            async with LEDGERS[kind](place) as again:
                assert len(await check(again)) == 50

    @in_loop
    async def test_twice_is_closing_once(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)
        await written(ledger, note())
        await ledger.lines(RUN)
        await asyncio.gather(ledger.close(), ledger.close())
        await ledger.close()

    @in_loop
    async def test_without_any_use_is_possible(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place):
            pass

    @in_loop
    async def test_that_was_cancelled_has_closed(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)
        appends = [asyncio.create_task(written(ledger, note())) for _ in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(ledger.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(*appends)
        await ledger.close()
        with pytest.raises(TraceError, match="closed"):
            await ledger.head(RUN)

    @in_loop
    async def test_is_the_end(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)
        await written(ledger, note())
        await ledger.close()
        uses = [
            ledger.append(RUN, says(note())),
            ledger.head(RUN),
            ledger.lines(RUN),
            ledger.lines_at(RUN, [1]),
            ledger.calls(RUN, "k"),
            ledger.open_calls(RUN),
            ledger.holders("t", "n", "k"),
            ledger.count_calls("n"),
            ledger.summary(RUN, "s"),
            ledger.latest_summaries(RUN, ""),
            ledger.runs(),
            ledger.acquire(RUN, "w", 1),
            ledger.renew(RUN, "w", 1),
            ledger.release(RUN, "w"),
            ledger.lease(RUN),
            ledger.wait(RUN, 0, 1),
            ledger.schema_info(),
            ledger.tickets(),
            ledger.documents(["d"]),
            ledger.messages(RUN),
            ledger.post(RUN, "cancel", b"{}"),
            anext(ledger.stream(RUN)),
            ledger.__aenter__(),
        ]
        for use in uses:
            with pytest.raises(TraceError, match="the ledger is closed"):
                await use

    @in_loop
    async def test_ends_every_thread(self, kind: str, place: str) -> None:
        before = set(threading.enumerate())
        async with LEDGERS[kind](place) as ledger:
            await asyncio.gather(*(written(ledger, note()) for _ in range(50)))
            await ledger.lines(RUN)
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("gert"):
                thread.join(10)
                assert not thread.is_alive()


@pytest.mark.parametrize("kind", LOCAL)
def test_the_threads_of_a_forgotten_ledger_end(kind: str, place: str) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        ledger = LEDGERS[kind](place)
        await asyncio.gather(*(written(ledger, note()) for _ in range(50)))
        await ledger.lines(RUN)

    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        # A thread that has just handed over its last commit may still hold what is to be collected.
        for _ in range(100):
            gc.collect()
            thread.join(0.1)
            if not thread.is_alive():
                break
        assert not thread.is_alive()


class TestEventLoops:
    @in_loop
    async def test_another_event_loop_is_told_what_to_do(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await _one(ledger)
            for use in (_one(ledger), _look(ledger)):
                with pytest.raises(TraceError, match="belongs to another event loop") as refusal:
                    await asyncio.to_thread(asyncio.run, use)
                assert "open one for each" in str(refusal.value.hint)
            await _one(ledger)
            assert len(await check(ledger)) == 2

    @pytest.mark.parametrize("kind", LOCAL)
    def test_whose_loop_is_gone_may_be_closed_from_anywhere(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)
        asyncio.run(_one(ledger))
        with pytest.raises(TraceError, match="belongs to another event loop"):
            asyncio.run(_one(ledger))
        asyncio.run(ledger.close())
        asyncio.run(ledger.close())

    def test_a_ledger_may_be_opened_before_there_is_a_loop(self, kind: str, place: str) -> None:
        ledger = LEDGERS[kind](place)

        async def main() -> None:
            async with ledger:
                await _one(ledger)

        asyncio.run(main())

    def test_loops_may_each_have_their_own(self, kind: str, place: str) -> None:
        if kind == "memory":
            pytest.skip("nobody else sees it")

        async def main() -> None:
            async with LEDGERS[kind](place) as ledger:
                for _ in range(20):
                    await _one(ledger)

        threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def after() -> None:
            async with LEDGERS[kind](place) as ledger:
                assert len(await check(ledger)) == 60

        asyncio.run(after())


async def _one(ledger: object) -> None:
    await written(ledger, note())  # type: ignore[arg-type]


async def _look(ledger: object) -> None:
    await ledger.lines(RUN)  # type: ignore[attr-defined]
