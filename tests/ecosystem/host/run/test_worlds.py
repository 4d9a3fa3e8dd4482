"""Worlds: who is asked in which mode, and that every question gets an answer of its own kind."""

import asyncio
from typing import Any

import msgspec
import pytest

from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import Detached, DryRun, Probe, Real
from gert.errors import TraceError
from gert.kernel.engine.requests import (
    ANSWERS,
    AnyAnswer,
    ApprovalAnswer,
    AwaitApproval,
    CallExtension,
    CallPreview,
    CallTool,
    CollectEvidence,
    EvidenceAnswer,
    Pause,
    PauseAnswer,
    Request,
    SubmitApproval,
    TicketAnswer,
    ToolAnswer,
    failed_answer,
)
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.governance.contract import Contract
from gert.kernel.runbook.document import load
from gert.kernel.runbook.program import Program, ToolLookup

LOOKS = Contract(effects=frozenset({"network"}), writes=frozenset())
REQUEST = ApprovalRequest(
    run_id="r", runbook="b", step_id="s", title=None, risk_level="low", rule=None, contract={}, target="t", inputs={},
    request_hash="h", min_approvers=1, approvers=(), admitted=(), separation_of_duties=False,
    require_signed_approvals=False, requested_by=None, approval_timeout=1.0,
)  # fmt: skip
AT: dict[str, Any] = {"key": "k", "path": "p", "step_id": "s"}


def call(contract: Contract = LOOKS, tool: str = "look", action: str = "go") -> CallTool:
    return CallTool(**AT, tool=tool, action=action, inputs={}, contract=contract)


ASKS: list[tuple[Request[Any], type[AnyAnswer]]] = [
    (call(), ToolAnswer),
    (CallPreview(**AT, tool="look", action="go", inputs={}, contract=LOOKS), ToolAnswer),
    (CallExtension(**AT, extension="x", inputs={}, view={}, contract=LOOKS), ToolAnswer),
    (CollectEvidence(**AT, instructions="do", contract=LOOKS), EvidenceAnswer),
    (SubmitApproval(**AT, request=REQUEST), TicketAnswer),
    (AwaitApproval(**AT, request=REQUEST, ticket_id="t"), ApprovalAnswer),
    (Pause(**AT, seconds=1.0), PauseAnswer),
]
EVERY_ASK = pytest.mark.parametrize(("ask", "kind"), ASKS, ids=[type(ask).__name__ for ask, _ in ASKS])


def test_there_is_an_answer_to_every_question() -> None:
    assert {type(ask): kind for ask, kind in ASKS} == ANSWERS


@EVERY_ASK
def test_a_failure_is_an_answer_of_the_right_kind_to(ask: Request[Any], kind: type[AnyAnswer]) -> None:
    failure = Failure("timeout", "no answer")
    assert failed_answer(ask, failure) == kind(failure=failure)


# --- dry run


@EVERY_ASK
def test_a_dry_run_assumes_the_answer_to(ask: Request[Any], kind: type[AnyAnswer]) -> None:
    answer = DryRun().immediate(ask)
    assert isinstance(answer, kind)
    # Nobody needs to wait in a dry run, and that a pause is over is no assumption.
    assert answer == (PauseAnswer() if kind is PauseAnswer else kind(assumed="dry_run"))


@EVERY_ASK
def test_a_dry_run_never_waits_for(ask: Request[Any], kind: type[AnyAnswer]) -> None:
    assert isinstance(asyncio.run(DryRun().answer(ask)), kind)


# --- probe


class Counted:
    """A real world that gives one answer after the other."""

    def __init__(self, *answers: AnyAnswer) -> None:
        self.answers = list(answers)
        self.asked = 0

    def immediate(self, ask: Request[Any]) -> AnyAnswer | None:
        raise AssertionError("a probe decides itself who is asked")

    async def answer(self, ask: Request[Any]) -> AnyAnswer:
        self.asked += 1
        return self.answers.pop(0)


def tags(*words: str) -> frozenset[str]:
    return frozenset(words)


@pytest.mark.parametrize(
    ("effects", "writes", "runs"),
    [
        pytest.param(tags(), tags(), True, id="no effects and no writes"),
        pytest.param(tags("network"), tags(), True, id="network, which is allowed"),
        pytest.param(tags("database"), tags(), False, id="another effect"),
        pytest.param(tags("network", "database"), tags(), False, id="an allowed effect and another"),
        pytest.param(tags("unknown"), tags(), False, id="an unknown effect"),
        pytest.param(tags("network", "unknown"), tags(), False, id="an allowed effect and an unknown one"),
        pytest.param(None, tags(), False, id="undeclared effects"),
        pytest.param(tags(), tags("db"), False, id="writes without effects"),
        pytest.param(tags("network"), tags("db"), False, id="network, and writes"),
        pytest.param(None, tags("db"), False, id="undeclared effects, and writes"),
        pytest.param(tags("unknown"), tags("db"), False, id="an unknown effect, and writes"),
    ],
)
def test_whether_a_probe_runs_a_tool_with(effects: frozenset[str] | None, writes: frozenset[str], runs: bool) -> None:
    contract = Contract(effects=effects, writes=writes)
    probe = Probe(Counted())
    assert probe.may_run(contract) is runs
    answer = probe.immediate(call(contract))
    assert answer == (None if runs else ToolAnswer(assumed="probe"))


@pytest.mark.parametrize(
    ("contract", "runs"),
    [
        pytest.param(Contract(effects=tags("database")), True, id="what the caller allows"),
        pytest.param(Contract(effects=tags("network")), False, id="not what is allowed otherwise"),
        pytest.param(Contract(effects=tags()), True, id="what touches nothing"),
        pytest.param(Contract(effects=tags("database"), writes=tags("x")), False, id="never what writes"),
        pytest.param(Contract(effects=None), False, id="never what is undeclared, though `unknown` is allowed"),
        pytest.param(Contract(effects=tags("unknown")), False, id="never `unknown`, though it is allowed"),
    ],
)
def test_a_probe_with_other_effects_runs(contract: Contract, runs: bool) -> None:
    assert Probe(Counted(), tags("database", "unknown")).may_run(contract) is runs


@EVERY_ASK
def test_a_probe_asks_no_person_and_no_extension(ask: Request[Any], kind: type[AnyAnswer]) -> None:
    answer = Probe(Counted()).immediate(ask)
    assert answer == (None if isinstance(ask, CallTool | Pause) else kind(assumed="probe"))


def probed(contract: Contract, *answers: AnyAnswer) -> tuple[AnyAnswer, int]:
    real = Counted(*answers)
    return asyncio.run(Probe(real).answer(call(contract))), real.asked


SAYS_SO = msgspec.structs.replace(LOOKS, deterministic=True)


def test_a_deterministic_tool_runs_twice_and_both_outputs_are_kept() -> None:
    answer, asked = probed(
        SAYS_SO, ToolAnswer(outputs={"v": 1}, duration=1.0), ToolAnswer(outputs={"v": 2}, duration=2.0)
    )
    assert answer == ToolAnswer(outputs={"v": 1}, again={"v": 2}, duration=3.0)
    assert asked == 2


def test_another_tool_runs_once() -> None:
    answer, asked = probed(LOOKS, ToolAnswer(outputs={"v": 1}))
    assert (answer, asked) == (ToolAnswer(outputs={"v": 1}), 1)


def test_a_tool_that_fails_does_not_run_again() -> None:
    failed = ToolAnswer(failure=Failure("exit_code", "it failed"))
    assert probed(SAYS_SO, failed) == (failed, 1)


def test_a_tool_that_fails_the_second_time_has_failed() -> None:
    failed = ToolAnswer(failure=Failure("exit_code", "it failed"), duration=1.0)
    answer, asked = probed(SAYS_SO, ToolAnswer(outputs={"v": 1}), failed)
    assert answer.failure == failed.failure
    assert asked == 2


def test_a_pause_is_waited_for_in_a_probe() -> None:
    answer = asyncio.run(Probe(Counted(PauseAnswer(duration=1.0))).answer(Pause(**AT, seconds=1.0)))
    assert answer == PauseAnswer(duration=1.0)


# --- real


TOOL = b"""
apiVersion: tool/v0
meta: {name: look, transport: %b}
contract: {effects: [network], writes: [], outputs: {v: {type: string}}}
actions: {go: {argv: [look]}}
"""
BOOK = b"""
apiVersion: kernel/v0
meta: {name: book}
tools: [look, gone]
steps: [{type: end, outcome: {category: resolved, code: x}}]
"""


def program(transport: bytes = b"stdio") -> Program:
    lookups = {
        "look": ToolLookup("look", (), "look.tool.yaml", load(TOOL % transport, kind="tool")),
        "gone": ToolLookup("gone", ("tools/gone.tool.yaml",)),
    }
    return Program(load(BOOK, kind="runbook").model, lookups)


class People:
    """Whoever is asked for approval."""

    async def submit(self, ask: SubmitApproval) -> TicketAnswer:
        return TicketAnswer(ticket_id="t-hunter22", method="test")

    async def wait(self, ask: AwaitApproval) -> ApprovalAnswer:
        return ApprovalAnswer(expired=True)

    async def withdraw(self, ask: AwaitApproval, outdated: Failure) -> ApprovalAnswer:
        raise AssertionError(ask.ticket_id)


class Transport:
    def __init__(self, gives: Any) -> None:
        self.gives = gives

    async def call(self, tool: Any, action_name: str, action: Any, ask: CallTool | CallPreview) -> ToolAnswer:
        if isinstance(self.gives, Exception):
            raise self.gives
        answer: ToolAnswer = self.gives
        return answer


async def _give(ask: CollectEvidence) -> EvidenceAnswer:
    return EvidenceAnswer(evidence={"note": "the password is hunter22"})


def real(gives: Any = None, transport: bytes = b"stdio") -> Real:
    return Real(
        program(transport),
        Sanitizer(Redactor(["hunter22"])),
        transports={"stdio": Transport(gives)},
        approvals=People(),
        collect=_give,
    )


@pytest.mark.parametrize(
    ("problem", "failure"),
    [
        pytest.param(
            TraceError("`/x/hunter22` is not there"),
            Failure("transport", "`/x/[REDACTED]` is not there"),
            id="foreseen",
        ),
        pytest.param(ValueError("bad: hunter22"), Failure("internal", "ValueError: bad: [REDACTED]"), id="a bug"),
    ],
)
def test_what_goes_wrong_is_redacted_as_well(problem: Exception, failure: Failure) -> None:
    assert asyncio.run(real(problem).answer(call())) == ToolAnswer(failure=failure, redacted=1)


@EVERY_ASK
def test_the_real_world_always_has_to_be_asked(ask: Request[Any], kind: type[AnyAnswer]) -> None:
    assert real().immediate(ask) is None


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        pytest.param(call(), ToolAnswer(outputs={"v": "[REDACTED]"}, redacted=1), id="a tool"),
        pytest.param(
            CollectEvidence(**AT, instructions="do", contract=LOOKS),
            EvidenceAnswer(evidence={"note": "the password is [REDACTED]"}, redacted=1),
            id="a person",
        ),
        pytest.param(
            SubmitApproval(**AT, request=REQUEST),
            TicketAnswer(ticket_id="t-[REDACTED]", method="test", redacted=1),
            id="a ticket",
        ),
        pytest.param(
            AwaitApproval(**AT, request=REQUEST, ticket_id="t"), ApprovalAnswer(expired=True), id="an approval"
        ),
        pytest.param(Pause(**AT, seconds=0.0), PauseAnswer(), id="a pause"),
    ],
)
def test_what_the_real_world_gives_is_redacted(ask: Request[Any], answer: AnyAnswer) -> None:
    assert asyncio.run(real(ToolAnswer(outputs={"v": "hunter22"})).answer(ask)) == answer


@pytest.mark.parametrize(
    ("ask", "transport", "failure"),
    [
        pytest.param(call(tool="gone"), b"stdio", Failure("not_found", "the tool `gone` is not there"), id="no tool"),
        pytest.param(
            call(),
            b"mcp",
            Failure("transport", "the transport `mcp` of the tool `look` is not supported yet"),
            id="an unknown transport",
        ),
        pytest.param(
            CallExtension(**AT, extension="acme/x", inputs={}, view={}, contract=LOOKS),
            b"stdio",
            Failure("not_found", "there is no runner for the extension `acme/x`"),
            id="an extension without a runner",
        ),
    ],
)
def test_the_real_world_cannot_ask(ask: Request[Any], transport: bytes, failure: Failure) -> None:
    assert asyncio.run(real(transport=transport).answer(ask)).failure == failure


@pytest.mark.parametrize("problem", [TimeoutError("too long"), Detached()], ids=["no time left", "set aside"])
def test_that_there_is_no_answer_yet_is_for_the_driver(problem: Exception) -> None:
    with pytest.raises(type(problem)):
        asyncio.run(real(problem).answer(call()))
