"""Keep the SDK's log messages about gert's own connections out of every log: they quote calls, secrets included."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final

_OURS: Final[ContextVar[bool]] = ContextVar("gert_mcp", default=False)
_PREFIXES: Final = ("mcp", "client", "httpx2", "httpcore2")
"""The loggers of the SDK and of its HTTP library."""


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what is logged in this context, and in the tasks that it starts; other users of the SDK are not affected."""
    _filter_all()
    token = _OURS.set(True)
    try:
        yield
    finally:
        _OURS.reset(token)


@cache
def _filter_all() -> None:
    # Filters of a logger do not apply to the loggers below it, so each of them gets one.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _PREFIXES:
            logging.getLogger(name).addFilter(_is_foreign)


def _is_foreign(_: logging.LogRecord) -> bool:
    return not _OURS.get()
