"""The tool file of an MCP server: what its schemas and annotations come to, and what a later import keeps."""

from typing import Any

import pytest

from gert.kernel.governance.contract import resolve
from gert.kernel.governance.risk import risk_of
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.mcp_import import contract_from, import_tools, keep_reviewed
from gert.kernel.runbook.mcp_parameters import parameter_of
from gert.kernel.runbook.mcp_tools import ServerTool, change_since_import, import_command
from gert.kernel.runbook.program import declared
from gert.kernel.runbook.validate import validate
from gert.kernel.runbook.writer import to_yaml

META = {"name": "demo", "connect": "stdio", "binary": "server"}


def server_tool(name: str = "look", **parts: Any) -> ServerTool:
    return ServerTool(name=name, **{"input_schema": {"type": "object"}, **parts})


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def loaded(document: dict[str, Any]) -> Tool:
    """The document as gert reads it again; it is valid, without a warning."""
    found = validate(load(to_yaml(document).encode(), kind="tool"))
    assert found.findings == []
    tool: Tool = found.model
    return tool


# --- contracts


@pytest.mark.parametrize(
    ("hints", "contract", "risk"),
    [
        pytest.param({}, {"effects": ["unknown"], "writes": ["unknown"]}, "critical", id="no hints: all is unknown"),
        pytest.param(
            {"openWorldHint": False},
            {"effects": ["unknown"], "writes": ["unknown"]},
            "critical",
            id="a closed world says nothing about writes",
        ),
        pytest.param(
            {"readOnlyHint": True},
            {"effects": ["network"], "writes": [], "idempotent": True},
            "low",
            id="read-only, in an open world by MCP's default",
        ),
        pytest.param(
            {"readOnlyHint": True, "openWorldHint": False},
            {"effects": ["demo"], "writes": [], "idempotent": True},
            "low",
            id="read-only in a closed world",
        ),
        pytest.param(
            {"readOnlyHint": True, "destructiveHint": True},
            {"effects": ["network", "destructive"], "writes": ["demo"], "idempotent": False},
            "critical",
            id="read-only and destructive contradict each other: it writes",
        ),
        pytest.param(
            {"readOnlyHint": False},
            {"effects": ["network", "destructive"], "writes": ["demo"], "idempotent": False},
            "critical",
            id="writes are destructive by MCP's default",
        ),
        pytest.param(
            {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
            {"effects": ["demo"], "writes": ["demo"], "idempotent": True},
            "medium",
            id="additive and idempotent",
        ),
    ],
)
def test_contracts_from_annotations(hints: dict[str, bool], contract: dict[str, Any], risk: str) -> None:
    assert contract_from(hints, "demo") == contract
    [action] = loaded(import_tools(META, None, [server_tool(annotations=hints)]).document).actions.values()
    assert risk_of(resolve(declared(action.contract))).word == risk


# --- parameters


DEFINITIONS = {
    "$defs": {
        "Size": {"type": "integer", "minimum": 1},
        "a/b": {"type": "boolean"},
        "Loop": {"$ref": "#/$defs/Loop"},
    }
}


@pytest.mark.parametrize(
    ("schema", "declares"),
    [
        pytest.param({"type": "string"}, {"type": "string"}, id="text"),
        pytest.param({"type": "integer", "minimum": 1, "maximum": 9}, {"type": "int", "min": 1, "max": 9}, id="bounds"),
        pytest.param({"type": "number", "default": 0.5}, {"type": "float", "default": 0.5}, id="a default"),
        pytest.param({"type": "string", "minLength": 2}, {"type": "string", "min": 2}, id="the length of a text"),
        pytest.param({"type": "array", "maxItems": 3, "default": [1]}, {"type": "list", "max": 3}, id="a list"),
        pytest.param({"type": ["string", "null"], "default": None}, {"type": "string"}, id="a nullable type"),
        pytest.param({"type": ["string", "integer"]}, {"type": "any"}, id="several types"),
        pytest.param({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "int"}, id="a value or null"),
        pytest.param({"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "any"}, id="a choice"),
        pytest.param(
            {"$ref": "#/$defs/Size", "description": "how many"},
            {"type": "int", "min": 1, "description": "how many"},
            id="a reference",
        ),
        pytest.param({"$ref": "#/$defs/a~1b"}, {"type": "bool"}, id="an escaped reference"),
        pytest.param({"$ref": "#/$defs/Loop"}, {"type": "any"}, id="a reference to itself"),
        pytest.param(
            {"$ref": "https://example.com/schema"}, {"type": "any"}, id="a reference elsewhere is not followed"
        ),
        pytest.param({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}, id="choices"),
        pytest.param({"type": "string", "enum": ["a", 1]}, {"type": "string"}, id="choices that do not fit"),
        pytest.param({"const": 3}, {"type": "any", "enum": [3]}, id="a constant"),
        pytest.param({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}, id="a pattern"),
        pytest.param({"type": "string", "pattern": "(?=x)"}, {"type": "string"}, id="a pattern that Go does not know"),
        pytest.param({"type": "integer", "maximum": 2**64}, {"type": "int"}, id="a bound that JSON would change"),
        pytest.param({"type": "integer", "minimum": 5, "maximum": 1}, {"type": "int"}, id="bounds that exclude all"),
        pytest.param({"type": "integer", "minimum": True}, {"type": "int"}, id="a bound that is no number"),
        pytest.param({"type": "integer", "default": "x"}, {"type": "int"}, id="a default that does not fit"),
        pytest.param(
            {"type": "string", "format": "password", "default": "x"},
            {"type": "string", "secret": True},
            id="a password",
        ),
        pytest.param({"type": "string", "writeOnly": True}, {"type": "string", "secret": True}, id="write-only"),
        pytest.param(
            {"type": "string", "description": "a\x1b[31m\u202eb\n\n c\ufe0f"},
            {"type": "string", "description": "a[31mb c"},
            id="a description without controls",
        ),
        pytest.param(True, {"type": "any"}, id="a schema that is a boolean"),
        pytest.param({"type": 7, "enum": "x", "pattern": 1, "description": 2}, {"type": "any"}, id="nonsense"),
    ],
)
def test_parameters_from_schemas(schema: Any, declares: dict[str, Any]) -> None:
    assert parameter_of(schema, DEFINITIONS, lambda _: None) == declares
    if declares.get("secret") is None:
        loaded(import_tools(META, None, [server_tool(input_schema=arguments(x=schema) | DEFINITIONS)]).document)


def test_what_is_left_out_is_said() -> None:
    schema = arguments(name={"type": "string", "pattern": "(?=x)"})
    notes = import_tools(META, None, [server_tool(input_schema=schema)]).notes
    assert notes == ["`look`: input `name`: its pattern is left out: lookahead and lookbehind are not supported"]


# --- names


def test_names_that_gert_does_not_know_are_mapped() -> None:
    schema = arguments(**{"file-path": {"type": "string"}, "file_path": {}, "1st": {}, "日本": {}, "": {}})
    tools = [
        server_tool("fs/read", input_schema=schema | {"required": ["file-path"]}),
        server_tool("fs read"),
        server_tool("読む"),
    ]
    imported = import_tools(META, "srv 1", tools)
    tool = loaded(imported.document)
    assert {name: action.mcp_tool for name, action in tool.actions.items()} == {
        "fs_read": "fs/read",
        "fs_read_2": "fs read",
        "tool": "読む",
    }
    read = tool.actions["fs_read"]
    assert read.mcp_arguments == {
        "file_path": "file-path",
        "file_path_2": "file_path",
        "_1st": "1st",
        "input": "日本",
        "input_2": "",
    }
    assert read.contract is not None
    assert [name for name, each in read.contract.inputs.items() if each.required] == ["file_path"]
    assert "the tool `fs/read` is the action `fs_read`" in imported.notes


def test_a_name_with_control_characters_cannot_act_on_a_terminal() -> None:
    imported = import_tools(META, None, [server_tool("a\x1b]0;x\x07")])
    assert imported.notes == ["the tool `a]0;x` is the action `a__0_x_`"]
    assert [action.mcp_tool for action in loaded(imported.document).actions.values()] == ["a\x1b]0;x\x07"]


# --- outputs


@pytest.mark.parametrize(
    ("schema", "outputs", "extract"),
    [
        pytest.param(None, {"text": ("string", False)}, {"text": ("stdout", None)}, id="without a schema: the text"),
        pytest.param(
            {"type": "array"}, {"result": ("list", False)}, {"result": ("json", "$")}, id="no object: the whole result"
        ),
        pytest.param(
            arguments(n={"type": "integer"}, m={"type": "string", "enum": ["a"]}) | {"required": ["n"]},
            {"n": ("int", True), "m": ("string", False)},
            {},
            id="properties by name",
        ),
        pytest.param(
            arguments(**{"item-count": {"type": "integer"}, "step": {}, "a.b": {}}),
            {"item_count": ("int", False), "step_2": ("any", False)},
            {"item_count": ("json", "item-count"), "step_2": ("json", "step")},
            id="names that are not valid, reserved, or no path",
        ),
    ],
)
def test_outputs(schema: Any, outputs: dict[str, Any], extract: dict[str, Any]) -> None:
    [action] = loaded(import_tools(META, None, [server_tool(output_schema=schema)]).document).actions.values()
    assert action.contract is not None
    assert {name: (each.type, each.required) for name, each in action.contract.outputs.items()} == outputs
    assert {name: (each.from_, each.json_path) for name, each in action.extract.items()} == extract
    assert all(each.enum is None for each in action.contract.outputs.values())


# --- what changed


BEFORE = server_tool(
    input_schema=arguments(path={"type": "string"}), output_schema=arguments(n={}), annotations={"readOnlyHint": True}
)


@pytest.mark.parametrize(
    ("now", "says"),
    [
        pytest.param(BEFORE, None, id="the same"),
        pytest.param({"description": "now deletes"}, None, id="another description: gert does not use it"),
        pytest.param(None, "the server no longer has the tool `look`", id="gone"),
        pytest.param(
            {"input_schema": arguments(path={"type": "string"}, force={"type": "boolean"})},
            "its input schema (new: `force`)",
            id="a new argument",
        ),
        pytest.param(
            {"input_schema": arguments(file={})}, "its input schema (new: `file`; gone: `path`)", id="renamed"
        ),
        pytest.param({"input_schema": arguments(path={"type": "integer"})}, "its input schema", id="another type"),
        pytest.param({"output_schema": None}, "its output schema", id="no output schema"),
        pytest.param({"annotations": {}}, "its annotations", id="no longer read-only"),
        pytest.param(
            {"annotations": {}, "output_schema": None}, "its output schema, its annotations", id="several parts"
        ),
    ],
)
def test_changes_since_the_import(now: Any, says: str | None) -> None:
    tool = loaded(import_tools(META, None, [BEFORE]).document)
    parts = {name: getattr(BEFORE, name) for name in BEFORE.__struct_fields__}
    found = ServerTool(**{**parts, **now}) if isinstance(now, dict) else now
    change = change_since_import(tool, "look", found)
    assert change is None if says is None else change is not None and change.endswith(says)


def test_the_order_of_keys_is_no_change() -> None:
    one = server_tool(input_schema={"type": "object", "properties": {"a": {}, "b": {}}})
    other = server_tool(input_schema={"properties": {"b": {}, "a": {}}, "type": "object"})
    assert one.digests() == other.digests()


def test_true_and_one_are_different() -> None:
    digests = [server_tool(input_schema=arguments(a={"const": value})).digests()["inputs"] for value in (True, 1, 1.5)]
    assert len(set(digests)) == 3


def test_the_command_to_import_again() -> None:
    tool = loaded(import_tools({**META, "args": ["--root", "a b"]}, None, [BEFORE]).document)
    assert import_command(tool) == "gert tool import --mcp 'server --root '\"'\"'a b'\"'\"'' --name demo"


# --- importing again


def test_a_second_import_keeps_what_people_decided() -> None:
    tools = [
        server_tool("put", input_schema=arguments(key={"type": "string"}), annotations={"readOnlyHint": True}),
        server_tool("b/c"),
    ]
    reviewed = import_tools(META, "srv 1", tools).document
    reviewed["secrets"] = [{"env": "TOKEN"}]
    reviewed["meta"]["platform"] = ["linux"]
    put = reviewed["actions"]["put"]
    put["contract"] |= {"effects": ["store"], "writes": ["store"], "idempotent": False}
    put["contract"]["inputs"]["key"]["secret"] = True
    put["timeout"] = "5s"
    reviewed["actions"]["renamed"] = {**reviewed["actions"].pop("b_c")}
    now = [
        server_tool(
            "put",
            input_schema=arguments(key={"type": "string"}, ttl={"type": "integer"}),
            annotations={"readOnlyHint": True},
        ),
        server_tool("b/c"),
        server_tool("new"),
    ]
    tool = loaded(keep_reviewed(import_tools(META, "srv 2", now).document, reviewed))
    kept = tool.actions["put"]
    assert kept.contract is not None
    assert (kept.contract.effects, kept.contract.writes, kept.contract.idempotent) == (("store",), ("store",), False)
    assert {name: each.secret for name, each in kept.contract.inputs.items()} == {"key": True, "ttl": False}
    assert (kept.timeout, tool.meta.platform, [each.env for each in tool.secrets]) == ("5s", ("linux",), ["TOKEN"])
    assert (tool.actions["renamed"].mcp_tool, "b_c" in tool.actions, "new" in tool.actions) == ("b/c", False, True)
    assert all(change_since_import(tool, each.name, each) is None for each in now)
