"""Runbook runs in a ledger on Postgres: the same record as in files, shared by machines, and no password anywhere."""

import json
import re
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, call, files_under, finish, note, of_type, until
from tests.postgres import Server, execute, on_database

from gert.kernel.foundation.signature import parse_key

DSN = "env:LEDGER_DSN"
SECRET = "hunter2secret"
SEED = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
TRUSTED = {"GERT_APPROVAL_KEY_BO": parse_key(SEED).public_text or "", "GERT_APPROVAL_OWNER_BO": "bo"}
ASKS: dict[str, Any] = {"rules": [{"effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}
TOOLS = ("note", "once", "fragile", "restart", "dies", "shows")
VOLATILE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d{8}-\d{6}-\d{3}-\w{6}|[0-9a-f]{64}|\"duration\":\"[^\"]*\"")


class Ledger(Project):
    """A project whose runs go to a ledger that is named by a variable."""

    def __init__(self, root: Path, dsn: str) -> None:
        super().__init__(root)
        self.dsn = dsn
        self.note_tool("once", contract={"idempotent": False})
        self.note_tool("fragile", after=f"test -e {root}/mended")
        self.note_tool("restart", contract={"effects": ["restart"]})
        self.script("dies", f"test -e {root}/mended || kill -9 $PPID")
        self.script("shows", "env")

    def on(self, command: str, *words: str | Path, **environ: str) -> Ran:
        """A command on the ledger."""
        return self.gert(*command.split(), *words, "--dsn", DSN, LEDGER_DSN=self.dsn, **{**TRUSTED, **environ})

    def approve(self, ticket: str) -> Ran:
        return self.on("approve", ticket, "--as", "bo", "--key", "MINE", "--key-id", "bo", MINE=SEED).ended(0)

    def recorded(self, *words: str, code: int = 0) -> str:
        """The id of a new run in the ledger."""
        self.on("exec", self.root / "book.yaml", *words).ended(code)
        return str(self.listed()[0]["run_id"])

    def listed(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.on("run list", "--json").ended(0).out)
        return rows

    def exported(self, run_id: str) -> str:
        return self.on("trace export", "--run", run_id).ended(0).out

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.exported(run_id).splitlines()]

    def mend(self) -> None:
        (self.root / "mended").touch()


@pytest.fixture
def ledger(tmp_path: Path, dsn: str) -> Ledger:
    return Ledger(tmp_path / "project", with_password(dsn))


def with_password(dsn: str) -> str:
    """The same address with a password, which our own server does not ask for."""
    parts = urlsplit(dsn)
    userinfo, _, host = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    if password:
        return dsn
    return urlunsplit(parts._replace(netloc=f"{user}:{SECRET}@{host}"))


def test_a_run_is_recorded_as_it_would_be_in_a_file(ledger: Ledger) -> None:
    ledger.runbook(note("one"), note("two", tool="once"), tools=TOOLS)
    run_id = ledger.recorded("--as", "kim")
    assert ledger.runs() == []
    ledger.exec("--as", "kim").ended(0)
    in_file = ledger.run().trace.read_text()
    exported = ledger.exported(run_id)
    assert VOLATILE.sub("", exported) == VOLATILE.sub("", in_file)
    rows = execute(ledger.dsn, "SELECT line FROM gert.events ORDER BY seq")
    assert exported.encode() == b"".join(row[0] + b"\n" for row in rows)
    ledger.on("trace verify", "--run", run_id).ended(0)
    assert ledger.on("run verify", run_id).ended(0).out == "valid\n"
    copy = ledger.write("copy.jsonl", exported)
    ledger.gert("trace", "verify", copy).ended(0)


def test_a_record_in_which_one_byte_changed_does_not_verify(ledger: Ledger) -> None:
    ledger.runbook(note("one"), tools=TOOLS)
    run_id = ledger.recorded()
    change = "UPDATE gert.events SET line = overlay(line placing 'x'::bytea from 300) WHERE seq = 2"
    execute(ledger.dsn, change, "SELECT 1")
    ledger.on("trace verify", "--run", run_id).ended(1)
    assert ledger.on("run verify", run_id).ended(1).out == "invalid\n"


def test_the_result_says_where_it_is(ledger: Ledger) -> None:
    ledger.runbook(note("one"), tools=TOOLS)
    said = ledger.on("exec", ledger.root / "book.yaml", "--json").ended(0).said
    assert (said["trace"], said["db"]) == (None, None)
    assert said["dsn"].startswith("postgresql://")
    assert SECRET not in said["dsn"]
    shown = ledger.on("run show", said["run_id"], "--json").ended(0).said
    assert (shown["status"], shown["file"]) == ("completed", str(ledger.root / "book.yaml"))


def test_a_rehearsal_is_recorded_where_it_is_asked_for(ledger: Ledger) -> None:
    ledger.runbook(note("one"), tools=TOOLS)
    run_id = ledger.recorded("--mode", "dry-run")
    assert ledger.events(run_id)[-1]["data"]["mode"] == "dry-run"
    assert ledger.noted() == []


class TestGoingOn:
    def test_a_run_is_set_aside_approved_and_goes_on(self, ledger: Ledger) -> None:
        ledger.runbook(note("first"), note("second", tool="restart"), tools=TOOLS, governance=ASKS)
        out = ledger.on("exec", ledger.root / "book.yaml", "--detach", "--as", "ann").ended(0).out
        (row,) = ledger.listed()
        run_id, (ticket,) = row["run_id"], row["tickets"]
        assert row["status"] == "waiting"
        assert f"resume with: gert resume {run_id} --dsn {DSN}\n" in out
        shown = ledger.on("run show", run_id, "--json").ended(0).said
        assert f"gert resume {run_id} --dsn {DSN}" in shown["next"]
        assert f"--dsn {DSN}` resumes it" in ledger.on("rerun", "--run", run_id, "--from", "first").ended(2).err
        approved = ledger.approve(ticket).out
        assert f"  gert resume {run_id} --dsn {DSN}\n" in approved
        ledger.on("resume", "--run", run_id).ended(0)
        assert ledger.noted() == ["first", "second"]
        ledger.on("trace verify", "--run", run_id).ended(0)
        assert "has ended" in ledger.on("resume", "--run", run_id).ended(2).err

    def test_a_run_whose_process_was_killed_goes_on(self, ledger: Ledger) -> None:
        ledger.runbook(note("one", tool="once"), call("last", "dies"), note("after"), tools=TOOLS)
        ledger.on("exec", ledger.root / "book.yaml").ended(-signal.SIGKILL)
        (row,) = ledger.listed()
        assert row["status"] == "cut-off"
        shown = ledger.on("run show", row["run_id"], "--json").ended(0).said
        assert [each["path"] for each in shown["in_doubt"]] == ["last"]
        ledger.mend()
        ledger.on("resume", "--run", row["run_id"]).ended(0)
        assert ledger.noted() == ["one", "after"]
        assert len(of_type(ledger.events(row["run_id"]), "run_resumed")) == 1
        ledger.on("trace verify", "--run", row["run_id"]).ended(0)

    def test_while_one_process_drives_a_run_no_other_does(self, ledger: Ledger) -> None:
        ledger.script("slow", f"touch {ledger.root}/up; while [ ! -e {ledger.root}/go ]; do sleep 0.02; done")
        ledger.runbook(call("wait", "slow"), tools=("slow",))
        process = ledger.start("--dsn", DSN, LEDGER_DSN=ledger.dsn)
        until((ledger.root / "up").exists)
        (row,) = ledger.listed()
        assert row["status"] == "running"
        assert "driven by another process" in ledger.on("resume", "--run", row["run_id"]).ended(2).err
        assert "is running" in ledger.on("run abandon", row["run_id"], "--reason", "x").ended(2).err
        assert "still running" in ledger.on("rerun", "--run", row["run_id"], "--from", "wait").ended(2).err
        (ledger.root / "go").touch()
        finish(process).ended(0)
        assert ledger.listed()[0]["status"] == "completed"

    def test_connections_that_are_cut_do_not_end_a_run(self, ledger: Ledger) -> None:
        ledger.script("slow", f"touch {ledger.root}/up; while [ ! -e {ledger.root}/go ]; do sleep 0.02; done")
        ledger.runbook(call("wait", "slow"), note("after"), tools=("slow", "note"))
        process = ledger.start("--dsn", DSN, LEDGER_DSN=ledger.dsn)
        until((ledger.root / "up").exists)
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'gert'"
        execute(ledger.dsn, f"{cut} AND datname = current_database()")
        (ledger.root / "go").touch()
        finish(process).ended(0)
        assert ledger.noted() == ["after"]

    def test_a_run_that_another_took_over_meanwhile_is_left_to_it(self, ledger: Ledger) -> None:
        ledger.script("slow", f"touch {ledger.root}/up; while [ ! -e {ledger.root}/go ]; do sleep 0.02; done")
        ledger.runbook(call("wait", "slow"), note("after"), tools=("slow", "note"))
        process = ledger.start("--dsn", DSN, LEDGER_DSN=ledger.dsn)
        until((ledger.root / "up").exists)
        (row,) = ledger.listed()
        process.send_signal(signal.SIGSTOP)
        execute(ledger.dsn, "UPDATE gert.runs SET lease_expires = '2001-01-01T00:00:00.000000Z'", "SELECT 1")
        ledger.on("run abandon", row["run_id"], "--reason", "it hangs").ended(0)
        process.send_signal(signal.SIGCONT)
        (ledger.root / "go").touch()
        assert finish(process).code not in (0, 3)
        assert ledger.noted() == []
        ledger.on("trace verify", "--run", row["run_id"]).ended(0)
        assert ledger.listed()[0]["status"] == "abandoned"

    def test_a_new_run_takes_the_answers_of_one_that_failed(self, ledger: Ledger) -> None:
        ledger.runbook(note("one"), note("two", tool="fragile"), tools=TOOLS)
        run_id = ledger.recorded(code=3)
        next_ = ledger.on("run show", run_id, "--json").ended(0).said["next"]
        assert next_ == [f"gert rerun {run_id} --from two --dsn {DSN}"]
        ledger.mend()
        said = ledger.on("rerun", "--run", run_id, "--from", "two", "--json").ended(0).said
        assert ledger.noted() == ["one", "two", "two"]
        assert [row["run_id"] for row in ledger.listed()] == [said["run_id"], run_id]
        (forked,) = of_type(ledger.events(said["run_id"]), "run_forked")
        assert forked["data"]["source_run_id"] == run_id
        assert ledger.runs() == []

    def test_a_run_that_waits_can_be_abandoned(self, ledger: Ledger) -> None:
        ledger.runbook(note("first"), note("second", tool="restart"), tools=TOOLS, governance=ASKS)
        run_id = ledger.recorded("--detach", "--as", "ann")
        said = ledger.on("run abandon", run_id[:-2], "--reason", "no use", "--json").ended(0).said
        assert (said["run_id"], len(said["tickets"]), said["redriven"]) == (run_id, 1, True)
        assert ledger.listed()[0]["status"] == "abandoned"
        ledger.on("trace verify", "--run", run_id).ended(0)
        ledger.on("resume", "--run", run_id).ended(2)

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(("resume", "--run", "20260228-143000-000-aaaaaa"), id="resume"),
            pytest.param(("rerun", "--run", "20260228-143000-000-aaaaaa", "--from", "x"), id="rerun"),
            pytest.param(("run abandon", "20260228-143000-000-aaaaaa", "--reason", "x"), id="abandon"),
        ],
    )
    def test_a_run_that_is_not_there(self, ledger: Ledger, words: tuple[str, ...]) -> None:
        ledger.runbook(note("one"), tools=TOOLS)
        ledger.recorded()
        assert "no run" in ledger.on(*words).ended(2).err


class TestCounting:
    def test_outcomes_are_counted(self, ledger: Ledger) -> None:
        ledger.runbook(note("one"), note("two", tool="fragile"), tools=TOOLS)
        ledger.recorded(code=3)
        ledger.mend()
        ledger.recorded()
        said = ledger.on("outcomes", "--json").ended(0).said
        assert (said["runs"], said["traces"], said["skipped"]["count"]) == (2, 2, 0)
        assert SECRET not in json.dumps(said)
        assert len(ledger.on("outcomes", "--csv").ended(0).out.splitlines()) == 3

    def test_the_breaker_counts_the_runs_of_all_users(self, ledger: Ledger) -> None:
        rule = {"effects": ["restart"], "action": "allow", "limits": {"max_per_hour": 1}}
        governance = {"rules": [rule, {"default": "allow"}]}
        ledger.runbook(note("one", tool="restart"), tools=TOOLS, governance=governance)
        ledger.recorded()
        elsewhere = ("--state-dir", str(ledger.root / "elsewhere"))
        ledger.recorded(*elsewhere, code=3)
        assert ledger.noted() == ["one"]


class TestPasswords:
    def test_a_password_is_nowhere(self, ledger: Ledger, dsn: str) -> None:
        """Not even where a tool was given the address by another name, and prints it."""
        ledger.runbook(call("look", "shows"), note("two", tool="restart"), tools=TOOLS, governance=ASKS)
        ran = ledger.on("exec", ledger.root / "book.yaml", "--detach", "-v", COPY=ledger.dsn).ended(0)
        (row,) = ledger.listed()
        (ticket,) = row["tickets"]
        ledger.approve(ticket)
        again = ledger.on("resume", "--run", row["run_id"], "-v", COPY=ledger.dsn).ended(0)
        said = "".join((ran.out, ran.err, again.out, again.err))
        assert "COPY=postgresql://" in said
        assert "LEDGER_DSN=" not in said
        tables = ("runs", "events", "answers", "documents")
        kept = [str(tuple(row)) for each in tables for row in execute(dsn, f"SELECT * FROM gert.{each}")]
        kept += [path.read_text() for path in files_under(ledger.root)]
        assert len(kept) > 10
        assert not [text for text in (*kept, said) if SECRET in text]

    def test_an_address_that_was_written_out_is_repeated_without_its_password(self, ledger: Ledger) -> None:
        ledger.runbook(note("two", tool="restart"), tools=TOOLS, governance=ASKS)
        out = ledger.exec("--dsn", ledger.dsn, "--detach", **TRUSTED).ended(0).out
        assert "--dsn 'postgresql://" in out
        assert SECRET not in out

    @pytest.mark.parametrize(
        "dsn",
        [
            pytest.param(f"postgresql://u:{SECRET}@127.0.0.1:1/d", id="no server"),
            pytest.param(f"postgresql://u:{SECRET}@127.0.0.1:99999/d", id="no such port"),
            pytest.param(f"postgresql://u@127.0.0.1:1/d?password={SECRET}", id="in a setting"),
            pytest.param(f"mysql://u:{SECRET}@h/d", id="another kind of database"),
            pytest.param(SECRET, id="no address at all"),
            pytest.param("", id="an empty one"),
        ],
    )
    @pytest.mark.parametrize("given", ["as it is", "in a variable"])
    def test_a_wrong_address_stops_everything_and_shows_nothing(self, dsn: str, given: str, project: Project) -> None:
        project.runbook(note("one"))
        words = ("--dsn", dsn if given == "as it is" else DSN)
        commands = (
            ("exec", "book.yaml"),
            ("resume", "--run", "x"),
            ("rerun", "--run", "x", "--from", "one"),
            ("run", "abandon", "x", "--reason", "y"),
            ("outcomes",),
        )
        for command in commands:
            ran = project.gert(*command, *words, LEDGER_DSN=dsn)
            assert ran.code in (1, 2, 4), ran
            assert "error:" in ran.err
            assert SECRET not in ran.out + ran.err
            assert "internal" not in ran.err
        assert (project.noted(), project.runs()) == ([], [])


class TestMistakes:
    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(("--trace", "run.jsonl", "--db", "runs.db"), id="a file and SQLite"),
            pytest.param(("--trace", "run.jsonl", "--dsn", "postgresql://h/d"), id="a file and Postgres"),
            pytest.param(("--db", "runs.db", "--dsn", "postgresql://h/d"), id="SQLite and Postgres"),
        ],
    )
    def test_a_run_is_recorded_in_one_place(self, words: tuple[str, ...], project: Project) -> None:
        project.runbook(note("one"))
        err = project.exec(*words).ended(2).err
        assert "a run is recorded in one place" in err
        assert "only one of --trace, --db and --dsn" in err
        assert project.noted() == []

    @pytest.mark.parametrize(
        "command",
        [
            pytest.param(("resume", "--run", "x"), id="resume"),
            pytest.param(("rerun", "--run", "x", "--from", "y"), id="rerun"),
            pytest.param(("run", "abandon", "x", "--reason", "y"), id="abandon"),
            pytest.param(("outcomes",), id="outcomes"),
        ],
    )
    def test_a_run_is_looked_for_in_one_ledger(self, command: tuple[str, ...], project: Project) -> None:
        ran = project.gert(*command, "--db", "runs.db", "--dsn", "postgresql://h/d").ended(2)
        assert "expected `--db` or `--dsn`, found both" in ran.err

    def test_a_database_that_is_not_there(self, ledger: Ledger, dsn: str) -> None:
        ledger.runbook(note("one"), tools=TOOLS)
        ledger.dsn = on_database(dsn, "no_such_database")
        assert "there is no such database" in ledger.on("exec", ledger.root / "book.yaml").ended(4).err
        assert ledger.noted() == []

    @pytest.mark.parametrize(
        "command",
        [
            "run verify-ledger x",
            "run verify x --json",
            "run show x",
            "run list",
            "run status x",
            "run tail x",
            "run export x",
            "trace verify --run x",
            "trace show --run x",
            "trace export --run x",
            "outcomes",
        ],
    )
    def test_a_server_that_cannot_be_asked_is_no_invalid_record(self, command: str, ledger: Ledger) -> None:
        ledger.dsn = f"postgresql://ann:{SECRET}@127.0.0.1:1/x"
        ran = ledger.on(command).ended(4)
        assert (ran.said["error"]["code"] == "unavailable") if "--json" in command else ran.out == ""
        assert "the database cannot be reached" in ran.err
        assert SECRET not in ran.err + ran.out

    def test_reading_creates_no_ledger(self, ledger: Ledger) -> None:
        ledger.runbook(note("one"), tools=TOOLS)
        for command in ("outcomes", "resume --run x", "rerun --run x --from one", "run abandon x --reason y"):
            assert "there is no ledger" in ledger.on(command).err
        assert execute(ledger.dsn, "SELECT 1 FROM pg_namespace WHERE nspname = 'gert'") == []

    @pytest.mark.parametrize("made", [True, False], ids=["with a ledger", "without one"])
    def test_what_cannot_be_written_stops_a_run_before_it_begins(self, ledger: Ledger, dsn: str, made: bool) -> None:
        ledger.runbook(note("one"), tools=TOOLS)
        if made:
            ledger.recorded()
            ledger.effects.unlink()
        name = urlsplit(dsn).path.strip("/")
        execute(dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on", "SELECT 1")
        assert "it is read-only" in ledger.on("exec", ledger.root / "book.yaml").ended(4).err
        assert ledger.noted() == []
        if made:
            assert len(ledger.listed()) == 1

    def test_a_server_that_goes_away_stops_the_run_which_goes_on_when_it_is_back(
        self, own_server: Server, tmp_path: Path
    ) -> None:
        ledger = Ledger(tmp_path / "project", with_password(own_server.dsn))
        ledger.script("slow", f"touch {ledger.root}/up; while [ ! -e {ledger.root}/go ]; do sleep 0.02; done")
        ledger.runbook(call("wait", "slow"), note("after"), tools=("slow", "note"))
        process = ledger.start("--dsn", DSN, LEDGER_DSN=ledger.dsn)
        until((ledger.root / "up").exists)
        own_server.stop()
        (ledger.root / "go").touch()
        ran = finish(process).ended(4)
        assert "cannot be reached" in ran.err
        assert "Traceback" not in ran.err
        assert ledger.noted() == []
        assert "cannot be reached" in ledger.on("resume", "--run", "x").ended(4).err
        own_server.start()
        (row,) = ledger.listed()
        assert row["status"] == "cut-off"
        ledger.on("resume", "--run", row["run_id"]).ended(0)
        assert ledger.noted() == ["after"]
        ledger.on("trace verify", "--run", row["run_id"]).ended(0)
