"""The JSON Schema of what `gert exec`, `resume` and `rerun` print with --json, and of every error with --json."""

from typing import Any, Final

from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.runbook.schema import DIALECT

Schema = dict[str, Any]


def _text(about: str, *, null: bool = False) -> Schema:
    return {"type": ["string", "null"] if null else "string", "description": about}


def _number(about: str, *, null: bool = False) -> Schema:
    return {"type": ["number", "null"] if null else "number", "description": about}


def _list(items: Schema, about: str) -> Schema:
    return {"type": "array", "items": items, "description": about}


def _object(about: str, properties: Schema, required: tuple[str, ...] = (), *, is_open: bool = False) -> Schema:
    schema: Schema = {"type": "object", "description": about, "properties": properties, "required": list(required)}
    return schema if is_open else {**schema, "additionalProperties": False}


_FAILURE: Final = _object(
    "Why a step or a run failed.",
    {"kind": _text("Kind of failure, such as `exit_code`, `timeout` or `denied`."), "message": _text("For people.")},
    ("kind", "message"),
)
_OUTCOME: Final = _object(
    "The outcome of a run.",
    {
        "category": {"enum": list(OUTCOME_CATEGORIES), "description": "Category."},
        "code": _text("Code, as the runbook names it."),
        "meta": {"type": "object", "description": "Data that the runbook attaches."},
    },
    ("category", "code"),
)
_STEP: Final = _object(
    "A step that ended.",
    {
        "path": _text("Where in the run it is: `deploy`, `each[2]`, `both/left/check`."),
        "step_id": _text("Its id in the runbook."),
        "step_type": _text("Its type."),
        "title": _text("Its title."),
        "status": {"enum": ["success", "failed", "error", "skipped"], "description": "How it ended."},
        "duration": _text("Wall time, such as `1.2s`."),
        "exit_code": {"type": "integer", "description": "Exit code of the program."},
        "reason": _text("Why it was skipped, such as `when_false` or `governance_denied`."),
        "failure": {"$ref": "#/$defs/failure"},
        "attempts": {"type": "integer", "description": "How often it was tried, if more than once."},
        "outputs": {"type": "object", "description": "Its outputs, redacted."},
    },
    ("path", "step_id", "status"),
)
_PENDING: Final = _object(
    "An approval that the run waits for; it has the fields of a ticket as well.",
    {
        "ticket_id": _text("Answer it with `gert approve TICKET`."),
        "status": _text("`pending`."),
        "step_id": _text("The step that waits."),
        "path": _text("Where in the run it is."),
    },
    ("ticket_id", "step_id", "path"),
    is_open=True,
)
_FINDING: Final = _object(
    "A finding of validation.",
    {
        "file": _text("The file."),
        "rule": _text("Id of the rule; see validation-rules.md."),
        "severity": {"enum": ["error", "warning", "note"], "description": "Severity."},
        "path": _text("The key."),
        "line": {"type": "integer", "description": "Line, from 1."},
        "column": {"type": "integer", "description": "Column, from 1."},
        "message": _text("For people."),
        "hint": _text("What to do.", null=True),
    },
    ("file", "rule", "severity", "message"),
)
_INPUT: Final = _object(
    "An input that has no usable value.",
    {
        "input": _text("Its name."),
        "kind": _text("`unknown_input`, `no_value`, `invalid_value`, `denied`, or a failure of its source."),
        "message": _text("For people."),
        "source": _text("Where its value was to come from.", null=True),
        "hint": _text("What to do.", null=True),
    },
    ("input", "kind", "message"),
)
_RUN: Final = _object(
    "The result of a run.",
    {
        "run_id": _text("Id of the run."),
        "runbook_name": _text("Name of the runbook."),
        "mode": {"enum": ["real", "dry-run", "probe", "replay"], "description": "How it ran."},
        "status": {
            "enum": ["completed", "failed", "error", "cancelled", "waiting"],
            "description": "How it ended; `waiting` is for approvals.",
        },
        "duration": _number("Seconds from its first to its last event."),
        "waited": _number("The part of it spent waiting for people, a free lane or a resume."),
        "outcome": {"$ref": "#/$defs/outcome"},
        "failure": {"$ref": "#/$defs/failure"},
        "failed_step": _text("The step that failed first."),
        "reason": _text("`governance_denied` or `approval_rejected`, where a step was not allowed to run."),
        "finally_failure": {"$ref": "#/$defs/failure"},
        "reachable_outcomes": _list({"$ref": "#/$defs/outcome"}, "What a dry-run or probe can reach."),
        "denied": _list(
            _object("A step.", {"path": _text("Its path."), "message": _text("Why.")}, ("path", "message")),
            "Steps that a policy denies on a path that a dry-run or probe explored.",
        ),
        "warnings": _list(_text("For people."), "Warnings of the run."),
        "notify": _list(_text("A person or group."), "Whom rules on the outcome name."),
        "pending": _list({"$ref": "#/$defs/pending"}, "The approvals it waits for."),
        "steps": _list({"$ref": "#/$defs/step"}, "The steps that ended in this process, in that order."),
        "outputs": {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "The outputs of each step, by step id; of several visits, the last.",
        },
        "events": {"type": "integer", "description": "Number of events on record."},
        "trace": _text("Its JSONL mirror.", null=True),
        "db": _text("Its SQLite ledger, if --db named one.", null=True),
        "dsn": _text("Its Postgres ledger, without a password."),
        "scenario": {"type": "object", "description": "The scenario that --record wrote."},
        "warning": _text("Why the mirror is not complete."),
    },
    ("run_id", "runbook_name", "mode", "status", "events", "steps", "outputs"),
)
_ERROR: Final = _object(
    "The command did nothing, or could not go on.",
    {
        "code": {
            "enum": [
                "usage",
                "invalid_inputs",
                "invalid_document",
                "integrity",
                "refused",
                "in_doubt",
                "busy",
                "unavailable",
                "ledger",
                "engine",
                "system",
                "interrupted",
                "internal",
            ],
            "description": "What kind of error it is.",
        },
        "message": _text("For people."),
        "hint": _text("What to do.", null=True),
        "exit_code": {"type": "integer", "description": "Exit code of the process."},
        "findings": _list({"$ref": "#/$defs/finding"}, "All findings, if a document is invalid."),
        "inputs": _list({"$ref": "#/$defs/input"}, "Every input that has no usable value."),
    },
    ("code", "message", "hint", "exit_code"),
)


def result_schema() -> Schema:
    """The schema: the result of a run, or `error`."""
    return {
        "$schema": DIALECT,
        "title": "gert result",
        "description": "What `gert exec`, `resume` and `rerun` print with --json; errors of every command.",
        "oneOf": [
            {"$ref": "#/$defs/run"},
            _object("An error.", {"error": {"$ref": "#/$defs/error"}}, ("error",)),
        ],
        "$defs": {
            "run": _RUN,
            "error": _ERROR,
            "step": _STEP,
            "outcome": _OUTCOME,
            "failure": _FAILURE,
            "pending": _PENDING,
            "finding": _FINDING,
            "input": _INPUT,
        },
    }
