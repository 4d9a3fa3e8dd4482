"""The test document: the expected result of a scenario."""

from typing import Any, Final

from gert.kernel.events.vocabulary import FAILURE_KINDS, OUTCOME_CATEGORIES, RUN_STATUSES
from gert.kernel.runbook.documents.governance import RISK, VERDICTS
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.kinds import (
    BOOL,
    DATA,
    ENVIRONMENT_NAME,
    EXTENSIONS,
    NONEMPTY,
    TEXT,
    TEXTS,
    TIMEOUT,
    Choice,
    Int,
    ListOf,
    MapOf,
    Nested,
    Text,
    words,
)
from gert.kernel.runbook.model import Decoder, Kind, Model, optional
from gert.kernel.runbook.tree import Map, Seq

_ARGV: Final = ListOf(TEXT, minItems=1)
# Unlike in a rule, an empty list has a meaning: no one is listed.
_PEOPLE: Final = ListOf(Text("a person or `group:` name", minLength=1), uniqueItems=True)


class CommandBlock(Model):
    """What a call of a tool starts or sends; a key that is left out may have any value."""

    argv: tuple[str, ...] | None = optional(_ARGV, "program and arguments, for `stdio`")
    stdin: str | None = optional(TEXT, "standard input, for `stdio`")
    env: dict[str, str] | None = optional(
        MapOf(TEXT, keys=ENVIRONMENT_NAME), "environment variables that the action sets, for `stdio`"
    )
    cwd: str | None = optional(TEXT, "folder it runs in, for `stdio`")
    preview: tuple[str, ...] | None = optional(
        _ARGV, "program and arguments of the preview, which runs before the approval; or its MCP tool"
    )
    call: str | None = optional(NONEMPTY, "method, MCP tool or skill, for other transports")
    arguments: dict[str, Any] | None = optional(MapOf(DATA), "what is sent with it, for other transports")


ALONE: Final = {"stdin": None, "env": None, "cwd": None}
"""What a command does not have of which only the words are written."""


class _Command(Choice):
    """A command, or its `argv` alone, which then has nothing beside it; decoded to the keys that are given."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> dict[str, Any]:
        """Decode either form."""
        found = super().decode(doc, node, key, value, path)
        if not isinstance(found, CommandBlock):
            return {"argv": list(found or ()), **ALONE}
        return as_given(found)


class _Commands(Choice):
    """A command for every call of a step, or a list with one for each call."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode one command or a list; in a list of commands, each item is a list or a map."""
        if type(value) is Seq and any(type(each) in {Map, Seq} for each in value):
            return [_COMMAND.decode(doc, value, at, each, (*path, key)) for at, each in enumerate(value)]
        return _COMMAND.decode(doc, node, key, value, path)


_NOUN: Final = "the words of a command, or a map"
_FORMS: Final[dict[type, Kind]] = {Seq: _ARGV, Map: Nested(CommandBlock)}
_COMMAND: Final = _Command(_NOUN, _FORMS)
_COMMANDS: Final = _Commands(_NOUN, {**_FORMS, list: ListOf(_COMMAND, minItems=1)})


class DecisionBlock(Model):
    """A decision about a step; a key that is left out is not compared."""

    decision: str | None = optional(words(*VERDICTS), "the verdict")
    min_approvers: int | None = optional(Int(minimum=0, maximum=100), "how many different people must approve")
    approvers: tuple[str, ...] | None = optional(_PEOPLE, "who may approve, over all policies; `[]` means anyone")
    separation_of_duties: bool | None = optional(BOOL, "whether the person who started the run may not approve")
    require_signed_approvals: bool | None = optional(BOOL, "whether only signed approvals count")
    approval_timeout: str | None = optional(TIMEOUT, "how long the request stays open")
    on_timeout: str | None = optional(words("reject", "escalate"), "what happens when the request expires")
    escalate_to: tuple[str, ...] | None = optional(_PEOPLE, "who is asked on escalation")
    notify: tuple[str, ...] | None = optional(_PEOPLE, "who is notified")
    break_glass: bool | None = optional(BOOL, "whether an emergency override is allowed")
    violations_deny: bool | None = optional(BOOL, "whether a contract violation is an error of the step")
    max_targets: int | None = optional(Int(minimum=1), "most targets one step may touch")
    max_per_hour: int | None = optional(Int(minimum=1), "most executions in an hour")
    serialize: bool | None = optional(BOOL, "whether matching steps run one at a time")


class _Decision(Choice):
    """A verdict, or a map, which is decoded to the keys that are given."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode either form."""
        found = super().decode(doc, node, key, value, path)
        return as_given(found) if isinstance(found, Model) else found


_DECISION: Final = _Decision("a decision, or a map", {str: words(*VERDICTS), Map: Nested(DecisionBlock)})


def as_given(block: Model) -> dict[str, Any]:
    """Return the keys that a block has, with lists as they are written."""
    given = ((name, getattr(block, name)) for name in block.fields)
    return {name: list(each) if isinstance(each, tuple) else each for name, each in given if each is not None}


class ExpectedFailure(Model):
    """Where and why the run must fail."""

    step: str | None = optional(NONEMPTY, "step that fails")
    kind: str | None = optional(words(*FAILURE_KINDS), "kind of the failure, as in events")
    message: str | None = optional(NONEMPTY, "text that the message contains, or `/regular expression/`")


class Expectations(Model):
    """What must be true of a run for its test to pass."""

    description: str | None = optional(TEXT, "what is tested")
    tags: tuple[str, ...] = optional(TEXTS, "words to select tests by", default=())
    golden: bool | None = optional(BOOL, "whether a recorded scenario runs by default")
    expected_status: str | None = optional(words(*RUN_STATUSES), "how the run ends")
    expected_outcome: str | None = optional(words(*OUTCOME_CATEGORIES), "category of the outcome")
    expected_code: str | None = optional(TEXT, "code of the outcome")
    expected_failure: ExpectedFailure | None = optional(Nested(ExpectedFailure), "where and why the run fails")
    must_reach: tuple[str, ...] = optional(TEXTS, "steps the run must visit", default=())
    must_not_reach: tuple[str, ...] = optional(TEXTS, "steps the run must not visit", default=())
    expected_outputs: dict[str, Any] = optional(MapOf(DATA), "outputs, exact or as `/regular expression/`", default={})
    expected_meta: dict[str, Any] = optional(MapOf(DATA), "details of the outcome", default={})
    expected_risk: dict[str, str] = optional(MapOf(RISK), "risk by step", default={})
    expected_decisions: dict[str, Any] = optional(
        MapOf(_DECISION), "verdict by step, or a map with what the rules require", default={}
    )
    expected_commands: dict[str, Any] = optional(
        MapOf(_COMMANDS), "command by step, or a list of commands; exact or as `/regular expression/`", default={}
    )
    expected_events: tuple[str, ...] = optional(ListOf(NONEMPTY), "event types, in order, others between", default=())
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
