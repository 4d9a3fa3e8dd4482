"""How a run is stopped from outside: by Ctrl-C, by a signal, or because its time is over."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

INTERRUPTED: Final = "interrupted"
TIMEOUT: Final = "timeout"
_STOPS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def _mind_children() -> None:
    """Whoever started us may have asked the system to forget children as they end; then nobody knew how they ended."""
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
    """What can be told to stop: a run, or a task."""

    def cancel(self, reason: str, /) -> object:
        """Stop what is under way."""


class Relay:
    """Signals that somebody else listens to; `press` hands one on to the run that is under way, if one is."""

    def __init__(self) -> None:
        self.press: Callable[[], object] | None = None


@contextmanager
def listening(press: Callable[[], object]) -> Iterator[None]:
    """Call a function for Ctrl-C and the signals like it."""
    loop = asyncio.get_running_loop()
    _mind_children()
    caught = []
    for number in _STOPS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # whoever started us wants it so: `nohup`, or a job in the background
        try:
            loop.add_signal_handler(number, press)
            caught.append(number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # not the main thread, or a system without signals: the caller's own handling stays
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


@contextmanager
def interruptible(work: Cancellable, abort: Callable[[], object], relay: Relay | None = None) -> Iterator[list[bool]]:
    """Ctrl-C once stops what is under way and finishes the record; twice ends everything at once.

    relay: where signals come from when somebody else listens to them
    """
    pressed: list[bool] = []
    task = asyncio.current_task()

    def press() -> None:
        pressed.append(True)
        if len(pressed) == 1:
            work.cancel(INTERRUPTED)
            return
        abort()
        if task is not None:
            task.cancel()

    if relay is None:
        with listening(press):
            yield pressed
        return
    relay.press = press
    try:
        yield pressed
    finally:
        relay.press = None
