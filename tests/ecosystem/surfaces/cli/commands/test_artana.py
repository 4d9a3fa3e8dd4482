"""`artana`: what it prints, byte for byte as documented, and what it exits with."""

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from tests.ecosystem.surfaces.cli.runs.ledgers import TIME, Place, append, fill, paths_below
from tests.kernel.events.traces import trace
from tests.soak import sampled
from tests.stored_runs import store_run

from gert.ecosystem.surfaces.cli.commands.artana import group, main
from gert.kernel.foundation.text import REPLACEMENT

ROOT = Path(__file__).resolve().parents[5]
PROCESS = [sys.executable, "-m", "gert.ecosystem.surfaces.cli.commands.artana"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("GERT_") and name != "GERT_TEST_DSN"]:
        monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture(params=sampled(["sqlite", "postgres"], ["sqlite"]))
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    where = str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("dsn")
    return fill(Place(where))


@pytest.fixture
def database(tmp_path: Path) -> Place:
    return fill(Place(str(tmp_path / "runs.db")))


class Said:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def untimed(text: str) -> str:
    return TIME.sub("TIME", text)


class TestText:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            pytest.param(["list"], "other-1\ntriage-2\ntriage-1\n", id="ids, the newest first"),
            pytest.param(["list", "--tenant", "acme"], "triage-2\ntriage-1\n", id="ids of a tenant"),
            pytest.param(["list", "--since", "2999-01-01"], "", id="no ids"),
            pytest.param(["tail", "triage-2"], "1\tTIME\trun_started\t-\n2\tTIME\tpause_requested\t-\n", id="events"),
            pytest.param(
                ["tail", "triage-1", "--since-seq", "9"], "10\tTIME\trun_summary\t-\n", id="events after a number"
            ),
            pytest.param(["verify-ledger", "triage-1"], "valid\n", id="valid"),
            pytest.param(["status", "triage-2"], "triage-2\tpaused\tlast_seq=2\tupdated_at=TIME\n", id="status"),
            pytest.param(["status", "other-1"], "other-1\tcompleted\tlast_seq=2\tupdated_at=TIME\n", id="ended"),
            pytest.param(
                ["summaries", "triage-1", "--limit", "1"], '10\tcheckpoint::deployed\tdeploy\t{"n":1}\n', id="summaries"
            ),
            pytest.param(
                ["summaries", "triage-1", "--type", "artifact::report"],
                '8\tartifact::report\t-\t{"value":{"a":[3],"b":2}}\n7\tartifact::report\t-\t{"value":{"a":[2],"b":1}}\n',
                id="summaries of a type",
            ),
            pytest.param(["summaries", "triage-2"], "", id="no summaries"),
            pytest.param(
                ["artifacts", "triage-1"],
                f'nasty⇥key{REPLACEMENT}[2J\t"\\u001b[31m\\nred"\nreport\t{{"a":[3],"b":2}}\n',
                id="artifacts by key, and nothing acts on a terminal",
            ),
            pytest.param(["artifacts", "triage-2"], "", id="no artifacts"),
        ],
    )
    def test_is_as_documented(self, words: list[str], expected: str, ledger: Place, said: Said) -> None:
        code, out, err = said("run", *words, *ledger.words)
        assert (code, untimed(out), err) == (0, expected, "")

    def test_an_event_of_a_step_names_it(self, ledger: Place, said: Said) -> None:
        _, out, _ = said("run", "tail", "triage-1", *ledger.words)
        rows = [line.split("\t") for line in out.splitlines()]
        assert [row[2:] for row in rows[:4]] == [
            ["run_started", "-"],
            ["model_requested", "turn_1"],
            ["model_completed", "turn_1"],
            ["run_summary", "turn_1"],
        ]
        assert all(len(row) == 4 for row in rows)


class TestJson:
    def one(self, said: Said, *words: str) -> Any:
        code, out, err = said("run", *words, "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        value = json.loads(out)
        assert out == json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n"
        return value

    def test_list(self, ledger: Place, said: Said) -> None:
        since = "2026-01-01T00:00:00+00:00"
        assert self.one(said, "list", *ledger.words) == {
            "run_ids": ["other-1", "triage-2", "triage-1"],
            "since": None,
            "tenant": None,
        }
        assert self.one(said, "list", "--tenant", "acme", "--since", since, *ledger.words) == {
            "run_ids": ["triage-2", "triage-1"],
            "since": since,
            "tenant": "acme",
        }

    def test_tail(self, ledger: Place, said: Said) -> None:
        value = self.one(said, "tail", "triage-1", *ledger.words)
        assert set(value) == {"events", "run_id"}
        event = value["events"][5]
        assert set(event) == {
            "event_id", "event_type", "parent_step_key", "payload", "run_id", "seq", "tenant_id", "timestamp",
        }  # fmt: skip
        assert (event["event_id"], event["event_type"], event["seq"]) == ("triage-1#6", "tool_completed", 6)
        assert event["payload"]["kind"] == "tool_completed"
        assert event["payload"]["result_json"] == '{"sent":"kim"}'

    def test_verify_ledger(self, ledger: Place, said: Said) -> None:
        assert self.one(said, "verify-ledger", "triage-1", *ledger.words) == {"run_id": "triage-1", "valid": True}

    def test_status(self, ledger: Place, said: Said) -> None:
        value = self.one(said, "status", "triage-2", *ledger.words)
        assert TIME.fullmatch(value.pop("updated_at"))
        assert value == {
            "blocked_on": "unblock:boss",
            "failure_reason": None,
            "last_event_seq": 2,
            "last_event_type": "pause_requested",
            "run_id": "triage-2",
            "status": "paused",
            "tenant_id": "acme",
        }

    def test_summaries(self, ledger: Place, said: Said) -> None:
        value = self.one(said, "summaries", "triage-1", "--type", "checkpoint::deployed", *ledger.words)
        [found] = value["summaries"]
        assert TIME.fullmatch(found.pop("timestamp"))
        assert found == {
            "parent_step_key": None,
            "seq": 10,
            "step_key": "deploy",
            "summary": {"n": 1},
            "summary_type": "checkpoint::deployed",
        }

    def test_artifacts(self, ledger: Place, said: Said) -> None:
        value = self.one(said, "artifacts", "triage-1", *ledger.words)
        assert value == {
            "artifacts": {"nasty\tkey\x1b[2J": "\x1b[31m\nred", "report": {"a": [3], "b": 2}},
            "run_id": "triage-1",
        }


class TestExits:
    def test_an_invalid_ledger_is_1_and_says_why(self, ledger: Place, said: Said) -> None:
        ledger.harm("DELETE FROM events WHERE run_id = 'triage-1' AND seq = 10")
        code, out, err = said("run", "verify-ledger", "triage-1", *ledger.words)
        assert (code, out) == (1, "invalid\n")
        assert "the end of the run is missing" in err
        code, out, _ = said("run", "verify-ledger", "triage-1", "--json", *ledger.words)
        assert (code, out) == (1, '{"run_id":"triage-1","valid":false}\n')

    @pytest.mark.parametrize("command", ["tail", "verify-ledger", "status", "summaries", "artifacts"])
    @pytest.mark.parametrize("run_id", ["nobody", "triage", "../x", "a\tb"])
    def test_an_unknown_run_is_an_error(self, command: str, run_id: str, database: Place, said: Said) -> None:
        code, out, err = said("run", command, run_id, *database.words)
        assert (code, out) == (1, "")
        assert err.startswith("error: there is no run `")
        assert err.count("\n") == 1

    @pytest.mark.parametrize("command", ["list", "tail", "verify-ledger", "status", "summaries", "artifacts"])
    def test_looking_never_makes_a_database(self, command: str, folder: Path, said: Said) -> None:
        words = [] if command == "list" else ["some-run"]
        for where in ([], ["--db", "none.db"]):
            code, out, err = said("run", command, *words, *where)
            assert (code, out) == (1, "")
            assert err == f"error: there is no database `{where[1] if where else '.state.db'}`\n"
        assert paths_below(folder) == set()

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(["run", "status"], id="no run"),
            pytest.param(["run", "nothing"], id="no such command"),
            pytest.param(["run", "summaries", "x", "--limit", "0"], id="no summaries at all"),
            pytest.param(["run", "summaries", "x", "--limit", "many"], id="no number"),
            pytest.param(["run", "tail", "x", "--since-seq", "-1"], id="before the first"),
            pytest.param(["run", "list", "--since", "yesterday"], id="no time"),
            pytest.param(["run", "list", "--db", "a", "--dsn", "b"], id="two ledgers"),
            pytest.param(["init", "x", "--profile", "none"], id="no such profile"),
            pytest.param(["init", "x", "y"], id="two folders"),
            pytest.param(["--no-such-flag"], id="no such flag"),
        ],
    )
    def test_wrong_usage_is_2(self, words: list[str], said: Said) -> None:
        code, out, err = said(*words)
        assert (code, out) == (2, "")
        assert err

    @pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["run", "tail", "--help"], ["init", "--help"]])
    def test_help_is_0(self, words: list[str], said: Said) -> None:
        code, out, _ = said(*words)
        assert code == 0
        assert "Usage: artana" in out

    def test_a_password_is_never_shown(self, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GERT_DSN", "postgresql://u:hunter2secret@127.0.0.1:1/d")
        for dsn in ("env:GERT_DSN", "postgresql://u:hunter2secret@127.0.0.1:1/d", "x:hunter2secret"):
            code, out, err = said("run", "list", "--dsn", dsn)
            assert (code, out) == (1, "")
            assert err.startswith("error: ")
            assert "hunter2secret" not in err

    def test_the_database_of_the_folder_is_the_default(self, folder: Path, said: Said) -> None:
        fill(Place(str(folder / ".state.db")))
        assert said("run", "status", "triage-1")[0] == 0


def test_following_ends_with_ctrl_c(ledger: Place) -> None:
    command = [*PROCESS, "run", "tail", "other-1", "--follow", "--json", *ledger.words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(2)] == [1, 2]
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0


def test_following_tells_of_what_others_write(ledger: Place) -> None:
    command = [*PROCESS, "run", "tail", "triage-2", "--follow", "--since-seq", "2", *ledger.words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        append(ledger, "triage-2", "news")
        assert untimed(process.stdout.readline()) == "3\tTIME\trun_summary\t-\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_runbook_run_is_inspected_as_well(tmp_path: Path, said: Said) -> None:
    path = str(tmp_path / "mixed.db")
    store_run(path, trace(), [b"{}"])
    assert said("run", "verify-ledger", "run-2026-02-28-001", "--db", path)[:2] == (0, "valid\n")
    code, out, _ = said("run", "tail", "run-2026-02-28-001", "--db", path)
    assert (code, out.splitlines()[0].split("\t")[2]) == (0, "run_start")
    assert said("run", "status", "run-2026-02-28-001", "--db", path)[1].split("\t")[1] == "completed"


class TestProjects:
    """Each project as a user has it: made, run twice, inspected."""

    @pytest.mark.parametrize("profile", ["enforced", "dev"])
    def test_a_new_project_runs_and_replays(
        self, profile: str, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        project = folder / "agent"
        self.process([*PROCESS, "init", str(project), "--profile", profile])
        monkeypatch.chdir(project)
        assert sorted(path.name for path in project.iterdir()) == ["README.md", "app.py"]
        first = self.process([sys.executable, "app.py"], project)
        assert "(live)" in first
        assert ("[EMAIL_1]" in first, "kim@example.com" in first) == (profile == "enforced", profile == "dev")
        tickets = (project / "outbox.jsonl").read_text()
        recorded = said("run", "tail", "ticket-1042")
        assert recorded[0] == 0
        again = self.process([sys.executable, "app.py"], project)
        assert "(replayed)" in again
        assert "the model is asked" not in again
        assert (project / "outbox.jsonl").read_text() == tickets
        assert said("run", "tail", "ticket-1042") == recorded
        assert said("run", "list") == (0, "ticket-1042\n", "")
        assert said("run", "verify-ledger", "ticket-1042") == (0, "valid\n", "")
        assert said("run", "artifacts", "ticket-1042") == (0, 'ticket\t{"filed":"the site is down"}\n', "")

    def test_every_help_has_an_example_that_works_in_it(self, folder: Path, said: Said) -> None:
        assert said("init", ".")[0] == 0
        self.process([sys.executable, "app.py"], folder)
        run = group.commands["run"]
        assert isinstance(run, click.Group)
        commands = [group, *group.commands.values(), *run.commands.values()]
        for command in commands:
            example = (command.epilog or "").removeprefix("Example: artana ")
            assert example != (command.epilog or ""), command.name
            code, out, err = said(*example.split(), *(["--force"] if "init" in example else []))
            assert (code, err) == (0, ""), example
            assert out, example

    def process(self, command: list[str], folder: Path | None = None) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_enforced_is_the_default(self, folder: Path, said: Said) -> None:
        code, out, err = said("init", "x")
        assert (code, out, err) == (0, "x/README.md\nx/app.py\n", "")
        assert "KernelPolicy.enforced()" in (folder / "x" / "app.py").read_text()

    def test_a_folder_that_is_not_empty_is_refused(self, folder: Path, said: Said) -> None:
        (folder / "app.py").write_text("mine")
        (folder / "notes.txt").write_text("mine")
        code, out, err = said("init")
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
        assert paths_below(folder) == {"app.py", "notes.txt"}
        assert (folder / "app.py").read_text() == "mine"
        assert said("init", "--force")[0] == 0
        assert (folder / "notes.txt").read_text() == "mine"
        assert "ArtanaKernel" in (folder / "app.py").read_text()

    @pytest.mark.parametrize("where", ["file", "file/below"])
    def test_a_file_is_no_folder(self, where: str, folder: Path, said: Said) -> None:
        (folder / "file").write_text("mine")
        assert said("init", where)[0] == 1
        assert (folder / "file").read_text() == "mine"

    @pytest.mark.parametrize("profile", ["enforced", "dev"])
    def test_gert_init_makes_the_same(self, profile: str, folder: Path, said: Said) -> None:
        from gert.ecosystem.surfaces.cli.main import main as gert

        assert said("init", "one/agent", "--profile", profile)[0] == 0
        assert gert(["init", "--profile", profile, "two/agent"]) == 0
        for name in ("app.py", "README.md"):
            assert (folder / "one/agent" / name).read_bytes() == (folder / "two/agent" / name).read_bytes()
        assert gert(["init", "--profile", profile, "two/agent"]) == 2
        assert gert(["init"]) == 2
        (folder / "here").mkdir()
        os.chdir(folder / "here")
        assert gert(["init", "--profile", profile, "--json"]) == 0
        assert (folder / "here" / "app.py").exists()

    def test_its_code_is_as_clean_as_ours(self, folder: Path, said: Said) -> None:
        apps = []
        for profile in ("enforced", "dev"):
            assert said("init", profile, "--profile", profile)[0] == 0
            apps.append(str((folder / profile / "app.py").rename(folder / f"{profile}.py")))
        ruff = str(Path(sys.executable).with_name("ruff"))
        for command in (
            [ruff, "check", "--isolated", *apps],
            [ruff, "format", "--isolated", "--check", "--line-length", "120", *apps],
            [sys.executable, "-m", "mypy", "--strict", *apps],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)
            assert done.returncode == 0, done.stdout


def test_the_package_installs_the_command() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["artana"].partition(":")
    assert (module, name) == ("gert.ecosystem.surfaces.cli.commands.artana", "command")


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from gert.ecosystem.surfaces.cli.commands.artana import group, main; "
        "main(['--help']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"asyncio", "pydantic", "sqlite3", "asyncpg"} & set(done.stdout.split())


def test_nothing_is_left_running(database: Place, said: Said) -> None:
    before = set(threading.enumerate())
    assert said("run", "list", *database.words)[0] == 0
    for left in set(threading.enumerate()) - before:
        left.join(timeout=30)
        assert not left.is_alive()
