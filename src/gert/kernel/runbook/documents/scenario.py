"""The scenario document: the answers a run is replayed with."""

from typing import Any

from gert.kernel.runbook.kinds import (
    BOOL,
    DATA,
    DURATION,
    EXTENSIONS,
    TEXT,
    Choice,
    Int,
    ListOf,
    MapOf,
    Nested,
)
from gert.kernel.runbook.model import Model, optional, required
from gert.kernel.runbook.tree import Map, Seq


class ResponseBlock(Model):
    """One canned answer of a tool or extension."""

    exit_code: int = optional(Int(), "exit code", default=0)
    stdout: str = optional(TEXT, "standard output", default="")
    stderr: str = optional(TEXT, "standard error", default="")
    outputs: dict[str, Any] | None = optional(EXTENSIONS, "outputs; extracted from `stdout` when left out")
    duration: str | None = optional(DURATION, "how long it is said to have taken")


class ApprovalBlock(Model):
    """One canned answer to a request for approval."""

    approved: bool = required(BOOL, "whether the step may run")
    approver: str | None = optional(TEXT, "who is said to have answered")
    reason: str | None = optional(TEXT, "why")


RESPONSES = MapOf(
    Choice("a response or a list of them", {Map: Nested(ResponseBlock), Seq: ListOf(Nested(ResponseBlock))})
)
APPROVALS = MapOf(
    Choice("an answer or a list of them", {Map: Nested(ApprovalBlock), Seq: ListOf(Nested(ApprovalBlock))})
)


class Scenario(Model):
    """Everything the world answered in one run."""

    description: str | None = optional(TEXT, "what happened")
    inputs: dict[str, Any] = optional(MapOf(DATA), "values for the runbook's inputs", default={})
    tool_responses: dict[str, Any] = optional(
        RESPONSES, "answers by `tool:action`, `tool`, step id, `step[index]` or `step[key]`", default={}
    )
    extension_responses: dict[str, Any] = optional(RESPONSES, "answers of extension steps by step id", default={})
    evidence: dict[str, Any] = optional(MapOf(MapOf(DATA)), "evidence by step id and name", default={})
    approvals: dict[str, Any] = optional(APPROVALS, "answers to approvals by step id", default={})
    input_answers: dict[str, Any] = optional(MapOf(DATA), "what prompts and providers answered", default={})
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
