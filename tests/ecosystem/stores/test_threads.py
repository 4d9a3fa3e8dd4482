"""Work beside an event loop: whatever goes wrong on the way, whoever waits is told."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from gert.ecosystem.stores.port import QUICK_SECONDS
from gert.ecosystem.stores.tasks import Job, Task, Worker
from gert.ecosystem.stores.threads import Threads
from gert.errors import Busy, TraceError

T = TypeVar("T")


class Writer:
    """Writes nothing, as it is told to: a count of what was done alone and together, and where."""

    def __init__(self, *, busy: bool = False, breaks: Exception | None = None) -> None:
        self.busy = busy
        self.breaks = breaks
        self.alone = 0
        self.together: list[int] = []
        self.threads: set[str] = set()

    def do_alone(self, call: Callable[[Any], T]) -> T:
        """Do one thing."""
        if self.busy or self.breaks is not None:
            raise Busy("somebody else has it")
        self.alone += 1
        return call(self)

    def do_all(self, tasks: Sequence[Task], *, patiently: bool = True) -> bool:
        """Do many things."""
        if self.busy and not patiently:
            return False
        if self.breaks is not None:
            raise self.breaks
        self.together.append(len(tasks))
        self.threads.add(threading.current_thread().name)
        for task in tasks:
            task.run(self)
        return True

    def close(self) -> None:
        """Let go."""


class Reader:
    """Reads nothing."""

    def close(self) -> None:
        """Let go."""


def threads(writer: Writer, *, quick: float = QUICK_SECONDS, told: list[Any] | None = None) -> Threads:
    """Hands over a writer that is none."""
    heard = told if told is not None else []
    return Threads(writer, Reader(), Reader(), heard.append, quick=quick)  # type: ignore[arg-type]


def run(scene: Coroutine[Any, Any, T]) -> T:
    """Play a scene, which ends."""

    async def main() -> T:
        async with asyncio.timeout(10):
            return await scene

    return asyncio.run(main())


def test_what_is_done_alone_is_done_at_once_and_told() -> None:
    async def scene() -> None:
        writer = Writer()
        told: list[Any] = []
        hands = threads(writer, told=told)
        assert await hands.write(lambda _: "done") == "done"
        assert (writer.alone, writer.together, told) == (1, [], ["done"])
        await hands.close()

    run(scene())


@pytest.mark.parametrize("quick", [QUICK_SECONDS, 0.0], ids=["here", "on the thread"])
def test_what_a_change_raises_reaches_whoever_asked_for_it_alone(quick: float) -> None:
    def refuse(_: object) -> None:
        raise KeyError("no")

    async def scene() -> None:
        told: list[Any] = []
        hands = threads(Writer(), quick=quick, told=told)
        first, second = await asyncio.gather(hands.write(refuse), hands.write(lambda _: "done"), return_exceptions=True)
        assert isinstance(first, KeyError)
        assert second == "done"
        assert told == ["done"]
        await hands.close()

    run(scene())


def test_what_would_have_to_wait_is_done_on_the_thread() -> None:
    async def scene() -> None:
        writer = Writer(busy=True)
        hands = threads(writer)
        assert await hands.write(lambda _: "done") == "done"
        assert writer.threads == {"gert-ledger-writer"}
        await hands.close()

    run(scene())


def test_what_comes_together_is_written_together() -> None:
    async def scene() -> None:
        writer = Writer()
        hands = threads(writer, quick=0.0)
        assert await asyncio.gather(*(hands.write(lambda _: 1) for _ in range(20))) == [1] * 20
        assert sum(writer.together) == 20
        assert len(writer.together) < 20
        await hands.close()

    run(scene())


def test_whoever_writes_again_and_again_lets_others_have_a_turn() -> None:
    def slowly(_: object) -> None:
        time.sleep(QUICK_SECONDS / 4)

    async def scene() -> None:
        hands = threads(Writer())
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        for _ in range(40):
            await hands.write(slowly)
        beside.cancel()
        assert turns >= 5
        await hands.close()

    run(scene())


@pytest.mark.parametrize("quick", [QUICK_SECONDS, 0.0], ids=["here", "on the thread"])
def test_a_writer_that_breaks_leaves_nobody_waiting(quick: float) -> None:
    async def scene() -> None:
        hands = threads(Writer(breaks=OSError("broken")), quick=quick)
        found = await asyncio.gather(*(hands.write(lambda _: 1) for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in found] == ["broken"] * 3
        await hands.close()

    run(scene())


def test_where_no_thread_is_to_be_had_whoever_asks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scene() -> None:
        hands = threads(Writer(), quick=0.0)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for ask in (hands.write, hands.read):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await ask(lambda _: 1)
        # There is one again, and nothing was held up by those who got none.
        assert await hands.write(lambda _: "done") == "done"
        await hands.close()

    run(scene())


def test_an_end_that_fails_is_an_end() -> None:
    def fail() -> None:
        raise OSError("the file is gone")

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        task = Task(lambda _: "done")
        task.future = loop.create_future()
        worker = Worker("gert-test", lambda _: task.run(None), fail)
        worker.do(Job([task], loop, lambda _, __: task.settle()))
        assert await task.future == "done"
        await worker.end(loop)

    with pytest.MonkeyPatch.context() as patched:
        failed: list[Any] = []
        patched.setattr(threading, "excepthook", failed.append)
        run(scene())
    assert [type(each.exc_value) for each in failed] == [OSError]


@pytest.mark.parametrize("was_used", [True, False])
def test_whoever_comes_after_the_end_is_refused(was_used: bool) -> None:
    async def scene() -> None:
        hands = threads(Writer(), quick=0.0)
        if was_used:
            await hands.write(lambda _: 1)
        await hands.close()
        for ask in (hands.write, hands.read):
            with pytest.raises(TraceError, match="the ledger is closed"):
                await ask(lambda _: 1)

    run(scene())
