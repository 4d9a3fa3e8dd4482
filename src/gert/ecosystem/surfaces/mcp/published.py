"""Runbooks that are tools of their own: declared inputs as schema, annotations from their contracts."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from mcp_types import Tool, ToolAnnotations

from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.table import OPERATIONS
from gert.ecosystem.surfaces.mcp.results import without_hidden
from gert.errors import GertError, UsageError
from gert.kernel.foundation.text import plain_line
from gert.kernel.governance.parameter_schema import parameter_schema
from gert.kernel.runbook.documents.contract import InputBlock

if TYPE_CHECKING:
    from gert.ecosystem.host.policy.explain_runbook import Explained

PREFIX: Final = "runbook_"
_LONGEST: Final = 1500
_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_NAME: Final = 60
_REQUEST: Final = "request_id"
_ABOUT: Final = "Runs a governed runbook and returns a handle; a person approves elsewhere where policy asks for it."


class Published(msgspec.Struct, frozen=True):
    """A runbook that is published as a tool."""

    file: str
    tool: Tool


def publish(access: Access, names: Iterable[str]) -> dict[str, Published]:
    """The tools of runbooks, by name; UsageError for one that is not valid, or a name that is taken."""
    from gert.ecosystem.host.policy.explain_runbook import explain_file

    found: dict[str, Published] = {}
    for name in names:
        try:
            file = access.runbook(name)
            if not access.may_start(file):
                raise Refused("not_allowed", "--allow does not name it")
            explained = explain_file(file, None, access.policies)
        except Refused as refused:
            raise UsageError(f"`{name}` cannot be published: {refused.message}", hint=refused.hint) from None
        except GertError as problem:
            raise UsageError(f"`{name}` cannot be published: {problem.message}", hint=problem.hint) from None
        if _REQUEST in explained.program.runbook.meta.inputs:
            hint = "every published tool has a parameter of that name: rename the input"
            raise UsageError(f"`{name}` cannot be published: it has an input `{_REQUEST}`", hint=hint)
        tool = _tool(explained)
        if tool.name in found:
            raise UsageError(f"two published runbooks have the tool name `{tool.name}`")
        found[tool.name] = Published(file, tool)
    return found


def _tool(explained: "Explained") -> Tool:
    meta = explained.program.runbook.meta
    about = plain_line(meta.description or meta.name, _LONGEST)
    return Tool(
        name=f"{PREFIX}{_NAME.sub('_', meta.name)[:_MOST_NAME]}",
        title=plain_line(meta.name, 80),
        description=f"{_ABOUT} Its author describes it as: {about}",
        input_schema=without_hidden(input_schema(meta.inputs)),
        output_schema=OPERATIONS["exec"].output_schema,
        annotations=_annotations(explained),
    )


def input_schema(inputs: Mapping[str, InputBlock]) -> dict[str, Any]:
    """The schema of the inputs that a caller may give, and of the call itself."""
    given = {name: block.parameter() for name, block in inputs.items()}
    open_to_callers = {name: each for name, each in given.items() if not each.secret}
    return {
        "type": "object",
        "properties": {
            **{name: parameter_schema(each) for name, each in open_to_callers.items()},
            _REQUEST: {"type": "string", "description": "The same id never starts a second run."},
        },
        "required": [
            name for name, each in open_to_callers.items() if each.must_be_given and inputs[name].from_ is None
        ],
        "additionalProperties": False,
    }


def _annotations(explained: "Explained") -> ToolAnnotations:
    """Hints for hosts: read-only only if no step writes, destructive unless every risk is below high."""
    contracts = [each.contract for each in explained.steps]
    writes = any(each.writes or each.effects is None or "unknown" in each.effect_tags for each in contracts)
    risks = {each.explanation.risk.word for each in explained.steps}
    return ToolAnnotations(
        read_only_hint=not writes,
        destructive_hint=writes and bool(risks & {"high", "critical"}),
        idempotent_hint=all(each.idempotent for each in contracts),
        open_world_hint=any(each.effects is None or bool(each.effects) for each in contracts),
    )
