"""The rules of leases: which worker may acquire, renew and release one, and append under it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gert.errors import InputError, LeaseLost
from gert.kernel.ledger.limits import check_name
from gert.kernel.ledger.record import NEVER, Head, Holder, Lease

MAX_TTL: Final = timedelta(days=366).total_seconds()

IsRunning = Callable[[Holder], bool | None]
"""Whether a process is running; None where that cannot be known, as of a process of another host."""


def holds(lease: Lease | None, now: datetime) -> Lease | None:
    """The lease, if a worker holds it."""
    return lease if lease is not None and lease.worker_id is not None and lease.expires_at > now else None


def acquired(lease: Lease | None, wanted: Lease, now: datetime, is_running: IsRunning) -> Lease | None:
    """The lease after a worker acquires it; None where another worker holds it.

    wanted: the run, worker, duration and process that ask; the rest is set here
    """
    until = _until(wanted.worker_id, wanted.seconds, now)
    if lease is None:
        return msgspec.structs.replace(wanted, token=1, expires_at=until)
    held = holds(lease, now)
    runs = is_running(lease.holder) if lease.holder is not None and lease.worker_id is not None else None
    if held is not None and held.worker_id != wanted.worker_id and runs is not False:
        return None
    # A copy of the file has the lease of the original, which is renewed there and not here.
    if runs and lease.holder and wanted.holder and lease.holder.file != wanted.holder.file:
        return None
    # A process that continues under an expired lease keeps its token; another one of the same name gets a new one.
    is_same = lease.worker_id == wanted.worker_id and lease.holder == wanted.holder
    keeps = is_same and (held is not None or wanted.holder is not None)
    return msgspec.structs.replace(wanted, token=lease.token if keeps else lease.token + 1, expires_at=until)


def renewed(
    lease: Lease | None, worker_id: str, seconds: float, now: datetime, fence: int | None = None
) -> Lease | None:
    """The lease after its holder renews it; None where the worker does not hold it.

    fence: the token of the worker; an expired lease with this token is renewed as well
    """
    until = _until(worker_id, seconds, now)
    held = lease if lease is not None and lease.token == fence else holds(lease, now)
    if held is None or held.worker_id != worker_id:
        return None
    return msgspec.structs.replace(held, expires_at=until, seconds=seconds)


def released(lease: Lease | None, worker_id: str, now: datetime) -> Lease | None:
    """The lease after its holder releases it, with the same token; None where it was not held."""
    check_name("worker id", worker_id)
    held = holds(lease, now)
    if held is None or held.worker_id != worker_id:
        return None
    return Lease(held.run_id, None, held.token, NEVER)


def taken_over(run_id: str) -> LeaseLost:
    """The error of a driver whose run another process has taken."""
    return LeaseLost(f"another process has taken over run `{run_id}`", hint="nothing was written here")


def check_fence(head: Head, lease: Lease | None, fence: int | None, now: datetime) -> Lease | None:
    """Refuse an append without the lease, or under one that another worker has acquired since: LeaseLost.

    Returns the lease after the append: an expired one that no other worker acquired is renewed, so that a process
    that was frozen for a while continues. None where the lease does not change.
    """
    held = holds(lease, now)
    if fence is None:
        if held is not None:
            raise LeaseLost(
                f"worker `{held.worker_id}` drives run `{head.run_id}` until {held.expires_at.isoformat()}",
                hint="wait for it to end, or acquire the lease first",
            )
        if head.kind in ("runbook", "runner") and head.count:
            raise LeaseLost(f"run `{head.run_id}` is appended to only under its lease")
        return None
    if lease is None or lease.token != fence or lease.worker_id is None:
        raise taken_over(head.run_id)
    if held is not None:
        return None
    return msgspec.structs.replace(lease, expires_at=now + timedelta(seconds=lease.seconds))


def _until(worker_id: str | None, seconds: float, now: datetime) -> datetime:
    if not worker_id:
        raise InputError("a worker needs a name to hold a lease")
    check_name("worker id", worker_id)
    if not 0 < seconds <= MAX_TTL:
        raise InputError(f"expected a lease of more than 0 and at most {MAX_TTL:.0f} seconds, found {seconds}")
    return now + timedelta(seconds=seconds)
