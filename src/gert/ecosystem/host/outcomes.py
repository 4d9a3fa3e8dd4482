"""Where the traces of runs are found when people ask what runs came to."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from gert.ecosystem.host.database import Database, database_for, is_folder_of_runs, name_of, require_ledger
from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.runs import RUNS, state_dir
from gert.ecosystem.host.settings import settings_for
from gert.errors import UsageError


class Places(msgspec.Struct, frozen=True):
    """Where traces are looked for.

    paths: files, and folders with everything below them
    states: state directories, of which only the traces of runs are read
    databases: SQLite files, and ledgers on Postgres
    """

    paths: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    databases: tuple[Database, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The places as people know them."""
        return (*self.paths, *(os.path.join(state, RUNS) for state in self.states), *map(name_of, self.databases))


def places_for(
    paths: Sequence[str],
    db: str | None,
    chosen_state: str | None,
    working: str,
    environ: Mapping[str, str],
    dsn: str | None = None,
) -> Places:
    """The places that were named; where none was, the configured folder for traces and the state directory."""
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder `{path}`")
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
        if is_folder_of_runs(db):
            # Its files are traces, and are read as such.
            paths, database = (*paths, db), None
    states: tuple[str, ...] = (os.path.abspath(chosen_state),) if chosen_state else ()
    if paths or database is not None:
        return Places(tuple(paths), states, () if database is None else (database,))
    configured = traces_dir(working, environ)
    state = state_dir(chosen_state, Workspace(working).project_root(working), environ)
    return Places(() if configured is None else (configured,), (state,))


def traces_dir(folder: str, environ: Mapping[str, str]) -> str | None:
    """The folder for traces that the settings name, if they do."""
    return settings_for(Workspace(folder), folder, environ=environ).traces_dir
