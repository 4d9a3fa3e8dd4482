"""What asyncpg and Postgres say when something is wrong: what may be tried again, and how it reads."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

from gert.errors import Unavailable, UsageError

HELD_INDEX: Final = "calls_held"
"""The index in which no semantic key stands twice."""

EVENTS_INDEX: Final = "events_pkey"


@cache
def driver() -> ModuleType:
    """Import asyncpg, which only those who use Postgres need."""
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
        return "closed" in str(error)
    return isinstance(
        error,
        (
            OSError,
            asyncpg.PostgresConnectionError,
            # Somebody was told goodbye while he had nothing to ask, and asks before the line is dead.
            asyncpg.InternalClientError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.CannotConnectNowError,
            asyncpg.TooManyConnectionsError,
        ),
    )


def is_undone(error: BaseException) -> bool:
    """Whether the server took a statement back for the sake of another one, or of a cancellation that came late."""
    asyncpg = driver()
    return isinstance(error, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.QueryCanceledError))


def violated(error: BaseException) -> str | None:
    """The index a statement would have put something into twice."""
    if isinstance(error, driver().UniqueViolationError):
        return str(getattr(error, "constraint_name", None) or "")
    return None


def is_doubtful(error: BaseException) -> bool:
    """Whether a change may have happened although this was said."""
    return isinstance(error, TimeoutError) or is_transient(error)


def may_pass(error: BaseException) -> bool:
    """Whether an append may succeed, or be refused for its own reasons, when the run is looked at again."""
    return is_doubtful(error) or is_undone(error) or violated(error) in (HELD_INDEX, EVENTS_INDEX)


def worded(error: BaseException) -> Exception:
    """What was said, as our own error; nothing of the address is repeated, since it may hold a password."""
    asyncpg = driver()
    if isinstance(error, TimeoutError):
        return Unavailable("the database did not answer in time", hint="is it overloaded, or somebody holding a lock?")
    if is_transient(error):
        return Unavailable(f"the database cannot be reached: {_said(error)}")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return Unavailable(f"the database does not let us in: {_said(error)}")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return Unavailable(f"there is no such database: {_said(error)}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return Unavailable("the database cannot be written: it is read-only", hint="is it a replica?")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Unavailable(f"the database does not allow it: {_said(error)}")
    if isinstance(error, asyncpg.DiskFullError):
        return Unavailable("the database cannot be written: no space left on device")
    if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        return Unavailable(f"the database cannot be used: {_said(error)}")
    return error if isinstance(error, Exception) else Unavailable(_said(error))


def is_no_address() -> UsageError:
    """Say that an address is none, without repeating it."""
    return UsageError(
        "the address of the database cannot be read", hint="expected postgresql://user@host:5432/database"
    )


def _said(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return text[:200] or type(error).__name__
