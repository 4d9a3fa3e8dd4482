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


async def paired(name: str, ours: Work, floor: Work, limit: float, rounds: int = 7) -> Ratio:
    """The median pair of some work and its floor."""
    await floor()
    await ours()
    pairs = []
    for _ in range(rounds):
        below = await seconds(floor)
        pairs.append((await seconds(ours), below))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    measured, below = pairs[len(pairs) // 2]
    spread = statistics.quantiles([pair[0] / pair[1] for pair in pairs], n=4)
    return Ratio(f"{name} [{spread[0]:.2f}-{spread[2]:.2f}]", measured, below, limit)
