"""`gert run` on a ledger: runs of every kind, on SQLite and Postgres, read and never written."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.runs.ledgers import Place, append, fill, paths_below
from tests.kernel.events.traces import HMAC_KEY, PRIVATE_KEY, trace
from tests.stored_runs import store_run

from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.foundation.signature import parse_key

ROOT = Path(__file__).resolve().parents[5]
RUNBOOK = "run-2026-02-28-001"
SEAL = "a sealing key of the tests"


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> "Out":
    return Out(capsys)


class Out:
    """What a command came to."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def of(self, *words: str, code: int = 0) -> str:
        found = main(["run", *words])
        said, self.err = self._capsys.readouterr()
        assert found == code, self.err
        return said

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.of(*words, "--json", code=code))


def add_runbook(place: Place, *, sealed: bool = True) -> None:
    """A runbook run beside the agent runs of a SQLite ledger."""
    key = PRIVATE_KEY if sealed else None
    store_run(place.where, trace(key), [b"{}"], key=key)


class TestList:
    def test_runs_of_every_kind_stand_side_by_side(self, sqlite_ledger: Place, out: Out) -> None:
        add_runbook(sqlite_ledger)
        rows = {row["run_id"]: row for row in out.json("list", *sqlite_ledger.words)}
        assert {run: (row["kind"], row["status"], row["tenant"]) for run, row in rows.items()} == {
            "triage-1": ("agent", "active", "acme"),
            "triage-2": ("agent", "paused", "acme"),
            "other-1": ("agent", "completed", "other"),
            RUNBOOK: ("runbook", "completed", None),
        }
        assert rows["triage-1"]["events"] == 10
        assert rows[RUNBOOK]["outcome"] is not None

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            pytest.param([], ["other-1", "triage-2", "triage-1"], id="all, the newest first"),
            pytest.param(["--tenant", "acme"], ["triage-2", "triage-1"], id="of a tenant"),
            pytest.param(["--tenant", "nobody"], [], id="of an unknown tenant"),
            pytest.param(["--status", "active"], ["triage-1"], id="active agents"),
            pytest.param(["--status", "paused"], ["triage-2"], id="paused agents"),
            pytest.param(["--status", "ended"], ["other-1"], id="ended, whatever their kind"),
            pytest.param(["--status", "cut-off"], [], id="an agent run is never cut off"),
            pytest.param(["--limit", "1"], ["other-1"], id="only the newest"),
            pytest.param(["--since", "1h"], ["other-1", "triage-2", "triage-1"], id="of the last hour"),
            pytest.param(["--since", "2020-01-01"], ["other-1", "triage-2", "triage-1"], id="since a day"),
            pytest.param(["--since", "2999-01-01T00:00:00Z"], [], id="since a time to come"),
            pytest.param(["--runbook", "x"], [], id="an agent run has no runbook"),
        ],
    )
    def test_which_are_listed(self, words: list[str], found: list[str], ledger: Place, out: Out) -> None:
        assert [row["run_id"] for row in out.json("list", *words, *ledger.words)] == found

    def test_a_person_reads_a_table(self, ledger: Place, out: Out) -> None:
        lines = out.of("list", *ledger.words).splitlines()
        assert lines[0].split()[:2] == ["RUN", "RUNBOOK"]
        assert lines[2].split()[3:6] == ["acme", "agent", "paused"]

    @pytest.mark.parametrize("since", ["yesterday", "-1d", "", "2026-13-01", "9" * 400])
    def test_a_time_that_is_none_is_a_mistake(self, since: str, sqlite_ledger: Place, out: Out) -> None:
        out.of("list", f"--since={since}", *sqlite_ledger.words, code=2)
        assert "--since" in out.err

    def test_more_runs_than_are_read_at_once(self, tmp_path: Path, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gert.ecosystem.host.runs.ledger_reader._FIRST_HEADS", 1)
        place = fill(Place(str(tmp_path / "many.db")))
        assert len(out.json("list", *place.words)) == 3


class TestOne:
    def test_show_says_what_the_ledger_knows(self, ledger: Place, out: Out) -> None:
        said = out.json("show", "triage-1", *ledger.words)
        assert (said["model_calls"], said["tool_calls"], said["model_cost_total"]) == (1, 1, 0.25)
        assert "agent run triage-1: active" in out.of("show", "triage-1", *ledger.words)
        assert "0.250000 USD" in out.of("show", "triage-1", *ledger.words)

    def test_status_says_what_it_waits_for(self, ledger: Place, out: Out) -> None:
        said = out.json("status", "triage-2", *ledger.words)
        assert (said["status"], said["blocked_on"], said["last_event_type"]) == (
            "paused",
            "unblock:boss",
            "pause_requested",
        )
        text = out.of("status", "triage-2", *ledger.words)
        assert "unblock:boss" in text
        assert "who may?" in text

    def test_the_status_of_a_runbook_run(self, sqlite_ledger: Place, out: Out) -> None:
        add_runbook(sqlite_ledger)
        said = out.json("status", RUNBOOK, *sqlite_ledger.words)
        assert (said["kind"], said["status"], said["last_event_type"]) == ("runbook", "completed", "run_complete")

    def test_summaries_are_the_newest_first(self, ledger: Place, out: Out) -> None:
        noted = out.json("summaries", "triage-1", "--limit", "2", *ledger.words)["summaries"]
        assert [each["summary_type"] for each in noted] == ["checkpoint::deployed", "artifact::nasty\tkey\x1b[2J"]
        assert noted[0]["summary"] == {"n": 1}
        assert out.json("summaries", "triage-1", "--type", "none", *ledger.words)["summaries"] == []

    def test_artifacts_are_the_newest_of_each_key(self, ledger: Place, out: Out) -> None:
        held = out.json("artifacts", "triage-1", *ledger.words)["artifacts"]
        assert held == {"report": {"a": [3], "b": 2}, "nasty\tkey\x1b[2J": "\x1b[31m\nred"}

    @pytest.mark.parametrize("what", ["show", "tail", "status", "summaries", "artifacts"])
    def test_nothing_acts_on_a_terminal(self, what: str, ledger: Place, out: Out) -> None:
        said = out.of(what, "triage-1", *ledger.words)
        assert "\x1b" not in said

    def test_tail_gives_every_event(self, ledger: Place, out: Out) -> None:
        events = [json.loads(line) for line in out.of("tail", "triage-1", "--json", *ledger.words).splitlines()]
        assert [event["seq"] for event in events] == list(range(1, 11))
        later = out.of("tail", "triage-1", "--json", "--since-seq", "8", *ledger.words).splitlines()
        assert [json.loads(line)["seq"] for line in later] == [9, 10]
        text = out.of("tail", "triage-1", *ledger.words)
        assert "▸ send  send" in text
        assert "status    active" in text

    def test_export_is_the_record_byte_for_byte(self, ledger: Place, out: Out, folder: Path) -> None:
        out.of("export", "triage-1", "--output", "run.jsonl", *ledger.words)
        exported = (folder / "run.jsonl").read_bytes()
        assert exported.count(b"\n") == 10
        assert main(["trace", "verify", "run.jsonl"]) == 0
        assert main(["trace", "export", *ledger.words, "--run", "triage-1", "--output", "again.jsonl"]) == 0
        assert (folder / "again.jsonl").read_bytes() == exported
        out.of("export", "triage-1", "--output", "run.jsonl", *ledger.words, code=2)

    def test_a_beginning_is_enough_where_it_is_clear(self, ledger: Place, out: Out) -> None:
        assert out.json("status", "oth", *ledger.words)["run_id"] == "other-1"
        out.of("status", "tri", *ledger.words, code=2)
        assert "matches 2 runs" in out.err

    @pytest.mark.parametrize("command", ["show", "tail", "status", "verify-ledger", "verify", "summaries", "export"])
    @pytest.mark.parametrize("run_id", ["nobody", "../x", "a b", "'; DROP TABLE runs; --"])
    def test_an_unknown_run_is_a_mistake(self, command: str, run_id: str, sqlite_ledger: Place, out: Out) -> None:
        assert out.of(command, run_id, *sqlite_ledger.words, code=2) == ""

    @pytest.mark.parametrize("command", ["summaries", "artifacts"])
    def test_a_runbook_run_has_no_summaries(self, command: str, out: Out, folder: Path) -> None:
        (folder / "runs").mkdir()
        store_run(folder / "runs" / "ledger.db", trace())
        assert "there are no" in out.of(command, RUNBOOK, "--state-dir", ".")
        assert not out.json(command, RUNBOOK, "--state-dir", ".")[command]

    def test_an_agent_run_is_not_abandoned_by_us(self, sqlite_ledger: Place, out: Out) -> None:
        out.of("abandon", "triage-1", "--reason", "x", *sqlite_ledger.words, code=2)
        assert "is an agent run" in out.err
        assert main(["rerun", "--run", "triage-1", "--from", "x", *sqlite_ledger.words]) == 2


class TestVerify:
    @pytest.mark.parametrize("command", ["verify-ledger", "verify"])
    def test_a_whole_record_is_valid(self, command: str, ledger: Place, out: Out) -> None:
        assert out.of(command, "triage-1", *ledger.words) == "valid\n"
        said = out.json(command, "triage-1", *ledger.words)
        assert (said["valid"], said["proven"], said["kind"], said["events"]) == (True, False, "agent", 10)

    @pytest.mark.parametrize(
        ("harm", "why"),
        [
            pytest.param(
                "DELETE FROM events WHERE run_id = 'triage-1' AND seq = 10", "end of the run is missing", id="cut"
            ),
            pytest.param("DELETE FROM events WHERE run_id = 'triage-1' AND seq = 5", "chain breaks", id="a hole"),
            pytest.param("DELETE FROM events WHERE run_id = 'triage-1'", "there are no events", id="emptied"),
            pytest.param("UPDATE runs SET hash = 'x' WHERE run_id = 'triage-1'", "not the head", id="another head"),
            pytest.param(
                "UPDATE runs SET count = 9 WHERE run_id = 'triage-1'", "after the end of the run", id="another count"
            ),
        ],
    )
    def test_what_was_changed_is_not(self, harm: str, why: str, ledger: Place, out: Out) -> None:
        ledger.harm(harm)
        assert out.of("verify", "triage-1", *ledger.words, code=1) == "invalid\n"
        assert why in out.err
        said = out.json("verify", "triage-1", *ledger.words, code=1)
        assert said["valid"] is False

    def test_a_line_that_was_changed(self, sqlite_ledger: Place, out: Out) -> None:
        sqlite_ledger.harm(
            "UPDATE events SET line = CAST(replace(CAST(line AS TEXT), 'kim', 'eve') AS BLOB) WHERE run_id = 'triage-1'"
        )
        assert out.of("verify", "triage-1", *sqlite_ledger.words, code=1) == "invalid\n"

    def test_a_line_that_is_none(self, sqlite_ledger: Place, out: Out) -> None:
        sqlite_ledger.harm("UPDATE events SET line = 'text' WHERE run_id = 'triage-1' AND seq = 3")
        assert out.of("verify", "triage-1", *sqlite_ledger.words, code=1) == "invalid\n"

    def test_a_sealed_record(self, tmp_path: Path, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
        place = fill(Place(str(tmp_path / "sealed.db")), key=parse_key(SEAL, "prod"))
        assert out.of("verify", "triage-1", *place.words) == "valid\n"
        out.of("verify", "triage-1", "--require-signature", *place.words, code=1)
        monkeypatch.setenv("GERT_TRACE_KEY_PROD", SEAL)
        said = out.json("verify", "triage-1", "--key-id", "prod", *place.words)
        assert (said["proven"], said["signed_by"]) == (True, "prod")
        place.harm("UPDATE runs SET seal = NULL WHERE run_id = 'triage-1'")
        out.of("verify", "triage-1", *place.words, code=1)
        assert "not sealed" in out.err
        monkeypatch.setenv("GERT_TRACE_KEY_PROD", "another key than that one")
        out.of("verify", "triage-2", *place.words, code=1)

    def test_a_runbook_run_is_checked_with_its_seal(
        self, sqlite_ledger: Place, out: Out, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add_runbook(sqlite_ledger)
        assert out.of("verify", RUNBOOK, *sqlite_ledger.words) == "valid\n"
        monkeypatch.setenv("GERT_TRACE_KEY_PROD_2026", str(PRIVATE_KEY.public_text))
        said = out.json("verify", RUNBOOK, *sqlite_ledger.words)
        assert (said["kind"], said["proven"], said["signed_by"]) == ("runbook", True, "prod-2026")
        names = [check["name"] for check in said["checks"]]
        assert names == [
            "chain",
            "answers",
            "count",
            "head",
            "derived",
            "seal",
            "trace_complete",
            "trace_head",
            "trace_signature",
            "trace_body",
        ]
        sqlite_ledger.harm(f"UPDATE runs SET count = 99 WHERE run_id = '{RUNBOOK}'")
        out.of("verify", RUNBOOK, *sqlite_ledger.words, code=1)
        assert "end of the run is missing" in out.err

    def test_a_runbook_run_that_is_not_signed(
        self, sqlite_ledger: Place, out: Out, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add_runbook(sqlite_ledger, sealed=False)
        monkeypatch.setenv("GERT_TRACE_SIGNING_KEY", "base64:" + "QUFB" * 12)
        out.of("verify", RUNBOOK, *sqlite_ledger.words, code=1)

    def test_runs_of_the_state_directory(self, out: Out, folder: Path) -> None:
        (folder / "runs").mkdir()
        place = Place(str(folder / "runs" / "ledger.db"))
        store_run(place.where, trace(HMAC_KEY))
        assert out.of("verify", RUNBOOK, "--state-dir", ".") == "valid\n"
        place.harm("UPDATE events SET line = CAST(replace(CAST(line AS TEXT), '2026-02-28T', '2027-02-28T') AS BLOB)")
        assert out.of("verify", RUNBOOK, "--state-dir", ".", code=1) == "invalid\n"

    @pytest.mark.parametrize("where", ["file", "ledger"])
    def test_trace_verify_verifies_either(self, where: str, ledger: Place, out: Out, folder: Path) -> None:
        words = [*ledger.words, "--run", "triage-1"]
        if where == "file":
            assert main(["trace", "export", *words, "-o", "run.jsonl"]) == 0
            words = ["run.jsonl"]
        assert main(["trace", "verify", *words]) == 0
        assert main(["trace", "verify", *words, "--require-signature"]) == 1
        assert main(["trace", "show", *words]) == 0
        if where == "file":
            (folder / "run.jsonl").write_bytes((folder / "run.jsonl").read_bytes().replace(b"kim", b"eve"))
        else:
            ledger.harm("DELETE FROM events WHERE run_id = 'triage-1' AND seq = 10")
        assert main(["trace", "verify", *words]) == 1


class TestPlaces:
    @pytest.mark.parametrize("command", ["list", "show", "tail", "status", "verify-ledger", "summaries", "export"])
    def test_looking_makes_nothing(self, command: str, folder: Path, out: Out) -> None:
        run = [] if command == "list" else ["some-run"]
        out.of(command, *run, "--db", "none.db", code=2)
        assert "there is no file `none.db`" in out.err
        assert paths_below(folder) == set()

    @pytest.mark.parametrize("command", ["list", "show", "tail", "status", "verify", "export"])
    def test_looking_makes_no_state_directory(
        self, command: str, folder: Path, out: Out, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("HOME", str(folder))
        out.of(command, *([] if command == "list" else ["some-run"]), code=0 if command == "list" else 2)
        assert paths_below(folder) == set()

    @pytest.mark.parametrize("data", [b"", b"hello", b"SQLite format 3\0" + b"\0" * 2000])
    def test_what_is_no_ledger_is_refused_and_left_alone(self, data: bytes, folder: Path, out: Out) -> None:
        (folder / "x.db").write_bytes(data)
        assert main(["run", "list", "--db", "x.db"]) != 0
        assert (folder / "x.db").read_bytes() == data

    @pytest.mark.parametrize(
        "command",
        [
            ["run", "list"], ["run", "show", "triage-1"], ["run", "tail", "triage-1"], ["run", "verify", "triage-1"],
            ["run", "summaries", "triage-1"], ["trace", "verify", "--run", "triage-1"], ["outcomes"],
        ],
        ids=" ".join,
    )  # fmt: skip
    def test_looking_leaves_a_ledger_as_it_is(self, command: list[str], sqlite_ledger: Place) -> None:
        file = Path(sqlite_ledger.where)
        before, found = file.read_bytes(), paths_below(file.parent)
        assert main([*command, *sqlite_ledger.words]) == 0
        assert paths_below(file.parent) == found
        assert file.read_bytes() == before

    def test_looking_at_what_a_dead_process_left_changes_nothing(self, tmp_path: Path, out: Out) -> None:
        place = Place(str(tmp_path / "left.db"))
        script = (
            "import os, sys; from tests.ecosystem.surfaces.cli.runs.ledgers import Place, fill\n"
            "from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger\n"
            "SqliteLedger._close = lambda _: os._exit(9)\n"
            "fill(Place(sys.argv[1]))"
        )
        done = subprocess.run([sys.executable, "-c", script, place.where], cwd=ROOT, check=False, timeout=60)
        files = [Path(place.where), Path(place.where + "-wal")]
        before = [file.read_bytes() for file in files]
        assert (done.returncode, bool(before[1])) == (9, True)
        assert len(out.json("list", *place.words)) == 3
        assert out.of("verify", "triage-1", *place.words) == "valid\n"
        assert [file.read_bytes() for file in files] == before

    def test_two_ledgers_are_a_mistake(self, out: Out, sqlite_ledger: Place) -> None:
        out.of("list", *sqlite_ledger.words, "--dsn", "postgresql://h/d", code=2)

    @pytest.mark.parametrize(
        "dsn",
        [
            pytest.param("postgresql://u:hunter2secret@127.0.0.1:1/d", id="no server"),
            pytest.param("postgresql://u:hunter2secret@127.0.0.1:99999/d", id="no such port"),
            pytest.param("postgresql://u@127.0.0.1:1/d?password=hunter2secret", id="in a setting"),
            pytest.param("mysql://u:hunter2secret@h/d", id="another database"),
            pytest.param("hunter2secret", id="no address at all"),
            pytest.param("postgresql://u:hunter2secret@[::1/d", id="half an address"),
        ],
    )
    @pytest.mark.parametrize("given", ["as it is", "in a variable"])
    def test_a_password_is_never_shown(self, dsn: str, given: str, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GERT_DSN", dsn)
        words = ["--dsn", dsn if given == "as it is" else "env:GERT_DSN"]
        for command in (["list"], ["status", "x"], ["list", "--json"]):
            assert main(["run", *command, *words]) != 0
            text = "".join(out._capsys.readouterr())
            assert "error:" in text
            assert "hunter2secret" not in text

    def test_a_variable_that_holds_nothing(self, out: Out) -> None:
        out.of("list", "--dsn", "env:GERT_NO_DSN", code=2)
        assert "`GERT_NO_DSN` does not hold a DSN" in out.err

    def test_a_database_without_a_ledger_is_left_alone(self, dsn: str, out: Out) -> None:
        assert main(["run", "list", "--dsn", dsn]) != 0
        assert main(["run", "list", "--dsn", dsn]) != 0  # nothing was made by looking

    def test_what_to_do_next_names_the_variable(self, dsn: str, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(Place(dsn))
        monkeypatch.setenv("GERT_DSN", dsn)
        said = out.json("show", "triage-1", "--dsn", "env:GERT_DSN")
        assert said["next"][0] == "gert run tail triage-1 --follow --dsn env:GERT_DSN"


@pytest.mark.parametrize("command", [["list"], ["show", "x"], ["verify", "x"], ["export", "x"]], ids=" ".join)
def test_a_folder_is_no_ledger(command: list[str], folder: Path, out: Out) -> None:
    out.of(*command, "--db", str(folder), code=2)
    assert f"found the folder `{folder}`" in out.err
    assert paths_below(folder) == set()


class TestHarm:
    """Whatever is wrong with a ledger, it is said, and what can be read is shown."""

    @pytest.mark.parametrize(
        "command", [["list"], ["show", "x"], ["tail", "x"], ["verify", "x"], ["export", "x"]], ids=" ".join
    )
    @pytest.mark.parametrize(
        ("data", "why"),
        [
            pytest.param(b"", "is not a ledger of gert", id="empty"),
            pytest.param(b"hello, I am text\n" * 50, "is not a database", id="text"),
            pytest.param(b"SQLite format 3\x00" + b"\xff" * 84, "is", id="a head and nothing behind it"),
        ],
    )
    def test_a_file_that_is_no_ledger_is_not_our_fault(
        self, data: bytes, why: str, command: list[str], folder: Path, out: Out
    ) -> None:
        (folder / "x.db").write_bytes(data)
        assert out.of(*command, "--db", "x.db", code=1) == ""
        assert f"x.db` {why}" in out.err
        assert (folder / "x.db").read_bytes() == data

    def test_a_newer_ledger_says_what_to_do(self, sqlite_ledger: Place, out: Out) -> None:
        sqlite_ledger.harm("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
        out.of("list", *sqlite_ledger.words, code=1)
        assert "update gert" in out.err

    def test_a_run_without_a_time_is_listed(self, sqlite_ledger: Place, out: Out) -> None:
        sqlite_ledger.harm("UPDATE runs SET updated_at = 'soon', started_at = '' WHERE run_id = 'triage-1'")
        rows = {row["run_id"]: row for row in out.json("list", *sqlite_ledger.words)}
        assert (rows["triage-1"]["duration"], len(rows)) == (None, 3)
        assert "triage-1" in out.of("show", "triage-1", *sqlite_ledger.words)

    @pytest.mark.parametrize("main_words", [[], ["--json"]], ids=["in words", "as JSON"])
    def test_a_runbook_run_whose_beginning_is_gone_is_invalid(
        self, main_words: list[str], sqlite_ledger: Place, out: Out
    ) -> None:
        add_runbook(sqlite_ledger)
        sqlite_ledger.harm(f"UPDATE events SET line = CAST('x' AS BLOB) WHERE run_id = '{RUNBOOK}' AND seq = 1")
        assert "valid" in out.of("verify", RUNBOOK, *main_words, *sqlite_ledger.words, code=1)
        assert RUNBOOK in [row["run_id"] for row in out.json("list", *sqlite_ledger.words)]


class TestFollow:
    @pytest.mark.parametrize("harm", ["removed", "replaced"])
    @pytest.mark.parametrize("command", ["gert", "gert.ecosystem.surfaces.cli.commands.artana"], ids=["gert", "artana"])
    def test_a_ledger_that_is_gone_is_not_followed(self, harm: str, command: str, tmp_path: Path) -> None:
        place = fill(Place(str(tmp_path / "gone.db")))
        words = [sys.executable, "-m", command, "run", "tail", "triage-1", "--follow", "--json", *place.words]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline())["seq"] for _ in range(10)] == list(range(1, 11))
            if harm == "removed":
                os.unlink(place.where)
            else:
                os.replace(fill(Place(str(tmp_path / "new.db"))).where, place.where)
            rest, err = process.communicate(timeout=60)
        assert process.returncode == 1
        # The last line of the stream says why it ended.
        assert [json.loads(line)["error"]["code"] for line in rest.splitlines()] in ([], ["invalid_document"])
        assert "was removed or replaced" in err

    def test_events_are_shown_as_they_come_until_ctrl_c(self, ledger: Place) -> None:
        command = [sys.executable, "-m", "gert", "run", "tail", "triage-1", "--follow", "--json", *ledger.words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = [json.loads(process.stdout.readline())["seq"] for _ in range(10)]
            append(ledger, "triage-1", "news")
            news = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=30)
        assert first == list(range(1, 11))
        assert news["data"]["summary_json"] == '"news"'
        assert (rest, err, process.returncode) == ("", "", 0)

    def test_a_run_that_has_ended_is_not_waited_for(self, ledger: Place, out: Out) -> None:
        assert len(out.of("tail", "other-1", "--follow", "--json", *ledger.words).splitlines()) == 2


def test_a_reader_that_goes_away_is_no_failure(sqlite_ledger: Place) -> None:
    command = [sys.executable, "-m", "gert", "run", "tail", "triage-1", "--follow", "--json", *sqlite_ledger.words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            append(sqlite_ledger, "triage-1", "more")
        assert process.returncode == 141
    assert os.path.exists(sqlite_ledger.where)


def test_outcomes_pass_over_agent_runs_without_a_word(sqlite_ledger: Place, capsys: pytest.CaptureFixture[str]) -> None:
    add_runbook(sqlite_ledger)
    assert main(["outcomes", "--json", *sqlite_ledger.words]) == 0
    assert "triage" not in "".join(capsys.readouterr())
