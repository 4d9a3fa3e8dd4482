"""Approve a plan: an ordinary run of a runbook with one step, whose answer is the authorization.

So a plan that is made by hand is judged by the same policies, asks through the same tickets, and is recorded like any
step of a runbook.
"""

import json
import os
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.ledger_location import Database, open_ledger
from gert.ecosystem.host.runner.project import RunnerProject
from gert.errors import UsageError
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.text import os_reason
from gert.kernel.runner.plan import Plan, plan_digest

FOLDER: Final = os.path.join(".gert", "plans")
_RUNBOOK: Final = "authorize.yaml"
_RUN: Final = "run"


class Approval(msgspec.Struct, frozen=True):
    """The runbook that authorizes a plan, and the run that already waits for it."""

    runbook: str
    run_id: str | None
    folder: str

    def remember(self, run_id: str) -> None:
        """Keep the id of the run, so that asking again continues it."""
        with open(os.path.join(self.folder, _RUN), "w", encoding="ascii") as file:
            file.write(run_id)


async def approval_of(project: RunnerProject, plan: Plan, plan_file: str) -> Approval:
    """Write the runbook of a plan inside its project, where the project's policies apply to it."""
    folder = os.path.join(project.root, FOLDER, plan.plan_id)
    try:
        os.makedirs(os.path.join(folder, "tools"), mode=0o700, exist_ok=True)
        _write(os.path.join(folder, _RUNBOOK), _runbook(plan))
        _write(os.path.join(folder, "tools", "plan.tool.yaml"), _tool(plan, os.path.abspath(plan_file)))
    except OSError as problem:
        raise UsageError(f"the approval cannot be prepared in `{folder}`: {os_reason(problem)}") from None
    return Approval(os.path.join(folder, _RUNBOOK), await _waiting(folder, project.database), folder)


def _runbook(plan: Plan) -> dict[str, Any]:
    title = _text(f"let runner {plan.runner_id} execute {plan.skill_id}")
    step = {"id": "authorize", "type": "tool", "tool": "plan", "title": title, "inputs": _literal(plan.inputs)}
    step["description"] = _text(f"plan {plan.plan_id} {plan_digest(plan)}")
    return {
        "apiVersion": "kernel/v0",
        "meta": {"name": "authorize-plan", "description": f"Authorizes the plan {plan.plan_id}."},
        "tools": ["plan"],
        "steps": [step, {"type": "end", "outcome": {"category": "no_action", "code": "plan_authorized"}}],
    }


def _tool(plan: Plan, file: str) -> dict[str, Any]:
    outputs = {name: {"type": "string"} for name in ("authorization", "plan_id", "digest")}
    action = {"skill": plan.skill_id, "plan": file, "contract": {"outputs": outputs}}
    return {"apiVersion": "tool/v0", "meta": {"name": "plan", "transport": "runner"}, "actions": {"authorize": action}}


def _literal(value: Any) -> Any:
    """A value in which no text is taken for a template."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {key: _literal(each) for key, each in value.items()}
    return [_literal(each) for each in value] if isinstance(value, list | tuple) else value


def _text(text: str) -> str:
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if "{{" in text else text


def _write(path: str, document: dict[str, Any]) -> None:
    partial = f"{path}.{os.getpid()}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, indent=1)
        file.write("\n")
    os.replace(partial, path)


async def _waiting(folder: str, database: Database) -> str | None:
    """The run that was started for the plan and has not ended."""
    try:
        with open(os.path.join(folder, _RUN), encoding="ascii") as file:
            run_id = file.read(200).strip()
    except (OSError, ValueError):
        return None
    if not is_safe_name(run_id) or (isinstance(database, str) and not os.path.exists(database)):
        return None
    async with open_ledger(database, {}, read_only=True) as ledger:
        head = await ledger.head(run_id)
    return run_id if head is not None and head.runbook is not None and head.runbook.ended is None else None
