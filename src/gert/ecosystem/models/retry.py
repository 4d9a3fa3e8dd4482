"""Retries of transient failures: bounded, with exponential backoff."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gert.ecosystem.models.limits import Limits
from gert.errors import ModelError, ModelTimeoutError, ModelTransientError

T = TypeVar("T")


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    limits: Limits,
    sleep: Callable[[float], Awaitable[object]],
    may_repeat: Callable[[ModelError], bool] = lambda _: True,
) -> T:
    """Retry until an attempt succeeds, fails permanently, or retries are used up; raise the last failure.

    may_repeat: checked after a failure; a stream that has sent text is not started again
    """
    made = 0
    while True:
        try:
            return await attempt()
        except (ModelTimeoutError, ModelTransientError) as failure:
            wait = pause_after(failure, made, limits)
            if made >= limits.max_retries or wait is None or not may_repeat(failure):
                raise
        await sleep(wait)
        made += 1


def pause_after(failure: ModelError, made: int, limits: Limits) -> float | None:
    """Return how long to wait after a failure; None if the vendor asks for longer than the limit."""
    import random

    backoff = min(limits.initial_backoff_seconds * 2.0 ** min(made, 32), limits.max_backoff_seconds)
    # Many runs may fail at the same moment; they should not all retry at the same moment.
    backoff *= 0.5 + random.random() / 2  # noqa: S311
    if failure.retry_after is None:
        return backoff
    return None if failure.retry_after > limits.max_retry_after_seconds else max(failure.retry_after, backoff)
