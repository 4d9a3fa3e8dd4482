"""The cyclic garbage collector during a run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_heap() -> Iterator[None]:
    """What is loaded by now stays loaded while a run is driven: the collector need not scan it again and again.

    A run makes no cycles worth speaking of, so it is looked through rarely.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
