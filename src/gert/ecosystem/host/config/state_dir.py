"""The state directory, and the folder that holds the mirror of a run."""

import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from gert.ecosystem.ledger.folders import make_folder, sync_folder_of
from gert.errors import TraceError, UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import os_reason

STATE_DIR: Final = "GERT_STATE_DIR"
RUNS: Final = "runs"
TRACE_FILE: Final = "trace.jsonl"

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"


def new_run_id(moment: datetime) -> str:
    """An id that sorts by time and is a safe file name everywhere."""
    chance = "".join(secrets.choice(_ALPHABET) for _ in range(6))
    return f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 1000:03d}-{chance}"


def state_dir(chosen: str | None, project_root: str | None, environ: Mapping[str, str]) -> str:
    """The state directory: the chosen one, the project's root, or the user's own (XDG)."""
    if chosen:
        return os.path.abspath(chosen)
    if environ.get(STATE_DIR):
        return os.path.abspath(environ[STATE_DIR])
    if project_root is not None:
        return project_root
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA") or os.path.join(os.path.expanduser("~"), "AppData", "Local")
    else:
        base = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "gert")


def state_dir_argument(state: str, here: str) -> str:
    """The --state-dir argument that names a state directory; empty if it is the default one."""
    return "" if state == here else f" --state-dir {shlex.quote(state)}"


class RunFolder:
    """The folder of one run; only its owner can read it."""

    def __init__(self, state: str, run_id: str) -> None:
        if not is_safe_name(run_id):
            raise UsageError(f"`{run_id}` is not a run id")
        self.path = os.path.join(state, RUNS, run_id)

    @property
    def trace(self) -> str:
        """The default path of the trace."""
        return os.path.join(self.path, TRACE_FILE)

    def create(self) -> None:
        """Create the folder; an existing one belongs to another run."""
        try:
            make_folder(os.path.dirname(self.path))
            os.mkdir(self.path, 0o700)
            sync_folder_of(self.path)
        except OSError as problem:
            raise TraceError(
                f"cannot record the run in `{self.path}`: {os_reason(problem)}",
                hint="choose another directory with --state-dir or GERT_STATE_DIR, or use --trace, --db or --dsn",
            ) from None
