"""The page docs/operations.md: what programs can ask gert for, from the table of operations."""

from collections.abc import Iterator
from typing import Any

from gert.ecosystem.host.operations.table import OPERATIONS
from gert.ecosystem.surfaces.serve.service import PREFIX, reference
from scripts.tables import table

HEADER = """# Operations for programs

What programs can ask gert for. This page is generated from the table of operations by `make docs`;
`gert serve --schema` prints the same as JSON Schema, which is also in
[operations.json](schemas/operations.json). An agent calls `gert/NAME` as the tool `gert_NAME` of
[gert-mcp](mcp-server.md), where it is offered; an editor calls the method of [gert serve](editors.md). The same names
are in `--json` of the commands. **Bold** keys are always there.
"""


def page() -> str:
    """Give the whole page."""
    return "\n".join([HEADER, *_methods(), *_notifications()])


def _methods() -> Iterator[str]:
    for name, each in reference()["methods"].items():
        offered = "agents and editors" if name.removeprefix(PREFIX) in OPERATIONS else "editors"
        yield f"## `{name}`\n\n{each['description']}\n\nFor {offered}{_writes(each)}\n"
        if each["params"].get("properties"):
            yield f"Parameters:\n\n{_table(each['params'])}"
        if each["result"].get("properties"):
            yield f"Result:\n\n{_table(each['result'])}"


def _writes(method: dict[str, Any]) -> str:
    return "; it changes something." if method["writes"] else "; it changes nothing."


def _notifications() -> Iterator[str]:
    yield "## Notifications of gert serve\n"
    for name, each in reference()["notifications"].items():
        yield f"### `{name}`\n\n{each['description']}\n\n{_table(each['params'])}"


def _table(schema: dict[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [
        (_key(name, name in needed), _kind(each), _default(each), _about(each))
        for name, each in schema["properties"].items()
    ]
    return table(("Key", "Holds", "Default", "Meaning"), rows)


def _key(name: str, needed: bool) -> str:
    return f"**`{name}`**" if needed else f"`{name}`"


def _default(schema: dict[str, Any]) -> str:
    return f"`{schema['default']}`" if schema.get("default") not in (None, {}, []) else ""


def _about(schema: dict[str, Any]) -> str:
    return str(schema.get("items", schema).get("description", schema.get("description", "")))


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    keys = ", ".join(f"`{name}`" for name in schema.get("properties", ()))
    return f"object: {keys}" if keys else str(schema.get("type", "any value"))
