"""How a run is stopped from outside: by Ctrl-C, by a signal, or because its time is over."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeAlias

from gert.ecosystem.process.own_process import is_owned

INTERRUPTED: Final = "interrupted"
TIMEOUT: Final = "timeout"
_STOPS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def _mind_children() -> None:
    """Restore SIGCHLD: where the parent process ignored it, the system would drop the exit status of children."""
    with suppress(AttributeError, ValueError):  # a system without this signal, or not the main thread
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def limited(work: "Cancellable", timeout: float | None) -> Iterator[None]:
    """Stop the run when its time is over."""
    if timeout is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(timeout, work.cancel, TIMEOUT)
    try:
        yield
    finally:
        timer.cancel()


class Cancellable(Protocol):
    """What can be cancelled: a run, or a task."""

    def cancel(self, reason: str, /) -> object:
        """Cancel it."""


Press: TypeAlias = Callable[[int], object]
"""Handles a signal, by its number."""


class Relay:
    """Forwards signals to the current run or task.

    press: handles them; None while nothing is under way that a signal could stop
    has_begun: something was under way, and must be finished
    pressed: the signals that `press` handled
    """

    def __init__(self) -> None:
        self.press: Press | None = None
        self.has_begun = False
        self.pressed: list[int] = []

    def __call__(self, number: int) -> None:
        """Hand on a signal; after the first one, only Ctrl-C means anything (DECISIONS 71)."""
        if self.press is not None and (number == signal.SIGINT or not self.pressed):
            self.pressed.append(number)
            self.press(number)


@contextmanager
def relayed(given: Relay | None) -> Iterator[Relay]:
    """The relay of a caller who listens to signals, or one that listens itself."""
    if given is not None:
        yield given
        return
    relay = Relay()
    with handle_signals(relay, lambda: bool(relay.pressed)):
        yield relay


@contextmanager
def handle_signals(press: Press, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Call a function for Ctrl-C and the signals like it.

    is_stopped: whether one has stopped what was under way; a process that is gert's alone then only has to exit, and
    those that are repeated meanwhile are ignored
    """
    loop = asyncio.get_running_loop()
    _mind_children()
    before: dict[int, Any] = {}
    for number in _STOPS:
        handler = signal.getsignal(number)
        if handler is signal.SIG_IGN:
            continue  # the parent process wants it so: `nohup`, or a job in the background
        try:
            loop.add_signal_handler(number, press, number)
            before[number] = handler
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # not the main thread, or a system without signals: the caller's own handling stays
    try:
        yield
    finally:
        with _signals_blocked(before):
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                ends = is_stopped() and is_owned() and not (number == signal.SIGINT and is_at_terminal())
                signal.signal(number, signal.SIG_IGN if ends or handler is None else handler)


@contextmanager
def _signals_blocked(numbers: Iterable[int]) -> Iterator[None]:
    """Keep signals waiting while their handlers change: none may meet the default action in between."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def is_at_terminal() -> bool:
    """Whether Ctrl-C reaches this process: it is in the foreground of a terminal that is still there."""
    if sys.platform == "win32":
        return sys.stdin is not None and sys.stdin.isatty()
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def interruptible(work: Cancellable, abort: Callable[[], object], relay: Relay) -> Iterator[list[int]]:
    """Cancel the run or task at the first signal, and finish the record; only Ctrl-C twice at a terminal aborts."""
    pressed: list[int] = []
    task = asyncio.current_task()

    def press(number: int) -> None:
        pressed.append(number)
        if len(pressed) == 1:
            work.cancel(INTERRUPTED)
        elif pressed.count(signal.SIGINT) > 1 and is_at_terminal():
            abort()
            if task is not None:
                task.cancel()

    relay.press, relay.has_begun = press, True
    try:
        yield pressed
    finally:
        relay.press = None
