"""The descriptors this process was started with, and whether children could inherit them."""

import errno
import os
from threading import Event
from typing import Final

_FOLDER: Final = "/dev/fd"
_private: Final = Event()


def keep_private() -> None:
    """Keep children from inheriting the descriptors of this process; only for gert's own process.

    Python does not let children inherit descriptors that it opens later. If the system does not list descriptors, or
    refuses to change one, `are_private` stays False.
    """
    try:
        names = os.listdir(_FOLDER)
    except OSError:
        return
    for descriptor in map(int, names):
        if descriptor > 2:
            try:
                os.set_inheritable(descriptor, False)
            except OSError as problem:
                if problem.errno != errno.EBADF:  # the descriptor of the listing itself is already closed
                    return
    _private.set()


def are_private() -> bool:
    """Whether a child inherits only the descriptors passed to it, without closing the others."""
    return _private.is_set()
