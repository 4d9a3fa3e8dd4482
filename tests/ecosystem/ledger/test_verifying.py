"""Verifying a run in any ledger: its chain, its end, and the seal over its end."""

import asyncio

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, RUN, in_loop, note, written

from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import IntegrityError, RunError
from gert.kernel.foundation.signature import Keys, parse_key

KEY = parse_key("a secret that is long enough", "main")
OTHER = parse_key("another secret, long enough too", "main")


@in_loop
async def test_a_run_holds_and_without_keys_its_seal_is_not_checked(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        await written(ledger, *[note()] * 3)
        report = await verify_run(ledger, RUN)
        assert (report.holds, report.proven, report.events, report.signed_by) == (True, False, 3, None)
        assert [check.passed for check in report.checks] == [True, True, True, True, True, None]
        report.require()


@in_loop
async def test_an_unknown_run_is_an_error(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        await written(ledger, note())
        with pytest.raises(RunError, match="there is no run `none`"):
            await verify_run(ledger, "none")


@in_loop
async def test_a_run_is_sealed_with_every_append(kind: str, place: str) -> None:
    async with LEDGERS[kind](place, key=KEY) as ledger:
        for count in (1, 2, 3):
            await written(ledger, note())
            report = await verify_run(ledger, RUN, Keys([KEY]))
            assert (report.proven, report.events, report.signed_by) == (True, count, "main")
        assert (await verify_run(ledger, RUN)).holds
        assert (await verify_run(ledger, RUN, Keys([KEY]), key_id="main")).proven
        for keys, options in (
            (Keys([OTHER]), {}),
            (Keys([]), {"require_seal": True}),
            (Keys([KEY]), {"key_id": "other"}),
            (Keys([], default=KEY), {"key_id": "main"}),
        ):
            report = await verify_run(ledger, RUN, keys, **options)
            assert [check.name for check in report.failures] == ["seal"]
            with pytest.raises(IntegrityError):
                report.require()


@in_loop
async def test_with_a_key_a_seal_is_demanded(kind: str, place: str) -> None:
    async with LEDGERS[kind](place) as ledger:
        await written(ledger, note())
        report = await verify_run(ledger, RUN, Keys([KEY]))
        assert [check.reason for check in report.failures] == ["the head of the run is not sealed"]


@in_loop
async def test_a_run_that_is_being_written_verifies_all_the_time(kind: str, place: str) -> None:
    async with LEDGERS[kind](place, key=KEY) as ledger:
        await written(ledger, *[note()] * 600)

        async def append() -> None:
            for _ in range(60):
                await written(ledger, *[note()] * 5)

        writing = asyncio.create_task(append())
        while not writing.done():
            report = await verify_run(ledger, RUN, Keys([KEY]))
            assert report.holds, report.failures
        await writing
