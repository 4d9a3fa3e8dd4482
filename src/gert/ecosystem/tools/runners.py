"""Find the runner of an extension: `gert-ext-<name>` on PATH, or a path (ecosystem-v0 §6.3, DECISIONS 10)."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from gert.ecosystem.process.find_program import Programs, shown
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.runbook.tools import is_path

PREFIX: Final = "gert-ext-"


def program_name(extension: str) -> str:
    """Return the name of the program of an extension; a name may have the prefix already."""
    return extension if is_path(extension) or extension.startswith(PREFIX) else PREFIX + extension


class Runners(msgspec.Struct, frozen=True, kw_only=True):
    """Finds runners for one runbook.

    folders: where a relative path is looked for, in order: of the runbook, the project, and the working directory
    """

    folders: tuple[str, ...]
    environment: Mapping[str, str]
    programs: Programs = msgspec.field(default_factory=Programs)

    def __contains__(self, extension: object) -> bool:
        return isinstance(extension, str) and isinstance(self.find(extension), str)

    def find(self, extension: str) -> str | Failure:
        """Return the file of a runner, or why there is none."""
        name = program_name(extension)
        if not is_path(name):
            return self.programs.find(name, self.folders[0], self.environment)
        found: str | Failure = Failure("not_found", f"{shown(name)} was not found")
        for folder in dict.fromkeys(self.folders):
            file = self.programs.find(os.path.join(folder, name), folder, self.environment)
            if isinstance(file, str):
                return os.path.normpath(file)
            # A file that is there and cannot be run says more than one that is not there.
            if os.path.lexists(os.path.join(folder, name)):
                found = file
        return found
