"""Ctrl-C for commands that follow a run: they print the last lines before they exit."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


@contextmanager
def interrupt_event() -> Iterator[Event]:
    """An event that Ctrl-C sets instead of raising KeyboardInterrupt."""
    stop = Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
