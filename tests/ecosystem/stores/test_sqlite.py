"""What only a database can do wrong: files of others, newer ones, damage, many writers."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gert.ecosystem.stores import sqlite_file
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.errors import TraceError
from gert.kernel.events.chain import read_chain
from gert.kernel.foundation.canonical import sha256_hex

from .lines import RUN, answers, events

LINES = events(6)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with SqliteStore(tmp_path / "runs.db") as store:
        store.append(RUN, 1, LINES, answers(2))
    return tmp_path / "runs.db"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_many_runs_live_side_by_side(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        for first in (1, 3, 5):
            for run in ("b", "a", "c"):
                store.append(run, first, events(6, run)[first - 1 : first + 1], [run.encode()])
        assert list(store.runs()) == ["a", "b", "c"]
        for run in ("a", "b", "c"):
            assert list(store.events(run)) == events(6, run)
            assert list(store.answers(run)) == [run.encode()] * 3


def test_lines_stand_beside_the_columns_people_search_by(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT run_id, seq, type, timestamp, line FROM events ORDER BY seq").fetchall()
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    assert rows == [
        (RUN, seq, "step_start", "2026-02-28T14:30:00.000000Z", line) for seq, line in enumerate(LINES, start=1)
    ]
    assert version == ("3",)


@pytest.mark.parametrize(("sync", "mode"), [pytest.param(True, 2, id="full"), pytest.param(False, 0, id="off")])
def test_a_commit_is_synced_unless_told_otherwise(tmp_path: Path, sync: bool, mode: int) -> None:
    with SqliteStore(tmp_path / "runs.db", sync=sync) as store:
        assert store._writer is not None
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (mode,)
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def no_version(path: Path) -> None:
    change(path, "DELETE FROM meta")


def damaged(path: Path) -> None:
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


REFUSED: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda path: path.write_bytes(b"dear diary, today " * 100), "is not a database", "a text"),
    (lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096), "is not a database|damaged", "a fake"),
    (lambda path: change(path, "PRAGMA application_id = 7"), "is not a database of gert", "someone else's"),
    (lambda path: change(path, "DROP TABLE answers"), "is not a database of gert", "a table is missing"),
    (
        lambda path: change(path, "UPDATE meta SET value = '4'"),
        "made by a newer gert: expected version 3, found 4",
        "newer",
    ),
    (lambda path: change(path, "UPDATE meta SET value = 'x'"), "does not say which version", "no version"),
    (no_version, "does not say which version", "version missing"),
    (damaged, "is damaged|is not a database", "damaged"),
]


@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
@pytest.mark.parametrize(("spoil", "message"), [pytest.param(*row[:2], id=row[2]) for row in REFUSED])
def test_what_is_no_database_of_ours_is_refused_and_left_alone(
    database: Path, spoil: Callable[[Path], object], message: str, read_only: bool
) -> None:
    spoil(database)
    before = database.read_bytes()
    with pytest.raises(TraceError, match=message):
        SqliteStore(database, read_only=read_only)
    assert database.read_bytes() == before


def test_a_database_of_another_program_stays_as_it_is(tmp_path: Path) -> None:
    change(tmp_path / "other.db", "CREATE TABLE events (a)", "INSERT INTO events VALUES (1)")
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(TraceError, match="is not a database of gert"):
        SqliteStore(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before


def test_damage_that_shows_later_is_said_then(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    lines = events(200, size=2000)
    with SqliteStore(path) as store:
        store.append(RUN, 1, lines)
    content = bytearray(path.read_bytes())
    content[20 * 4096 : 60 * 4096] = b"\xff" * (40 * 4096)
    path.write_bytes(content)
    with SqliteStore(path, read_only=True) as store, pytest.raises(TraceError, match="is damaged"):
        list(store.events(RUN))


def test_a_database_to_read_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        SqliteStore(tmp_path / "none.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def refuse_files_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what a medium does that cannot be written to; the owner of a test may be root, whom no mode stops."""
    probed = sqlite_file._probed

    def on_read_only_medium(address: str, busy_ms: int) -> sqlite3.Connection:
        if "immutable" in address:
            return probed(address, busy_ms)
        refusal = sqlite3.OperationalError("unable to open database file")
        refusal.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise refusal

    monkeypatch.setattr(sqlite_file, "_probed", on_read_only_medium)


def test_an_archived_database_can_be_read(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_files_beside(monkeypatch)
    with SqliteStore(database, read_only=True) as store:
        assert list(store.events(RUN)) == LINES


def test_an_archived_database_without_its_latest_lines_is_not_read_as_if_whole(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.with_name("runs.db-wal").write_bytes(b"x")
    refuse_files_beside(monkeypatch)
    with pytest.raises(TraceError, match="cannot be opened"):
        SqliteStore(database, read_only=True)


def test_a_database_to_read_takes_nothing(database: Path) -> None:
    with SqliteStore(database, read_only=True) as store:
        assert list(store.events(RUN)) == LINES
        with pytest.raises(TraceError, match="open only for reading"):
            store.append(RUN, 7, events(7)[6:])


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_a_run_that_is_written_can_be_read_by_others(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store, SqliteStore(tmp_path / "runs.db", read_only=True) as reader:
        store.append(RUN, 1, LINES[:3])
        assert list(reader.events(RUN)) == LINES[:3]
        store.append(RUN, 4, LINES[3:])
        assert list(reader.events(RUN, since=3)) == LINES[3:]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("'text'", id="text"),
        pytest.param("7", id="a number"),
        pytest.param("zeroblob(70000000)", id="a line without end"),
    ],
)
def test_a_forged_line_is_refused_in_reading(database: Path, line: str) -> None:
    change(database, f"UPDATE events SET line = {line} WHERE seq = 2")
    with SqliteStore(database) as store, pytest.raises(TraceError, match=r"not a line|too large"):
        list(store.events(RUN))


def test_a_failed_batch_is_rolled_back(database: Path) -> None:
    change(database, "CREATE TRIGGER full BEFORE INSERT ON events WHEN new.seq = 8 BEGIN SELECT raise(ABORT, 'x'); END")
    with SqliteStore(database) as store:
        with pytest.raises(TraceError):
            store.append(RUN, 7, events(8)[6:], [b"{}"])
        assert list(store.events(RUN)) == LINES
        assert list(store.answers(RUN)) == answers(2)


WRITER = """
import sys
from gert.ecosystem.stores.sqlite import SqliteStore
path, run = sys.argv[1:]
lines = sys.stdin.buffer.read().splitlines()
with SqliteStore(path) as store:
    for first in range(0, len(lines), 2):
        store.append(run, first + 1, lines[first : first + 2], [b"{}"])
"""


def test_processes_that_start_together_share_a_new_database(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runs = [f"run-{number}" for number in range(6)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), run], stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        for run in runs
    ]
    for run, writer in zip(runs, writers, strict=True):
        assert writer.stdin is not None
        writer.stdin.write(b"\n".join(events(40, run)))
        writer.stdin.close()
        writer.stdin = None
    assert [writer.communicate(timeout=60)[1] for writer in writers] == [b""] * 6
    with SqliteStore(path) as store:
        assert list(store.runs()) == runs
        for run in runs:
            assert list(store.events(run)) == events(40, run)
            assert read_chain(store.events(run)).intact


def test_a_lock_that_is_not_released_is_said(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 10)
    with SqliteStore(database) as store, closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TraceError, match="is locked by another process"):
            store.append(RUN, 7, events(7)[6:])
        other.execute("ROLLBACK")
        store.append(RUN, 7, events(7)[6:])


def test_the_end_of_each_run_is_kept(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        row = connection.execute(
            "SELECT run_id, tenant, count, hash, status, snapshot, started_at, updated_at FROM runs"
        ).fetchall()
    moment = "2026-02-28T14:30:00.000000Z"
    assert row == [(RUN, None, 6, sha256_hex(LINES[-1]), None, None, moment, moment)]


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("DELETE FROM events WHERE seq = 6", id="lines are missing"),
        pytest.param("UPDATE runs SET count = 5", id="there are more lines than were written"),
        pytest.param("DELETE FROM runs", id="nobody knows where it ends"),
    ],
)
def test_nothing_is_added_to_a_run_that_does_not_end_where_it_should(database: Path, statement: str) -> None:
    change(database, statement)
    with SqliteStore(database) as store:
        for first in (6, 7):
            with pytest.raises(TraceError, match="does not end where it should"):
                store.append(RUN, first, events(7)[first - 1 :])
        store.append("another", 1, events(1, "another"))


def test_the_last_lines_of_a_run(database: Path) -> None:
    with SqliteStore(database, read_only=True) as store:
        assert store.last_lines(RUN, 2) == [LINES[5], LINES[4]]
        assert store.last_lines("none", 2) == []
        assert (store.last_time(RUN), store.last_time("none")) == ("2026-02-28T14:30:00.000000Z", "")
