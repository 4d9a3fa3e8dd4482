"""Recording: the questions of a run and their answers become a scenario that is answered the same."""

from typing import Any

import pytest
from tests.kernel.scenario.plays import call, drive, play, program, scenario, setup

from gert.kernel.engine.requests import ApprovalAnswer, EvidenceAnswer, Request, TicketAnswer, ToolAnswer
from gert.kernel.engine.run import run
from gert.kernel.events.runbook import Failure
from gert.kernel.events.vocabulary import FAILURE_KINDS
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.approval import Response
from gert.kernel.runbook.document import load
from gert.kernel.runbook.writer import to_yaml
from gert.kernel.scenario.observed import RunObservation
from gert.kernel.scenario.recorded_test import recorded_test
from gert.kernel.scenario.recording import collect_requests, recorded_scenario
from gert.kernel.scenario.script import Script


class World:
    """Answers everything with the same, and remembers it in the order it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.given: list[tuple[str, Any]] = []
        self.asked: dict[str, Request[Any]] = {}

    def answer(self, ask: Request[Any]) -> Any:
        kind: type = _TYPES[type(ask).__name__]
        fitting = next(each for each in self._answers if type(each) is kind)
        self.given.append((ask.key, fitting))
        self.asked[ask.key] = ask
        return fitting


_TYPES: dict[str, type] = {
    "CallTool": ToolAnswer,
    "CallExtension": ToolAnswer,
    "CollectEvidence": EvidenceAnswer,
    "SubmitApproval": TicketAnswer,
    "AwaitApproval": ApprovalAnswer,
}
TICKET = TicketAnswer(ticket_id="t-1", method="terminal")


def record(made: Any, *answers: Any, **more: Any) -> tuple[dict[str, Any], World]:
    """The scenario of a run that was answered so."""
    asks: dict[str, Request[Any]] = {}
    world = World(*answers)
    begun = setup(made, **more)
    drive(collect_requests(run(begun), asks), world, RunObservation())  # type: ignore[arg-type]
    return recorded_scenario(begun, asks, world.given), world


def same_again(made: Any, document: dict[str, Any], world: World) -> None:
    """What was written answers each question as it was answered."""
    loaded = load(to_yaml(document).encode(), kind="scenario")
    assert not loaded.findings, loaded.findings
    script = Script(loaded.model, made, "ann")
    for key, answer in world.given:
        again = script.answer(world.asked[key])
        if not isinstance(answer, TicketAnswer):
            assert again == answer
    assert script.missing == []
    assert list(script.unused()) == []


ANSWERS: dict[str, ToolAnswer] = {
    "success": ToolAnswer(exit_code=0, stdout="x=1\n", outputs={"x": "1"}),
    "outputs that were found in what is no longer there": ToolAnswer(exit_code=0, stdout="…", outputs={"x": "1"}),
    "other outputs than would be found": ToolAnswer(exit_code=0, stdout="x=2", outputs={"x": "1", "y": [1, None]}),
    "no outputs where some would be found": ToolAnswer(exit_code=0, stdout="x=2", outputs={}),
    "a failure": ToolAnswer(exit_code=7, stderr="no", failure=Failure("exit_code", "`t` exited with 7: no")),
    "a failure that says something else": ToolAnswer(exit_code=7, failure=Failure("exit_code", "withheld")),
    "a failure with outputs": ToolAnswer(
        exit_code=1, stdout="x=1", outputs={"x": "1"}, failure=Failure("exit_code", "`t` exited with 1: x=1")
    ),
    "success that failed": ToolAnswer(exit_code=0, failure=Failure("reported", "it says no")),
    "a time": ToolAnswer(exit_code=0, stdout="x=1", outputs={"x": "1"}, duration=1.5),
    "a second execution": ToolAnswer(exit_code=0, stdout="x=1", outputs={"x": "1"}, again={"x": "2"}),
    "a second execution without outputs": ToolAnswer(exit_code=0, stdout="x=1", outputs={"x": "1"}, again={}),
    "something masked": ToolAnswer(exit_code=0, stdout="x=[REDACTED]", outputs={"x": "[REDACTED]"}, redacted=2),
    "nothing found": ToolAnswer(exit_code=0, stdout="z", failure=Failure("extraction", "no `x` in `stdout`")),
    "a signal": ToolAnswer(exit_code=-9, failure=Failure("exit_code", "`t` exited with -9")),
    **{kind: ToolAnswer(failure=Failure(kind, "because")) for kind in FAILURE_KINDS if kind != "cancelled"},
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_tools_answer_is_given_again(answer: ToolAnswer) -> None:
    made = program(call("a"))
    same_again(made, *record(made, answer))


EVIDENCE = {
    "text": EvidenceAnswer(evidence={"n": "text"}, by=Principal("human", "bob")),
    "with a time": EvidenceAnswer(evidence={"n": "text"}, by=Principal("human", "bob"), duration=2.0),
    "masked": EvidenceAnswer(evidence={"n": "[REDACTED]"}, by=Principal("human", "bob"), redacted=1),
    "an attachment": EvidenceAnswer(evidence={"n": {"path": "f", "sha256": "0"}}, by=Principal("human", "bob")),
    "rejected": EvidenceAnswer(by=Principal("human", "bob"), failure=Failure("rejected", "no")),
    "not given in time": EvidenceAnswer(by=Principal("human", "bob"), failure=Failure("timeout", "nobody")),
}


@pytest.mark.parametrize("answer", EVIDENCE.values(), ids=EVIDENCE)
def test_a_persons_answer_is_given_again(answer: EvidenceAnswer) -> None:
    wanted = [{"kind": "text", "name": "n"}]
    made = program({"id": "m", "type": "manual", "instructions": "do", "required_evidence": wanted})
    same_again(made, *record(made, answer))


@pytest.mark.parametrize("name", ["by", "duration", "redacted", "reject", "failure"])
def test_evidence_called_like_what_stands_beside_it_is_not_lost(name: str) -> None:
    wanted = [{"kind": "text", "name": name}]
    made = program({"id": "m", "type": "manual", "instructions": "do", "required_evidence": wanted})
    answer = EvidenceAnswer(evidence={name: "5s"}, by=Principal("human", "bob"), duration=3.0, redacted=1)
    document, world = record(made, answer)
    loaded = load(to_yaml(document).encode(), kind="scenario").model
    again = Script(loaded, made, "ann").answer(world.asked[world.given[0][0]])
    assert isinstance(again, EvidenceAnswer)
    assert (again.evidence, again.failure) == ({name: "5s"}, None)


WHEN = "2026-01-01T00:00:00Z"
APPROVALS = {
    "yes": ApprovalAnswer(responses=(Response(approver="bob", approved=True, timestamp=WHEN),)),
    "no": ApprovalAnswer(responses=(Response(approver="bob", approved=False, timestamp=WHEN, reason="no"),)),
    "several": ApprovalAnswer(
        responses=tuple(Response(approver=who, approved=True, timestamp=WHEN) for who in ("bob", "cyd")), duration=9.0
    ),
    "expired": ApprovalAnswer(expired=True),
    "lost": ApprovalAnswer(failure=Failure("transport", "down")),
    "silence": ApprovalAnswer(),
}
ASKING = {"rules": [{"effects": ["network"], "action": "require-approval"}, {"default": "allow"}]}


@pytest.mark.parametrize("answer", APPROVALS.values(), ids=APPROVALS)
def test_an_approval_is_given_again(answer: ApprovalAnswer) -> None:
    asking = {"effects": ["network"], "action": "require-approval", "min_approvers": max(1, len(answer.responses))}
    made = program(call("a"), governance={"rules": [asking, {"default": "allow"}]})
    same_again(made, *record(made, TICKET, answer, ANSWERS["success"]))


@pytest.mark.parametrize("verified", [True, False], ids=["signed", "not signed"])
def test_an_approval_counts_again_if_it_was_signed_where_that_is_required(verified: bool) -> None:
    made = program(call("a"), governance={**ASKING, "require_signed_approvals": True})
    given = Response(approver="bob", approved=True, timestamp=WHEN, verified=verified)
    document, _ = record(made, TICKET, ApprovalAnswer(responses=(given,)), ANSWERS["success"])
    result, _, _ = play(made, load(to_yaml(document).encode(), kind="scenario").model)
    assert (result.status == "completed") is verified


def test_a_request_that_could_not_be_made_is_recorded() -> None:
    made = program(call("a"), governance=ASKING)
    refused = TicketAnswer(failure=Failure("transport", "down"))
    document, _ = record(made, refused)
    result, _, script = play(made, load(to_yaml(document).encode(), kind="scenario").model)
    assert result.status != "completed"
    assert script.missing == []


def test_answers_in_several_places_are_recorded_by_place() -> None:
    loop = {"id": "r", "type": "repeat", "repeat": {"max": 2, "until": "{{ false }}"}, "steps": [call("in")]}
    made = program(call("a"), loop, call("l", for_each={"as": "i", "over": ["k/l"], "key": "{{ .i }}"}))
    document, world = record(made, ANSWERS["success"])
    keys = list(document["tool_responses"])
    assert keys[0] == "a"
    assert len(keys) == 4
    assert all("/" in key for key in keys[1:3])
    same_again(made, document, world)


def test_what_was_stopped_is_recorded_and_not_answered() -> None:
    made = program(call("a"), call("b"))
    document, world = record(made, ToolAnswer(failure=Failure("cancelled", "interrupted")))
    assert document["cancelled"] == {"reason": "interrupted", "questions": [world.given[0][0]]}
    assert "tool_responses" not in document


def test_secret_inputs_are_named_and_not_told() -> None:
    made = program(call("a"), inputs={"k": {"type": "string", "secret": True}, "v": {"type": "string"}})
    document, _ = record(
        made,
        ANSWERS["success"],
        inputs={"k": secret_ref("k"), "v": "1"},
        input_sources={"k": "env/K", "v": "cli"},
        secret_inputs=frozenset({"k"}),
    )
    assert document["input_answers"] == {"k": "[REDACTED]"}
    assert document["inputs"] == {"v": "1"}


@pytest.mark.parametrize(
    ("source", "section"),
    [
        ("cli", "inputs"),
        ("api", "inputs"),
        ("file:vars.yaml", "inputs"),
        ("env/X", "input_answers"),
        ("file/x", "input_answers"),
        ("provider/p.q", "input_answers"),
        ("prompt", "input_answers"),
        ("default", None),
    ],
)
def test_inputs_are_recorded_by_where_they_came_from(source: str, section: str | None) -> None:
    made = program(call("a"), inputs={"v": {"type": "string"}})
    document, _ = record(made, ANSWERS["success"], inputs={"v": "1"}, input_sources={"v": source})
    found = {name for name in ("inputs", "input_answers") if name in document}
    assert found == ({section} if section else set())


def test_the_test_expects_what_happened_and_is_not_golden() -> None:
    made = program(call("a"), call("l", for_each={"as": "i", "over": [1]}), call("b"))
    _, seen, _ = play(made, scenario(tool_responses={"t": {"stdout": "x=1"}}))
    said = recorded_test(seen, "what it is")
    assert said["golden"] is False
    assert all("#" not in name and "[" not in name for name in said["must_reach"])
    assert said["must_reach"][0] == "a"
