"""The errors of asyncpg and Postgres: which may be tried again, and how they read."""

from functools import cache
from importlib import import_module
from types import ModuleType

from gert.errors import Forbidden, Unavailable, UsageError


@cache
def driver() -> ModuleType:
    """Import asyncpg, which only a ledger on Postgres needs."""
    try:
        return import_module("asyncpg")
    except ImportError:
        raise UsageError("a ledger on Postgres needs asyncpg", hint="pip install asyncpg") from None


def is_transient(error: BaseException) -> bool:
    """Whether a connection is to blame: on another one the same may succeed."""
    asyncpg = driver()
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, asyncpg.InterfaceError):
        # Another task may have given up the pool that this one was about to use, or the connection was cut, and given
        # back to the pool, between two statements.
        return any(word in str(error) for word in ("closed", "closing", "released back to the pool"))
    if isinstance(error, AttributeError):
        return _is_cut_off(error)
    return isinstance(
        error,
        (
            OSError,
            asyncpg.PostgresConnectionError,
            # The server said goodbye to an idle connection, and the next statement came before it was closed.
            asyncpg.InternalClientError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.CannotConnectNowError,
            asyncpg.TooManyConnectionsError,
        ),
    )


def _is_cut_off(error: AttributeError) -> bool:
    """Whether asyncpg used a connection that was cut meanwhile, and whose protocol it has dropped."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    module = str(frame.tb_frame.f_globals.get("__name__", "")) if frame is not None else ""
    return error.obj is None and module.partition(".")[0] == "asyncpg"


def is_undone(error: BaseException) -> bool:
    """Whether the server undid a transaction: for the sake of another one, or because both wrote the same key."""
    asyncpg = driver()
    return isinstance(
        error,
        (
            asyncpg.DeadlockDetectedError,
            asyncpg.SerializationError,
            asyncpg.QueryCanceledError,
            asyncpg.UniqueViolationError,
        ),
    )


def is_doubtful(error: BaseException) -> bool:
    """Whether a change may have been committed although this was raised."""
    return isinstance(error, TimeoutError) or is_transient(error)


def as_gert_error(error: BaseException) -> Exception:
    """The error as one of gert; nothing of the address is repeated, since it may hold a password."""
    asyncpg = driver()
    if isinstance(error, TimeoutError):
        return Unavailable(
            "the database did not answer in time", hint="is it overloaded, or does another session hold a lock?"
        )
    if is_transient(error):
        return Unavailable(f"the database cannot be reached: {_said(error)}")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return Unavailable(f"the database refused the login: {_said(error)}")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return Unavailable(f"there is no such database: {_said(error)}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return Unavailable("the database cannot be written: it is read-only", hint="is it a replica?")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Forbidden(f"the database does not allow it: {_said(error)}")
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable(
            "the database cannot be written: no space left on device", hint="free space, then resume the run"
        )
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return Unavailable(f"the database cannot be used: {_said(error)}")
    return error if isinstance(error, Exception) else Unavailable(_said(error))


def is_no_address() -> UsageError:
    """The error for an address that cannot be read; it is not repeated."""
    return UsageError(
        "the address of the database cannot be read", hint="expected postgresql://user@host:5432/database"
    )


def _said(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return text[:200] or type(error).__name__
