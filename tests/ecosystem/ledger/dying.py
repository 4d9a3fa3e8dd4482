"""A process that dies at a call of the system, for tests of what it leaves behind."""

import os
from collections.abc import Callable, Sequence
from typing import Any

COUNTED = ("open", "write", "fsync", "fdatasync", "replace", "ftruncate", "lseek", "close", "unlink")
KILLED = 9


def dies_at(number: int, names: Sequence[str] = COUNTED) -> None:
    """Let this process die before it makes so many of these calls of the system."""
    made = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            if made == number:
                os._exit(KILLED)
            return call(*args, **more)

        return count

    for name in names:
        setattr(os, name, counted(getattr(os, name)))
