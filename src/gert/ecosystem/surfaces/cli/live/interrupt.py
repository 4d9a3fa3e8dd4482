"""Ctrl-C for commands that watch: whoever has seen enough still wants the last lines."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


@contextmanager
def stopping() -> Iterator[Event]:
    """An event that Ctrl-C sets, in place of an interrupt."""
    stop = Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
