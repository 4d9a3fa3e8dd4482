"""How a run is stopped from outside: by Ctrl-C, by a signal, or because its time is over."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from gert.ecosystem.host.driver import Driver

INTERRUPTED: Final = "interrupted"
_STOPS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def _mind_children() -> None:
    """Whoever started us may have asked the system to forget children as they end; then nobody knew how they ended."""
    with suppress(AttributeError, ValueError):  # a system without this signal, or not the main thread
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def limited(driver: Driver, timeout: float | None) -> Iterator[None]:
    """Stop the run when its time is over."""
    if timeout is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(timeout, driver.cancel, "timeout")
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def interruptible(driver: Driver, abort: Callable[[], object]) -> Iterator[list[bool]]:
    """Ctrl-C once stops what is under way and finishes the record; twice ends everything at once."""
    loop = asyncio.get_running_loop()
    pressed: list[bool] = []
    _mind_children()
    task = asyncio.current_task()

    def press() -> None:
        pressed.append(True)
        if len(pressed) == 1:
            driver.cancel(INTERRUPTED)
            return
        abort()
        if task is not None:
            task.cancel()

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
        yield pressed
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
