"""Two things measured in turns, so that whatever else the machine does hits both alike."""

import statistics
import time
from collections.abc import Awaitable, Callable

from bench.ratio import Ratio

Work = Callable[[], Awaitable[object]]


async def seconds(work: Work) -> float:
    """How long some work takes."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def paired(name: str, ours: Work, floor: Work, limit: float, rounds: int = 41) -> Ratio:
    """The medians of some work and of its floor, in many short turns."""
    await floor()
    await ours()
    pairs = [(await seconds(ours), await seconds(floor)) for _ in range(rounds)]
    measured, below = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Ratio(name, measured, below, limit)
