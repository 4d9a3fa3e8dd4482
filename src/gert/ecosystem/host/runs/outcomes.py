"""The traces and ledgers that `gert outcomes` reads."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from gert.ecosystem.host.config.ledger_location import Database, database_for, ledger_name, ledger_of, require_ledger
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import UsageError


class Places(msgspec.Struct, frozen=True):
    """The traces and ledgers to read.

    paths: files, and folders with everything below them
    databases: SQLite files, and ledgers on Postgres
    """

    paths: tuple[str, ...] = ()
    databases: tuple[Database, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the traces and ledgers, for messages."""
        return (*self.paths, *map(ledger_name, self.databases))


def places_for(
    paths: Sequence[str],
    db: str | None,
    chosen_state: str | None,
    working: str,
    environ: Mapping[str, str],
    dsn: str | None = None,
) -> Places:
    """The traces and ledgers that were named (default: the ledger of the state directory)."""
    for path in paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or folder `{path}`")
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
    ledgers = () if database is None else (database,)
    if chosen_state:
        ledgers = (*ledgers, ledger_of(os.path.abspath(chosen_state)))
    if paths or ledgers:
        return Places(tuple(paths), ledgers)
    return Places((), (ledger_of(state_dir(None, Workspace(working).project_root(working), environ)),))
