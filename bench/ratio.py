"""A ratio: something measured, the floor it is measured against, and the most it may be."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """One line of a report."""

    name: str
    measured: float
    floor: float
    limit: float

    @property
    def value(self) -> float:
        """How many times the floor."""
        return self.measured / self.floor

    @property
    def ok(self) -> bool:
        """Whether it is within its limit."""
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.ok else "OVER"
        milliseconds = f"{self.measured * 1e3:9.1f} ms / {self.floor * 1e3:8.1f} ms"
        return f"{mark} {self.name:<58} {self.value:5.2f}x (limit {self.limit:.3g}x) = {milliseconds}"


def report(ratios: Sequence[Ratio]) -> int:
    """Print the ratios; 1 when one is over its limit."""
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.ok for ratio in ratios) else 1


def timed(work: Callable[[], object]) -> float:
    """Seconds one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def timed_commands(commands: Sequence[Sequence[str]], rounds: int) -> list[float]:
    """The median seconds of each command, measured in turns so that noise hits all alike."""
    # Byte code is cached, as it is for anyone who runs a command twice.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def run(command: Sequence[str]) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=True)

    for command in commands:
        run(command)
    taken: list[list[float]] = [[] for _ in commands]
    for _ in range(rounds):
        for index, command in enumerate(commands):
            taken[index].append(timed(lambda command=command: run(command)))  # type: ignore[misc]
    return [statistics.median(each) for each in taken]
