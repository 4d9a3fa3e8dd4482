"""`gert skill`: list, show and check the vendor calls that runners can make."""

import os
from typing import Any

import click

from gert.ecosystem.host.config.skills import BUNDLED
from gert.ecosystem.host.runner.create import check_skills
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.surfaces.cli.commands.tools.runner_options import open_project, project_options
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.table import print_table
from gert.ecosystem.surfaces.cli.render.text import BAD, GOOD, value_text
from gert.kernel.runbook.documents.skill import Skill
from gert.kernel.runner.registry import data_of, lacks


@click.group(epilog="Example: gert skill list")
def command() -> None:
    """List, show and check skills: the vendor calls that runners make with a secret of their own."""


@command.command("list", epilog="Example: gert skill list --json")
@project_options
def list_(config: str | None, as_json: bool) -> int:
    """List the skills of the project and the bundled ones, and the runners that can execute each."""
    project = open_project(config)
    found = [_row(project, lookup.id) for lookup in project.skills.values()]
    if as_json:
        print_json(found)
    else:
        rows = [[row["id"], row["vendor"], row["network"], " ".join(row["runners"])] for row in found]
        print_table(("skill", "vendor", "network", "runners"), rows, ("network", "runners"))
    return 0


@command.command(epilog="Example: gert skill show S.vendor.openai.chat.v0.1.0")
@click.argument("skill_id", metavar="ID")
@project_options
def show(skill_id: str, config: str | None, as_json: bool) -> int:
    """Show what a skill reaches, which secret it needs, its inputs and outputs."""
    project = open_project(config)
    lookup = project.skill(skill_id)
    skill: Skill = lookup.document.model
    if as_json:
        print_json({**data_of(skill), "file": lookup.file, "digest": lookup.document.digest, **_row(project, skill_id)})
        return 0
    print_pair("skill", skill.id)
    if skill.description:
        print_pair("about", skill.description)
    print_pair("file", lookup.file)
    print_pair("digest", lookup.document.digest)
    policy = skill.network_policy
    reach = f"{' '.join(policy.methods)} {' '.join(policy.domains)}" if policy is not None else "none"
    print_pair("network", reach)
    for secret in skill.required_secrets:
        print_pair("secret", f"{secret.name}, scope {' '.join(secret.scope)}")
    for title, blocks in (("input", skill.contract.inputs), ("output", skill.contract.outputs)):
        for name, block in blocks.items():
            default = f", default {value_text(block.default)}" if block.has_default else ""
            required = ", required" if block.required else ""
            about = f": {block.description}" if block.description else ""
            print_pair(title, f"{name} ({block.type}{required}{default}){about}")
    print_pair("runners", " ".join(_able(project, skill)) or "none can execute it")
    return 0


@command.command(epilog="Example: gert skill check --secret-ref kv://openai/dev/api_key")
@click.argument("skill_ids", nargs=-1, metavar="[ID]...")
@click.option("--secret-ref", metavar="REF", help="Also ask the secrets policies about this reference.")
@project_options
def check(skill_ids: tuple[str, ...], secret_ref: str | None, config: str | None, as_json: bool) -> int:
    """Put skills to the registry, the router and the secrets policies; exit with 1 if one is refused.

    Without an ID: those of the project, and the bundled ones that a runner can execute.
    """
    project = open_project(config)
    for skill_id in skill_ids:
        project.skill(skill_id)
    wanted = skill_ids or _own(project)
    found = [each for each in check_skills(project, secret_ref) if each.id in wanted or each.id not in project.skills]
    if as_json:
        print_json(
            [
                {"id": each.id, "file": each.file, "passes": each.passes}
                | {"registry": each.registry, "router": each.router, "secrets": each.secrets}
                for each in found
            ]
        )
    else:
        for each in found:
            mark = click.style("✓", fg=GOOD) if each.passes else click.style("✗", fg=BAD)
            print_line(f"{mark} {each.id}")
            for reason in (each.registry, each.router, each.secrets):
                if reason is not None:
                    print_pair("", reason)
    return 0 if all(each.passes for each in found) else 1


def _own(project: RunnerProject) -> list[str]:
    found = project.skills.values()
    return [each.id for each in found if os.path.dirname(each.file) != BUNDLED or _able(project, each.document.model)]


def _row(project: RunnerProject, skill_id: str) -> dict[str, Any]:
    lookup = project.skills[skill_id]
    skill: Skill = lookup.document.model
    return {
        "id": skill.id,
        "vendor": skill.vendor,
        "network": skill.permissions.network,
        "valid": lookup.document.is_sound,
        "runners": _able(project, skill),
        "file": lookup.file,
        "description": skill.description,
    }


def _able(project: RunnerProject, skill: Skill) -> list[str]:
    return [name for name, runner in sorted(project.runners.items()) if lacks(skill, runner) is None]
