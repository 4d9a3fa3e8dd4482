"""Leases on Postgres: the rules all ledgers share, by the clock of the server."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from gert.ecosystem.stores.postgres_faults import is_transient, is_undone, worded
from gert.ecosystem.stores.postgres_pool import Pool
from gert.ecosystem.stores.postgres_statements import LEASE, SET_LEASE
from gert.ecosystem.stores.rows import lease_of
from gert.errors import Busy, GertError
from gert.kernel.agent.ledger import Lease
from gert.kernel.events.envelope import format_timestamp, parse_timestamp

MAX_RACES: Final = 50

Change = Callable[[Lease | None, datetime], Lease | None]
"""What becomes of a lease at a time; None where it stays as it is."""


class Seen(NamedTuple):
    """A lease as it stands in the ledger, and the time there."""

    lease: Lease | None
    moment: datetime
    columns: tuple[str | None, int, str | None]


class Leases:
    """Looks at leases and changes them."""

    def __init__(self, pool: Pool, own_clock: Callable[[], datetime] | None, *, attempts: int, backoff: float) -> None:
        self._pool = pool
        self._own_clock = own_clock
        self._attempts = attempts
        self._backoff = backoff

    def seen(self, run_id: str, row: Any) -> Seen:
        """What a row of `LEASE` says."""
        server_time, worker, token, expires = row
        moment = self._own_clock() if self._own_clock is not None else parse_timestamp(server_time)
        return Seen(lease_of(run_id, worker, token or 0, expires), moment, (worker, token or 0, expires))

    async def change(self, run_id: str, change: Change) -> Lease | None:
        """Change a lease by a rule, and say what it is then; None where the rule says no."""
        wanted: Lease | None = None
        failures = 0
        for _ in range(MAX_RACES):
            link = None
            try:
                link = await self._pool.take()
                seen = self.seen(run_id, await link.connection.fetchrow(LEASE, run_id))
                # What was sent before a connection broke may be there.
                if wanted is not None and seen.lease == wanted:
                    return wanted
                wanted = change(seen.lease, seen.moment)
                if wanted is None or await _set(link.connection, wanted, seen):
                    return wanted
                wanted = None
            except GertError:
                raise
            except Exception as error:
                if not (is_transient(error) or is_undone(error)):
                    raise worded(error) from error
                failures += 1
                if failures >= self._attempts:
                    raise worded(error) from error
                if link is not None and is_transient(error):
                    self._pool.renew(link.generation)
                await asyncio.sleep(self._backoff * 2 ** (failures - 1))
            finally:
                if link is not None:
                    self._pool.give_back(link)
        raise Busy(f"others take the lease of run `{run_id}` all the time", hint="try again")


async def _set(connection: Any, lease: Lease, seen: Seen) -> bool:
    worker, token, expires = seen.columns
    until = format_timestamp(lease.expires_at) if lease.worker_id is not None else None
    row = await connection.fetchrow(
        SET_LEASE, lease.run_id, lease.worker_id, lease.token, until, token, worker, expires
    )
    return row is not None
