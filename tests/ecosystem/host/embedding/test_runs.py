"""Runs with parts of the embedding program: governed, redacted, bound and recorded as with gert's own."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import approval_provider
import input_resolver
import pytest
import signature_verifier
import tool_executor
from tool_executor import RUNBOOK, Cluster

import gert
from gert.ecosystem.host.embedding import approvals
from gert.ecosystem.host.embedding.inputs import EmbeddedResolver
from gert.errors import (
    DocumentError,
    InputError,
    IntegrityError,
    ToolPermanentError,
    ToolUnknownOutcomeError,
    UsageError,
)
from gert.kernel.engine.inputs import InputProblem
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.governance.parameter import Parameter

SECRET = "correct-horse-battery"
TOOL = """
apiVersion: tool/v0
meta: {{ name: act, transport: {transport} }}
contract:
  effects: [lab]
  writes: [{writes}]
  idempotent: {idempotent}
  inputs:
    word: {{ type: string, default: "" }}
    token: {{ type: string, default: "", secret: true }}
  outputs: {{ said: {{ type: string }}, count: {{ type: int, required: false }} }}
actions:
  go: {{ {how}, extract: {{ said: {{ from: stdout }} }} }}
"""
BOOK = """
apiVersion: kernel/v0
meta:
  name: lab
  inputs:
    word: { type: string, default: hello }
    token: { type: string, secret: true, default: "" }
  governance: { rules: [RULES] }
tools: [act]
steps:
  - { id: act, type: tool, tool: act, inputs: { word: "{{ .word }}", token: "{{ .token }}" } }
  - { type: end, outcome: { category: resolved, code: done, meta: { said: "{{ .said }}" } } }
"""
ALLOW = "{ default: allow }"
APPROVE = "{ effects: [lab], action: require-approval }, { default: allow }"
DENY = "{ effects: [lab], action: deny }, { default: allow }"


class Lab:
    """A project with one tool and one runbook."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("gert-project.yaml", "name: lab")
        self.tool()
        self.book()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def tool(self, transport: str = "stdio", writes: str = "", idempotent: str = "false") -> None:
        how = 'argv: [never-installed, "{{ .word }}", "{{ .token }}"]' if transport == "stdio" else "method: go"
        text = TOOL.format(transport=transport, writes=writes, idempotent=idempotent, how=how)
        if transport != "stdio":
            text = text.replace(", extract: { said: { from: stdout } }", "").replace(
                "transport: jsonrpc", "transport: jsonrpc, binary: never-installed"
            )
        self.write("tools/act.tool.yaml", text)

    def book(self, rules: str = ALLOW, text: str = BOOK) -> None:
        self.write("lab.yaml", text.replace("RULES", rules))

    def run(self, inputs: Mapping[str, Any] | None = None, **options: Any) -> gert.Executed:
        named = {"tools": "tools", "verifier": "verifier", "prompt": "prompt", "asks": "approvals", "finds": "inputs"}
        parts = gert.Parts(**{part: options.pop(name) for name, part in named.items() if name in options})
        return gert.run(str(self.root / "lab.yaml"), inputs, parts=parts, actor="ann", **options)

    def trace(self, executed: gert.Executed) -> list[dict[str, Any]]:
        assert executed.trace is not None
        return [json.loads(line) for line in Path(executed.trace).read_text().splitlines()]

    def everything(self) -> bytes:
        """All bytes that the runs left behind."""
        return b"".join(path.read_bytes() for path in (self.root / "runs").rglob("*") if path.is_file())


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


class Actor:
    """An executor that keeps its calls and answers with what it is given."""

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[gert.ToolCall] = []
        self._answer = answer

    async def execute(self, call: gert.ToolCall) -> Any:
        self.calls.append(call)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return {"said": "done"} if self._answer is None else self._answer


class Asks:
    """An approval provider that gives responses in turn."""

    def __init__(self, *responses: Any) -> None:
        self.requests: list[gert.ApprovalRequest] = []
        self._responses = list(responses)

    async def submit(self, request: gert.ApprovalRequest) -> gert.ApprovalTicket:
        self.requests.append(request)
        return gert.ApprovalTicket(ticket_id=f"ticket-{len(self.requests)}")

    async def wait(self, ticket: gert.ApprovalTicket) -> Any:
        if not self._responses:
            await asyncio.Event().wait()
        found = self._responses.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found(ticket) if callable(found) else found


def yes(approver: str = "bob", **more: Any) -> gert.ApprovalResponse:
    return gert.ApprovalResponse(approved=True, approver_id=approver, **more)


def no(approver: str = "bob", **more: Any) -> gert.ApprovalResponse:
    return gert.ApprovalResponse(approved=False, approver_id=approver, **more)


# --- tools


def test_an_executor_is_called_in_place_of_the_program(lab: Lab) -> None:
    actor = Actor()
    executed = lab.run({"word": "hi", "token": SECRET}, tools={"act": actor})
    assert executed.outcome is not None
    assert executed.outcome.meta == {"said": "done"}
    [call] = actor.calls
    assert (call.tool, call.action, call.step_id, call.run_id) == ("act", "go", "act", executed.run_id)
    assert call.inputs == {"word": "hi", "token": SECRET}
    assert call.command is not None
    assert call.command.arguments == ("hi", SECRET)
    assert SECRET not in repr(call)


def test_a_denied_call_is_never_seen(lab: Lab) -> None:
    lab.book(DENY)
    actor = Actor()
    executed = lab.run(tools={"*": actor})
    assert (executed.status, actor.calls) == ("failed", [])
    ended = next(event for event in lab.trace(executed) if event["type"] == "step_complete")
    assert ended["data"]["reason"] == "governance_denied"


@pytest.mark.parametrize(
    ("response", "status", "called"),
    [
        pytest.param(yes(), "completed", 1, id="an approved call is made"),
        pytest.param(no(), "failed", 0, id="a rejected call is not"),
    ],
)
def test_a_call_that_needs_approval_waits_for_it(lab: Lab, response: Any, status: str, called: int) -> None:
    lab.book(APPROVE)
    actor = Actor()
    assert lab.run(tools={"act": actor}, asks=Asks(response)).status == status
    assert len(actor.calls) == called


def test_what_an_executor_returns_is_redacted_everywhere(lab: Lab) -> None:
    actor = Actor(
        gert.ToolResult(outputs={"said": f"it is {SECRET}"}, exit_code=0, stdout=f"{SECRET}\n", stderr=SECRET)
    )
    executed = lab.run({"token": SECRET}, tools={"act": actor})
    assert executed.outcome is not None
    assert executed.outcome.meta == {"said": "it is [REDACTED]"}
    assert SECRET.encode() not in lab.everything()
    failed = lab.run({"token": SECRET}, tools={"act": Actor(RuntimeError(f"no {SECRET}"))})
    assert failed.failure is not None
    assert "no [REDACTED]" in failed.failure.message
    assert SECRET.encode() not in lab.everything()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param({"said": "mapped"}, "mapped", id="outputs alone"),
        pytest.param(gert.ToolResult(stdout="printed\n"), "printed", id="outputs are extracted from what was printed"),
        pytest.param(gert.ToolResult(outputs={"said": 3}), "3", id="outputs have their declared types"),
        pytest.param(
            gert.ToolResult(outputs={"said": "a", "count": "x"}), "a", id="an output of a wrong type is left out"
        ),
        pytest.param({"said": "a", "undeclared": 1}, "a", id="an undeclared output is stripped"),
        pytest.param({"said": "\ufdd0word\ufdd1"}, "\ufffdword\ufffd", id="nothing passes for a reference to a secret"),
    ],
)
def test_results_that_count(lab: Lab, answer: Any, said: str) -> None:
    executed = lab.run(tools={"act": Actor(answer)})
    assert executed.outcome is not None, executed.failure
    assert executed.outcome.meta == {"said": said}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        pytest.param(None.__class__, "extraction", "returned a `type`", id="no result at all"),
        pytest.param("text", "extraction", "returned a `str`, expected a `ToolResult`", id="text"),
        pytest.param({1: "a"}, "extraction", "not plain data", id="names that are not text"),
        pytest.param({"said": object()}, "extraction", "not plain data", id="an object"),
        pytest.param({"said": float("nan")}, "extraction", "not plain data", id="not a number"),
        pytest.param({"said": "x" * 5_000_000}, "extraction", "too large", id="more than an event holds"),
        pytest.param(gert.ToolResult(stdout=b"a"), "extraction", "not text", id="bytes"),  # type: ignore[arg-type]
        pytest.param(gert.ToolResult(exit_code="0"), "extraction", "exit code", id="an exit code in text"),  # type: ignore[arg-type]
        pytest.param(gert.ToolResult(exit_code=3, stderr="so\n"), "exit_code", "exited with 3: so", id="an exit code"),
        pytest.param(gert.ToolResult(error="it broke"), "tool_error", "it broke", id="an error"),
        pytest.param(ToolPermanentError("not sent"), "transport", "not sent", id="a call that was not made"),
        pytest.param(ToolUnknownOutcomeError("lost"), "unknown_outcome", "lost", id="a call that may have been made"),
        pytest.param(RuntimeError("boom"), "transport", "RuntimeError: boom", id="an exception of a call that reads"),
        pytest.param(TimeoutError(), "transport", "TimeoutError", id="a timeout of its own"),
        pytest.param(asyncio.CancelledError(), "transport", "cancelled itself", id="a cancellation of its own"),
        pytest.param(SystemExit(3), "transport", "exit(3)", id="an exit"),
    ],
)
def test_results_that_do_not(lab: Lab, answer: Any, kind: str, message: str) -> None:
    executed = lab.run(tools={"act": Actor(answer)})
    assert executed.failure is not None
    assert executed.failure.kind == kind
    assert message in executed.failure.message


@pytest.mark.parametrize(
    ("writes", "idempotent", "kind"),
    [
        pytest.param("lab", "false", "unknown_outcome", id="a call that writes may have happened"),
        pytest.param("lab", "true", "transport", id="one that may be repeated has simply failed"),
        pytest.param("", "false", "transport", id="one that only reads has simply failed"),
    ],
)
def test_an_exception_of_a_call_with_effects_leaves_its_outcome_unknown(
    lab: Lab, writes: str, idempotent: str, kind: str
) -> None:
    lab.tool(writes=writes, idempotent=idempotent)
    executed = lab.run(tools={"act": Actor(OSError("connection reset"))})
    assert executed.failure is not None
    assert executed.failure.kind == kind


def test_an_executor_is_cancelled_with_the_run(lab: Lab) -> None:
    class Endless:
        ended = threading.Event()

        async def execute(self, call: gert.ToolCall) -> dict[str, Any]:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return {}

    executed = lab.run(tools={"act": Endless()}, timeout=0.2)
    assert executed.status == "cancelled"
    assert Endless.ended.is_set()


def test_a_plain_executor_runs_on_a_thread_and_is_abandoned(lab: Lab) -> None:
    class Blocking:
        release = threading.Event()
        thread: threading.Thread | None = None

        def execute(self, call: gert.ToolCall) -> dict[str, Any]:
            self.thread = threading.current_thread()
            self.release.wait(30)
            return {"said": "late"}

    blocking = Blocking()
    executed = lab.run(tools={"act": blocking}, timeout=0.2)
    blocking.release.set()
    assert executed.status == "cancelled"
    assert blocking.thread is not None
    assert blocking.thread is not threading.main_thread()


def test_a_tool_of_another_transport_is_called_where_the_program_brings_it(lab: Lab) -> None:
    lab.tool("jsonrpc")
    assert lab.run(tools={"act": Actor()}).status == "completed"


def test_dry_runs_and_replays_call_no_part(lab: Lab) -> None:
    actor, asks = Actor(), Asks()
    lab.book(APPROVE)
    assert lab.run(tools={"act": actor}, asks=asks, mode="dry-run").status == "completed"
    lab.write("scenarios/lab/fine/scenario.yaml", "tool_responses: { act: { stdout: x } }\n")
    replayed = lab.run(tools={"act": actor}, asks=asks, mode="replay", scenario="fine")
    assert replayed.outcome is not None
    assert replayed.outcome.meta == {"said": "x"}
    assert (actor.calls, asks.requests) == ([], [])


# --- approvals


def test_a_provider_sees_the_request_without_secrets(lab: Lab) -> None:
    lab.book(APPROVE)
    asks = Asks(yes())
    executed = lab.run({"word": "hi", "token": SECRET}, tools={"act": Actor()}, asks=asks)
    [request] = asks.requests
    assert request.inputs == {"word": "hi", "token": "[REDACTED]"}
    assert (request.requested_by, request.target, request.run_id) == ("ann", "act:go", executed.run_id)
    assert SECRET not in str(request)
    submitted = next(event["data"] for event in lab.trace(executed) if event["type"] == "approval_submitted")
    assert submitted["method"] == "embedded"
    assert submitted["request_hash"] == request.request_hash


@pytest.mark.parametrize(
    ("rules", "responses", "status", "refused"),
    [
        pytest.param("", [yes("ann")], "completed", [], id="anyone may approve where no rule says otherwise"),
        pytest.param(
            "separation_of_duties: true", [yes("ann"), yes("bob")], "completed", ["ann"], id="the starter may not"
        ),
        pytest.param(
            "approvers: [carol]", [yes("bob"), yes("carol")], "completed", ["bob"], id="only those on the list"
        ),
        pytest.param(
            "min_approvers: 2", [yes("bob"), yes("bob"), yes("carol")], "completed", ["bob"], id="one person is one"
        ),
        pytest.param("", [yes(ticket_id="other"), yes()], "completed", ["bob"], id="a response to another ticket"),
        pytest.param("", [yes(timestamp="2001-01-01T00:00:00Z"), yes()], "completed", ["bob"], id="a stale response"),
        pytest.param(
            "", [yes(timestamp="2999-01-01T00:00:00Z"), yes()], "completed", ["bob"], id="one from the future"
        ),
        pytest.param("", [yes(timestamp="noon"), yes()], "completed", ["bob"], id="a time that is none"),
        pytest.param("", [yes("b\u200bob"), yes()], "completed", ["b\u200bob"], id="a name that cannot be read"),
        pytest.param("", ["yes", yes()], "completed", ["unknown"], id="something else than a response"),
        pytest.param("", [yes(signature="AAAA"), yes()], "completed", ["bob"], id="a signature without a key"),
        pytest.param("", [yes("x" * 1000), no("bob")], "failed", None, id="a name that is too long, then a rejection"),
        pytest.param("", [RuntimeError("the chat is down")], "failed", [], id="a provider that fails approves nothing"),
    ],
)
def test_the_rules_decide_which_responses_count(
    lab: Lab, rules: str, responses: list[Any], status: str, refused: list[str] | None
) -> None:
    lab.book(f"{{ effects: [lab], action: require-approval{', ' if rules else ''}{rules} }}, {{ default: allow }}")
    executed = lab.run(tools={"act": Actor()}, asks=Asks(*responses))
    assert executed.status == status, executed.failure
    if refused is not None:
        found = [event["data"]["approver_id"] for event in lab.trace(executed) if event["type"] == "approval_refused"]
        assert found == refused


class NoTicket(Asks):
    def __init__(self, ticket: Any) -> None:
        super().__init__(yes())
        self._ticket = ticket

    async def submit(self, request: gert.ApprovalRequest) -> Any:
        if isinstance(self._ticket, BaseException):
            raise self._ticket
        return self._ticket


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        pytest.param(NoTicket(None), "returned a `NoneType`", id="no ticket"),
        pytest.param(NoTicket(gert.ApprovalTicket(ticket_id="../x")), "not a plain name", id="an id that is a path"),
        pytest.param(NoTicket(gert.ApprovalTicket(ticket_id="")), "not a plain name", id="an empty id"),
        pytest.param(NoTicket(gert.ApprovalTicket(ticket_id="x" * 200)), "not a plain name", id="an endless id"),
        pytest.param(NoTicket(ConnectionError("down")), "failed: ConnectionError: down", id="it raises"),
    ],
)
def test_a_request_without_a_ticket_approves_nothing(lab: Lab, asks: Asks, message: str) -> None:
    lab.book(APPROVE)
    actor = Actor()
    executed = lab.run(tools={"act": actor}, asks=asks)
    assert executed.failure is not None
    assert message in executed.failure.message
    assert actor.calls == []


def test_a_provider_that_never_stops_is_stopped(lab: Lab) -> None:
    lab.book("{ effects: [lab], action: require-approval, approvers: [carol] }, { default: allow }")
    executed = lab.run(tools={"act": Actor()}, asks=Asks(*[yes("mallory")] * 1000))
    assert executed.failure is not None
    assert "gave 100 responses" in executed.failure.message


def test_the_time_of_a_ticket_is_limited(lab: Lab) -> None:
    lab.book(text=BOOK.replace("governance: {", "governance: { approval_timeout: 1s,"), rules=APPROVE)
    executed = lab.run(tools={"act": Actor()}, asks=Asks())
    assert executed.failure is not None
    assert executed.failure.message == "no approver approved in time"


def test_a_run_is_set_aside_and_resumed_with_its_parts(lab: Lab) -> None:
    lab.book(APPROVE)
    waiting = lab.run(tools={"act": Actor()}, asks=Asks(gert.StillOpen("ticket-1")))
    assert waiting.status == "waiting"
    assert [each.ticket_id for each in waiting.pending] == ["ticket-1"]
    actor, asks = Actor(), Asks(lambda ticket: yes(ticket_id=ticket.ticket_id))
    resumed = gert.resume(
        waiting.run_id, state_dir=str(lab.root), parts=gert.Parts(tools={"act": actor}, approvals=asks)
    )
    assert resumed.status == "completed"
    assert (len(actor.calls), asks.requests) == (1, [])


def test_an_approval_does_not_cover_another_way_to_run_the_tool(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was approved is a call by the part; a program that is found later is not it."""
    lab.book(APPROVE)
    waiting = lab.run(tools={"act": Actor()}, asks=Asks(gert.StillOpen("ticket-1")))
    program = lab.root / "never-installed"
    program.write_text("#!/bin/sh\necho hi\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(lab.root), prepend=os.pathsep)
    asks = Asks(gert.StillOpen("again"))
    resumed = gert.resume(waiting.run_id, state_dir=str(lab.root), parts=gert.Parts(approvals=asks))
    assert resumed.status == "waiting"
    assert [request.program for request in asks.requests] == [str(program)]


# --- signatures


SIGNED = "{ effects: [lab], action: require-approval }, { default: allow }"


def test_unsigned_responses_do_not_count_where_signatures_are_required(lab: Lab) -> None:
    lab.book(text=BOOK.replace("governance: {", "governance: { require_signed_approvals: true,"), rules=SIGNED)

    class Refuses:
        def verify(self, response: gert.SignedResponse) -> bool:
            return False

    executed = lab.run(tools={"act": Actor()}, asks=Asks(yes(), no()), verifier=Refuses())
    assert executed.status == "failed"
    assert [event["data"]["approver_id"] for event in lab.trace(executed) if event["type"] == "approval_refused"] == [
        "bob"
    ]
    unverified = lab.run(tools={"act": Actor()}, asks=Asks(yes()))
    assert unverified.failure is not None
    assert "nothing can verify them" in unverified.failure.message


class ByName:
    """Confirms signatures that are the name of the approver; raises about others, if told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def verify(self, response: gert.SignedResponse) -> bool:
        if self._error is not None:
            raise self._error
        return response.signature == response.approver_id


def test_a_recorded_signature_is_verified_again_by_the_part(lab: Lab) -> None:
    book = BOOK.replace("- { id: act,", "- { id: act, description: first,").replace(
        "  - { type: end",
        '  - { id: again, type: tool, tool: act, inputs: { word: "{{ .word }}" } }\n  - { type: end',
    )
    lab.book(text=book.replace("governance: {", "governance: { require_signed_approvals: true,"), rules=SIGNED)
    signed = yes(signature="bob", signature_alg="name", key_id="bob")
    waiting = lab.run(tools={"act": Actor()}, asks=Asks(signed, gert.StillOpen("ticket-2")), verifier=ByName())
    assert waiting.status == "waiting"
    for verifier in (None, ByName(ValueError("no keys"))):
        parts = gert.Parts(tools={"act": Actor()}, approvals=Asks(signed), verifier=verifier)
        with pytest.raises(IntegrityError, match="whose signature does not hold"):
            gert.resume(waiting.run_id, state_dir=str(lab.root), parts=parts)
    parts = gert.Parts(tools={"act": Actor()}, approvals=Asks(signed), verifier=ByName())
    assert gert.resume(waiting.run_id, state_dir=str(lab.root), parts=parts).status == "completed"


# --- inputs

ASKED = """
apiVersion: kernel/v0
meta:
  name: lab
  inputs:
    host: { type: string, required: true, from: provider/cmdb.server.host }
    port: { type: int, from: cmdb.server.port, default: 443 }
    name: { type: string, from: prompt, default: nobody }
    key: { type: string, from: provider/cmdb.server.key, secret: true, required: false }
  governance: { rules: [RULES] }
steps:
  - { type: end, outcome: { category: resolved, code: done, meta: { at: "{{ .host }}:{{ .port }} {{ .name }}" } } }
"""


class Finds:
    def __init__(self, **values: Any) -> None:
        self.asked: list[str] = []
        self._values = values

    def resolve(self, binding: gert.InputBinding) -> Any:
        self.asked.append(binding.source)
        found = self._values.get(binding.name)
        if isinstance(found, BaseException):
            raise found
        return found


def test_inputs_come_from_the_part(lab: Lab) -> None:
    lab.book(text=ASKED)
    finds, prompt = Finds(host="srv1", port="8080", key=SECRET), Finds(name="ann")
    executed = lab.run(finds={"cmdb": finds}, prompt=prompt)
    assert executed.outcome is not None
    assert executed.outcome.meta == {"at": "srv1:8080 ann"}
    assert finds.asked == ["provider/cmdb.server.host", "provider/cmdb.server.port", "provider/cmdb.server.key"]
    assert prompt.asked == ["prompt"]
    resolved = {
        event["data"]["name"]: (event["data"]["source"], event["data"]["value"])
        for event in lab.trace(executed)
        if event["type"] == "input_resolved"
    }
    assert resolved == {
        "host": ("provider/cmdb.server.host", "srv1"),
        "port": ("provider/cmdb.server.port", 8080),
        "name": ("prompt", "ann"),
        "key": ("provider/cmdb.server.key", "[REDACTED]"),
    }
    assert SECRET.encode() not in lab.everything()


def test_what_is_given_is_not_asked_for(lab: Lab) -> None:
    lab.book(text=ASKED)
    finds = Finds()
    executed = lab.run({"host": "mine", "key": "x"}, finds={"cmdb": finds}, prompt=Finds())
    assert executed.outcome is not None
    assert executed.outcome.meta == {"at": "mine:443 nobody"}
    assert finds.asked == ["provider/cmdb.server.port"]


@pytest.mark.parametrize(
    ("found", "kind", "message"),
    [
        pytest.param(None, "no_value", "no value for required input `host`", id="no value"),
        pytest.param(InputError("no such server"), "transport", "`Finds` failed: no such server", id="it raises"),
        pytest.param(KeyError("x"), "transport", "KeyError", id="it has a bug"),
        pytest.param(object(), "invalid_input", "not plain JSON data", id="an object"),
        pytest.param("x" * 2_000_000, "invalid_input", "2000002 bytes", id="too much"),
        pytest.param(["a"], "invalid_value", "expected a string", id="another type"),
    ],
)
def test_an_input_that_cannot_be_found_stops_the_run_before_it_begins(
    lab: Lab, found: Any, kind: str, message: str
) -> None:
    lab.book(text=ASKED)
    with pytest.raises(InputError) as raised:
        lab.run(finds={"cmdb": Finds(host=found)}, prompt=Finds())
    [problem] = raised.value.problems
    assert isinstance(problem, InputProblem)
    assert (problem.input, problem.source, problem.kind) == ("host", "provider/cmdb.server.host", kind)
    assert message in problem.message
    assert not (lab.root / "runs").exists()


def test_the_failure_of_a_secret_quotes_nothing(lab: Lab) -> None:
    lab.book(text=ASKED)
    with pytest.raises(InputError) as raised:
        lab.run(finds={"cmdb": Finds(host="a", key=ValueError(f"{SECRET} is expired"))}, prompt=Finds())
    assert SECRET not in str(raised.value)
    assert "the details are withheld" in str(raised.value)


def test_a_policy_on_the_network_refuses_providers(lab: Lab) -> None:
    lab.book(rules="{ effects: [network], action: deny }, { default: allow }", text=ASKED)
    finds = Finds(host="a")
    with pytest.raises(InputError, match="the effect `network` is denied"):
        lab.run(finds={"cmdb": finds}, prompt=Finds())
    assert finds.asked == []


def test_resume_resolves_only_secrets_again(lab: Lab) -> None:
    step = "  - { id: act, type: tool, tool: act, inputs: { token: '{{ .key }}' } }"
    book = ASKED.replace("steps:", f"tools: [act]\nsteps:\n{step}")
    lab.book(text=book, rules=APPROVE)
    first = Finds(host="srv1", key=SECRET)
    waiting = lab.run(finds={"cmdb": first}, prompt=Finds(), tools={"act": Actor()}, asks=Asks(gert.StillOpen("t")))
    again, actor = Finds(host="another", key=SECRET), Actor()
    parts = gert.Parts(inputs={"cmdb": again}, tools={"act": actor}, approvals=Asks(yes()))
    resumed = gert.resume(waiting.run_id, state_dir=str(lab.root), parts=parts)
    assert resumed.outcome is not None
    assert resumed.outcome.meta == {"at": "srv1:443 nobody"}
    assert again.asked == ["provider/cmdb.server.key"]
    assert actor.calls[0].inputs["token"] == SECRET


# --- parts that take too long


class Slow:
    """Never answers, and notes that it was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    async def _never(self, name: str) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.append(name)

    async def resolve(self, binding: gert.InputBinding) -> Any:
        return await self._never("resolve")

    async def submit(self, request: gert.ApprovalRequest) -> Any:
        return await self._never("submit")

    async def wait(self, ticket: gert.ApprovalTicket) -> Any:
        return await self._never("wait")


def test_a_resolver_has_a_time_limit() -> None:
    slow = Slow()
    parameter = Parameter(type="string")
    binding = gert.InputBinding(name="host", source="provider/cmdb.x", path="x", parameter=parameter)
    answer = asyncio.run(EmbeddedResolver(slow, 0.05).resolve([binding]))
    assert answer.failures["host"] == Failure("timeout", "the input resolver `Slow` gave no answer within 0.05 s")
    assert slow.cancelled == ["resolve"]


def test_a_ticket_has_to_come_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "SUBMIT_SECONDS", 0.05)
    lab.book(APPROVE)
    slow = Slow()
    executed = lab.run(tools={"act": Actor()}, asks=slow)
    assert executed.failure is not None
    assert "returned no ticket within 0.05 s" in executed.failure.message
    assert slow.cancelled == ["submit"]


def test_a_wait_is_cancelled_with_the_run(lab: Lab) -> None:
    class Submits(Slow):
        async def submit(self, request: gert.ApprovalRequest) -> Any:
            return gert.ApprovalTicket(ticket_id="t")

    lab.book(APPROVE)
    slow = Submits()
    assert lab.run(tools={"act": Actor()}, asks=slow, timeout=0.2).status == "cancelled"
    assert slow.cancelled == ["wait"]


# --- parts that are none

NONE: Any = object()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param(gert.Parts(approvals=NONE), "`approvals` of the parts has no method `submit`", id="approvals"),
        pytest.param(gert.Parts(tools={"a": NONE}), "`tools[a]` of the parts has no method `execute`", id="a tool"),
        pytest.param(gert.Parts(inputs={"a": NONE}), "`inputs[a]`", id="an input"),
        pytest.param(gert.Parts(verifier=NONE), "`verifier`", id="a verifier"),
        pytest.param(gert.Parts(inputs={"a.b": Finds()}), "not the name of a provider", id="a name that no input has"),
    ],
)
def test_a_part_without_its_methods_is_refused_before_the_run(lab: Lab, parts: gert.Parts, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        gert.run(str(lab.root / "lab.yaml"), parts=parts)
    assert message in str(raised.value)


def test_without_its_part_the_tool_is_not_supported(lab: Lab) -> None:
    lab.tool("mcp")
    with pytest.raises(DocumentError):
        lab.run(tools={"another": Actor()})


# --- the worked examples


@pytest.mark.parametrize(
    ("main", "printed"),
    [
        pytest.param(tool_executor.main, "completed ['pod_restarted']\n", id="tool executor"),
        pytest.param(
            approval_provider.main,
            "chat-1: may ann@example.com run kubectl:delete? would delete web-1 of 2 pods\ncompleted pod_restarted\n",
            id="approval provider",
        ),
        pytest.param(input_resolver.main, "completed {'at': '10.0.0.7:443'}\n", id="input resolver"),
        pytest.param(
            signature_verifier.main, "bob@example.com completed\nmallory@example.com failed\n", id="signature verifier"
        ),
    ],
)
def test_the_examples_run(main: Callable[[], None], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out == printed


def test_the_cluster_of_the_examples_is_changed_once(tmp_path: Path) -> None:
    cluster = Cluster("web-1", "web-2")
    parts = gert.Parts(tools={"kubectl": cluster}, approvals=Asks(yes()))
    executed = gert.run(str(RUNBOOK), {"pod": "web-2"}, parts=parts, state_dir=str(tmp_path))
    assert (executed.status, cluster.deleted, cluster.pods) == ("completed", ["web-2"], ["web-1"])
