"""`gert runner`: execute authorized plans, report their state, and what this machine can enforce."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Any, Final

import click

from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.runner.dispatch import dispatch
from gert.ecosystem.host.runner.doctor import Diagnosis, diagnose
from gert.ecosystem.host.runner.plan_files import load_authorization, load_plan
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.recover import Recovered, recover
from gert.ecosystem.host.runner.skill_call import export_execution, result_of
from gert.ecosystem.surfaces.cli.commands.tools.runner_options import ledger_options, open_project, project_options
from gert.ecosystem.surfaces.cli.render.output import print_error, print_json, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.table import Cell, print_table
from gert.ecosystem.surfaces.cli.render.text import BAD, DOUBTFUL, GOOD, value_text
from gert.errors import Exit
from gert.kernel.foundation.text import printable
from gert.kernel.runner.registry import capabilities_digest, data_of, lacks

STATES: Final = {"done": GOOD, "unspent": None, "running": None, "in doubt": DOUBTFUL}


@click.group(epilog="Example: gert runner doctor")
def command() -> None:
    """Execute authorized plans with one-shot runners, recover them, and look at the machine.

    `gert-runner run` is the runner itself, for a shell or a CI job.
    """


@command.command(epilog="Example: gert runner run chat.plan.json")
@click.argument("file", metavar="FILE")
@ledger_options
def run(file: str, as_json: bool, **place: Any) -> int:
    """Execute an authorized plan once, in a process of its own with a clean environment."""
    project = open_project(**place)
    plan = load_plan(file)
    load_authorization(file)

    async def execute() -> Any:
        try:
            return await result_of(project, plan, await dispatch(project, plan, os.path.abspath(file)))
        finally:
            problem = await export_execution(project, plan.plan_id)
            if problem is not None:
                print_error(problem)

    result = asyncio.run(execute())
    if result.record is None:
        refused = result.refused
        if as_json:
            print_json({"plan_id": plan.plan_id, "refused": refused})
        elif refused is not None:
            print_error(f"{refused.message} ({refused.rule})" if refused.rule else str(refused.message), refused.hint)
        return Exit.REFUSED
    record = result.record
    if as_json:
        print_json(record)
    elif record.exit_code == 0:
        requests = f"{record.requests} request{'' if record.requests == 1 else 's'}"
        print_line(f"{record.plan_id}: done, {requests}, isolation {record.isolation.level}")
        for name, value in record.outputs.items():
            print_pair(name, value_text(value))
        print_pair("report", os.path.join(project.state, record.log_artifact))
    else:
        print_error(f"{record.message} ({record.rule})", f"see {os.path.join(project.state, record.log_artifact)}")
    return Exit.DONE if record.exit_code == 0 else Exit.NOT_COMPLETED


@command.command("recover", epilog="Example: gert runner recover --look-only")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--look-only", is_flag=True, help="Change nothing: do not close runs whose runner is gone.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@ledger_options
def recover_(files: tuple[str, ...], look_only: bool, actor: str | None, as_json: bool, **place: Any) -> int:
    """Say which plans are done, unspent, running or in doubt; exit with 3 if one is in doubt.

    A plan is in doubt if its runner ended without a record: the vendor may have been called. It is never executed
    again. gert closes the run of such a plan, and adds a record that the runner wrote and could not report.
    """
    project = open_project(**place)

    async def look() -> list[Recovered]:
        found = recover(project, files, actor=actor or user_name(), now=datetime.now(UTC), look_only=look_only)
        return [each async for each in found]

    found = asyncio.run(look())
    if as_json:
        print_json(found)
    elif found:
        rows: list[list[Cell]] = [
            [each.plan_id, each.skill_id, (each.state, STATES[each.state]), _remark(each)] for each in found
        ]
        print_table(("plan", "skill", "state", "remark"), rows, ("skill",))
    else:
        print_line(f"there are no plans in {project.state}")
    return Exit.NOT_COMPLETED if any(each.state == "in doubt" for each in found) else Exit.DONE


def _remark(each: Recovered) -> str:
    if each.state == "done":
        return f"exit code {each.exit_code}" + (f": {each.message}" if each.message else "")
    if each.state == "unspent":
        return f"authorized until {each.expires_at}" if each.expires_at else "not authorized"
    if each.state == "in doubt":
        return f"check the vendor; artifacts: {' '.join(each.artifacts) or 'none'}"
    return ""


@command.command("list", epilog="Example: gert runner list")
@project_options
def list_(config: str | None, as_json: bool) -> int:
    """List the registered runners, and how many skills each can execute."""
    project = open_project(config)
    if as_json:
        print_json([_document(project, name) for name in sorted(project.runners)])
    elif project.runners:
        rows = [
            [
                name,
                " ".join(runner.vendors),
                " ".join(runner.domains),
                "yes" if runner.programs else "no",
                str(len(_skills(project, name))),
            ]
            for name, runner in sorted(project.runners.items())
        ]
        print_table(("runner", "vendors", "domains", "programs", "skills"), rows, ("programs", "skills", "domains"))
    else:
        print_line("no runner is registered; set `runners` in gert-project.yaml")
    return 0


def _document(project: RunnerProject, name: str) -> dict[str, Any]:
    runner = project.runners[name]
    digest = capabilities_digest(name, runner)
    return {"id": name, "capabilities": data_of(runner), "digest": digest, "skills": _skills(project, name)}


def _skills(project: RunnerProject, name: str) -> list[str]:
    found = ((lookup.id, lookup.skill) for lookup in project.skills.values())
    return [skill_id for skill_id, skill in found if skill is not None and lacks(skill, project.runners[name]) is None]


@command.command(epilog="Example: gert runner doctor")
@ledger_options
def doctor(as_json: bool, **place: Any) -> int:
    """Print what this machine can enforce and what the runners of this project lack; exit with 1 if something fails."""
    project = open_project(**place)

    async def look() -> list[Diagnosis]:
        return [each async for each in diagnose(project)]

    found = asyncio.run(look())
    if as_json:
        print_json(found)
    else:
        marks = {True: ("✓", GOOD), False: ("✗", BAD), None: ("-", DOUBTFUL)}
        for each in found:
            mark, colour = marks[each.ok]
            print_line(f"{click.style(mark, fg=colour)} {printable(each.name)}: {printable(each.detail)}")
    return 1 if any(each.ok is False for each in found) else 0
