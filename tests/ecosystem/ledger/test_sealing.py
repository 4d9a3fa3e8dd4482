"""What every ledger promises with a key: history that was sealed is neither rewritten nor continued without it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.ecosystem.ledger.ledgers import LEDGERS, RUN, SHARED, in_loop, note, says, written
from tests.soak import sampled

from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import GertError, IntegrityError
from gert.kernel.events.agent import PauseRequested
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Keys, parse_key
from gert.kernel.ledger.record import Written

KEY = parse_key("a secret that is long enough", "main")
OTHER = parse_key("another secret, long enough too", "other")
shared = pytest.mark.parametrize("kind", sampled(SHARED, ["sqlite", "postgres"]))


@shared
class TestASealedRun:
    @in_loop
    async def test_is_continued_with_its_key(self, kind: str, place: str) -> None:
        for _ in range(3):
            async with LEDGERS[kind](place, key=KEY) as ledger:
                await written(ledger, note(), note())
                assert (await verify_run(ledger, RUN, Keys([KEY]))).proven

    @in_loop
    async def test_is_not_continued_without_a_key(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, key=KEY) as ledger:
            await written(ledger, note())
        async with LEDGERS[kind](place) as ledger:
            for _ in range(2):
                with pytest.raises(IntegrityError, match="is sealed, and no signing key is configured"):
                    await ledger.append(RUN, says(note()))
                with pytest.raises(IntegrityError):
                    await ledger.append(RUN, says(note()), adopt=True)
            assert (await verify_run(ledger, RUN, Keys([KEY]))).proven

    @in_loop
    async def test_is_not_continued_with_another_key(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, key=KEY) as ledger:
            await written(ledger, note())
        async with LEDGERS[kind](place, key=OTHER) as ledger:
            with pytest.raises(IntegrityError):
                await ledger.append(RUN, says(note()))

    @in_loop
    async def test_is_continued_with_a_new_key_where_the_retired_one_still_verifies(
        self, kind: str, place: str
    ) -> None:
        async with LEDGERS[kind](place, key=KEY) as ledger:
            await written(ledger, note())
        async with LEDGERS[kind](place, key=OTHER, keys=Keys([OTHER, KEY])) as ledger:
            await written(ledger, note())
            assert (await verify_run(ledger, RUN, Keys([OTHER]))).proven


@shared
class TestAnUnsealedRun:
    @in_loop
    async def test_is_continued_with_a_key_only_where_it_is_adopted(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place) as ledger:
            await written(ledger, note())
        async with LEDGERS[kind](place, key=KEY) as ledger:
            with pytest.raises(IntegrityError, match="is not sealed, and a signing key is configured"):
                await ledger.append(RUN, says(note()))
            assert isinstance(await ledger.append(RUN, says(note("adopted")), adopt=True), Written)
            await written(ledger, note())
            assert (await verify_run(ledger, RUN, Keys([KEY]))).proven

    @in_loop
    async def test_that_begins_with_a_key_needs_no_adoption(self, kind: str, place: str) -> None:
        async with LEDGERS[kind](place, key=KEY) as ledger:
            assert await ledger.acquire(RUN, "w", 60)
            await written(ledger, note())
            assert (await verify_run(ledger, RUN, Keys([KEY]))).proven


class TestForgeries:
    """Changes between two processes that leave an intact chain behind."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "runs.db"

    @staticmethod
    def change(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement, values in statements:
                connection.execute(statement, values)

    @in_loop
    async def test_an_end_that_was_rewritten_with_its_head_is_not_continued(self, path: Path) -> None:
        async with SqliteLedger(path, key=KEY) as ledger:
            await written(ledger, note("a"), note("b"))
            lines = await ledger.lines(RUN)
        forged = lines[1].replace(b'"b"', b'"x"')
        head = "UPDATE runs SET hash = ?"
        self.change(path, ("UPDATE events SET line = ? WHERE seq = 2", (forged,)), (head, (sha256_hex(forged),)))
        await self.refused(path)

    @in_loop
    async def test_an_older_end_is_not_continued(self, path: Path) -> None:
        async with SqliteLedger(path, key=KEY) as ledger:
            await written(ledger, note("a"))
            first = await ledger.head(RUN)
            await written(ledger, note("b"))
        assert first is not None
        # The old head without its old seal; with it, only a witness could tell.
        self.change(
            path,
            ("DELETE FROM events WHERE seq = 2", ()),
            ("UPDATE runs SET count = ?, hash = ?, updated_at = ?", (first.count, first.hash, first.updated_at)),
        )
        await self.refused(path)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE runs SET seal = NULL",
            "UPDATE runs SET seal = 'x'",
            "UPDATE runs SET tenant = 'evil'",
            "UPDATE runs SET kind = 'runbook'",
            "UPDATE runs SET started_at = '2020-01-01T00:00:00.000000Z'",
            "UPDATE runs SET snapshot = CAST(replace(CAST(snapshot AS TEXT), 'run_summary', 'run_started') AS BLOB)",
            "UPDATE runs SET answers = 1",
            "UPDATE runs SET answers_hash = 'x'",
        ],
    )
    @in_loop
    async def test_an_edited_head_is_not_continued(self, path: Path, statement: str) -> None:
        async with SqliteLedger(path, key=KEY) as ledger:
            await written(ledger, note("a"))
        self.change(path, (statement, ()))
        await self.refused(path)

    @pytest.mark.parametrize(
        "statement",
        [
            'UPDATE runs SET snapshot = CAST(\'{"type":"agent","last_type":"x"}\' AS BLOB)',
            "UPDATE runs SET tenant = 'evil'",
            "UPDATE runs SET seal = NULL",
        ],
    )
    @in_loop
    async def test_a_head_that_is_edited_while_it_is_open_is_not_continued(self, path: Path, statement: str) -> None:
        async with SqliteLedger(path, key=KEY) as ledger:
            await written(ledger, PauseRequested(reason="audit", blocked=True))
            await written(ledger, note("known"))
            self.change(path, (statement, ()))
            with pytest.raises(IntegrityError):
                await ledger.append(RUN, says(note("on")))

    @staticmethod
    async def refused(path: Path) -> None:
        async with SqliteLedger(path, key=KEY) as ledger:
            with pytest.raises(GertError):
                await ledger.append(RUN, says(note("on")))
            assert not (await verify_run(ledger, RUN, Keys([KEY]))).holds


@in_loop
async def test_a_head_this_process_wrote_is_not_checked_again(kind: str, place: str) -> None:
    """Checking reads the last event and verifies a signature; in steady state neither is done."""
    async with LEDGERS[kind](place, key=KEY) as ledger:
        await written(ledger, PauseRequested(reason="audit", blocked=True, unblock_key="k"), note("x"))
        sealer = ledger._context.sealer  # type: ignore[attr-defined]
        for _ in range(3):
            head = await ledger.head(RUN)
            assert sealer.knows(head)
            await written(ledger, note("y"))
