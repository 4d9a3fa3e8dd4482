"""Start the one-shot runner for an authorized plan: a process of its own, with a clean environment."""

import os
import sys
from typing import Final

import msgspec

from gert.ecosystem.host.config.dsn import FROM_ENVIRONMENT, Dsn
from gert.ecosystem.host.config.keys.plan_keys import verify_variables
from gert.ecosystem.host.config.ledger_location import ledger_of
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.process.descendants import mark_for
from gert.ecosystem.process.environment import ROOT_RUN
from gert.ecosystem.process.own_process import prepare_for_tools
from gert.ecosystem.process.run_program import Ended, run_program
from gert.kernel.foundation.lenient_json import json_object
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.runner.exit_codes import RunnerExit
from gert.kernel.runner.plan import Plan

MODULE: Final = "gert.ecosystem.surfaces.runner"
_LIMIT: Final = 1024 * 1024
_STOP_GRACE: Final = 15.0
"""Seconds between SIGTERM and SIGKILL: a runner that is stopped still writes its record."""

_ERROR: Final = "error: "
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_TRACE: Final = "GERT_TRACE_"
_DSN: Final = "GERT_RUNNER_DSN"
"""Holds the address of the ledger: other users can read arguments."""


class Dispatched(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner ended: its exit code, negative for a signal, and what it said."""

    exit_code: int
    rule: str | None = None
    message: str | None = None
    hint: str | None = None


def runner_environment(project: RunnerProject) -> dict[str, str]:
    """What a dispatched runner gets: no secret, and of gert's own keys only those it verifies and seals with."""
    environ = project.environ
    kept: dict[str, str] = {name: environ[name] for name in _KEPT if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith(_TRACE)}
    kept |= verify_variables(environ)
    if project.root_run is not None:
        kept[ROOT_RUN] = project.root_run
    if isinstance(project.database, Dsn):
        kept[_DSN] = project.database.value
    return kept


def runner_arguments(project: RunnerProject, plan: Plan, plan_file: str) -> list[str]:
    """How the runner is called: what it may do is in the plan, and repeated here as the interface says."""
    words = ["run", "--plan", plan_file, "--runner-id", plan.runner_id, "--ttl-seconds", str(plan.ttl_seconds)]
    words += ["--secret-ref", plan.secret_ref] if plan.secret_ref is not None else []
    for label in plan.scope:
        words += ["--scope", label]
    words += ["--project", project.folder, "--state-dir", project.state]
    words += ["--config", project.config] if project.config is not None else []
    if plan.ledger is None:
        words.append("--no-ledger")
    elif isinstance(project.database, Dsn):
        words += ["--dsn", f"{FROM_ENVIRONMENT}{_DSN}"]
    elif project.database != ledger_of(project.state):
        words += ["--db", project.database]
    return words


async def dispatch(
    project: RunnerProject, plan: Plan, plan_file: str, *, mark: tuple[str, str] | None = None
) -> Dispatched:
    """Start a runner and wait for it; when cancelled, it is stopped in order and has written its record.

    mark: run and call by which a later process finds a runner that outlived this one
    """
    prepare_for_tools()
    try:
        ended = await _start(project, plan, plan_file, mark)
    except (OSError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or str(problem)).lower()
        return Dispatched(exit_code=RunnerExit.INTERNAL, message=f"the runner cannot be started: {why}")
    said = json_object(ended.stdout.kept)
    status = RunnerExit.INTERNAL if ended.status is None else ended.status
    message = said.get("message")
    if message is None and status != 0:
        lines = ended.stderr.kept.splitlines()
        told = (line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR))
        message = next(told, f"the runner ended with {status}")
    return Dispatched(exit_code=status, rule=said.get("rule"), message=message, hint=said.get("hint"))


async def _start(project: RunnerProject, plan: Plan, plan_file: str, mark: tuple[str, str] | None) -> Ended:
    argv = [sys.executable, "-I", "-m", MODULE, *runner_arguments(project, plan, plan_file), "--dispatched", "--json"]
    return await run_program(
        argv,
        runner_environment(project),
        folder=_folder(project),
        redactor=Redactor(),
        limit=_LIMIT,
        mark=mark_for(*(mark or (plan.plan_id, plan.plan_id))),
        stop_grace=_STOP_GRACE,
    )


def _folder(project: RunnerProject) -> str:
    return project.folder if os.path.isdir(project.folder) else "/"
