"""Open the ledger whose tickets a surface lists and answers."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.approval_keys import approval_verifier
from gert.ecosystem.host.config.ledger_location import make_ledger_folder, masking_password, open_ledger
from gert.ecosystem.host.runs.place import Place
from gert.errors import UsageError
from gert.kernel.foundation.signature import Key
from gert.kernel.foundation.text import os_reason


@asynccontextmanager
async def open_tickets(
    place: Place,
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
    database = place.ledger
    if create and not place.is_named:
        make_ledger_folder(place.state)
    elif isinstance(database, str):
        _require_readable(database)
    verifier = approval_verifier(environ, own, is_strict=isinstance(database, Dsn))
    with masking_password(database):
        async with open_ledger(database, environ, read_only=not to_post) as ledger:
            yield Tickets(ledger, verifier)


def _require_readable(path: str) -> None:
    try:
        os.stat(path)
    except FileNotFoundError:
        hint = "--state-dir, --db or --dsn say where else to look"
        raise NoLedger(f"there are no tickets: there is no ledger `{path}`", hint=hint) from None
    except OSError as problem:
        raise UsageError(
            f"the ledger `{path}` cannot be read: {os_reason(problem)}",
            hint="other users respond through a drop box (`--drop-box DIR`)",
        ) from None


class NoLedger(UsageError):
    """A state directory in which no run was recorded yet."""
