"""Operations on documents: validate, list, explain and test; none of them runs a tool."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.catalogue import Listed
from gert.ecosystem.host.operations.validation import validation_of
from gert.ecosystem.host.shapes.documents import (
    ExplainedRunbook,
    ExplainedStepDocument,
    RunbookPage,
    RunbookRow,
    SchemaDocument,
    StepRow,
    TestReport,
    TestRow,
    ToolActionRow,
    ToolPage,
    ToolRow,
    Validation,
)
from gert.kernel.foundation.text import one_line
from gert.kernel.governance.risk import assess
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of

if TYPE_CHECKING:
    from gert.ecosystem.host.policy.explain_runbook import Explained, ExplainedStep
    from gert.ecosystem.host.tools.find_tools import ToolAction

MOST_LISTED: Final = 200
MOST_FINDINGS: Final = 200
_LONGEST: Final = 300
_TEST_SECONDS: Final = 60.0
_CURSOR: Final = 10
"""Digits that a cursor may have."""

Row = TypeVar("Row")

RunbookPath = Annotated[str, Meta(description="A runbook: its path below the served folder, or its name.")]
Cursor = Annotated[str | None, Meta(description="The `next_cursor` of the page before.")]


class Validate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Validate a runbook, tool, policy, scenario or test file."""

    path: Annotated[str, Meta(description="A file or folder below the served folder.")]
    text: Annotated[str | None, Meta(description="Validate this text as if it were in the file.")] = None


async def validate(access: Access, said: Validate) -> Validation:
    """Every finding with rule, severity, line and column; nothing is executed."""
    path = access.file(said.path) if said.text is None else _new_file(access, said.path)
    return await asyncio.to_thread(_validate, access, path, said.text)


def _new_file(access: Access, path: str) -> str:
    """A path below the root that need not exist: an editor may not have saved it yet."""
    try:
        return access.file(path)
    except Refused as refused:
        import os

        found = os.path.realpath(os.path.join(access.root, path))
        if refused.code == "unknown_path" and access.contains(found):
            return found
        raise


def _validate(access: Access, path: str, text: str | None) -> Validation:
    # What an agent writes must not make gert look at files outside, whose words findings would quote.
    workspace = access.workspace(closed=text is not None and access.caller is not None)
    if text is None:
        checked = [each for each in workspace.check_all([path]) if access.reaches(each.file)]
    else:
        checked = [workspace.check(path, source=text.encode())]
        if access.caller is not None and checked[0].document.kind in ("project", "config"):
            raise Refused("invalid_arguments", "an agent cannot validate the text of a configuration", field="text")
    counted = Counter(finding.severity for each in checked for finding in each.findings)
    return validation_of(
        checked,
        counted,
        valid=not counted[Severity.ERROR],
        shown=access.shown,
        most=min(MOST_LISTED, MOST_FINDINGS),
        skipped=workspace.skipped,
    )


class ListRunbooks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the runbooks of the served folder."""

    filter: Annotated[str | None, Meta(description="Only runbooks whose name, path or description has this text.")] = (
        None
    )
    cursor: Cursor = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_runbooks(access: Access, said: ListRunbooks) -> RunbookPage:
    """Name, path, description and inputs of each runbook, a page at a time."""
    listed = await asyncio.to_thread(access.catalogue.runbooks)
    if said.filter:
        wanted = said.filter.casefold()
        listed = [each for each in listed if any(wanted in text.casefold() for text in _words(access, each))]
    found, marks = page(listed, said.cursor, said.limit)
    return {"runbooks": [_runbook_row(access, each) for each in found], **marks}


def _words(access: Access, listed: Listed) -> tuple[str, ...]:
    """What a filter looks at."""
    about = listed.model.meta.description if isinstance(listed.model, Runbook) else None
    return listed.name, access.shown(listed.file), about or ""


def _runbook_row(access: Access, listed: Listed) -> RunbookRow:
    model = listed.model
    row: RunbookRow = {"name": listed.name, "path": access.shown(listed.file), "valid": isinstance(model, Runbook)}
    if isinstance(model, Runbook):
        row["description"] = one_line(model.meta.description or "", _LONGEST)
        row["inputs"] = _inputs(model)
        row["allowed"] = access.may_start(listed.file)
    return row


def _inputs(model: Runbook) -> Any:
    return {name: block.parameter().summary() for name, block in model.meta.inputs.items()}


class ListTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List tool definitions."""

    dir: Annotated[str | None, Meta(description="Only tools below this folder.")] = None
    cursor: Cursor = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_tools(access: Access, said: ListTools) -> ToolPage:
    """Name, path, transport and actions of each tool definition, a page at a time."""
    folder = access.file(said.dir, "dir") if said.dir else None
    found = await asyncio.to_thread(access.catalogue.tools, folder)
    shown, marks = page(found, said.cursor, said.limit)
    return {"tools": [_tool_row(access, each) for each in shown], **marks}


def _tool_row(access: Access, listed: Listed) -> ToolRow:
    """A tool as it is listed: without contracts, which `step_contract` shows."""
    from gert.ecosystem.host.tools.find_tools import actions_of

    model = listed.model
    row: ToolRow = {"file": access.shown(listed.file), "name": listed.name, "valid": False, "actions": []}
    if isinstance(model, Tool):
        row["valid"], row["transport"] = True, model.meta.transport
        row["description"] = one_line(model.meta.description or "", _LONGEST)
        row["actions"] = [_action_row(each) for each in actions_of(model)]
    return row


def _action_row(action: "ToolAction") -> ToolActionRow:
    row: ToolActionRow = {"name": action.name, "risk_level": assess(action.contract).risk.word}
    if action.block.description:
        row["description"] = one_line(action.block.description, _LONGEST)
    return row


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Get the JSON Schema of a document kind."""

    type: Annotated[str, Meta(description=f"One of {', '.join(SCHEMA_NAMES)}.")] = "runbook"


async def schema(access: Access, said: Schema) -> SchemaDocument:
    """The JSON Schema (Draft 2020-12) that `gert validate` uses."""
    if said.type not in SCHEMA_NAMES:
        known = ", ".join(SCHEMA_NAMES)
        raise Refused("unknown_type", f"no document kind `{one_line(said.type, 40)}`", field="type", hint=known)
    return {"type": said.type, "schema": schema_of(said.type)}


class StepContract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show the resolved contract of one step."""

    path: RunbookPath
    step_id: Annotated[str, Meta(description="The id of a step.")]


async def step_contract(access: Access, said: StepContract) -> ExplainedStepDocument:
    """Contract, risk and decision of one step, with every rule that was considered."""
    found = await asyncio.to_thread(_explained, access, said.path, said.step_id)
    step: Any = found.steps[0].as_json() | {"runbook_name": found.program.runbook.meta.name}
    document: ExplainedStepDocument = step
    return document


def _explained(access: Access, path: str, step_id: str | None) -> "Explained":
    from gert.ecosystem.host.policy.explain_runbook import explain_file

    return explain_file(access.runbook(path), step_id, access.policies)


class Explain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Explain what a runbook would do under the policies in force."""

    path: RunbookPath


async def explain(access: Access, said: Explain) -> ExplainedRunbook:
    """Each step with its effects, risk and decision (allow, require-approval or deny)."""
    found = await asyncio.to_thread(_explained, access, said.path, None)
    model = found.program.runbook
    return {
        "runbook_name": model.meta.name,
        "description": model.meta.description,
        "inputs": _inputs(model),
        "steps": [_step_row(each) for each in found.steps],
        "crossings": [msgspec.to_builtins(each) for each in found.crossings],
    }


def _step_row(explained: "ExplainedStep") -> StepRow:
    """A step without the rules that did not decide, and without its inputs and outputs."""
    full: Any = explained.as_json() | {"contract": explained.contract.summary()}
    row: StepRow = full
    row.pop("considered", None)
    return row


class Test(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run the scenario tests of a runbook or a folder."""

    path: Annotated[str, Meta(description="A runbook, a scenario folder, or a folder below the served folder.")]
    scenario: Annotated[str | None, Meta(description="Only scenarios with this name; `*` is a wildcard.")] = None


async def test(access: Access, said: Test) -> TestReport:
    """Replay scenarios and compare; no tool is called."""
    path = access.runbook(said.path) if said.path.endswith((".yaml", ".yml")) else access.file(said.path)
    return await asyncio.to_thread(_test, access, path, said.scenario)


def _test(access: Access, path: str, scenario: str | None) -> TestReport:
    from gert.ecosystem.host.scenarios.folders import find_scenarios
    from gert.ecosystem.host.scenarios.suite import SuiteOptions, Tested, groups_of, report_of, run_groups

    started = time.perf_counter()
    options = SuiteOptions(
        named=(path,),
        scenarios=(scenario,) if scenario else (),
        policies=access.policies,
        timeout=_TEST_SECONDS,
    )
    found = [each for each in find_scenarios([path]) if all(map(access.reaches, (each.scenario, each.test)))]
    groups = groups_of(found)
    tested = [each for each in run_groups(groups, options, access.environ) if isinstance(each, Tested)]
    report = report_of(tested, time.perf_counter() - started)
    report["tests"] = [_test_row(access, each) for each in report["tests"][:MOST_LISTED]]
    return report


def _test_row(access: Access, row: TestRow) -> TestRow:
    row.pop("updates", None)
    runbook = access.shown(row["runbook"]) if row["runbook"] else ""
    return {**row, "runbook": runbook, "folder": access.shown(row["folder"])}


# --- pages


class Marks(TypedDict):
    """Where a page stands in its list."""

    total: int
    next_cursor: NotRequired[str]


def page(rows: Sequence[Row], cursor: str | None, limit: int) -> tuple[list[Row], Marks]:
    """A page of rows; the cursor is the number of rows before it."""
    start = int(cursor) if cursor and cursor.isascii() and cursor.isdigit() and len(cursor) < _CURSOR else 0
    if (cursor and str(start) != cursor) or start > len(rows):
        raise Refused("invalid_cursor", "the cursor is not one of this list", field="cursor")
    end = min(start + limit, len(rows))
    marks: Marks = {"total": len(rows)}
    if end < len(rows):
        marks["next_cursor"] = str(end)
    return list(rows[start:end]), marks
