"""A statement on its way: whatever becomes of who waits for it, it is seen through and told only once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from gert.ecosystem.stores.postgres_sending import Sending

Scene = Callable[[], Coroutine[Any, Any, None]]


class Statement:
    """A statement that waits for a future, and remembers how that ended for it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ends: list[str] = []

    async def fetch(self) -> str:
        """Wait once without a future, as one may, and then for the answer."""
        await asyncio.sleep(0)
        try:
            found = await self.answer
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise
        self.ends.append(found)
        return found


async def turns(number: int = 3) -> None:
    """Let everybody have a few turns."""
    for _ in range(number):
        await asyncio.sleep(0)


async def waiting(sending: Awaitable[str]) -> str:
    """Somebody who waits for it."""
    return await sending


def python_task(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
    """A task as it is written in Python; the usual one is written in C, and does not behave like a future alike."""
    return asyncio.tasks._PyTask(coro, loop=loop, **more)  # type: ignore[attr-defined]


@pytest.fixture(params=["in C", "in Python"])
def act(request: pytest.FixtureRequest) -> Callable[[Scene], None]:
    """Runs a scene, with tasks of either kind."""

    def run(scene: Scene) -> None:
        async def main() -> None:
            if request.param == "in Python":
                asyncio.get_running_loop().set_task_factory(python_task)
            async with asyncio.timeout(5):
                await scene()

        asyncio.run(main())

    return run


def test_what_is_answered_is_given(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        task = asyncio.get_running_loop().create_task(waiting(sending))
        await turns()
        assert sending.is_under_way
        statement.answer.set_result("done")
        assert await task == "done"
        assert not sending.is_under_way

    act(scene)


def test_what_fails_is_told_to_the_statement_first(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        task = asyncio.get_running_loop().create_task(waiting(sending))
        await turns()
        statement.answer.set_exception(OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            await task
        assert statement.ends == ["OSError"]
        assert not sending.is_under_way

    act(scene)


def test_a_statement_whose_answer_is_cancelled_hears_of_it(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        task = asyncio.get_running_loop().create_task(waiting(sending))
        await turns()
        statement.answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert statement.ends == ["CancelledError"]
        assert not sending.is_under_way

    act(scene)


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_who_is_cancelled_leaves_at_once_and_the_statement_goes_on(act: Callable[[Scene], None], before: int) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        task = asyncio.get_running_loop().create_task(waiting(sending))
        await turns(before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sending.is_under_way
        assert not statement.answer.done()
        asyncio.get_running_loop().call_soon(statement.answer.set_result, "done")
        assert await sending.rest() == "done"
        assert statement.ends == ["done"]

    act(scene)


@pytest.mark.parametrize("comes_first", ["the answer", "the cancelling"])
def test_who_is_cancelled_in_the_turn_of_the_answer_leaves_it_to_the_rest(
    act: Callable[[Scene], None], comes_first: str
) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        task = asyncio.get_running_loop().create_task(waiting(sending))
        await turns()
        if comes_first == "the answer":
            statement.answer.set_result("done")
            task.cancel()
        else:
            task.cancel()
            statement.answer.set_result("done")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sending.is_under_way
        assert await sending.rest() == "done"
        assert statement.ends == ["done"]

    act(scene)


def test_the_rest_can_be_cancelled_and_taken_up_again(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        for waits in (waiting(sending), sending.rest(), sending.rest()):
            task = asyncio.get_running_loop().create_task(waits)
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        statement.answer.set_exception(OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            await sending.rest()
        assert statement.ends == ["OSError"]

    act(scene)


def test_a_time_limit_ends_the_waiting_alone(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        sending = Sending(statement.fetch())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await sending
        assert sending.is_under_way
        statement.answer.set_result("done")
        assert await sending.rest() == "done"

    act(scene)


def test_what_has_ended_cannot_be_awaited_again(act: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        statement = Statement()
        statement.answer.set_result("done")
        sending = Sending(statement.fetch())
        assert await sending == "done"
        with pytest.raises(RuntimeError, match="after its end"):
            await sending

    act(scene)
