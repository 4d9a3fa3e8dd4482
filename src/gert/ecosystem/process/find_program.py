"""Find the program of a tool (kernel-v0 §12.2)."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gert.kernel.foundation.text import printable

if TYPE_CHECKING:
    from gert.kernel.events.runbook.parts import Failure

_OWN_PREFIX: Final = "gert-"
"""Programs with this prefix are also looked for beside gert itself, which need not be on PATH."""


class Programs:
    """Finds programs by name or path, and caches where a name was found while the file exists."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}

    def find(self, name: str, folder: str, environment: Mapping[str, str]) -> "str | Failure":
        """Return the file to run: a path is relative to the process's folder, a name is looked up on its PATH."""
        if os.sep in name or (os.altsep is not None and os.altsep in name):
            return _at(os.path.join(folder, name), name)
        path = environment.get("PATH", os.defpath)
        known = self._found.get((path, name))
        if known is not None and os.access(known, os.X_OK):
            return known
        import shutil  # loads every compression, and most commands look for no program

        found = shutil.which(name, path=path) if path else None
        if found is None and name.startswith(_OWN_PREFIX):
            found = shutil.which(name, path=os.path.dirname(sys.executable))
        if found is None:
            return not_found(f"{shown(name)} was not found on PATH")
        try:
            self._found[path, name] = found = os.path.abspath(found)
        except OSError:
            # Found relative to a working folder that was removed.
            return not_found(f"{shown(name)} was not found on PATH: the working folder was removed")
        return found


def not_found(said: str) -> "Failure":
    """Say why a program cannot be run."""
    from gert.kernel.events.runbook.parts import Failure  # brings every event, and validation needs none

    return Failure("not_found", said)


def shown(name: str) -> str:
    """Format the name of a program for a message."""
    return f"`{printable(name)}`"


def _at(file: str, name: str) -> "str | Failure":
    if not os.path.exists(file):
        return not_found(f"{shown(name)} was not found in {shown(os.path.dirname(file))}")
    if os.path.isdir(file):
        return not_found(f"{shown(name)} is a folder, not a program")
    if not os.access(file, os.X_OK):
        return not_found(f"{shown(name)} is not executable")
    return file
