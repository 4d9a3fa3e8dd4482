"""Inputs from files, and opening of user-named files: regular files only, up to a size limit."""

import os
import stat
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from gert.errors import InputError
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.text import os_reason, shorten

MAX_TEXT: Final = 1024 * 1024

# Messages show more of a path than of other values, since its end matters most.
MAX_PATH: Final = 200


class FileResolver:
    """Resolves each input from its own file; paths are relative to one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """Return the texts of the files that exist."""
        values: dict[str, Any] = {}
        failures: dict[str, Failure] = {}
        for binding in bindings:
            try:
                values[binding.name] = read_text(os.path.join(self._folder, binding.path))
            except FileNotFoundError:
                continue
            except InputError as problem:
                failures[binding.name] = Failure("invalid_input", problem.message)
        return BatchAnswer(values, failures)


def read_text(path: str) -> str:
    """Return the text of a file without trailing newlines; FileNotFoundError if it does not exist."""
    with open_regular(path) as file:
        try:
            data = file.read(MAX_TEXT + 1)
        except OSError as problem:
            raise _refused(path, problem) from None
    if len(data) > MAX_TEXT:
        raise InputError(f"the file `{shorten(path, MAX_PATH)}` is larger than {MAX_TEXT // (1024 * 1024)} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"the file `{shorten(path, MAX_PATH)}` is not UTF-8 text") from None
    if "\0" in text:
        raise InputError(f"the file `{shorten(path, MAX_PATH)}` contains a NUL byte, so it is not text")
    return text.rstrip("\r\n")


def open_regular(path: str) -> BinaryIO:
    """Open a regular file; a pipe or device would block or never end. FileNotFoundError if it does not exist."""
    try:
        # Non-blocking: opening a pipe without a writer would never return.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as problem:
        raise _refused(path, problem) from None
    except ValueError:
        raise InputError(f"`{shorten(path, MAX_PATH)}` is not a path") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"`{shorten(path, MAX_PATH)}` is not a regular file")
    return open(descriptor, "rb")


def _refused(path: str, problem: OSError) -> InputError:
    return InputError(f"`{shorten(path, MAX_PATH)}` cannot be read: {os_reason(problem)}")
