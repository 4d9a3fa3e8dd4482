"""Attempts to put a ledger back to an earlier moment, or to remove a run, that a witness of sealed heads finds."""

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.attacks.test_record import KEY
from tests.ecosystem.surfaces.cli.workbench import Project, mode_of, note

from gert.agent import EventType, RunStartedPayload, SQLiteStore

ROLLED_BACK = "a sealed head that the ledger no longer has is found by its witness"


def rolled_back(project: Project) -> str:
    """The whole ledger is put back to the moment before a resume: inside it everything is sealed and fits."""
    project.note_tool("dies", after='if [ ! -e "$2.died" ]; then : > "$2.died"; kill -9 $PPID; fi')
    project.runbook(note("one"), note("two", tool="dies"), note("three"), tools=["note", "dies"])
    project.exec("--witness", "heads", **KEY)
    run = project.run()
    saved = project.root / "saved.db"
    shutil.copy(run.ledger, saved)
    for end in ("-wal", "-shm"):
        if (beside := Path(f"{run.ledger}{end}")).exists():
            shutil.copy(beside, f"{saved}{end}")
    project.gert("resume", "--run", run.id, "--witness", "heads", **KEY).ended(0)
    project.gert("run", "verify-ledger", run.id, "--witness", "heads", **KEY).ended(0)
    for end in ("", "-wal", "-shm"):
        Path(f"{run.ledger}{end}").unlink(missing_ok=True)
        if (beside := Path(f"{saved}{end}")).exists():
            shutil.copy(beside, f"{run.ledger}{end}")
    project.gert("run", "verify-ledger", run.id, **KEY).ended(0)
    noted = project.noted()
    refused = project.gert("resume", "--run", run.id, "--witness", "heads", **KEY).ended(1)
    assert "is not what was witnessed" in refused.err
    assert project.noted() == noted, "no step is done again"
    return project.gert("run", "verify-ledger", run.id, "--witness", "heads", **KEY).ended(1).err


def removed(project: Project) -> str:
    """A whole run is removed from the ledger; another one stays."""
    project.runbook(note("one"))
    for _ in range(2):
        project.exec("--witness", "heads", **KEY).ended(0)
    gone = project.runs()[0]
    for name in ("events", "answers", "calls", "tickets", "runs"):
        if gone.rows(f"SELECT 1 FROM {name} WHERE run_id = ?1"):
            gone.change(f"DELETE FROM {name} WHERE run_id = ?1")
    project.gert("run", "verify-ledger", **KEY).ended(0)
    named = project.gert("run", "verify-ledger", gone.id, "--witness", "heads", **KEY).ended(1)
    assert "no such run" in named.err
    ran = project.gert("run", "verify-ledger", "--witness", "heads", **KEY).ended(1)
    assert f"{project.runs()[1].id}: valid" in ran.out
    return ran.err


def removed_from_a_project(project: Project) -> str:
    """The same, in a project whose settings name the witness: no command has to name it."""
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "heads"}})
    project.runbook(note("one"))
    project.exec(**KEY).ended(0)
    run = project.run()
    project.gert("run", "verify-ledger", run.id, **KEY).ended(0)
    for name in ("events", "answers", "calls", "tickets", "runs"):
        if run.rows(f"SELECT 1 FROM {name} WHERE run_id = ?1"):
            run.change(f"DELETE FROM {name} WHERE run_id = ?1")
    return project.gert("run", "verify-ledger", **KEY).ended(1).err


def abandoned_from_an_older_ledger(project: Project) -> str:
    """A ledger is put back, and the run is ended where it stood then: its later steps would be forgotten."""
    stopped(project)
    run = project.run()
    saved = {end: Path(f"{run.ledger}{end}") for end in ("", "-wal", "-shm")}
    before = {end: path.read_bytes() for end, path in saved.items() if path.exists()}
    project.gert("resume", "--run", run.id, **KEY).ended(0)
    for end, path in saved.items():
        path.unlink(missing_ok=True)
        if end in before:
            path.write_bytes(before[end])
    return project.gert("run", "abandon", run.id, "--reason", "gone", **KEY).ended(1).err


def secret_in_url(project: Project) -> str:
    project.runbook(note("one"))
    said = project.exec("--witness", "https://example.com/heads?token=s3cret-token", **KEY).ended(2)
    assert (project.noted(), project.runs()) == ([], [])
    assert "s3cret" not in said.err
    return said.err


def without_key(project: Project) -> str:
    project.runbook(note("one"))
    said = project.exec("--witness", "heads").ended(2)
    assert (project.noted(), project.runs()) == ([], [])
    return said.err


def required(project: Project) -> str:
    """A witness that cannot be written, and is required: no step is started."""
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "no/such/heads", "witness_required": True}})
    project.runbook(note("one"))
    ran = project.exec(**KEY)
    assert ran.code not in (0, 2), ran
    assert project.noted() == []
    return ran.err


def plain_http(project: Project) -> str:
    project.runbook(note("one"))
    said = project.exec("--witness", "http://example.com/heads", **KEY).ended(2)
    assert project.noted() == []
    return said.err


ATTACKS = [
    Attack("a ledger is rolled back to an earlier sealed moment", ROLLED_BACK, rolled_back, "the run was rolled back"),
    Attack("a run is removed from the ledger", ROLLED_BACK, removed, "the ledger has no such run"),
    Attack("a run of a project with a witness is removed", ROLLED_BACK, removed_from_a_project, "has no such run"),
    Attack("an old ledger is abandoned", ROLLED_BACK, abandoned_from_an_older_ledger, "is not what was witnessed"),
    Attack("the address of a witness holds a token", "addresses are recorded", secret_in_url, "${NAME}"),
    Attack("a witness is kept without a key", "unsealed heads prove nothing", without_key, "needs a signing key"),
    Attack("a required witness is not there", "no step without its witness", required, "cannot be written"),
    Attack("heads are sent over plain http", "the rules of webhooks apply", plain_http, "must be https"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_every_sealed_head_is_one_line_of_json_for_its_owner_alone(project: Project) -> None:
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "heads"}})
    project.runbook(note("one"), note("two"))
    project.exec(**KEY).ended(0)
    run, path = project.run(), project.root / "heads"
    heads = [json.loads(line) for line in path.read_text().splitlines()]
    assert {each["run_id"] for each in heads} == {run.id}
    assert [each["count"] for each in heads] == sorted({each["count"] for each in heads})
    stored = run.rows("SELECT count, hash, seal FROM runs WHERE run_id = ?1")
    assert [(heads[-1]["count"], heads[-1]["hash"], heads[-1]["seal"])] == stored
    assert mode_of(path) == 0o600


def test_a_witness_that_cannot_be_written_is_a_warning(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--witness", "no/such/heads", **KEY).ended(0)
    assert "lacks heads of this run" in ran.err
    assert project.noted() == ["one"]


def stopped(project: Project, *words: str) -> None:
    """A run whose process was killed in its second step, with the witness `heads`."""
    project.note_tool("dies", after='if [ ! -e "$2.died" ]; then : > "$2.died"; kill -9 $PPID; fi')
    project.runbook(note("one"), note("two", tool="dies"), note("three"), tools=["note", "dies"])
    project.exec("--witness", "heads", *words, **KEY)


def last_head(project: Project) -> dict[str, object]:
    found: dict[str, object] = json.loads((project.root / "heads").read_bytes().splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("resume", "--run"), id="resume"),
        pytest.param(("run", "abandon", "--reason", "gone"), id="abandon"),
    ],
)
def test_a_run_that_was_started_with_a_witness_keeps_it(project: Project, words: tuple[str, ...]) -> None:
    stopped(project)
    run = project.run()
    assert run.start()["witness"] == str(project.root / "heads")
    seen = last_head(project)["count"]
    project.gert(*words, run.id, **KEY).ended(0)
    [(count, hashed)] = run.rows("SELECT count, hash FROM runs WHERE run_id = ?1")
    assert seen < count
    assert (last_head(project)["count"], last_head(project)["hash"]) == (count, hashed)


def test_a_rerun_is_witnessed_where_its_source_was(project: Project) -> None:
    project.runbook(note("one"), note("two"))
    project.exec("--witness", "heads", **KEY).ended(0)
    first = project.run()
    project.gert("rerun", "--run", first.id, "--from", "two", **KEY).ended(0)
    assert last_head(project)["run_id"] == project.runs()[-1].id != first.id


@pytest.mark.parametrize("fragment", [b'{"run_id":"x","cou', b"\xff\xfe"])
def test_a_torn_line_of_a_witness_blocks_neither_writer_nor_reader(project: Project, fragment: bytes) -> None:
    stopped(project)
    run, path = project.run(), project.root / "heads"
    whole = path.read_bytes()
    path.write_bytes(whole + fragment)
    project.gert("resume", "--run", run.id, **KEY).ended(0)
    assert path.read_bytes().startswith(whole + fragment + b"\n{")
    said = project.gert("run", "verify-ledger", run.id, "--witness", "heads", "--json", **KEY).ended(0).said
    assert "1 line of the witness cannot be read" in said["checks"][-1]["reason"]


def test_a_file_that_is_no_witness_is_refused(project: Project) -> None:
    project.runbook(note("one"))
    project.exec(**KEY).ended(0)
    said = project.gert("run", "verify-ledger", "--witness", "book.yaml", **KEY).ended(2)
    assert "is not a witness" in said.err


class _Heads(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.paths.add(self.path)  # type: ignore[attr-defined]
        self.server.heads += self.rfile.read(int(self.headers["Content-Length"]))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        body = self.server.heads  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Heads) as found:
        found.heads, found.paths = b"", set()  # type: ignore[attr-defined]
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


@pytest.mark.parametrize("is_required", [False, True])
def test_heads_are_posted_to_a_server_and_read_from_it(project: Project, is_required: bool) -> None:
    with server() as found:
        url = f"http://127.0.0.1:{found.server_port}/heads"
        project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": url, "witness_required": is_required}})
        project.runbook(note("one"), note("two"))
        project.exec(**KEY).ended(0)
        run = project.run()
        project.gert("run", "verify-ledger", run.id, "--witness", url, **KEY).ended(0)
        heads = found.heads  # type: ignore[attr-defined]
        assert json.loads(heads.splitlines()[-1])["count"] == len(run.lines())
        found.heads = heads.replace(b'"hash":"', b'"hash":"0', 1)  # type: ignore[attr-defined]
        said = project.gert("run", "verify-ledger", run.id, "--witness", url, **KEY).ended(1)
        assert "is not the event that was witnessed" in said.err


def test_a_token_in_the_address_of_a_witness_comes_from_a_variable_and_is_not_recorded(project: Project) -> None:
    with server() as found:
        url = f"http://127.0.0.1:{found.server_port}/heads?token=${{WITNESS_TOKEN}}"
        project.script("env", "env", extract={"all": {"from": "stdout"}})
        project.runbook({"id": "env", "type": "tool", "tool": "env"}, tools=["env"])
        secret = {"WITNESS_TOKEN": "s3cret-token-4711"}
        project.exec("--witness", url, **KEY, **secret).ended(0)
        run = project.run()
        assert run.start()["witness"] == url
        assert b"s3cret-token" not in b"".join(run.lines())
        assert "WITNESS_TOKEN=" not in run.answers()[0]["answer"]["stdout"]
        project.gert("run", "verify-ledger", run.id, "--witness", url, **KEY, **secret).ended(0)
        assert found.paths == {"/heads?token=s3cret-token-4711"}  # type: ignore[attr-defined]


def test_agent_runs_are_witnessed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("GERT_TRACE_SIGNING_KEY", KEY["GERT_TRACE_SIGNING_KEY"])
    asyncio.run(_agent_run("named", witness="heads"))
    assert last_head(project)["run_id"] == "named"
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "heads"}})
    asyncio.run(_agent_run("by-settings"))
    assert (last_head(project)["run_id"], last_head(project)["count"]) == ("by-settings", 1)
    project.gert("run", "verify-ledger", "--db", "agents.db", **KEY).ended(0)


async def _agent_run(run_id: str, **settings: Any) -> None:
    async with SQLiteStore("agents.db", **settings) as store:
        await store.append_event(
            run_id=run_id, tenant_id="t", event_type=EventType.RUN_STARTED, payload=RunStartedPayload()
        )


def test_a_witness_may_serve_several_ledgers(project: Project) -> None:
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "heads"}})
    project.runbook(note("one"))
    project.exec(**KEY).ended(0)
    project.exec("--db", "other.db", **KEY).ended(0)
    said = project.gert("run", "verify-ledger", "--db", "other.db", **KEY).ended(0)
    assert f"not checked: 1 run that the witness has of the ledger {project.run().ledger}" in said.out
    project.run().ledger.unlink()
    project.gert("run", "verify-ledger", **KEY).ended(1)


@pytest.mark.parametrize(("is_required", "code"), [(False, 0), (True, 1)])
def test_a_configured_witness_that_is_gone_is_said(project: Project, is_required: bool, code: int) -> None:
    project.write("gert-project.yaml", {"name": "p", "ledger": {"witness": "heads", "witness_required": is_required}})
    project.runbook(note("one"))
    project.exec(**KEY).ended(0)
    (project.root / "heads").unlink()
    assert "there is no witness" in project.gert("run", "verify-ledger", **KEY).ended(code).err
