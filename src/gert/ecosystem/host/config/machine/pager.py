"""Showing a long text in the pager of the user."""

import shlex
import shutil
from collections.abc import Mapping
from typing import Final

from gert.ecosystem.process.helper import run_on_terminal

_SAFE: Final = {"LESSSECURE": "1", "LESS": "-F -X"}


def show_in_pager(text: str, environ: Mapping[str, str]) -> bool:
    """Show a text in $PAGER, or in `less`; False where there is no pager."""
    command = shlex.split(environ.get("PAGER") or "less")
    program = shutil.which(command[0]) if command else None
    if program is None:
        return False
    run_on_terminal([program, *command[1:]], {**environ, **_SAFE}, text.encode())
    return True
