"""Somebody at a console, for tests: at a real terminal or at the other end of a real pipe."""

import asyncio
import os
import pty
import select
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gert.ecosystem.host.run.world.console import Console

T = TypeVar("T")
LIMIT = 20  # seconds until a test that hangs is given up


class Screen:
    """What was shown."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, text: str) -> None:
        self.text += text

    async def until(self, words: str, start: int = 0) -> int:
        """Wait for words, and give the place behind them."""
        while (at := self.text.find(words, start)) < 0:
            await asyncio.sleep(0.001)
        return at + len(words)


class Stdin:
    """The two ends of a standard input."""

    def __init__(self, reads: int, types: int) -> None:
        self.reads, self.types = reads, types
        self.is_open = True

    def type(self, data: bytes) -> None:
        os.write(self.types, data)

    def arrived(self) -> None:
        """Wait until a line that was typed can be read: a terminal passes it on in its own time."""
        assert select.select([self.reads], [], [], LIMIT)[0]

    def end(self) -> None:
        if self.is_open:
            os.close(self.types)
        self.is_open = False

    def close(self) -> None:
        self.end()
        os.close(self.reads)


def a_terminal() -> Stdin:
    master, slave = pty.openpty()
    return Stdin(slave, master)


def at_terminal(work: Callable[[Console], Awaitable[T]], *said: tuple[str, str]) -> tuple[T, str]:
    """Do something with a person who waits for each question before typing; gives also what the screen showed."""
    stdin, screen = a_terminal(), Screen()

    async def main() -> T:
        async with asyncio.timeout(LIMIT):
            task = asyncio.ensure_future(work(Console(stdin.reads, screen, seen=True)))
            at = 0
            for question, answer in said:
                at = await screen.until(question, at)
                stdin.type(answer.encode())
            return await task

    try:
        return asyncio.run(main()), screen.text
    finally:
        stdin.close()


def piped(work: Callable[[Console], Awaitable[T]], said: bytes) -> tuple[T, str]:
    """Do something with answers that were written beforehand."""
    stdin, screen = Stdin(*os.pipe()), Screen()
    stdin.type(said)
    stdin.end()

    async def main() -> T:
        async with asyncio.timeout(LIMIT):
            return await work(Console(stdin.reads, screen))

    try:
        return asyncio.run(main()), screen.text
    finally:
        stdin.close()
