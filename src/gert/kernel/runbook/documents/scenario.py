"""The scenario document: the answers a run is replayed with."""

from typing import Any

from gert.kernel.events.vocabulary import FAILURE_KINDS
from gert.kernel.runbook.kinds import (
    BOOL,
    DATA,
    DURATION,
    EXTENSIONS,
    NONEMPTY,
    TEXT,
    TEXTS,
    Choice,
    Int,
    ListOf,
    MapOf,
    Nested,
    words,
)
from gert.kernel.runbook.model import Model, optional, required
from gert.kernel.runbook.tree import Map, Seq


class FailureBlock(Model):
    """Why there is no good answer."""

    kind: str = required(words(*FAILURE_KINDS), "kind of the failure, as events carry it")
    message: str = required(TEXT, "what is said about it")


class ByBlock(Model):
    """Who an extension says acted."""

    kind: str = required(words("human", "agent", "system"), "person, agent or system")
    id: str = required(NONEMPTY, "name")
    role: str | None = optional(TEXT, "role")
    model: str | None = optional(TEXT, "model of an agent")


class ResponseBlock(Model):
    """One canned answer of a tool or extension."""

    exit_code: int | None = optional(Int(), "exit code; 0 unless there is a `failure`")
    stdout: str = optional(TEXT, "standard output", default="")
    stderr: str = optional(TEXT, "standard error", default="")
    outputs: dict[str, Any] | None = optional(EXTENSIONS, "outputs; extracted from `stdout` when left out")
    duration: str | None = optional(DURATION, "how long it is said to have taken")
    failure: FailureBlock | None = optional(
        Nested(FailureBlock), "why the call failed, where the exit code does not tell: a timeout, a missing program"
    )
    again: dict[str, Any] | None = optional(EXTENSIONS, "outputs of a second call with equal inputs")
    redacted: int = optional(Int(), "how many secrets were masked in it", default=0)
    by: ByBlock | None = optional(Nested(ByBlock), "who an extension says acted")


class SaidBlock(Model):
    """One person's word on a request for approval."""

    approver: str = required(NONEMPTY, "who answered")
    approved: bool = required(BOOL, "whether the step may run")
    reason: str | None = optional(TEXT, "why")
    timestamp: str | None = optional(NONEMPTY, "when")


class ApprovalBlock(Model):
    """What became of one request for approval."""

    approved: bool | None = optional(BOOL, "whether the step may run")
    approver: str | None = optional(NONEMPTY, "who answered; as many people as are needed when left out")
    reason: str | None = optional(TEXT, "why")
    responses: tuple[SaidBlock, ...] = optional(
        ListOf(Nested(SaidBlock)), "everybody's word, in order, instead of `approved`", default=()
    )
    submitted: bool = optional(BOOL, "whether anybody could be asked; `failure` says why not", default=True)
    expired: bool = optional(BOOL, "nobody answered in time", default=False)
    duration: str | None = optional(DURATION, "how long it is said to have taken")
    failure: FailureBlock | None = optional(Nested(FailureBlock), "why nobody could be asked")


class CancelledBlock(Model):
    """A run that was stopped: the questions that were open then."""

    reason: str = required(TEXT, "why")
    questions: tuple[str, ...] = required(TEXTS, "the questions, as the answer log names them")


def _one_or_more(noun: str, model: type[Model]) -> MapOf:
    return MapOf(Choice(f"{noun} or a list of them", {Map: Nested(model), Seq: ListOf(Nested(model))}))


RESPONSES = _one_or_more("a response", ResponseBlock)
APPROVALS = _one_or_more("an answer", ApprovalBlock)
EVIDENCE = MapOf(Choice("evidence by name or a list of such maps", {Map: MapOf(DATA), Seq: ListOf(MapOf(DATA))}))


class Scenario(Model):
    """Everything the world answered in one run."""

    description: str | None = optional(TEXT, "what happened")
    actor: str | None = optional(NONEMPTY, "who started the run")
    inputs: dict[str, Any] = optional(MapOf(DATA), "values for the runbook's inputs", default={})
    tool_responses: dict[str, Any] = optional(
        RESPONSES,
        "answers by path, `step[index]`, `step[key]`, step id, `tool:action` or `tool`, the closest first; one answer"
        " stands for every call, a list is used up",
        default={},
    )
    extension_responses: dict[str, Any] = optional(RESPONSES, "answers of extension steps by step id", default={})
    evidence: dict[str, Any] = optional(
        EVIDENCE, "evidence by step id and name; `by` says who gave it, `reject` why nobody did", default={}
    )
    approvals: dict[str, Any] = optional(
        APPROVALS, "answers to approvals by step id; approved when left out", default={}
    )
    previews: dict[str, Any] = optional(RESPONSES, "what actions show they would do, by step id", default={})
    cancelled: CancelledBlock | None = optional(Nested(CancelledBlock), "where the run was stopped, if it was")
    input_answers: dict[str, Any] = optional(
        MapOf(DATA), "what the environment, files, prompts and providers answered, by input", default={}
    )
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
