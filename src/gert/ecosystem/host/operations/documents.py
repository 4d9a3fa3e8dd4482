"""Operations on documents: validate, list, explain and test; none of them runs a tool."""

import asyncio
import time
from collections import Counter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.catalogue import Listed
from gert.ecosystem.host.policy.explain_runbook import explain_file
from gert.ecosystem.host.scenarios.folders import find_scenarios
from gert.ecosystem.host.scenarios.suite import SuiteOptions, Tested, groups_of, run_groups
from gert.kernel.foundation.text import one_line
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of

MOST_LISTED: Final = 200
MOST_FINDINGS: Final = 200
_LONGEST: Final = 300
_TEST_SECONDS: Final = 60.0

RunbookPath = Annotated[str, Meta(description="A runbook: its path below the served folder, or its name.")]
Cursor = Annotated[str | None, Meta(description="The `next_cursor` of the page before.")]


class Validate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Validate a runbook, tool, policy, scenario or test file."""

    path: Annotated[str, Meta(description="A file or folder below the served folder.")]
    text: Annotated[str | None, Meta(description="Validate this text as if it were in the file.")] = None


async def validate(access: Access, said: Validate) -> dict[str, Any]:
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


def _validate(access: Access, path: str, text: str | None) -> dict[str, Any]:
    workspace = access.workspace()
    checked = [workspace.check(path, source=text.encode())] if text is not None else list(workspace.check_all([path]))
    counted = Counter(finding.severity for each in checked for finding in each.findings)
    files = [
        {
            "file": access.shown(each.file),
            "kind": each.document.kind,
            "valid": each.document.is_sound,
            "findings": [finding.as_json() for finding in each.findings[:MOST_FINDINGS]],
        }
        for each in checked[:MOST_LISTED]
    ]
    return {
        "valid": not counted[Severity.ERROR],
        "files": files,
        "summary": {f"{severity.word}s": counted[severity] for severity in reversed(Severity)},
    }


class ListRunbooks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the runbooks of the served folder."""

    filter: Annotated[str | None, Meta(description="Only runbooks whose name, path or description has this text.")] = (
        None
    )
    cursor: Cursor = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_runbooks(access: Access, said: ListRunbooks) -> dict[str, Any]:
    """Name, path, description and inputs of each runbook, a page at a time."""
    rows = [_runbook_row(access, each) for each in await asyncio.to_thread(access.catalogue.runbooks)]
    if said.filter:
        wanted = said.filter.casefold()
        fields = ("name", "path", "description")
        rows = [row for row in rows if any(wanted in str(row.get(name, "")).casefold() for name in fields)]
    return page("runbooks", rows, said.cursor, said.limit)


def _runbook_row(access: Access, listed: Listed) -> dict[str, Any]:
    model = listed.model
    row: dict[str, Any] = {"name": listed.name, "path": access.shown(listed.file)}
    if not isinstance(model, Runbook):
        return {**row, "valid": False}
    meta = model.meta
    return {
        **row,
        "description": one_line(meta.description or "", _LONGEST),
        "inputs": {name: block.parameter().summary() for name, block in meta.inputs.items()},
        "allowed": access.allow is None or listed.file in access.allow,
    }


class ListTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List tool definitions."""

    dir: Annotated[str | None, Meta(description="Only tools below this folder.")] = None
    cursor: Cursor = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


async def list_tools(access: Access, said: ListTools) -> dict[str, Any]:
    """Name, path, transport and actions of each tool definition, a page at a time."""
    folder = access.file(said.dir, "dir") if said.dir else None
    found = await asyncio.to_thread(access.catalogue.tools, folder)
    rows = [
        {
            "name": each.name,
            "path": access.shown(each.file),
            **(
                {
                    "description": one_line(each.model.meta.description or "", _LONGEST),
                    "transport": each.model.meta.transport,
                    "actions": list(each.model.actions),
                }
                if isinstance(each.model, Tool)
                else {"valid": False}
            ),
        }
        for each in found
    ]
    return page("tools", rows, said.cursor, said.limit)


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Get the JSON Schema of a document kind."""

    type: Annotated[str, Meta(description=f"One of {', '.join(SCHEMA_NAMES)}.")] = "runbook"


async def schema(access: Access, said: Schema) -> dict[str, Any]:
    """The JSON Schema (Draft 2020-12) that `gert validate` uses."""
    if said.type not in SCHEMA_NAMES:
        known = ", ".join(SCHEMA_NAMES)
        raise Refused("unknown_type", f"no document kind `{one_line(said.type, 40)}`", field="type", hint=known)
    return {"type": said.type, "schema": schema_of(said.type)}


class StepContract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show the resolved contract of one step."""

    path: RunbookPath
    step_id: Annotated[str, Meta(description="The id of a step.")]


async def step_contract(access: Access, said: StepContract) -> dict[str, Any]:
    """Contract, risk and decision of one step, with every rule that was considered."""
    found = await asyncio.to_thread(explain_file, access.runbook(said.path), said.step_id, access.policies)
    return {"runbook": found.program.runbook.meta.name, **found.steps[0].as_json()}


class Explain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Explain what a runbook would do under the policies in force."""

    path: RunbookPath


async def explain(access: Access, said: Explain) -> dict[str, Any]:
    """Each step with its effects, risk and decision (allow, require-approval or deny)."""
    found = await asyncio.to_thread(explain_file, access.runbook(said.path), None, access.policies)
    steps = [
        {
            "step": each.name,
            "type": each.step.type,
            "target": each.target,
            "effects": None if each.contract.effects is None else sorted(each.contract.effects),
            "writes": sorted(each.contract.writes),
            "risk_level": each.explanation.risk.word,
            "decision": each.explanation.decision.verdict.word,
            "rule": each.explanation.decision.rule,
        }
        for each in found.steps
    ]
    meta = found.program.runbook.meta
    return {
        "runbook": meta.name,
        "description": meta.description,
        "inputs": {name: block.parameter().summary() for name, block in meta.inputs.items()},
        "steps": steps,
        "crossings": [msgspec.to_builtins(each) for each in found.crossings],
    }


class Test(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run the scenario tests of a runbook or a folder."""

    path: Annotated[str, Meta(description="A runbook, a scenario folder, or a folder below the served folder.")]
    scenario: Annotated[str | None, Meta(description="Only scenarios with this name; `*` is a wildcard.")] = None


async def test(access: Access, said: Test) -> dict[str, Any]:
    """Replay scenarios and compare; no tool is called."""
    path = access.runbook(said.path) if said.path.endswith((".yaml", ".yml")) else access.file(said.path)
    return await asyncio.to_thread(_test, access, path, said.scenario)


def _test(access: Access, path: str, scenario: str | None) -> dict[str, Any]:
    started = time.perf_counter()
    options = SuiteOptions(
        named=(path,),
        scenarios=(scenario,) if scenario else (),
        policies=access.policies,
        timeout=_TEST_SECONDS,
    )
    groups = groups_of(find_scenarios([path]))
    tested = [each for each in run_groups(groups, options, access.environ) if isinstance(each, Tested)]
    counted = Counter(each.verdict for each in tested)
    return {
        "passed": counted["passed"],
        "failed": counted["failed"],
        "errors": counted["error"],
        "skipped": counted["skipped"],
        "seconds": round(time.perf_counter() - started, 3),
        "tests": [_tested(access, each) for each in tested[:MOST_LISTED]],
    }


def _tested(access: Access, each: Tested) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(each, enc_hook=str)
    del said["updates"]
    return {**said, "runbook": access.shown(each.runbook) if each.runbook else "", "folder": access.shown(each.folder)}


# --- pages


def page(name: str, rows: list[dict[str, Any]], cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of rows; the cursor is the number of rows before it."""
    try:
        start = int(cursor) if cursor else 0
    except ValueError:
        start = -1
    if not 0 <= start <= len(rows):
        raise Refused("invalid_cursor", "the cursor is not one of this list", field="cursor")
    end = min(start + limit, len(rows))
    return {
        name: rows[start:end],
        "total": len(rows),
        **({"next_cursor": str(end)} if end < len(rows) else {}),
    }
