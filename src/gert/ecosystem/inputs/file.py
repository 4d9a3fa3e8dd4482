"""Inputs from files, and the opening of files that people name: regular ones only, and never more than a bound."""

import os
import stat
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from gert.errors import InputError
from gert.kernel.engine.inputs import BatchAnswer, InputBinding
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.runbook.reader import shorten

MAX_TEXT: Final = 1024 * 1024

# The end of a path says most, so messages show more of it than of other words.
MAX_PATH: Final = 200


class FileResolver:
    """Reads each value from a file of its own; paths are relative to one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def resolve(self, bindings: Sequence[InputBinding]) -> BatchAnswer:
        """The texts of the files that are there."""
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
    """The text of a file without the newline at its end; FileNotFoundError where there is none."""
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
    """Open a regular file; a pipe or device would block or never end. FileNotFoundError where there is none."""
    try:
        # Without waiting: opening a pipe that nobody writes to would never return.
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
    return InputError(f"`{shorten(path, MAX_PATH)}` cannot be read: {(problem.strerror or str(problem)).lower()}")
