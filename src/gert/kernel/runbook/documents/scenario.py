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
    """Why a request failed."""

    kind: str = required(words(*FAILURE_KINDS), "kind of the failure, as in events")
    message: str = required(TEXT, "the error message")


class ByBlock(Model):
    """The principal that an extension reports."""

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
    duration: str | None = optional(DURATION, "how long it took")
    failure: FailureBlock | None = optional(
        Nested(FailureBlock), "why the call failed, if not by its exit code: a timeout, a missing program"
    )
    again: dict[str, Any] | None = optional(EXTENSIONS, "outputs of a second call with equal inputs")
    redacted: int = optional(Int(), "how many secrets were masked in it", default=0)
    by: ByBlock | None = optional(Nested(ByBlock), "the principal that an extension reports")


class ApproverResponseBlock(Model):
    """One approver's response to an approval request."""

    approver: str = required(NONEMPTY, "who responded")
    approved: bool = required(BOOL, "whether the step may run")
    reason: str | None = optional(TEXT, "why")
    timestamp: str | None = optional(NONEMPTY, "when")
    signed: bool = optional(BOOL, "whether the response had a valid signature", default=False)


class ApprovalBlock(Model):
    """The responses to one approval request."""

    approved: bool | None = optional(BOOL, "whether the step may run")
    approver: str | None = optional(NONEMPTY, "who responded (default: as many people as required)")
    reason: str | None = optional(TEXT, "why")
    responses: tuple[ApproverResponseBlock, ...] = optional(
        ListOf(Nested(ApproverResponseBlock)), "all responses in order, instead of `approved`", default=()
    )
    submitted: bool = optional(BOOL, "whether the request could be submitted; `failure` says why not", default=True)
    expired: bool = optional(BOOL, "no response came in time", default=False)
    duration: str | None = optional(DURATION, "how long it took")
    failure: FailureBlock | None = optional(Nested(FailureBlock), "why the request could not be submitted")


class CancelledBlock(Model):
    """A cancelled run: the requests that were open at that time."""

    reason: str = required(TEXT, "why")
    questions: tuple[str, ...] = required(TEXTS, "the keys of the requests")


def _one_or_more(noun: str, model: type[Model]) -> MapOf:
    return MapOf(Choice(f"{noun} or a list of them", {Map: Nested(model), Seq: ListOf(Nested(model))}))


RESPONSES = _one_or_more("a response", ResponseBlock)
APPROVALS = _one_or_more("an answer", ApprovalBlock)
EVIDENCE = MapOf(Choice("evidence by name or a list of such maps", {Map: MapOf(DATA), Seq: ListOf(MapOf(DATA))}))


class Scenario(Model):
    """The answers to all requests of one run."""

    description: str | None = optional(TEXT, "what happened")
    actor: str | None = optional(NONEMPTY, "who started the run")
    inputs: dict[str, Any] = optional(MapOf(DATA), "values for the runbook's inputs", default={})
    tool_responses: dict[str, Any] = optional(
        RESPONSES,
        "answers by path, `step[index]`, `step[key]`, step id, `tool:action` or `tool`, the most specific first; one"
        " answer applies to every call, a list is consumed in order",
        default={},
    )
    extension_responses: dict[str, Any] = optional(RESPONSES, "answers of extension steps by step id", default={})
    evidence: dict[str, Any] = optional(
        EVIDENCE,
        "evidence by step id and name; `by` is the person who gave it, `reject` the reason if it was refused",
        default={},
    )
    approvals: dict[str, Any] = optional(APPROVALS, "responses to approvals by step id (default: approved)", default={})
    previews: dict[str, Any] = optional(RESPONSES, "output of previews, by step id", default={})
    cancelled: CancelledBlock | None = optional(Nested(CancelledBlock), "where the run was cancelled, if it was")
    input_answers: dict[str, Any] = optional(
        MapOf(DATA), "values from the environment, files, prompts and providers, by input", default={}
    )
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
