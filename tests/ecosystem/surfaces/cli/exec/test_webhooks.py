"""Webhooks of real runs: sent after the end, recorded, and never a reason for anything else."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.notify.servers import Answer, Server, closed_port, raw, serving, silence, status
from tests.ecosystem.surfaces.cli.workbench import (
    Project,
    Ran,
    Recorded,
    call,
    environment,
    files_under,
    finish,
    note,
    of_type,
    until,
)

OK = status(200)
CANARY = "h00k-c4nary-s3cret"


def told(project: Project) -> list[dict[str, Any]]:
    """What the run recorded of its notices, all of them after its end."""
    events = project.run().events()
    sent = of_type(events, "webhook_sent")
    assert [event["type"] for event in events[len(events) - len(sent) - 1 :]] == [
        "run_complete",
        *(["webhook_sent"] * len(sent)),
    ]
    project.verifies()
    return [event["data"] for event in sent]


def book(project: Project, server: Server | None = None, *steps: Any, url: str | None = None, **meta: Any) -> None:
    hook = url if url is not None else server.url() if server is not None else None
    notices = {"resolved": {"webhook": hook}} if hook else {}
    project.write("gert-project.yaml", {"name": "bench", "webhook_hosts": ["127.0.0.1", "a.example"]})
    project.runbook(*(steps or [note("a")]), **{"on_outcome": notices, **meta})


def silent(project: Project, ran: Ran, *canaries: str) -> None:
    """No canary sings: not in a file, not in what was printed."""
    for canary in canaries:
        for data in (ran.out.encode(), ran.err.encode(), *(path.read_bytes() for path in files_under(project.root))):
            assert canary.encode() not in data


def test_an_outcome_is_told_and_recorded(project: Project) -> None:
    with serving(OK) as server:
        book(project, server)
        ran = project.exec("--json").ended(0)
    (request,) = server.requests
    assert request.said["run_id"] == ran.said["run_id"]
    assert request.said["outcome"] == {"category": "resolved", "code": "done", "meta": {}}
    assert request.said["trace"] == str(project.run().trace)
    assert request.said["runbook"] == "book"
    assert told(project) == [
        {"url": server.url(), "delivered": True, "attempts": 1, "category": "resolved", "status_code": 200}
    ]
    assert ran.said["events"] == len(project.run().events())


@pytest.mark.parametrize(
    ("answers", "recorded"),
    [
        pytest.param([status(500), OK], {"delivered": True, "attempts": 2, "status_code": 200}, id="500, then 200"),
        pytest.param(
            [status(404)],
            {"delivered": False, "attempts": 1, "status_code": 404, "error": "the server answered 404"},
            id="404",
        ),
        pytest.param(
            [status(302, f"Location: http://example.com/{CANARY}")],
            {
                "delivered": False,
                "attempts": 1,
                "status_code": 302,
                "error": "the server answered 302, and redirects are not followed",
            },
            id="a redirect",
        ),
        pytest.param(
            [raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")],
            {"delivered": True, "attempts": 1, "status_code": 200},
            id="a server that hangs up in the middle",
        ),
    ],
)
def test_the_result_is_the_same_whatever_becomes_of_it(
    project: Project, answers: list[Answer], recorded: dict[str, Any]
) -> None:
    with serving(*answers) as server:
        book(project, server)
        ran = project.exec("--json").ended(0)
    assert ran.said["status"] == "completed"
    assert told(project) == [{"url": server.url(), "category": "resolved", **recorded}]
    silent(project, ran, CANARY)


def test_what_could_not_be_delivered_is_a_line_on_the_console(project: Project) -> None:
    url = f"http://127.0.0.1:{closed_port()}/x"
    book(project, url=url)
    ran = project.exec().ended(0)
    assert f"! webhook to {url} given up after 3 attempts\n  │ the connection was refused" in ran.out
    assert [each["delivered"] for each in told(project)] == [False]


def test_what_was_delivered_is_none(project: Project) -> None:
    with serving(OK) as server:
        book(project, server)
        assert "webhook" not in project.exec().ended(0).out


def test_into_a_database_it_goes_as_well(project: Project) -> None:
    with serving(OK) as server:
        book(project, server)
        ran = project.exec("--json", "--db", "runs.db").ended(0)
    assert server.requests[0].said["trace"] is None
    shown = project.gert("trace", "export", "--db", "runs.db", "--run", ran.said["run_id"]).ended(0)
    assert json.loads(shown.out.splitlines()[-1])["type"] == "webhook_sent"
    project.gert("trace", "verify", "--db", "runs.db").ended(0)


def test_a_sealed_run_stays_sealed(project: Project) -> None:
    with serving(OK) as server:
        book(project, server)
        project.exec(GERT_TRACE_SIGNING_KEY="a signing key").ended(0)
    project.gert("trace", "verify", project.run().trace, GERT_TRACE_SIGNING_KEY="a signing key").ended(0)


# --- who is not told


def test_an_outcome_of_another_category_is_not_sent(project: Project) -> None:
    with serving(OK) as server:
        book(project, on_outcome={each: {"webhook": server.url()} for each in ("escalated", "no_action", "needs_rca")})
        project.exec().ended(0)
    assert (server.requests, told(project)) == ([], [])


@pytest.mark.parametrize(
    ("step", "meta"),
    [
        pytest.param(call("a", "fails"), {}, id="failed"),
        pytest.param(note("a"), {"governance": {"rules": [{"default": "deny"}]}}, id="denied"),
    ],
)
def test_a_run_without_an_outcome_is_not_sent(project: Project, step: Any, meta: dict[str, Any]) -> None:
    project.script("fails", "exit 1")
    every = ("resolved", "escalated", "no_action", "needs_rca")
    with serving(OK) as server:
        book(
            project,
            None,
            step,
            tools=["note", "fails"],
            on_outcome={e: {"webhook": server.url()} for e in every},
            **meta,
        )
        project.exec().ended(3)
    assert not server.requests
    assert not of_type(project.run().events(), "webhook_sent")


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_nor_is_a_rehearsal(project: Project, mode: str) -> None:
    with serving(OK) as server:
        book(project, server)
        project.exec("--mode", mode, "--trace", "t.jsonl").ended(0)
    assert not server.requests
    assert "webhook_sent" not in (project.root / "t.jsonl").read_text()


# --- settings


def test_settings_tell_too_and_the_same_address_once(project: Project) -> None:
    with serving(OK) as server:
        notices = {"resolved": {"webhook": server.url("/both")}, "escalated": {"webhook": server.url("/not")}}
        project.write("gert-config.yaml", {"on_outcome": notices})
        book(project, server)
        project.exec().ended(0)
        assert {request.target for request in server.requests} == {"/hook", "/both"}
        project.write("gert-config.yaml", {"on_outcome": {"resolved": {"webhook": server.url()}}})
        server.requests.clear()
        project.exec().ended(0)
        assert [request.target for request in server.requests] == ["/hook"]


def test_a_trace_is_kept_where_settings_say_and_the_run_in_the_ledger(project: Project) -> None:
    project.write("gert-config.yaml", {"traces": {"dir": "kept/traces"}})
    book(project)
    said = project.exec("--json").ended(0).said
    trace = project.root / "kept/traces" / f"book-{said['run_id']}.jsonl"
    assert Path(said["trace"]) == trace
    assert (trace.parent.stat().st_mode & 0o777, trace.stat().st_mode & 0o777) == (0o700, 0o600)
    assert project.runs() == [], "it has a second mirror"
    assert Recorded(project.root / "runs" / said["run_id"]).start()["trace"] == str(trace)
    project.gert("trace", "verify", trace).ended(0)
    project.exec("--trace", "mine.jsonl").ended(0)
    assert (project.root / "mine.jsonl").exists()
    assert len(list(trace.parent.iterdir())) == 1


@pytest.mark.parametrize("text", ["{", "policies: [nowhere.yaml]", "unknown: 1"])
def test_settings_that_cannot_be_read_stop_the_run(project: Project, text: str) -> None:
    project.write(".gert/config.yaml", text)
    book(project)
    assert project.exec().code in (1, 2)
    assert (project.noted(), project.runs()) == ([], [])


def test_the_floor_of_a_config_file_holds(project: Project) -> None:
    policy = {"apiVersion": "policy/v0", "meta": {"name": "no"}, "governance": {"rules": [{"default": "deny"}]}}
    project.write("floor.yaml", policy)
    project.write("gert-config.yaml", {"policies": ["floor.yaml"]})
    book(project)
    project.exec().ended(3)
    assert project.noted() == []


# --- secrets


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK, id="delivered"),
        pytest.param(status(500), id="given up"),
        pytest.param(status(404, body=CANARY.encode()), id="a server that repeats it"),
        pytest.param(raw(CANARY.encode()), id="a server that says nothing else"),
    ],
)
def test_a_secret_in_an_address_is_nowhere_but_there(project: Project, answer: Answer) -> None:
    with serving(answer) as server:
        base = server.url("").replace("//", f"//{CANARY}:x@", 1)
        book(project, url="${BASE}/hooks/${HOOK}?key=${KEY}")
        ran = project.exec("-v", BASE=base, HOOK=CANARY, KEY=f"{CANARY}-key").ended(0)
    assert server.requests[0].target == f"/hooks/{CANARY}?key={CANARY}-key"
    silent(project, ran, CANARY)
    (sent,) = told(project)
    assert sent["url"] == "${BASE}/hooks/${HOOK}"


def test_a_routing_key_is_told_and_not_recorded(project: Project) -> None:
    notice = {"pagerduty_severity": "critical", "pagerduty_routing_key": "${PD_KEY}"}
    with serving(status(202)) as server:
        book(project, on_outcome={"resolved": {"webhook": server.url(), **notice}})
        ran = project.exec("-v", PD_KEY=CANARY).ended(0)
    assert server.requests[0].said["routing_key"] == CANARY
    silent(project, ran, CANARY)


@pytest.mark.parametrize(
    ("url", "environ", "error"),
    [
        pytest.param(
            "https://a.example/${NOPE_X}", {}, "the environment variable `NOPE_X` is not set", id="a variable not set"
        ),
        pytest.param(
            "${URL}",
            {"URL": f"http://{CANARY}.example.com/"},
            "the URL must be https, or http on this machine",
            id="plain http to elsewhere",
        ),
        pytest.param(
            "${URL}",
            {"URL": f"http://127.0.0.1@{CANARY}.example.com/"},
            "the URL must be https, or http on this machine",
            id="a user that looks like this machine",
        ),
        pytest.param(
            "https://a.example/${GERT_TRACE_SIGNING_KEY}",
            {"GERT_TRACE_SIGNING_KEY": CANARY},
            "the variable `GERT_TRACE_SIGNING_KEY` is gert's own and is not sent",
            id="our own key",
        ),
    ],
)
def test_what_is_not_sent_is_recorded_with_the_reason(
    project: Project, url: str, environ: dict[str, str], error: str
) -> None:
    # One of the configuration's: a runbook's own is refused before it runs where it names a variable that is not set.
    book(project)
    project.write("gert-config.yaml", {"on_outcome": {"resolved": {"webhook": url}}})
    ran = project.exec("-v", **environ).ended(0)
    (sent,) = [event["data"] for event in of_type(project.run().events(), "webhook_sent")]
    assert (sent["url"], sent["delivered"], sent["attempts"], sent["error"]) == (url, False, 0, error)
    silent(project, ran, CANARY)


def test_a_secret_of_the_run_is_not_sent(project: Project) -> None:
    project.tool("leaks", ["sh", "-c", 'printf %s "$KEY"'], extract={"said": {"from": "stdout", "pattern": "(.*)"}},
                 secrets=[{"env": "KEY"}])  # fmt: skip
    end = {"type": "end", "outcome": {"category": "resolved", "code": "x", "meta": {"said": "{{ .said }}"}}}
    with serving(OK) as server:
        book(project, server, call("a", "leaks"), end, tools=["leaks"], ends=False)
        project.exec(KEY=CANARY).ended(0)
    assert CANARY.encode() not in server.requests[0].body
    assert server.requests[0].said["outcome"]["meta"] == {"said": "[REDACTED]"}


# --- stopping, and starting


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_gives_up_the_telling_and_nothing_else(project: Project, number: signal.Signals) -> None:
    with serving(silence) as server:
        book(project, server)
        process = project.start("--json")
        until(lambda: server.requests)
        process.send_signal(number)
        ran = finish(process).ended(0)
    assert ran.said["status"] == "completed"
    assert told(project) == [
        {"url": server.url(), "delivered": False, "attempts": 1, "category": "resolved", "error": "interrupted"}
    ]


def test_a_run_that_sends_nothing_imports_nothing_for_it(project: Project) -> None:
    # The hook is there, but for another outcome.
    project.write("gert-config.yaml", {"on_outcome": {"escalated": {"webhook": "https://a.example/"}}})
    project.runbook(note("a"))
    script = (
        "import sys; from gert.ecosystem.surfaces.cli.main import main; code = main(['exec', 'book.yaml', '-q']);"
        "print([each for each in sys.modules if 'http' in each or 'ecosystem.notify' in each]); sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=project.root, env=environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"


class TestRunsWithoutAnOutcome:
    """`notify` in the settings: runs that failed, were denied or rejected."""

    def ended(self, project: Project, notify: dict[str, Any], *steps: Any, action: str = "allow", code: int = 3) -> Ran:
        project.write("gert-project.yaml", {"name": "bench", "notify": notify})
        project.tool("bad", ["sh", "-c", "exit 3"])
        project.note_tool("asks", contract={"writes": ["disk"]})
        governance = {"rules": [{"writes": ["disk"], "action": action}, {"default": "allow"}]}
        project.runbook(*steps, tools=["note", "bad", "asks"], governance=governance)
        return project.exec("--json").ended(code)

    @pytest.mark.parametrize(
        ("steps", "action", "status", "step"),
        [
            ([{"id": "bad", "type": "tool", "tool": "bad"}], "allow", "failed", "bad"),
            ([note("two", tool="asks")], "deny", "denied", "two"),
            ([{"id": "g", "type": "group", "steps": [note("two", tool="asks")]}], "deny", "denied", "g/two"),
            ([note("two", tool="asks")], "require-approval", "rejected", "two"),
        ],
        ids=["failed", "denied", "denied in a group", "rejected"],
    )
    @pytest.mark.parametrize("is_named", [True, False], ids=["named", "as failed"])
    def test_are_told(
        self, project: Project, steps: list[Any], action: str, status: str, step: str, is_named: bool
    ) -> None:
        with serving(OK) as server:
            ran = self.ended(
                project, {status if is_named else "failed": {"webhook": server.url()}}, *steps, action=action
            )
        (request,) = server.requests
        said = request.said
        assert (said["run_id"], said["status"], said["failed_step"]) == (ran.said["run_id"], status, step)
        assert said["outcome"] is None
        assert said["failure"]["message"]
        assert f"{status} at {step}" in said["text"]
        (sent,) = told(project)
        assert (sent["status"], sent["delivered"]) == (status, True)

    def test_reach_pagerduty_with_their_step(self, project: Project) -> None:
        with serving(OK) as server:
            notice = {"webhook": server.url(), "pagerduty_severity": "critical"}
            self.ended(project, {"failed": notice}, {"id": "bad", "type": "tool", "tool": "bad"})
        (request,) = server.requests
        assert request.said["dedup_key"] == "gert/book/failed/bad"
        assert request.said["payload"]["severity"] == "critical"

    def test_an_outcome_is_no_such_ending(self, project: Project) -> None:
        with serving(OK) as server:
            self.ended(project, {"failed": {"webhook": server.url()}}, note("one"), code=0)
        assert server.requests == []
