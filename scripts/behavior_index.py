"""The file docs/kernel_behavior_index.json, from the agent kernel's own code."""

import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import click
import msgspec

import gert.agent
from gert import errors
from gert._version import __version__
from gert.ecosystem.host.agent.kernel import ArtanaKernel
from gert.ecosystem.ledger import sql
from gert.ecosystem.surfaces.cli.commands.artana import group as artana_group
from gert.ecosystem.surfaces.cli.commands.authoring.init import command as init_command
from gert.ecosystem.surfaces.cli.commands.runs.run import command as run_command
from gert.kernel.agent.api import notes
from gert.kernel.agent.middleware import base, stack
from gert.kernel.agent.safety import config, records
from gert.kernel.agent.steps import model_steps
from gert.kernel.agent.types.api import PolicyMode, ReplayPolicy, RunProgressStatus, ToolDrift
from gert.kernel.agent.types.payload_models import EventPayload
from gert.kernel.events import agent
from gert.kernel.events.agent.parts import ModelFailure, ToolOutcome
from gert.kernel.foundation.canonical_v1 import CANONICAL_JSON_PROFILE
from gert.kernel.ledger import agent_approvals, agent_fold
from scripts import events_doc

_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])")
_ANY_PAYLOAD = " | ".join(kind.__name__ for kind in get_args(EventPayload))

SUMMARY_TYPES = {
    model_steps.CAPABILITY_DECISION: "which tools a model step was offered, and why not the others",
    f"{notes.CHECKPOINT}<name>": "a checkpoint",
    f"{notes.ARTIFACT}<key>": "an artifact; the newest of a key is its value",
    agent_fold.TASK_PROGRESS: "how far the tasks of a run have come",
    f"{agent_fold.UNBLOCKED}[::<key>]": "the blocks of a key have ended",
    records.POLICY_DECISION: "whether a tool call was allowed or denied, by which rule and why",
    f"{agent_approvals.APPROVAL}<key>": "a call was approved or rejected, and by whom",
    records.INTENT_PLAN: "what an agent is about to do",
    config.RECIPIENT_VERIFICATION: "a recipient was verified",
}


def page() -> str:
    """Give the whole index."""
    return json.dumps(index(), indent=2, ensure_ascii=False) + "\n"


def index() -> dict[str, Any]:
    """What the kernel does, as data."""
    return {
        "version": __version__,
        "schema_version": {"sqlite": str(sql.SCHEMA_VERSION), "postgres": str(sql.SCHEMA_VERSION)},
        "canonical_json_profile": CANONICAL_JSON_PROFILE,
        "syscalls": {name: _syscall(function) for name, function in _methods(ArtanaKernel)},
        "event_types": {event.type: _event(event) for event in agent.EVENTS},
        "replay_policies": list(get_args(ReplayPolicy)),
        "tool_drift": list(get_args(ToolDrift)),
        "tool_outcomes": list(get_args(ToolOutcome)),
        "model_failures": list(get_args(ModelFailure)),
        "run_status": list(get_args(agent_fold.LifecycleStatus)),
        "run_progress_status": list(get_args(RunProgressStatus)),
        "policy_modes": {mode: [guard.__name__ for guard in stack.REQUIRED[mode]] for mode in get_args(PolicyMode)},
        "middleware_order": [guard.__name__ for guard in stack.GUARDS],
        "middleware_hooks": {name: _syscall(hook) for name, hook in _methods(base.KernelMiddleware)},
        "summary_types": SUMMARY_TYPES,
        "errors": {name: _error(kind) for name, kind in _errors()},
        "public_names": sorted(gert.agent.__all__),
        "commands": dict(_commands()),
    }


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, function


def _syscall(function: Any) -> dict[str, Any]:
    awaited = inspect.iscoroutinefunction(function)
    # A context manager is written as an iterator, and wrapped.
    iterates = get_origin(inspect.signature(function).return_annotation) is AsyncIterator
    streams = iterates and not hasattr(function, "__wrapped__")
    return {
        "signature": _plain(str(inspect.signature(function))).replace("'", ""),
        "kind": "async" if awaited else "async iterator" if streams else "sync",
        "about": _sentence(function),
    }


def _event(event: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(event)
    sentence, notes_on = events_doc.explained(event)
    return {
        "about": sentence,
        "fields": {
            field.encode_name: {
                "type": _type(hints[field.name]),
                "required": field.required,
                **({"about": notes_on[field.name]} if field.name in notes_on else {}),
            }
            for field in msgspec.structs.fields(event)
        },
    }


def _type(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else _plain(str(hint))


def _plain(text: str) -> str:
    """A type without the modules its parts are from: where a class lives is no behavior."""
    return _MODULE.sub("", text).replace(_ANY_PAYLOAD, "EventPayload")


def _errors() -> Iterator[tuple[str, type[Exception]]]:
    for name in sorted(gert.agent.__all__):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, errors.GertError):
            yield name, kind


def _error(kind: type[Exception]) -> dict[str, Any]:
    return {"bases": [base.__name__ for base in kind.__bases__], "about": _sentence(kind)}


def _commands() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "gert init", _command(init_command)
    yield from _below("gert run", run_command)
    yield from _below("artana", artana_group)


def _below(name: str, group: click.Group) -> Iterator[tuple[str, dict[str, Any]]]:
    for word, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _below(f"{name} {word}", command)
        else:
            yield f"{name} {word}", _command(command)


def _command(command: click.Command) -> dict[str, Any]:
    arguments = [param.human_readable_name for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {
        "about": " ".join((command.help or "").split("\n\n")[0].split()),
        "arguments": arguments,
        "options": {"/".join(option.opts): _option(option) for option in options},
    }


def _option(option: click.Option) -> dict[str, Any]:
    default = option.to_info_dict()["default"]
    shown = {"default": default} if isinstance(default, str | int) and not option.is_flag else {}
    choices = {"choices": list(option.type.choices)} if isinstance(option.type, click.Choice) else {}
    return {"takes": "nothing" if option.is_flag else option.type.name, **shown, **choices}


def _sentence(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
