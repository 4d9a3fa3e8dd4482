"""The ledger whose tickets a surface lists and answers: the one that is named, or that of the state directory."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.approval_keys import approval_verifier
from gert.ecosystem.host.config.ledger_location import (
    Database,
    database_for,
    ledger_arguments,
    ledger_name,
    ledger_of,
    make_ledger_folder,
    mask_password,
    open_ledger,
    require_ledger,
)
from gert.ecosystem.host.config.project_root import project_root
from gert.ecosystem.host.config.state_dir import state_dir, state_dir_argument
from gert.errors import GertError, UsageError
from gert.kernel.foundation.signature import Key


class TicketPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look for tickets.

    state_dir, db, dsn: as options name them; without any, the state directory of the working folder
    drop_box: the drop box of another user, in place of a ledger
    """

    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    drop_box: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether a ledger is named, and not a state directory."""
        return self.db is not None or self.dsn is not None

    def database(self, environ: Mapping[str, str]) -> Database:
        """The ledger that is meant."""
        named = database_for(self.db, self.dsn, environ)
        if named is not None:
            if isinstance(named, str):
                require_ledger(named)
            return named
        return ledger_of(self.state(environ))

    def state(self, environ: Mapping[str, str]) -> str:
        """The state directory."""
        return state_dir(self.state_dir, project_root(os.getcwd()), environ)

    def name(self, environ: Mapping[str, str]) -> str:
        """The name of the ledger that is meant."""
        return ledger_name(self.database(environ))

    def words(self, environ: Mapping[str, str]) -> str:
        """The options that name this place on a command line; never a password."""
        named = database_for(self.db, self.dsn, environ)
        if named is not None:
            return ledger_arguments(named)
        return state_dir_argument(self.state(environ), TicketPlace().state(environ))


@asynccontextmanager
async def open_tickets(
    place: TicketPlace,
    environ: Mapping[str, str],
    own: Key | None = None,
    *,
    to_post: bool = False,
    create: bool = False,
) -> AsyncIterator[Tickets]:
    """Open the tickets of a place; UsageError where there is no ledger yet.

    own: the key that a response is signed with
    to_post: also to respond, and not only to look
    create: make the ledger of a state directory in which no run was recorded yet
    """
    database = place.database(environ)
    if create and not place.is_named:
        make_ledger_folder(place.state(environ))
    elif isinstance(database, str):
        _require_readable(database)
    verifier = approval_verifier(environ, own, is_strict=isinstance(database, Dsn))
    try:
        async with open_ledger(database, environ, read_only=not to_post) as ledger:
            yield Tickets(ledger, verifier)
    except GertError as problem:
        raise mask_password(database, problem) from None


def _require_readable(path: str) -> None:
    try:
        os.stat(path)
    except FileNotFoundError:
        hint = "--state-dir, --db or --dsn say where else to look"
        raise NoLedger(f"there are no tickets: there is no ledger `{path}`", hint=hint) from None
    except OSError as problem:
        raise UsageError(
            f"the ledger `{path}` cannot be read: {(problem.strerror or str(problem)).lower()}",
            hint="other users respond through a drop box (`--drop-box DIR`)",
        ) from None


class NoLedger(UsageError):
    """A state directory in which no run was recorded yet."""
