"""Runs of `gert tool try`: recorded like any other, and left out where the runs of runbooks are listed and counted."""

import os
import re
from typing import Final

from gert.kernel.events.envelope import Envelope

_NAME: Final = "try-"
_FILE: Final = re.compile(r"try-[0-9a-f]{12}\.yaml")


def may_be_trial(runbook: str) -> bool:
    """Whether the name of a runbook is like those of `gert tool try`; a runbook that a person wrote may be, too."""
    return runbook.startswith(_NAME)


def is_trial(start: Envelope) -> bool:
    """Whether a run is one of `gert tool try`, by its first event: its runbook was made for it, and is not a file."""
    begun = start.data.get("start")
    file = begun.get("file") if isinstance(begun, dict) else None
    is_made = isinstance(file, str) and _FILE.fullmatch(os.path.basename(file)) is not None
    return is_made and may_be_trial(str(start.data.get("runbook")))
