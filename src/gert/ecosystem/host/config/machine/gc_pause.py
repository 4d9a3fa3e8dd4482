"""Pausing the cyclic garbage collector while a large tree is built that is kept anyway."""

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(work: Callable[P, T]) -> Callable[P, T]:
    """Run a function with the collector disabled.

    Reading and checking make many objects and no cycles; scanning them again and again as the tree grows
    costs a quarter of the time. Size limits on documents bound the memory.
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
