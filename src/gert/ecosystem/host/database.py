"""Where runs are kept in place of files: a SQLite file, or a ledger on Postgres, which are opened and named alike."""

import os
import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from gert.ecosystem.host.dsn import Dsn, read_dsn
from gert.ecosystem.host.files import is_file
from gert.ecosystem.stores.port import Store
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.errors import UsageError

Database: TypeAlias = str | Dsn
"""A SQLite file, or to read from a folder of JSONL, by its path; a ledger on Postgres by its address."""


class RunStore(Store, Protocol):
    """A store of many runs, which keeps beside each what identifies it."""

    def last_time(self, run_id: str) -> str:
        """The timestamp of the last event of a run."""
        ...

    def write_state(self, run_id: str, state: bytes) -> None:
        """Keep what identifies a run, in place of what was kept before."""
        ...

    def state(self, run_id: str) -> bytes | None:
        """What identifies a run, if it was kept."""
        ...

    def lease(self, run_id: str) -> AbstractContextManager[None]:
        """Be the only one who drives a run; Busy where somebody else does."""
        ...


def database_for(db: str | None, dsn: str | None, environ: Mapping[str, str]) -> Database | None:
    """The database somebody named, if they did."""
    if db is not None and dsn is not None:
        raise UsageError("expected one ledger, found two", hint="leave out --db or --dsn")
    return read_dsn(dsn, environ) if dsn is not None else db


def require_ledger(path: str) -> None:
    """Refuse what cannot be a ledger to look at: a file that is not there, a pipe, a folder without one."""
    if os.path.isdir(path) and not is_folder_of_runs(path):
        raise UsageError(f"there is no ledger in the folder `{path}`")
    if not os.path.isdir(path) and not is_file(path):
        raise UsageError(f"there is no file `{path}`")


def is_folder_of_runs(path: str) -> bool:
    """Whether it is a folder that holds a ledger of JSONL."""
    if not os.path.isdir(path):
        return False
    from gert.ecosystem.stores.jsonl_ledger import is_ledger

    return is_ledger(path)


def open_database(database: Database, *, sync: bool = True, read_only: bool = False) -> RunStore:
    """Open a database; it is made if it is not there, unless it is only to be read.

    sync: whether to wait for the disk; a server always does, since it keeps the runs of others as well
    """
    if isinstance(database, Dsn):
        from gert.ecosystem.stores.postgres_store import PostgresRunStore  # seldom needed, and not small

        return PostgresRunStore(database.value, read_only=read_only, masked=database.masked)
    return SqliteStore(database, sync=sync, read_only=read_only)


def name_of(database: Database) -> str:
    """A database as people know it; never a password."""
    return database.name if isinstance(database, Dsn) else database


def words_for(database: Database | None) -> str:
    """What says on a command line that this database is meant; never a password."""
    if isinstance(database, Dsn):
        return f" --dsn {shlex.quote(database.given)}"
    return f" --db {shlex.quote(database)}" if database else ""
