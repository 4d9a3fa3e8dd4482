"""Runs in OpenTelemetry: a real OTLP/HTTP receiver gets the spans of runbooks and runners, and none can harm a run."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.ecosystem.notify.servers import Answer, Server, drip, flood, raw, serving, silence, status
from tests.ecosystem.runners.bench import KEYS, bench, ping
from tests.ecosystem.surfaces.cli.workbench import GERT, Project, call, note
from tests.ecosystem.surfaces.programs.model_server import model_server
from tests.ecosystem.surfaces.programs.test_agent_step import agent

from gert.kernel.events.envelope import decode
from gert.kernel.ledger.spans.run_spans import RunSpans
from gert.kernel.ledger.spans.span import span_id_of, trace_id_of

ASKS = {"rules": [{"writes": ["disk"], "action": "require-approval"}, {"effects": ["mail"], "action": "deny"}]}
SECRET = "hunter2-hunter2"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


class Collector:
    """What a receiver was sent, read as protobuf."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.on = {"GERT_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": server.url("")}
        self.waits = {**self.on, "GERT_OTEL_FLUSH_SECONDS": "60"}
        """For a healthy collector, on a machine that may be busy."""

    def bodies(self, path: str) -> list[bytes]:
        return [each.body for each in self._server.requests if each.target == path]

    @property
    def spans(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for body in self.bodies("/v1/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                assert names["service.name"] == "gert"
                for scope in resource.scope_spans:
                    found |= {span.span_id.hex(): span for span in scope.spans}
        return found

    @property
    def metrics(self) -> set[str]:
        return {
            metric.name
            for body in self.bodies("/v1/metrics")
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def collecting(*answers: Answer) -> Iterator[Collector]:
    with serving(*(answers or (status(200),))) as server:
        yield Collector(server)


def said(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def expected(lines: list[bytes]) -> dict[str, Any]:
    run = RunSpans(decode(lines[0]).run_id)
    found = {span.span_id: span for line in lines for span in run.add(decode(line))}
    assert run.is_over
    return found


def rich(project: Project) -> None:
    """A runbook with lanes, a loop, a retry, an approval and a step that is denied."""
    flaky = 'test -e "$1".tried && { noted=1; echo ok; exit 0; }; touch "$1".tried; exit 1'
    project.tool("flaky", ["sh", "-c", flaky, "sh", str(project.root / "flaky")])
    project.note_tool("write", contract={"writes": ["disk"]})
    project.note_tool("mail", contract={"effects": ["mail"]})
    lanes = [{"label": each, "steps": [note(f"in-{each}", each, scope=each)]} for each in ("left", "right")]
    project.runbook(
        {"id": "fan", "type": "parallel", "branches": lanes},
        note("each", "{{ .item }}", for_each={"over": ["a", "b"], "as": "item"}),
        call("try", "flaky", retry={"max": 3, "backoff": "10ms"}),
        note("save", SECRET, tool="write"),
        note("tell", "x", tool="mail", continue_on_fail=True),
        tools=["note", "flaky", "write", "mail"],
        governance={**ASKS, "rules": [*ASKS["rules"], {"default": "allow"}]},
    )


def test_the_spans_of_a_runbook_reach_a_collector_across_a_resume(project: Project) -> None:
    rich(project)
    with collecting() as collector:
        waiting = project.exec("--detach", "--as", "ann", "--json", **collector.waits).ended(0).said
        early = collector.spans
        assert span_id_of(waiting["run_id"], 1) not in early, "the run has not ended"
        project.gert("approve", waiting["pending"][0]["ticket_id"], "--as", "bob").ended(0)
        project.gert("resume", "--run", waiting["run_id"], **collector.waits)
        spans, metrics = collector.spans, collector.metrics
        sizes = [len(body) for body in collector.bodies("/v1/traces")]
    assert sizes
    wanted = expected(project.run().lines())
    assert spans.keys() == wanted.keys()
    for name, span in spans.items():
        assert (span.name, span.trace_id.hex()) == (wanted[name].name, trace_id_of(waiting["run_id"]))
        assert (span.parent_span_id.hex() or None) == wanted[name].parent_id
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (wanted[name].start, wanted[name].end)
        assert (span.status.code == 2) == (wanted[name].error is not None)
    names = [span.name for span in spans.values()]
    assert {"lane left", "lane right", "approval"} <= set(names)
    by_path = {said(span).get("gert.step.path"): span for span in spans.values() if span.name != "approval"}
    assert {"fan/left", "fan/left/in-left", "each", "each[0]", "each[1]", "try", "save", "tell"} <= by_path.keys()
    assert [mark.name for mark in by_path["try"].events] == ["gert.step.retry"]
    assert said(by_path["tell"])["error.type"] == "denied"
    assert said(by_path["tell"])["gert.decision"] == "deny"
    assert {"gert.run.duration", "gert.step.duration", "gert.approval.wait"} <= metrics
    assert SECRET not in str(list(spans.values())), "inputs are content"


def test_the_execution_of_a_runner_is_in_the_trace_of_the_run_that_asked_for_it(tmp_path: Path) -> None:
    with bench(tmp_path / "project") as (made, _), collecting() as collector:
        made.runner_tool()
        made.runbook(ping(), tools=["ping"])
        made.exec("--as", "ann", **KEYS, **collector.waits).ended(0)
        spans = collector.spans
        (run,) = [each for each in made.runs() if not each.id.startswith("plan-")]
    (execution,) = [span for span in spans.values() if said(span).get("gert.run.kind") == "runner"]
    assert said(execution)["gert.step.path"] == "ping"
    assert (execution.trace_id.hex(), execution.parent_span_id.hex()) == (trace_id_of(run.id), span_id_of(run.id, 1))
    assert execution.parent_span_id.hex() in spans


def nested(project: Project) -> None:
    """Three runbooks, of which each but the last has a tool that runs the next."""
    project.write("gert-config.yaml", {"telemetry": {"export": True}})
    for at, name in enumerate(("outer", "middle", "inner")):
        below = ("outer", "middle", "inner", "")[at + 1]
        run = shlex.join([*GERT, "exec", str(project.root / f"{below}.yaml"), "-q"])
        project.script(f"run-{name}", run if below else "true")
        project.runbook(call("go", f"run-{name}"), name=name, file=f"{name}.yaml", tools=[f"run-{name}"])


def test_runs_that_start_each_other_are_one_trace_while_they_run_and_when_exported_again(project: Project) -> None:
    nested(project)
    with collecting() as collector:
        where = {name: value for name, value in collector.waits.items() if name != "GERT_OTEL"}
        project.exec("outer.yaml", **where).ended(0)
        spans = collector.spans
    runs = {said(span)["gen_ai.workflow.name"]: span for span in spans.values() if "gert.run.kind" in said(span)}
    assert set(runs) == {"outer", "middle", "inner"}
    assert len({span.trace_id for span in spans.values()}) == 1
    assert [runs[name].parent_span_id for name in ("middle", "inner")] == [
        runs["outer"].span_id,
        runs["middle"].span_id,
    ]
    for name, span in runs.items():
        project.gert("run", "export", said(span)["gert.run.id"], "--format", "otlp", "-o", f"{name}.json").ended(0)
        assert span.trace_id.hex() in (project.root / f"{name}.json").read_text()
    # A rerun is a trace of its own, with a link into that of the run it repeats.
    repeated = said(runs["inner"])["gert.run.id"]
    with collecting() as collector:
        again = project.gert("rerun", "--run", repeated, "--from", "go", "--json", **collector.waits).ended(0)
        root = collector.spans[span_id_of(again.said["run_id"], 1)]
    assert not root.parent_span_id
    assert [(link.trace_id, link.span_id) for link in root.links] == [(runs["inner"].trace_id, runs["inner"].span_id)]


def test_an_agent_of_a_step_is_in_the_trace_of_its_run(project: Project) -> None:
    project.note_tool("look")
    with collecting() as collector, model_server(lambda _: {"verdict": "fixed"}) as server:
        project.runbook(agent(server, tools=["look"]), tools=[])
        project.exec(**collector.waits).ended(0)
        spans = collector.spans
    (run,) = [span for span in spans.values() if said(span).get("gert.run.kind") == "runbook"]
    (inner,) = [span for span in spans.values() if said(span).get("gert.run.kind") == "agent"]
    (chat,) = [span for span in spans.values() if span.name.startswith("chat ")]
    assert (inner.trace_id, inner.parent_span_id) == (run.trace_id, run.span_id)
    assert (chat.trace_id, chat.parent_span_id) == (run.trace_id, inner.span_id)


def test_an_execution_without_a_run_is_exported_by_the_process_that_started_it(tmp_path: Path) -> None:
    with bench(tmp_path / "project") as (made, _), collecting() as collector:
        file = made.create()
        made.gert("plan", "approve", file, **KEYS).ended(0)
        made.gert("runner", "run", file, **KEYS, **collector.waits).ended(0)
        (execution,) = collector.spans.values()
    assert execution.name.startswith("execute_tool S.vendor.test.ping")
    assert said(execution)["gert.runner.exit_code"] == 0
    assert not execution.parent_span_id


def test_a_run_that_is_abandoned_ends_its_spans(project: Project) -> None:
    rich(project)
    run_id = project.exec("--detach", "--json").ended(0).said["run_id"]
    with collecting() as collector:
        project.gert("run", "abandon", run_id, "--reason", "gone", **collector.waits).ended(0)
        spans = collector.spans
    root = spans[span_id_of(run_id, 1)]
    assert said(root)["gert.run.status"] == "cancelled"
    assert {span.name for span in spans.values()} >= {"approval", root.name}, "what ends now, and nothing before"
    assert "lane left" not in {span.name for span in spans.values()}


def test_a_rerun_is_linked_to_the_run_that_it_repeats(project: Project) -> None:
    project.runbook(note("one", "a"), note("two", "b"))
    first = project.exec("--json").ended(0).said["run_id"]
    with collecting() as collector:
        again = (
            project.gert("rerun", "--run", first, "--from", "two", "--json", **collector.waits).ended(0).said["run_id"]
        )
        root = collector.spans[span_id_of(again, 1)]
    assert [link.span_id.hex() for link in root.links] == [span_id_of(first, 1)]


SICK = {
    "one that never answers": silence,
    "one that answers 500": status(500),
    "one that demands a long wait": status(503, "Retry-After: 100000"),
    "one that refuses the request": status(400),
    "one that speaks no HTTP": raw(b"SSH-2.0-x\r\n"),
    "one that never ends its headers": drip(b"HTTP/1.1 200 OK\r\nX: "),
}


@pytest.mark.parametrize("answer", SICK.values(), ids=SICK)
def test_a_sick_collector_costs_a_warning_and_nothing_else(project: Project, answer: Answer) -> None:
    project.runbook(note("write", "x"))
    with collecting(answer) as collector:
        ran = project.exec(**collector.on).ended(0)
    assert ran.err.count("telemetry") == 1
    assert "warning: telemetry was not exported" in ran.err
    assert project.noted() == ["x"]
    project.verifies()


@pytest.mark.parametrize("answer", [drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"), flood])
def test_the_body_of_an_answer_is_not_read(project: Project, answer: Answer) -> None:
    project.runbook(note("write", "x"))
    with collecting(answer) as collector:
        ran = project.exec(**collector.waits).ended(0)
    assert "telemetry" not in ran.err


def test_a_collector_that_is_not_there_costs_a_warning(project: Project) -> None:
    project.runbook(note("write", "x"))
    ran = project.exec("--json", GERT_OTEL="1", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9").ended(0)
    assert "telemetry was not exported: the collector cannot be reached" in ran.said["warning"]
    assert "--send" in ran.said["warning"]


def test_the_settings_turn_it_on_and_the_switch_off(project: Project) -> None:
    project.runbook(note("write", SECRET))
    project.write("gert-config.yaml", {"telemetry": {"export": True, "capture_content": True}})
    with collecting() as collector:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.on["OTEL_EXPORTER_OTLP_ENDPOINT"]}
        project.exec(**endpoint, GERT_OTEL="0").ended(0)
        assert collector.spans == {}
        project.exec(**endpoint, OTEL_EXPORTER_OTLP_HEADERS="x-key=collector-key").ended(0)
        assert SECRET in str(list(collector.spans.values())), "content is captured"
        assert {each.headers["x-key"] for each in collector._server.requests} == {"collector-key"}


def test_tools_do_not_get_the_credentials_of_the_collector(project: Project) -> None:
    project.script("env", "env", extract={"all": {"from": "stdout"}})
    project.runbook(call("show", "env"), tools=["env"])
    with collecting() as collector:
        project.exec(**collector.on, OTEL_EXPORTER_OTLP_HEADERS="x-key=collector-key").ended(0)
    assert "collector-key" not in str(project.run().events())


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_a_dry_run_is_not_exported(project: Project, mode: str) -> None:
    project.runbook(note("write", "x"))
    with collecting() as collector:
        project.exec("--mode", mode, **collector.waits)
        assert collector.spans == {}


def test_a_recorded_run_is_exported_with_the_same_ids(project: Project) -> None:
    project.runbook(note("write", "x"))
    project.exec().ended(0)
    wanted = expected(project.run().lines())
    with collecting() as collector:
        sent = project.gert("run", "export", "last", "--format", "otlp", "--send", "--json", **collector.waits).ended(0)
        assert sent.said == {"run_id": project.run().id, "spans": len(wanted)}
        assert collector.spans.keys() == wanted.keys()
        assert collector.metrics == set(), "metrics are of the present"
    printed = project.gert("run", "export", "last", "--format", "otlp").ended(0).out
    assert printed == project.gert("run", "export", "last", "--format", "otlp").ended(0).out
    (scope,) = json.loads(printed)["resourceSpans"][0]["scopeSpans"]
    assert {span["spanId"] for span in scope["spans"]} == wanted.keys()
    assert {span["traceId"] for span in scope["spans"]} == {trace_id_of(project.run().id)}
    assert {type(span["kind"]) for span in scope["spans"]} == {int}, "OTLP/JSON has enums as numbers"
    content = project.gert("run", "export", "last", "--format", "otlp", "--capture-content").ended(0).out
    assert "gen_ai.tool.call.arguments" in content
    assert "gen_ai.tool.call.arguments" not in printed


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--send",), "need `--format otlp`"),
        (("--format", "otlp", "--send", "-o", "x"), "`--send` or `--output`"),
        (("--format", "zipkin"), "zipkin"),
    ],
)
def test_options_that_do_not_fit_are_refused(project: Project, words: tuple[str, ...], why: str) -> None:
    project.runbook(note("write", "x"))
    project.exec().ended(0)
    assert why in project.gert("run", "export", "last", *words).ended(2).err


def test_sending_to_a_collector_that_is_not_there_fails(project: Project) -> None:
    project.runbook(note("write", "x"))
    project.exec().ended(0)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    ran = project.gert("run", "export", "last", "--format", "otlp", "--send", **away)
    assert ran.code == 4
    assert "the spans were not sent" in ran.err


def test_nothing_of_opentelemetry_is_imported_unless_it_is_on(project: Project) -> None:
    project.runbook(note("write", "x"))
    script = "import sys; from gert.__main__ import main; sys.argv[0] = 'gert'\ntry: main()\nexcept SystemExit: pass\n"
    script += "print([each for each in sys.modules if 'opentelemetry' in each or each == 'requests'])"
    done = subprocess.run(
        [sys.executable, "-c", script, "exec", str(project.root / "book.yaml"), "--quiet"],
        capture_output=True, text=True, cwd=project.root, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_without_the_extra_a_run_only_warns(project: Project) -> None:
    project.runbook(note("write", "x"))
    folder = project.root / "none"
    (folder / "opentelemetry").mkdir(parents=True)
    (folder / "opentelemetry" / "__init__.py").write_text("raise ImportError('not installed')")
    ended = subprocess.run(
        [sys.executable, "-m", "gert", "exec", str(project.root / "book.yaml")],
        capture_output=True, text=True, cwd=project.root, check=True, timeout=120,
        env={"PYTHONPATH": str(folder), "GERT_OTEL": "1", "PATH": "/usr/bin:/bin", "HOME": str(project.root)},
    )  # fmt: skip
    assert "pip install 'gert[otel]'" in ended.stderr
    assert project.noted() == ["x"]
