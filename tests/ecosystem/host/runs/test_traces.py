"""Reading traces from files and databases, and refusing every forgery."""

import io
import os
import sys
import zlib
from operator import attrgetter
from pathlib import Path
from random import Random
from types import SimpleNamespace

import msgspec
import pytest
from tests.ecosystem.host.redrive.forgeries import (
    FORGERIES,
    Forgery,
    change_the_end,
    cut_the_last_line_break,
    join,
    remember,
    rewrite_under_the_old_seal,
    rewrite_under_the_old_signature,
    rewrite_without_an_event,
)
from tests.kernel.events.traces import HMAC_KEY, KEYS, PRIVATE_KEY, PUBLIC_KEY, Chain, stamped, trace
from tests.stored_runs import remove_run, store_run

from gert.ecosystem.host.runs.traces import Trace, Unreadable, events_of, open_trace, read_lines, verify_trace
from gert.errors import DocumentError, UsageError
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import ChainReport, read_chain
from gert.kernel.events.envelope import MAX_LINE_BYTES, decode, encode
from gert.kernel.events.trace_seal import SealReport, check_seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Key, Keys

RUN = "run-2026-02-28-001"
UNSIGNED = trace()
SIGNED = {key.id: trace(remember(key)) for key in (HMAC_KEY, PRIVATE_KEY)}
SEALED = SIGNED["prod-2026"]


def held(content: bytes) -> Trace:
    """A trace in memory, read as a file is."""
    return Trace("x", None, lambda: iter([content]), lambda: read_lines(io.BytesIO(content), MAX_LINE_BYTES))


def verified(content: bytes, keys: Keys = KEYS, **demands: object) -> tuple[ChainReport, SealReport]:
    return verify_trace(held(content), keys, **demands)  # type: ignore[arg-type]


# ── forgeries ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", [HMAC_KEY, PRIVATE_KEY], ids=["hmac-sha256", "ed25519"])
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.__name__.replace("_", " "))
def test_no_forgery_is_accepted(forgery: Forgery, key: Key) -> None:
    genuine = join(SIGNED[key.id])
    keys = Keys([HMAC_KEY]) if key is HMAC_KEY else Keys([PUBLIC_KEY])
    assert verified(genuine, keys)[1].proven
    chance = Random(zlib.crc32(forgery.__name__.encode()))
    tried = 0
    while tried < FORGERIES[forgery]:
        forged = forgery(genuine, chance)
        if forged == genuine:
            continue
        tried += 1
        for demands in ({}, {"key_id": key.id}):
            _, seal = verified(forged, keys, **demands)
            assert not seal.holds, forged
            assert seal.failures
            assert seal.signed_by is None


@pytest.mark.parametrize(
    ("forgery", "failed"),
    [
        pytest.param(rewrite_under_the_old_signature, ["signature", "body"], id="only signatures can tell"),
        pytest.param(rewrite_without_an_event, ["signature", "body"], id="an event is gone, and no number with it"),
        pytest.param(rewrite_under_the_old_seal, ["head", "signature", "body"], id="a genuine seal of another chain"),
        pytest.param(change_the_end, ["body"], id="only the second signature can tell"),
        pytest.param(cut_the_last_line_break, ["complete"], id="only the line break is missing"),
    ],
)
def test_what_gives_a_good_forgery_away(forgery: Forgery, failed: list[str]) -> None:
    # Otherwise the forgeries above might all be caught for something much simpler.
    _, seal = verified(forgery(join(SEALED), Random(1)))
    assert [check.name for check in seal.failures] == failed


def test_thousands_of_forgeries_are_tried() -> None:
    assert 2 * sum(FORGERIES.values()) >= 5000


@pytest.mark.parametrize("key", [HMAC_KEY, PRIVATE_KEY], ids=["hmac-sha256", "ed25519"])
def test_every_bit_of_the_end_counts(key: Key) -> None:
    genuine = join(SIGNED[key.id])
    start = genuine.rindex(b"\n", 0, -1) + 1
    for at in range(start, len(genuine)):
        forged = genuine[:at] + bytes([genuine[at] ^ 1 << at % 8]) + genuine[at + 1 :]
        assert not verified(forged)[1].holds, at


def test_a_chained_notification_may_follow_and_is_outside_the_seal() -> None:
    webhook = says.WebhookSent(url="https://example.com", delivered=True, attempts=1)
    line = encode(stamped(Chain(sha256_hex(SEALED[-1]), len(SEALED)), webhook))
    _, seal = verified(join([*SEALED, line]))
    assert (seal.holds, seal.sealed, seal.after_seal) == (True, 6, 1)


# ── what verification says ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "keys", "demands", "failed"),
    [
        pytest.param(join(SEALED), KEYS, {}, [], id="signed, with its key"),
        pytest.param(join(SEALED), KEYS, {"key_id": "prod-2026"}, [], id="signed, by the key that is demanded"),
        pytest.param(join(SEALED), KEYS, {"key_id": "shared"}, ["signature", "body"], id="signed by another key"),
        pytest.param(join(SEALED), Keys(), {}, [], id="signed, and not checked"),
        pytest.param(join(SEALED), Keys(), {"require_signature": True}, ["signature", "body"], id="signed, no key"),
        pytest.param(join(UNSIGNED), Keys(), {}, [], id="not signed, and not checked"),
        pytest.param(join(UNSIGNED), KEYS, {}, ["signature", "body"], id="not signed, and keys are held"),
        pytest.param(join(UNSIGNED), Keys(), {"key_id": "x"}, ["signature", "body"], id="not signed, a key is named"),
        pytest.param(
            join(UNSIGNED), Keys(), {"require_signature": True}, ["signature", "body"], id="not signed, but required"
        ),
        pytest.param(b"", Keys(), {}, ["chain", "complete"], id="an empty file"),
        pytest.param(join(UNSIGNED)[:-1], Keys(), {}, ["complete"], id="without the last line break"),
        pytest.param(join(UNSIGNED)[:-9], Keys(), {}, ["complete"], id="half a last line"),
        pytest.param(join(UNSIGNED[:-1]), Keys(), {}, ["complete"], id="without its end"),
        pytest.param(join(UNSIGNED)[1:], Keys(), {}, ["chain"], id="without its first byte"),
        pytest.param(join([*UNSIGNED, b""]), Keys(), {}, ["complete"], id="with an empty line at the end"),
        pytest.param(join([b"", *UNSIGNED]), Keys(), {}, ["chain"], id="with an empty line at the beginning"),
    ],
)
def test_which_checks_fail(content: bytes, keys: Keys, demands: dict[str, object], failed: list[str]) -> None:
    assert [check.name for check in verified(content, keys, **demands)[1].failures] == failed


@pytest.mark.parametrize(
    ("content", "torn"),
    [
        pytest.param(join(UNSIGNED), None, id="a whole trace"),
        pytest.param(join(UNSIGNED)[:-1], "it has no line break", id="without the last line break"),
        pytest.param(join(UNSIGNED)[:-2], "the line is not JSON: input data was truncated", id="half a line"),
        pytest.param(join(UNSIGNED) + b"\x00", "the line is not JSON", id="zeros at the end"),
    ],
)
def test_a_torn_end_is_reported(content: bytes, torn: str | None) -> None:
    report, _ = verified(content)
    assert (report.torn is None) is (torn is None)
    assert str(report.torn).startswith(str(torn))
    assert report.break_count == 0


@pytest.mark.parametrize("ended", [True, False])
def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, ended: bool) -> None:
    import tracemalloc

    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.write(join(UNSIGNED[:2]))
        file.truncate(200 * 1024 * 1024)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + UNSIGNED[2] if ended else b"")
    tracemalloc.start()
    try:
        report, seal = verify_trace(open_trace(str(path), None, None), Keys())
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_LINE_BYTES
    finally:
        tracemalloc.stop()
    assert not seal.holds
    said = report.breaks[0].message if ended else report.torn
    assert "the line is too large" in str(said)


# ── where traces come from ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "runs.db"
    store_run(path, SEALED)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "trace.jsonl").write_bytes(join(SEALED))
    return str(tmp_path / "trace.jsonl")


def test_a_file_a_database_and_standard_input_give_the_same(
    file: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stdin() -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(join(SEALED))))

    sources: list[tuple[str | None, str | None]] = [(file, None), (None, database), ("-", None)]
    for read in (attrgetter("chunks"), attrgetter("lines")):
        for run in (None, RUN):
            stdin()
            for source in sources:
                assert b"".join(read(open_trace(*source, run))()) == join(SEALED)
    stdin()
    for source in sources:
        assert verify_trace(open_trace(*source, RUN), KEYS, key_id="prod-2026")[1].proven


def test_the_trace_of_another_run_does_not_pass(file: str) -> None:
    _, seal = verify_trace(open_trace(file, None, "another"), KEYS)
    assert [check.reason for check in seal.failures] == [f"expected run `another`, found `{RUN}`"]


def change(database: str, statement: str, *values: object) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(statement, values)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        pytest.param("DELETE FROM events WHERE seq = 3", [], id="an event is taken out"),
        pytest.param("UPDATE events SET seq = 9 WHERE seq = 3", [], id="an event is moved"),
        pytest.param("UPDATE events SET line = ? WHERE seq = 3", [SEALED[1]], id="a line is replaced"),
        pytest.param("UPDATE events SET line = ? WHERE seq = 6", [SEALED[5] + b"\n"], id="a line break is added"),
        pytest.param("UPDATE events SET line = ? WHERE seq = 6", [b"\n" + SEALED[5]], id="an empty line is added"),
        pytest.param("UPDATE events SET run_id = 'x' WHERE seq = 6", [], id="the end goes to another run"),
    ],
)
def test_a_forged_database_does_not_pass(database: str, statement: str, values: list[object]) -> None:
    change(database, statement, *values)
    assert not verify_trace(open_trace(None, database, RUN), KEYS)[1].holds


def test_a_line_of_a_database_is_one_line_or_does_not_pass(tmp_path: Path) -> None:
    # A JSON reader passes over a line break, so the chain alone would hold here and break in the export.
    path = str(tmp_path / "runs.db")
    chain, lines = Chain(), []
    for line in UNSIGNED:
        event = msgspec.json.decode(line)
        event["prev_hash"] = chain.head
        if event["type"] == "run_complete":
            event["data"]["chain_hash"] = chain.head
        lines.append(msgspec.json.encode(event).replace(b":", b":\n", 1))
        chain.append(lines[-1])
    assert check_seal(read_chain(lines), require_signature=False).holds
    store_run(path, UNSIGNED)
    for seq, line in enumerate(lines, start=1):
        change(path, "UPDATE events SET line = ? WHERE seq = ?", line, seq)
    report, seal = verify_trace(open_trace(None, path, RUN), Keys())
    assert not seal.holds
    assert report.break_count > 0


class TestWhatCannotBeOpened:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            pytest.param((None, None, None), "expected a trace", id="nothing is named"),
            pytest.param(("a.jsonl", "b", None), "found both", id="a file and a database"),
            pytest.param(("none.jsonl", None, None), "there is no file `none.jsonl`", id="no such file"),
            pytest.param((None, "none.db", RUN), "there is no file `none.db`", id="no such database"),
            pytest.param(("a\x00b", None, None), "is not a path", id="no path at all"),
        ],
    )
    def test_is_a_mistake_of_the_caller(
        self,
        given: tuple[str | None, str | None, str | None],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UsageError, match=message):
            open_trace(*given)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("which", [0, 1], ids=["as a file", "as a database"])
    def test_is_a_folder_or_a_pipe(self, tmp_path: Path, which: int) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(DocumentError, match="is not a regular file"):
                open_trace(str(path) if which == 0 else None, str(path) if which == 1 else None, None)

    def test_is_a_file_that_is_no_database(self, file: str) -> None:
        with pytest.raises(DocumentError, match="is not a database"):
            open_trace(None, file, RUN)
        assert Path(file).read_bytes() == join(SEALED)

    def test_is_no_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(UsageError, match="no standard input"):
            open_trace("-", None, None)

    def test_is_a_run_that_is_not_there(self, database: str) -> None:
        with pytest.raises(UsageError, match="there is no run `another`"):
            open_trace(None, database, "another")

    def test_is_a_database_without_runs(self, tmp_path: Path) -> None:
        store_run(tmp_path / "empty.db", SEALED)
        remove_run(tmp_path / "empty.db", RUN)
        with pytest.raises(UsageError, match="there are no runs"):
            open_trace(None, str(tmp_path / "empty.db"), None)
        with pytest.raises(UsageError, match="there is no run `x`"):
            open_trace(None, str(tmp_path / "empty.db"), "x")

    @pytest.mark.parametrize(("count", "end"), [(2, "`run-00`, `run-01`"), (11, "`run-10`, and more")])
    def test_is_a_choice_of_runs(self, tmp_path: Path, count: int, end: str) -> None:
        for number in range(count):
            run = f"run-{number:02d}"
            store_run(tmp_path / "runs.db", [SEALED[0].replace(RUN.encode(), run.encode())])
        with pytest.raises(UsageError, match="there are several runs") as refusal:
            open_trace(None, str(tmp_path / "runs.db"), None)
        assert str(refusal.value.hint).startswith("name one: `run-0")
        assert str(refusal.value.hint).endswith(end)


def test_lines_that_cannot_be_read_stand_among_the_events() -> None:
    content = join([SEALED[0], b"{", b"", SEALED[1]]) + SEALED[2][:5]
    found = list(events_of(held(content)))
    assert [each if isinstance(each, Unreadable) else each.seq for each in found] == [
        1,
        Unreadable(2, "the line is not JSON: input data was truncated"),
        Unreadable(3, "the line is empty"),
        2,
        Unreadable(5, "the line is not JSON: input data was truncated"),
    ]
    assert found[0] == decode(SEALED[0])


# ── earlier versions ─────────────────────────────────────────────────────────────────────────────────

EARLIER = sorted((Path(__file__).parents[3] / "fixtures" / "traces").rglob("*.jsonl"))


@pytest.mark.parametrize("path", EARLIER, ids=lambda path: f"{path.parent.name} {path.stem[:8]}")
def test_traces_of_earlier_versions_verify(path: Path) -> None:
    chain, _ = verify_trace(open_trace(str(path), None, None), Keys())
    assert chain.intact
    assert chain.events == len(path.read_bytes().splitlines())
    lines = path.read_bytes().replace(b'"type":"run_started"', b'"type":"run_ended"', 1)
    assert lines != path.read_bytes()
    assert not verified(lines, Keys())[0].intact
