"""The location of runs and their tickets: a ledger that options name, or that of a state directory."""

import os
from collections.abc import Mapping

import msgspec

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import (
    Database,
    database_for,
    ledger_arguments,
    ledger_name,
    ledger_of,
    require_ledger,
)
from gert.ecosystem.host.config.project_root import project_root
from gert.ecosystem.host.config.state_dir import state_dir, state_dir_argument


class Place(msgspec.Struct, frozen=True):
    """The location of runs: a state directory, or a ledger in a file or on Postgres.

    here: the default state directory
    """

    state: str
    db: str | None = None
    dsn: Dsn | None = None
    here: str = ""

    @property
    def is_named(self) -> bool:
        """Whether a ledger is named, and not a state directory."""
        return self.database is not None

    @property
    def database(self) -> Database | None:
        """The ledger that was named, if any."""
        return self.dsn if self.dsn is not None else self.db

    @property
    def ledger(self) -> Database:
        """The ledger that was named, or that of the state directory."""
        return self.database if self.database is not None else ledger_of(self.state)

    @property
    def is_there(self) -> bool:
        """Whether there is a ledger; a state directory has none before its first run."""
        return not isinstance(self.ledger, str) or os.path.exists(self.ledger)

    @property
    def name(self) -> str:
        """The name of the location, for messages."""
        return ledger_name(self.database) if self.database is not None else os.path.join(self.state, "runs")

    @property
    def words(self) -> str:
        """The options that name this location on a command line, if they are needed; never a password."""
        return ledger_arguments(self.database) or state_dir_argument(self.state, self.here)


def place_for(
    chosen: str | None, db: str | None, environ: Mapping[str, str], dsn: str | None = None, working: str | None = None
) -> Place:
    """The location that options name (default: the state directory of the working folder)."""
    database = database_for(db, dsn, environ)
    if db is not None:
        require_ledger(db)
    address = database if isinstance(database, Dsn) else None
    root = project_root(os.getcwd() if working is None else working)
    return Place(state_dir(chosen, root, environ), db, address, state_dir(None, root, environ))
