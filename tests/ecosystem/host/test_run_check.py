"""Checking a run that is kept somewhere: what cannot be asked is not what was changed."""

import asyncio
from pathlib import Path

import pytest
from gert.ecosystem.stores.postgres import PostgresLedger
from tests.ecosystem.ledger.ledgers import RUN, note, written
from tests.postgres import Server

from gert.ecosystem.host.dsn import read_dsn
from gert.ecosystem.host.run_check import Demands, check_record, check_run_of
from gert.ecosystem.host.run_entry import Place
from gert.ecosystem.host.run_list import Runs
from gert.errors import Unavailable
from gert.kernel.foundation.signature import Keys

NOBODY = Demands(Keys())


def test_a_server_that_goes_away_while_a_run_is_checked_says_nothing_of_the_run(
    own_server: Server, tmp_path: Path
) -> None:
    async def work() -> None:
        async with PostgresLedger(own_server.dsn) as ledger:
            await written(ledger, note("one"), note("two"))

    asyncio.run(work())
    place = Place(str(tmp_path), None, read_dsn(own_server.dsn, {}))
    with Runs(place, {}) as runs:
        entry = runs.entry(RUN)
        assert check_record(entry, runs.archive, NOBODY).valid
        own_server.stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            check_record(entry, runs.archive, NOBODY)
        with pytest.raises(Unavailable, match="cannot be reached"):
            check_run_of(runs, RUN, NOBODY)
        with pytest.raises(Unavailable, match="cannot be reached"):
            list(runs.newest())
