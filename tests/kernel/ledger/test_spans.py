"""Events become spans: each step, lane, call and approval is one span of its parent, with fixed ids and bounds."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.runs import RUNS, Case, cases, events_of, execute, setup_of, world_of

from gert.kernel.events import agent, runner
from gert.kernel.events.agent.parts import Message, ToolCallOf
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import ApprovalResolved, ApprovalSubmitted, RunStart, StepComplete, StepStart
from gert.kernel.ledger.spans import span as bounds
from gert.kernel.ledger.spans.agent import provider_of
from gert.kernel.ledger.spans.measurements import measurements_of
from gert.kernel.ledger.spans.open_spans import MOST_OPEN
from gert.kernel.ledger.spans.run_spans import RunSpans
from gert.kernel.ledger.spans.span import LONGEST, LONGEST_CONTENT, MOST_MARKS, Span, span_id_of, trace_id_of

SECRET = "what-no-collector-may-read"


def folded(events: list[Envelope], *, captures: bool = False) -> list[Span]:
    """The spans of a run, which must end with it."""
    run = RunSpans(events[0].run_id, captures=captures)
    found = [span for event in events for span in run.add(event)]
    assert run.is_over
    assert run.unfinished() == []
    return found


def told(*payloads: Payload | tuple[Payload, str], run_id: str = "r") -> list[Envelope]:
    """Events of a run, a second apart."""
    said = [each if isinstance(each, tuple) else (each, None) for each in payloads]
    return [
        Envelope(
            seq=seq,
            run_id=run_id,
            type=payload.type,
            timestamp=f"2026-02-28T14:{seq // 60:02d}:{seq % 60:02d}.000Z",
            tenant="acme",
            path=path,
            prev_hash="0" * 64,
            data=msgspec.to_builtins(payload),
        )
        for seq, (payload, path) in enumerate(said, start=1)
    ]


def named(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


@pytest.mark.parametrize("file", cases(), ids=lambda file: file.relative_to(RUNS).as_posix())
def test_the_spans_of_a_runbook_run_are_its_steps_lanes_and_approvals(file: Path) -> None:
    case = Case(file)
    setup = setup_of(case)
    _, lines, _ = execute(setup, world_of(case, setup), max_parallel=case.get("max_parallel", 16))
    events = events_of(lines)
    spans = folded(events)

    # One tree, whose ids are unique and whose parents are there.
    ids = {span.span_id: span for span in spans}
    assert len(ids) == len(spans)
    (root,) = [span for span in spans if span.parent_id is None]
    assert root is spans[-1]
    assert root.span_id == span_id_of(setup.run_id, 1)
    assert all(span.parent_id in ids for span in spans if span is not root)
    for span in spans:
        assert span.trace_id == trace_id_of(setup.run_id)
        parent = ids.get(span.parent_id or "", span)
        assert parent.start <= span.start <= span.end <= parent.end

    # Each end of a step is one span, with its status; so is each lane and each ticket.
    ends = Counter((event.path, event.data["status"]) for event in events if event.type == "step_complete")
    steps = [span.attributes for span in spans if "gert.step.id" in span.attributes and span.name != "approval"]
    found = Counter((said["gert.step.path"], said["gert.step.status"]) for said in steps if "gert.step.status" in said)
    assert found == ends
    lanes = sum(event.data["branch_count"] for event in events if event.type == "parallel_fork")
    assert sum("gert.lane" in span.attributes for span in spans) == lanes
    tickets = {event.data["ticket_id"] for event in events if event.type == "approval_submitted"}
    assert {span.attributes["gert.ticket.id"] for span in spans if span.name == "approval"} == tickets

    # A loop has the number of its items, unless that is unknown.
    counts = Counter(e.data["item_count"] for e in events if e.type == "for_each_start" and "explored" not in e.data)
    assert (
        Counter(span.attributes["gert.loop.items"] for span in spans if "gert.loop.items" in span.attributes) == counts
    )

    # A step that is denied or fails has the status of an error, and its span says why.
    for event in events:
        failure = event.data.get("failure") if event.type == "step_complete" else None
        if failure is not None:
            errors = {span.error for span in spans if span.attributes.get("gert.step.path") == event.path}
            assert failure["kind"] in errors

    # Nothing of it depends on when it is folded, and a part of it has the same ids.
    assert folded(events) == spans
    assert {span.span_id for span in RunSpans(setup.run_id).add(events[0])} <= ids.keys()


AGENT = (
    agent.RunStarted(),
    agent.HarnessInitialized(harness_name="triage"),
    agent.ModelRequested(
        model="gpt-5",
        prompt=SECRET,
        messages=[Message(role="user", content=SECRET)],
        step_key="a_turn_3_model",
        allowed_tools=["mail"],
    ),
    agent.ModelCompleted(
        request_seq=3,
        model="gpt-5-2026",
        output_json=f'{{"text":"{SECRET}"}}',
        prompt_tokens=7,
        completion_tokens=5,
        cost_usd=0.25,
        response_id="resp-1",
        tool_calls=[ToolCallOf(tool_name="mail", arguments_json=f'{{"to":"{SECRET}"}}', tool_call_id="c1")],
    ),
    agent.RunSummary(
        summary_type="policy_decision",
        summary_json=f'{{"tool_name":"drop","outcome":"deny","rule_id":"limits","reason":"{SECRET}","code":"limit"}}',
    ),
    ApprovalSubmitted(
        ticket_id="t1",
        step_id="mail",
        risk_level="high",
        request_hash="x",
        min_approvers=1,
        method="ticket",
    ),
    ApprovalResolved(ticket_id="t1", step_id="mail", approved=True, status="approved", method="ticket", reason=SECRET),
    agent.ToolRequested(tool_name="mail", arguments_json=f'{{"to":"{SECRET}"}}', idempotency_key="k", step_key="mail"),
    agent.ToolCompleted(request_seq=8, tool_name="mail", result_json=f'"{SECRET}"', withheld=True),
    agent.ToolCompleted(request_seq=8, tool_name="mail", result_json=f'"{SECRET}"'),
    agent.ModelRequested(model="claude-5", prompt=SECRET, step_key="q"),
    agent.ModelFailed(
        request_seq=11, model="claude-5", reason="failed", category="overloaded", message=SECRET, status=529
    ),
    agent.RunEnded(status="failed", error_type="AgentRunFailed", message=SECRET),
)


def test_an_agent_run_follows_the_genai_conventions() -> None:
    spans = folded(told(*AGENT))
    root = named(spans, "invoke_agent triage")
    assert {span.parent_id for span in spans if span is not root} == {root.span_id}
    assert (root.error, root.seconds) == ("AgentRunFailed", 12.0)
    assert root.attributes | {} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "triage",
        "gen_ai.conversation.id": "r",
        "gert.run.id": "r",
        "gert.run.kind": "agent",
        "gert.run.status": "failed",
        "gert.tenant": "acme",
        "error.type": "AgentRunFailed",
    }
    chat = named(spans, "chat gpt-5")
    assert (chat.kind, chat.seconds) == ("client", 1.0)
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": "gpt-5-2026",
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.conversation.id": "r",
        "gert.cost_usd": 0.25,
        "gert.tools.offered": 1,
        "gert.step.key": "a_turn_3_model",
        "gert.turn": 3,
    }
    failed = named(spans, "chat claude-5")
    assert (failed.error, failed.attributes["http.response.status_code"]) == ("overloaded", 529)
    assert named(spans, "execute_tool mail").seconds == 2.0, "a result that hooks withhold has not ended the call"
    denied = named(spans, "execute_tool drop")
    assert (denied.error, denied.seconds, denied.attributes["gert.rule"]) == ("limit", 0.0, "limits")
    waited = named(spans, "approval")
    assert (waited.seconds, waited.attributes["gert.approval.status"]) == (1.0, "approved")


def test_names_are_those_of_the_installed_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as known
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    names = {getattr(known, name) for name in dir(known) if name.startswith("GEN_AI_")}
    metrics = {getattr(gen_ai_metrics, name) for name in dir(gen_ai_metrics) if name.startswith("GEN_AI_")}
    spans = folded(told(*AGENT), captures=True)
    used = {name for span in spans for name in span.attributes if name.startswith("gen_ai.")}
    assert used <= names
    assert len(used) > 12
    measured = {found.metric.name for span in spans for found in measurements_of(span)}
    assert {name for name in measured if name.startswith("gen_ai.")} <= metrics
    operations = {each.value for each in known.GenAiOperationNameValues}
    assert {span.attributes.get("gen_ai.operation.name", "chat") for span in spans} <= operations


def test_content_is_exported_only_where_it_is_captured() -> None:
    plain, captured = folded(told(*AGENT)), folded(told(*AGENT), captures=True)
    assert SECRET not in repr([msgspec.to_builtins(span) for span in plain])
    chat = named(captured, "chat gpt-5").attributes
    assert SECRET in str(chat["gen_ai.input.messages"])
    assert SECRET in str(chat["gen_ai.output.messages"])
    assert named(captured, "execute_tool mail").attributes["gen_ai.tool.call.result"] == f'"{SECRET}"'
    assert named(captured, "chat claude-5").message == SECRET


def test_spans_measure_durations_tokens_cost_and_waiting() -> None:
    found = Counter[str]()
    for span in folded(told(*AGENT)):
        for each in measurements_of(span):
            kind = each.attributes.get("gen_ai.token.type")
            found[f"{each.metric.name} {kind}" if kind else each.metric.name] += each.value  # type: ignore[assignment]
    assert found == {
        "gen_ai.client.operation.duration": 4.0,
        "gen_ai.client.token.usage input": 7,
        "gen_ai.client.token.usage output": 5,
        "gert.cost": 0.25,
        "gert.run.duration": 12.0,
        "gert.approval.wait": 1.0,
    }


def test_sub_agents_share_the_trace_and_other_runs_are_linked() -> None:
    ended = agent.RunEnded(status="completed")
    (sub,) = folded(told(agent.RunStarted(), ended, run_id="r::sub_agent::abc"))
    assert (sub.trace_id, sub.parent_id, sub.links) == (trace_id_of("r"), span_id_of("r", 1), [])
    (deep,) = folded(told(agent.RunStarted(), ended, run_id="r::sub_agent::abc::sub_agent::d"))
    assert (deep.trace_id, deep.parent_id) == (trace_id_of("r"), span_id_of("r::sub_agent::abc", 1))
    first, again = folded(told(agent.RunStarted(), ended, agent.RunReopened(), ended))
    assert first.span_id != again.span_id
    assert [link.span_id for link in again.links] == [first.span_id]
    created = runner.PlanCreated(
        plan_id="p",
        digest="d",
        skill_id="chat.post",
        vendor="chat",
        runner_id="local",
        plan={"step": "tell"},
        parent_run_id="book-1",
        root_run_id="book-0",
    )
    recorded = runner.RunnerRecorded(exit_code=4, record={}, record_digest="d", rule="vendor", message=SECRET)
    (call,) = folded(told(created, recorded, run_id="p"))
    assert (call.trace_id, call.parent_id, call.links) == (trace_id_of("book-0"), span_id_of("book-1", 1), [])
    assert (call.name, call.error, call.attributes["gert.step.path"]) == ("execute_tool chat.post", "vendor", "tell")
    started = RunStart(
        runbook="b", runbook_hash="h", actor="ann", host="h", gert_version="1", mode="real", parent_run_id="r"
    )
    child = _open(told(started, run_id="c"))
    assert (child.trace_id, child.parent_id) == (trace_id_of("c"), None), "a rerun, or a run of an earlier version"
    assert child.links[0].span_id == span_id_of("r", 1)
    joined = _open(told(msgspec.structs.replace(started, root_run_id="top"), run_id="c"))
    assert (joined.trace_id, joined.parent_id, joined.links) == (trace_id_of("top"), span_id_of("r", 1), [])
    below = agent.RunStarted(parent_run_id="r", root_run_id="top")
    first, again = folded(told(below, ended, agent.RunReopened(), ended, run_id="a"))
    assert {first.trace_id, again.trace_id, again.links[0].trace_id} == {trace_id_of("top")}
    assert {first.parent_id, again.parent_id} == {span_id_of("r", 1)}
    (sub,) = folded(told(below, ended, run_id="a::sub_agent::b"))
    assert (sub.trace_id, sub.parent_id) == (trace_id_of("top"), span_id_of("a", 1))


def _open(events: list[Envelope]) -> Span:
    run = RunSpans(events[0].run_id)
    for event in events:
        run.add(event)
    (span,) = run.unfinished()
    return span


def test_a_step_of_a_workflow_is_the_parent_of_what_it_calls() -> None:
    spans = folded(
        told(
            agent.RunStarted(),
            agent.WorkflowStepRequested(step_index=0, step_name="ask", step_key="ask"),
            (agent.ModelRequested(model="m", prompt="p", step_key="m1"), "ask"),
            (agent.ModelCompleted(request_seq=3, model="m", output_json="{}"), "ask"),
            agent.WorkflowStepCompleted(request_seq=2, step_index=0, step_name="ask", result_json="1"),
            agent.RunEnded(status="completed"),
        )
    )
    assert named(spans, "chat m").parent_id == named(spans, "step ask").span_id


def test_what_has_not_ended_is_known_as_far_as_it_came() -> None:
    events = told(*AGENT[:8])
    run = RunSpans("r")
    for event in events:
        run.add(event)
    unfinished = {span.name: span for span in run.unfinished()}
    assert set(unfinished) == {"invoke_agent triage", "execute_tool mail"}
    for span in unfinished.values():
        assert span.is_open
        assert span.attributes["gert.unfinished"] is True
        assert span.end == bounds.nanoseconds(events[-1].timestamp)


def test_attributes_marks_and_open_spans_are_bounded() -> None:
    long = "x" * 100_000
    many = [agent.PauseRequested(reason="r", step_key=long) for _ in range(MOST_MARKS + 5)]
    requests = [agent.ToolRequested(tool_name=long, arguments_json=long, idempotency_key="k") for _ in range(3)]
    lone = agent.ModelRequested(model="\ud800bad".encode("utf-8", "replace").decode(), prompt=long)
    spans = folded(told(agent.RunStarted(), *many, *requests, lone, agent.RunEnded(status="completed")), captures=True)
    root = spans[-1]
    assert (len(root.marks), root.attributes["gert.dropped_marks"]) == (MOST_MARKS, 5)
    for span in spans:
        assert len(span.name) <= 256
        for name, value in span.attributes.items():
            limit = LONGEST_CONTENT if name.startswith("gen_ai.tool.call.") else LONGEST
            assert not isinstance(value, str) or len(value) <= limit
        for mark in span.marks:
            assert all(len(str(value)) <= LONGEST for value in mark.attributes.values())


def test_a_run_that_leaves_calls_open_keeps_a_bounded_number_of_them() -> None:
    run = RunSpans("r")
    request = agent.ToolRequested(tool_name="t", arguments_json="{}", idempotency_key="k")
    data: dict[str, Any] = msgspec.to_builtins(request)
    for event in told(agent.RunStarted()):
        run.add(event)
    for seq in range(2, MOST_OPEN + 12):
        run.add(
            Envelope(
                seq=seq, run_id="r", type=request.type, timestamp="2026-02-28T14:30:00.000Z", prev_hash="", data=data
            )
        )
    assert len(run.unfinished()) == MOST_OPEN
    ended = told(agent.RunEnded(status="completed"))[0]
    spans = run.add(ended)
    assert spans[-1].attributes["gert.dropped_spans"] == 11
    assert run.is_over


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-5", "openai"),
        ("o3-mini", "openai"),
        ("claude-opus-5", "anthropic"),
        ("gemini-3", "gcp.gemini"),
        ("azure/gpt-5", "azure.ai.openai"),
        ("bedrock/claude", "aws.bedrock"),
        ("ollama/llama", "ollama"),
        ("house-model", "unknown"),
        ("", "unknown"),
        ("/x", "unknown"),
    ],
)
def test_the_provider_is_read_from_the_name_of_the_model(model: str, provider: str) -> None:
    assert provider_of(model) == provider


def test_an_event_that_names_no_open_step_does_no_harm() -> None:
    start = RunStart(runbook="b", runbook_hash="h", actor="a", host="h", gert_version="1", mode="real")
    odd = told(
        start,
        (StepStart(step_id="a", step_type="tool", tool="t", action="go"), "a[[]/b]"),
        (StepComplete(step_id="a", status="success", duration="1s"), "]"),
        (StepComplete(step_id="a", status="success", duration="1s"), "a[[]/b]"),
    )
    run = RunSpans("r")
    assert len([span for event in odd for span in run.add(event)]) == 2
