"""The ledgers of runs: the file of a state directory, another SQLite file, or one on Postgres."""

import os
import shlex
from collections.abc import Mapping
from typing import Final, TypeAlias

from gert.ecosystem.host.config.dsn import Dsn, read_dsn
from gert.ecosystem.host.config.files import is_file
from gert.ecosystem.host.config.state_dir import RUNS
from gert.ecosystem.host.config.trace_keys import signing_key, verification_keys
from gert.ecosystem.ledger.folders import make_folder
from gert.errors import GertError, TraceError, UsageError
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.port import Ledger

Database: TypeAlias = str | Dsn
"""A SQLite file by its path, or a ledger on Postgres by its address."""

LEDGER_FILE: Final = "ledger.db"


def database_for(db: str | None, dsn: str | None, environ: Mapping[str, str]) -> Database | None:
    """The ledger that was named, if one was."""
    if db is not None and dsn is not None:
        raise UsageError("expected one ledger, found two", hint="leave out --db or --dsn")
    return read_dsn(dsn, environ) if dsn is not None else db


def ledger_of(state: str) -> str:
    """The ledger of a state directory."""
    return os.path.join(state, RUNS, LEDGER_FILE)


def require_ledger(path: str) -> None:
    """Refuse what cannot be a ledger to look at: a file that is not there, a pipe, a folder."""
    if os.path.isdir(path):
        raise UsageError(
            f"`{path}` is a folder, and a ledger is a file",
            hint="`--state-dir` takes a folder; `gert outcomes` and `gert trace` read JSONL files",
        )
    if not is_file(path):
        raise UsageError(f"there is no file `{path}`")


def open_ledger(
    database: Database, environ: Mapping[str, str], *, sync: bool = True, read_only: bool = False
) -> Ledger:
    """Open a ledger; it is made if it is not there, unless it is only to be read.

    sync: whether to wait for the disk; a server always does, since it keeps the runs of others as well
    """
    key, keys = (None, Keys()) if read_only else (signing_key(environ), verification_keys(environ, None))
    if isinstance(database, Dsn):
        from gert.ecosystem.ledger.postgres.ledger import PostgresLedger  # seldom needed, and not small

        return PostgresLedger(
            database.value,
            read_only=read_only,
            min_pool_size=0,
            max_pool_size=1 if read_only else 4,
            max_retry_attempts=2 if read_only else 5,
            key=key,
            keys=keys,
        )
    from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger

    # A tool of the run may remove the ledger: no step after it is started.
    return SqliteLedger(database, sync=sync, read_only=read_only, key=key, keys=keys, look_every=0.0)


def make_ledger_folder(state: str) -> None:
    """Make the folder of a state directory's ledger, for its owner alone."""
    folder = os.path.join(state, RUNS)
    try:
        make_folder(folder)
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise TraceError(
            f"the run cannot be recorded in `{folder}`: {why}",
            hint="choose another place with --state-dir or GERT_STATE_DIR, or a ledger with --db or --dsn",
        ) from None


def masked(database: Database | None, problem: GertError) -> GertError:
    """An error without the password of the database's address."""
    if isinstance(database, Dsn):
        problem.message = database.masked(problem.message)
        problem.hint = None if problem.hint is None else database.masked(problem.hint)
        problem.args = (problem.message,)
    return problem


def name_of(database: Database) -> str:
    """A ledger as people know it; never a password."""
    return database.name if isinstance(database, Dsn) else database


def words_for(database: Database | None) -> str:
    """The words that name this ledger on a command line; never a password."""
    if isinstance(database, Dsn):
        return f" --dsn {shlex.quote(database.given)}"
    return f" --db {shlex.quote(database)}" if database else ""
