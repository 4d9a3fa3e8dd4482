"""Find the runner of an extension: `gert-ext-<name>` on PATH, or a path (ecosystem-v0 §6.3, DECISIONS 10)."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.process.find_program import Programs, not_found, shown
from gert.kernel.runbook.tools import is_path

if TYPE_CHECKING:
    from gert.kernel.events.runbook.parts import Failure

PREFIX: Final = "gert-ext-"
AGENT: Final = "gert-ext-agent"
"""The runner of gert itself that records in gert's ledger, and resumes what it began."""


def program_name(extension: str) -> str:
    """Return the name of the program of an extension; a name may have the prefix already."""
    return extension if is_path(extension) or extension.startswith(PREFIX) else PREFIX + extension


def is_own_agent(program: str) -> bool:
    """Whether a program is the runner for agents of this installation, and not one of the same name elsewhere."""
    import shutil  # as in `find_program`

    own = shutil.which(AGENT, path=os.path.dirname(sys.executable))
    return own is not None and os.path.realpath(program) == os.path.realpath(own)


class Runners(msgspec.Struct, frozen=True, kw_only=True):
    """Finds runners for one runbook.

    folders: where a relative path is looked for, in order: of the runbook, the project, and the working directory
    """

    folders: tuple[str, ...]
    environment: Mapping[str, str]
    programs: Programs = msgspec.field(default_factory=Programs)

    def __contains__(self, extension: object) -> bool:
        return isinstance(extension, str) and isinstance(self.find(extension), str)

    def find(self, extension: str) -> "str | Failure":
        """Return the file of a runner, or why there is none."""
        name = program_name(extension)
        if not is_path(name):
            return self.programs.find(name, self.folders[0], self.environment)
        found: str | Failure = not_found(f"{shown(name)} was not found")
        for folder in dict.fromkeys(self.folders):
            file = self.programs.find(os.path.join(folder, name), folder, self.environment)
            if isinstance(file, str):
                return os.path.normpath(file)
            # A file that is there and cannot be run says more than one that is not there.
            if os.path.lexists(os.path.join(folder, name)):
                found = file
        return found
