"""The tool file for an MCP server: actions with typed inputs and outputs, and a contract that a person reviews.

Annotations are hints of the server about itself. Where it gives none, the effects and the writes are unknown, which is
the strictest contract there is.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from gert.kernel.foundation.text import plain_line
from gert.kernel.governance.contract import UNKNOWN
from gert.kernel.runbook.documents.tool import API_VERSION
from gert.kernel.runbook.mcp_parameters import LONGEST_DESCRIPTION, Note, distinct_name, parameter_of
from gert.kernel.runbook.mcp_tools import ServerTool, shown
from gert.kernel.runbook.validate.domain.identity import RESERVED

TEXT_OUTPUT: Final = "text"
WHOLE_OUTPUT: Final = "result"
DESTRUCTIVE: Final = "destructive"
NETWORK: Final = "network"
_NOT_IN_NAME: Final = r"[^A-Za-z0-9_.-]"
_NOT_IN_IDENTIFIER: Final = r"[^A-Za-z0-9_]"
_SEGMENT: Final = re.compile(r"[^.\[\]\s$]+")
"""A name that a path of `extract` can hold."""
_REVIEWED: Final = ("effects", "reads", "writes", "deterministic", "idempotent")
_REPLACED: Final = ("description", "mcp_tool", "mcp_arguments", "extract", "contract")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A tool file as data, and remarks for the person who reviews it."""

    document: dict[str, Any]
    notes: list[str]


def import_tools(meta: Mapping[str, Any], server: str | None, tools: Sequence[ServerTool]) -> Imported:
    """Build the tool file; `meta` holds the name of the tool and how its server is reached."""
    notes: list[str] = []
    actions: dict[str, Any] = {}
    for tool in tools:
        name = distinct_name(tool.name, actions, _NOT_IN_NAME, "tool")
        if name != tool.name:
            notes.append(f"the tool `{shown(tool.name)}` is the action `{name}`")
        say = partial(_say, notes, name)
        actions[name] = _action(tool, name, str(meta["name"]), say)
    description = {"description": f"MCP server {server}"} if server else {}
    imported = {"server": server} if server else {}
    document = {
        "apiVersion": API_VERSION,
        "meta": {"name": meta["name"], **description, "transport": "mcp", **meta},
        "actions": actions,
        "imported": {**imported, "tools": {tool.name: tool.digests() for tool in tools}},
    }
    return Imported(document=document, notes=notes)


def keep_reviewed(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new import with what people decided in an older one: names, contracts, secrets, timeouts, previews.

    Inputs, outputs and digests are those of the server now. An input stays secret.
    """
    known = {action.get("mcp_tool", name): (name, action) for name, action in _map(old, "actions").items()}
    actions: dict[str, Any] = {}
    for name, action in new["actions"].items():
        old_name, before = known.get(action.get("mcp_tool", name), (name, {}))
        actions[old_name] = _with_reviewed(action, before)
        if old_name != name:
            actions[old_name].setdefault("mcp_tool", name)
    kept = {key: value for key, value in old.items() if key not in new}
    meta = {**new["meta"], **{key: value for key, value in _map(old, "meta").items() if key not in new["meta"]}}
    return {**new, "meta": meta, **kept, "actions": actions, "imported": new["imported"]}


def _with_reviewed(action: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    contract, old = action["contract"], _map(before, "contract")
    reviewed = {key: old[key] for key in _REVIEWED if key in old}
    inputs = {
        name: {**each, "secret": True} if _map(_map(old, "inputs"), name).get("secret") is True else each
        for name, each in contract.get("inputs", {}).items()
    }
    kept = {key: value for key, value in before.items() if key not in _REPLACED}
    return {**action, "contract": {**contract, **reviewed, **({"inputs": inputs} if inputs else {})}, **kept}


def contract_from(annotations: Mapping[str, bool], name: str) -> dict[str, Any]:
    """Return effects, writes and idempotence as annotations state them; `name` tags what the server itself changes."""
    read_only, destructive, idempotent, open_world = (
        annotations.get(f"{hint}Hint") for hint in ("readOnly", "destructive", "idempotent", "openWorld")
    )
    if read_only is None and destructive is None and idempotent is None:
        return {"effects": [UNKNOWN], "writes": [UNKNOWN]}
    # MCP's default is an open world.
    touched = name if open_world is False else NETWORK
    if read_only is True and destructive is not True:
        return {"effects": [touched], "writes": [], "idempotent": True}
    effects = [touched] if destructive is False else [touched, DESTRUCTIVE]
    return {"effects": effects, "writes": [name], "idempotent": idempotent is True}


def _action(tool: ServerTool, name: str, server: str, note: Note) -> dict[str, Any]:
    inputs, renamed = _inputs(tool, note)
    outputs, extract = _outputs(tool, note)
    description = plain_line(tool.description or "", LONGEST_DESCRIPTION)
    contract: dict[str, Any] = {"inputs": inputs, "outputs": outputs, **contract_from(tool.annotations, server)}
    action = {
        "description": description,
        "mcp_tool": tool.name if tool.name != name else None,
        "mcp_arguments": renamed,
        "extract": extract,
        "contract": {key: value for key, value in contract.items() if key not in ("inputs", "outputs") or value},
    }
    return {key: value for key, value in action.items() if value}


def _inputs(tool: ServerTool, note: Note) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the inputs, and the names of arguments that are not valid names of inputs."""
    inputs: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for argument, schema in tool.arguments.items():
        name = distinct_name(argument, inputs, _NOT_IN_IDENTIFIER, "input")
        if name != argument:
            renamed[name] = argument
        required = {"required": True} if argument in _required(tool.input_schema) else {}
        inputs[name] = _ordered(parameter_of(schema, tool.input_schema, partial(_about, note, name)), required)
    return inputs, renamed


def _outputs(tool: ServerTool, note: Note) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the outputs, and how those are extracted that are not properties of the structured result by name."""
    schema = tool.output_schema
    if schema is None:
        return {TEXT_OUTPUT: {"type": "string"}}, {TEXT_OUTPUT: {"from": "stdout"}}
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        whole = parameter_of(schema, schema, note, limits=False)
        return {WHOLE_OUTPUT: {"type": whole["type"]}}, {WHOLE_OUTPUT: {"from": "json", "path": "$"}}
    outputs: dict[str, Any] = {}
    extract: dict[str, Any] = {}
    for key, each in properties.items():
        name = distinct_name(key, {*outputs, *RESERVED}, _NOT_IN_IDENTIFIER, "output")
        if name != key:
            if _SEGMENT.fullmatch(key) is None:
                note(f"the output `{shown(key)}` is left out: its name cannot be a path")
                continue
            extract[name] = {"from": "json", "path": key}
        required = {"required": key in _required(schema)}
        outputs[name] = _ordered(parameter_of(each, schema, note, limits=False), required)
    return outputs, extract


def _required(schema: Mapping[str, Any]) -> list[Any]:
    named = schema.get("required")
    return named if isinstance(named, list) else []


def _ordered(parameter: dict[str, Any], required: Mapping[str, bool]) -> dict[str, Any]:
    return {"type": parameter["type"], **required, **parameter}


def _say(notes: list[str], action: str, text: str) -> None:
    notes.append(f"`{action}`: {text}")


def _about(note: Note, name: str, text: str) -> None:
    note(f"input `{name}`: {text}")


def _map(data: Any, key: str) -> Mapping[str, Any]:
    found = data.get(key) if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}
