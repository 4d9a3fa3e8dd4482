"""The cyclic garbage collector, told to wait while a large tree is built that will be kept anyway."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(work: Callable[P, T]) -> Callable[P, T]:
    """Run a function without the collector.

    Reading and checking make no cycles, but many objects; scanning them again and again as the tree grows
    costs a quarter of the time. Size limits on documents bound what can pile up.
    """

    @wraps(work)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return work(*args, **kwargs)
        gc.disable()
        try:
            return work(*args, **kwargs)
        finally:
            gc.enable()

    return paused


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
