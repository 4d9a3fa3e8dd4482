"""The location of a ledger: the file of a state directory, another SQLite file, or Postgres."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from gert.ecosystem.host.config.dsn import Dsn, read_dsn
from gert.ecosystem.host.config.files import is_file
from gert.ecosystem.host.config.keys.trace_keys import signing_key, verification_keys
from gert.ecosystem.host.config.state_dir import RUNS
from gert.ecosystem.ledger.folders import make_folder
from gert.errors import GertError, TraceError, UsageError
from gert.kernel.foundation.signature import Keys
from gert.kernel.foundation.text import os_reason
from gert.kernel.ledger.port import Ledger

Database: TypeAlias = str | Dsn
"""The path of a SQLite file, or the DSN of a Postgres ledger."""

LEDGER_FILE: Final = "ledger.db"


def database_for(db: str | None, dsn: str | None, environ: Mapping[str, str]) -> Database | None:
    """The ledger that --db or --dsn names, if any."""
    if db is not None and dsn is not None:
        raise UsageError("expected `--db` or `--dsn`, found both", hint="pass only one of them")
    return read_dsn(dsn, environ) if dsn is not None else db


def ledger_of(state: str) -> str:
    """The ledger of a state directory."""
    return os.path.join(state, RUNS, LEDGER_FILE)


def require_ledger(path: str) -> None:
    """Refuse a path that cannot be an existing ledger: a missing file, a pipe, a folder."""
    if os.path.isdir(path):
        raise UsageError(
            f"expected a ledger file, found the folder `{path}`",
            hint="pass a folder with --state-dir; `gert outcomes` and `gert trace` read JSONL files",
        )
    if not is_file(path):
        raise UsageError(f"there is no file `{path}`")


def open_ledger(
    database: Database, environ: Mapping[str, str], *, sync: bool = True, read_only: bool = False
) -> Ledger:
    """Open a ledger; create it if it does not exist, unless `read_only`.

    sync: wait for the disk at every commit; Postgres always does
    """
    key, keys = (None, Keys()) if read_only else (signing_key(environ), verification_keys(environ, None))
    if isinstance(database, Dsn):
        from gert.ecosystem.ledger.postgres.ledger import PostgresLedger  # rarely needed, and slow to import

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

    # A tool of the run may remove the ledger: then no further step starts.
    return SqliteLedger(database, sync=sync, read_only=read_only, key=key, keys=keys, look_every=0.0)


def make_ledger_folder(state: str) -> None:
    """Create the folder of a state directory's ledger, readable only by its owner."""
    folder = os.path.join(state, RUNS)
    try:
        make_folder(folder)
    except OSError as problem:
        raise TraceError(
            f"cannot record the run in `{folder}`: {os_reason(problem)}",
            hint="choose another directory with --state-dir or GERT_STATE_DIR, or a ledger with --db or --dsn",
        ) from None


def mask_password(database: Database | None, problem: GertError) -> GertError:
    """Remove the password of a DSN from an error."""
    if isinstance(database, Dsn):
        problem.message = database.masked(problem.message)
        problem.hint = None if problem.hint is None else database.masked(problem.hint)
        problem.args = (problem.message,)
    return problem


@contextmanager
def masking_password(database: Database) -> Iterator[None]:
    """Remove the password of a DSN from errors that are raised."""
    try:
        yield
    except GertError as problem:
        raise mask_password(database, problem) from None


def ledger_name(database: Database) -> str:
    """The name of a ledger, without a password."""
    return database.name if isinstance(database, Dsn) else database


def ledger_arguments(database: Database | None) -> str:
    """The command-line arguments that name a ledger, without a password."""
    if isinstance(database, Dsn):
        return f" --dsn {shlex.quote(database.given)}"
    return f" --db {shlex.quote(database)}" if database else ""
