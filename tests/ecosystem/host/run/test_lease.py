"""The lease of a run that is driven: one process at a time, extended while it drives, given back at the end."""

import asyncio
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gert.ecosystem.host.run.record import lease
from gert.ecosystem.host.run.record.lease import SECONDS, hold_lease
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.errors import Busy

RUN = "run-1"


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 2, 28, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_another_process_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with SqliteLedger(tmp_path / "l.db") as one, SqliteLedger(tmp_path / "l.db") as two, hold_lease(one, RUN):
            with pytest.raises(Busy, match=rf"run `{RUN}` is being driven by .* \(process {os.getpid()} on `"):
                async with hold_lease(two, RUN):
                    pass

    asyncio.run(work())


def test_the_lease_is_given_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with SqliteLedger(tmp_path / "l.db") as ledger:
            with suppress(ZeroDivisionError):
                async with hold_lease(ledger, RUN):
                    assert await ledger.lease(RUN) is not None
                    raise ZeroDivisionError
            assert await ledger.lease(RUN) is None
            async with hold_lease(ledger, RUN):
                pass

    asyncio.run(work())


def test_the_lease_is_extended_while_the_run_is_driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_BEATS", 3000)
    clock = Clock()

    async def work() -> None:
        async with SqliteLedger(tmp_path / "l.db", clock=clock) as ledger, hold_lease(ledger, RUN):
            first = await ledger.lease(RUN)
            assert first is not None
            clock.now += timedelta(seconds=SECONDS / 2)
            async with asyncio.timeout(30):
                while (held := await ledger.lease(RUN)) is None or held.expires_at == first.expires_at:
                    await asyncio.sleep(0.01)
            assert (held.token, held.expires_at) == (first.token, clock.now + timedelta(seconds=SECONDS))

    asyncio.run(work())


def test_a_process_that_slept_longer_than_its_lease_keeps_it_unless_another_took_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_BEATS", 3000)
    clock = Clock()

    async def work() -> None:
        async with SqliteLedger(tmp_path / "l.db", clock=clock) as ledger, hold_lease(ledger, RUN):
            first = await ledger.lease(RUN)
            clock.now += timedelta(hours=8)
            async with asyncio.timeout(30):
                while (held := await ledger.lease(RUN)) is None:
                    await asyncio.sleep(0.01)
            assert first is not None
            assert held.token == first.token

    asyncio.run(work())


def test_a_driver_that_was_overtaken_does_not_get_the_lease_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the other driver has ended and given the lease back: the run is not where this process left it."""
    monkeypatch.setattr(lease, "_BEATS", 3000)
    clock = Clock()

    async def work() -> None:
        async with (
            SqliteLedger(tmp_path / "l.db", clock=clock) as one,
            SqliteLedger(tmp_path / "l.db", clock=clock) as two,
        ):
            first = await one.acquire(RUN, "one", SECONDS)
            assert first is not None
            clock.now += timedelta(seconds=SECONDS + 1)
            renewed = await one.renew(RUN, "one", SECONDS, late=True)
            assert renewed is not None, "no other process took it"
            assert renewed.token == first.token
            clock.now += timedelta(seconds=SECONDS + 1)
            async with hold_lease(two, RUN):
                assert await one.renew(RUN, "one", SECONDS, late=True) is None
            assert await one.renew(RUN, "one", SECONDS, late=True) is None
            async with asyncio.timeout(30):
                await lease._beat(one, RUN, "one")
            assert await one.lease(RUN) is None

    asyncio.run(work())
