"""Descriptors a process was started with, and whether children could inherit any of them."""

import errno
import os
from threading import Event
from typing import Final

_FOLDER: Final = "/dev/fd"
_private: Final = Event()


def keep_private() -> None:
    """Let no child inherit what this process was started with; only for a process that is gert's alone.

    What Python and the libraries here open later is not inherited by itself. Where the system does not list
    descriptors, or does not let one be marked, nothing is promised.
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
                if problem.errno != errno.EBADF:  # the one the folder was read through is closed by now
                    return
    _private.set()


def are_private() -> bool:
    """Whether a child gets none but those it is given, without closing the others one by one."""
    return _private.is_set()
