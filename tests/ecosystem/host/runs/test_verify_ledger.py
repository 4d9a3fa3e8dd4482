"""Checking a run that is kept somewhere: what cannot be asked is not what was changed."""

import asyncio
from pathlib import Path

import pytest
from tests.postgres import Server
from tests.stored_runs import append_notes

from gert.ecosystem.host.config.dsn import read_dsn
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.place import Place
from gert.ecosystem.host.runs.verify_ledger import Demands, check_record
from gert.ecosystem.ledger.postgres.ledger import PostgresLedger
from gert.errors import Unavailable
from gert.kernel.foundation.signature import Keys

RUN = "run-1"
NOBODY = Demands(Keys())


def test_a_server_that_goes_away_while_a_run_is_checked_is_irrelevant_of_the_run(
    own_server: Server, tmp_path: Path
) -> None:
    async def work() -> None:
        async with PostgresLedger(own_server.dsn) as ledger:
            await append_notes(ledger, RUN, 2)

    asyncio.run(work())
    place = Place(str(tmp_path), None, read_dsn(own_server.dsn, {}))
    with Runs(place) as runs:
        assert check_record(runs.reader, RUN, NOBODY).holds
        own_server.stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            check_record(runs.reader, RUN, NOBODY)
        with pytest.raises(Unavailable, match="cannot be reached"):
            list(runs.newest())
