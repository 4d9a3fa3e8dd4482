"""Notices work that grows faster than what is given to it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quickly(seconds: float = 5.0) -> Iterator[None]:
    """Fail where this takes a processor for many times as long as it should; who else uses it does not count."""
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds
