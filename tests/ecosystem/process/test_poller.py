"""Watching descriptors: told of what comes and of its end, once per loop, and nothing is left behind."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from weakref import ref

import pytest

from gert.ecosystem.process.poller import Poller, _LoopPoller, poller_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be watched there")

PATIENCE = 10.0

both = pytest.mark.parametrize(
    "watch_for", [pytest.param(poller_of, id="the system's way"), pytest.param(_LoopPoller, id="the loop's way")]
)


class Pipe:
    """A pipe with a watched end; what is read of it is kept, and the end of it is an empty piece."""

    def __init__(self, watch: Poller) -> None:
        self.watch = watch
        self.source, self.sink = os.pipe()
        self.came: list[bytes] = []
        self.ended = asyncio.Event()

    def read(self, *_: object) -> None:
        self.came.append(os.read(self.source, 100))
        if not self.came[-1]:
            self.close()

    def close(self) -> None:
        self.watch.remove(self.source)
        os.close(self.source)
        self.ended.set()


@both
def test_what_comes_is_told_and_then_its_end(watch_for: Callable[[asyncio.AbstractEventLoop], Poller]) -> None:
    async def story() -> None:
        pipe = Pipe(watch_for(asyncio.get_running_loop()))
        pipe.watch.add(pipe.source, pipe.read, "any", "words")
        os.write(pipe.sink, b"one")
        os.close(pipe.sink)
        async with asyncio.timeout(PATIENCE):
            await pipe.ended.wait()
        assert pipe.came == [b"one", b""]

    asyncio.run(story())


@both
def test_an_event_of_a_file_that_was_closed_meanwhile_is_dropped(
    watch_for: Callable[[asyncio.AbstractEventLoop], Poller],
) -> None:
    async def story() -> None:
        watch = watch_for(asyncio.get_running_loop())
        pipes = [Pipe(watch), Pipe(watch)]
        told: list[int] = []

        def first_of_all(which: int) -> None:
            told.append(which)
            for pipe in pipes:
                pipe.close()

        for which, pipe in enumerate(pipes):
            watch.add(pipe.source, first_of_all, which)
            os.close(pipe.sink)  # both are ready at once
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(told) == 1

    asyncio.run(story())


@both
def test_what_was_never_watched_can_be_removed(watch_for: Callable[[asyncio.AbstractEventLoop], Poller]) -> None:
    async def story() -> None:
        pipe = Pipe(watch_for(asyncio.get_running_loop()))
        pipe.close()
        os.close(pipe.sink)

    asyncio.run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the loop itself watches")
def test_what_cannot_be_watched_is_refused_and_not_remembered(tmp_path: object) -> None:
    async def story() -> None:
        watch = poller_of(asyncio.get_running_loop())
        with open(f"{tmp_path}/file", "w+b") as file:
            with pytest.raises(PermissionError):  # files are always ready, so the system watches none
                watch.add(file.fileno(), pytest.fail)
            watch.remove(file.fileno())

    asyncio.run(story())


def test_one_that_fails_does_not_keep_others_from_being_told() -> None:
    async def story() -> None:
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: problems.append(said["exception"]))
        watch = poller_of(asyncio.get_running_loop())
        bad, good = Pipe(watch), Pipe(watch)

        def fail() -> None:
            bad.close()
            raise RuntimeError("a listener that fails")

        watch.add(bad.source, fail)
        watch.add(good.source, good.read)
        os.close(bad.sink)
        os.close(good.sink)
        async with asyncio.timeout(PATIENCE):
            await good.ended.wait()
        assert [str(problem) for problem in problems] == ["a listener that fails"]

    asyncio.run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the loop itself watches")
def test_a_loop_has_one_watch_and_takes_it_along_when_it_ends() -> None:
    loops: list[ref[asyncio.AbstractEventLoop]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert poller_of(loop) is poller_of(loop)
        loops.append(ref(loop))

    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(story())
    asyncio.run(story())
    gc.collect()
    assert [loop() for loop in loops] == [None, None]
    assert len(os.listdir("/proc/self/fd")) == before
