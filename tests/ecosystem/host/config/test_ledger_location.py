"""Which database somebody means, and how it is named again."""

import asyncio
from pathlib import Path

import pytest

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.ledger_location import database_for, ledger_arguments, ledger_name, open_ledger
from gert.errors import TraceError, UsageError
from gert.kernel.ledger.record import Head

ADDRESS = "postgresql://kim:hunter2secret@db.example.com/ops"


@pytest.mark.parametrize(
    ("db", "dsn", "name", "words"),
    [
        pytest.param("runs.db", None, "runs.db", " --db runs.db", id="a file"),
        pytest.param(
            None,
            ADDRESS,
            "postgresql://kim@db.example.com/ops",
            " --dsn postgresql://kim@db.example.com/ops",
            id="an address, without its password",
        ),
        pytest.param(None, "env:X", "postgresql://kim@db.example.com/ops", " --dsn env:X", id="a variable"),
        pytest.param(
            None,
            "postgresql:///ops?host=/run&port=1",
            "postgresql:///ops?host=/run&port=1",
            " --dsn 'postgresql:///ops?host=/run&port=1'",
            id="an address a shell would take apart",
        ),
    ],
)
def test_how_a_database_is_named(db: str | None, dsn: str | None, name: str, words: str) -> None:
    found = database_for(db, dsn, {"X": ADDRESS})
    assert found is not None
    assert (ledger_name(found), ledger_arguments(found)) == (name, words)


def test_a_ledger_need_not_be_named() -> None:
    assert database_for(None, None, {}) is None
    assert ledger_arguments(None) == ""


@pytest.mark.parametrize(
    ("db", "dsn"),
    [
        pytest.param("runs.db", ADDRESS, id="two of them"),
        pytest.param("", ADDRESS, id="two of them, one without a name"),
        pytest.param(None, "", id="an empty address"),
        pytest.param(None, "env:NONE", id="a variable that is not set"),
        pytest.param(None, "env:", id="a variable without a name"),
        pytest.param(None, "env:EMPTY", id="a variable that holds nothing"),
        pytest.param(None, "runs.db", id="a file in place of an address"),
    ],
)
def test_what_is_no_database(db: str | None, dsn: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        database_for(db, dsn, {"EMPTY": ""})
    assert "hunter2secret" not in f"{caught.value.message}{caught.value.hint}"


def test_an_address_knows_what_holds_it_and_what_is_not_shown() -> None:
    found = database_for(None, "env:X", {"X": ADDRESS})
    assert isinstance(found, Dsn)
    assert (found.variable, found.passwords[0], Dsn(ADDRESS).variable) == ("X", "hunter2secret", None)


def test_a_file_is_made_only_by_who_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")

    async def runs(*, read_only: bool) -> list[Head]:
        async with open_ledger(path, {}, read_only=read_only) as ledger:
            return await ledger.runs()

    with pytest.raises(TraceError):
        asyncio.run(runs(read_only=True))
    assert not Path(path).exists()
    assert asyncio.run(runs(read_only=False)) == []
    assert asyncio.run(runs(read_only=True)) == []
