"""`gert plan`: create, show, approve and verify plans."""

import asyncio
from functools import partial
from typing import Any

import click

from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.config.variables import given_values
from gert.ecosystem.host.redrive.resume import ResumeOptions, resume
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.host.runner.approve import approval_of
from gert.ecosystem.host.runner.create import CreatedPlan, create_plan, new_order, verify_plan
from gert.ecosystem.host.runner.plan_files import authorization_file, load_authorization, load_plan
from gert.ecosystem.surfaces.cli.commands.runs.exec import approval_mode, checked_actor, drive_in_view
from gert.ecosystem.surfaces.cli.commands.tools.runner_options import ledger_options, open_project
from gert.ecosystem.surfaces.cli.options import seconds_of
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.runs.result import show as show_result
from gert.ecosystem.surfaces.cli.render.text import BAD, DOUBTFUL, GOOD
from gert.errors import Refused
from gert.kernel.foundation.text import printable
from gert.kernel.runner.plan import Plan, plan_data, plan_digest


@click.group(epilog="Example: gert plan create S.vendor.slack.post.v0.1.0 --input channel=ops --input text=hi")
def command() -> None:
    """Create, show, approve and verify plans: one execution of one skill by one runner."""


@command.command(
    epilog="Example: gert plan create S.vendor.openai.chat.v0.1.0 --input model=gpt-5 --input prompt=@question.txt "
    "--secret-ref kv://openai/dev/api_key --out chat.plan.json"
)
@click.argument("skill_id", metavar="SKILL")
@click.option("--var", "variables", multiple=True, metavar="NAME=TEXT", help="Set an input to text.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="Set an input to a YAML value or @FILE.")
@click.option("--runner", metavar="ID", help="Runner that executes it (default: the only one that can).")
@click.option("--secret-ref", metavar="REF", help="Reference to the skill's secret; only the runner resolves it.")
@click.option("--scope", multiple=True, metavar="LABEL", help="Scope label (default: those of the skill).")
@click.option("--ttl", default="15m", show_default=True, metavar="DURATION", help="How long an approval is valid.")
@click.option("--unsandboxed", is_flag=True, help="Let a program run without a sandbox where there is none.")
@click.option("--no-ledger", is_flag=True, help="Spend the plan in a state directory, once in each.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option("--out", metavar="FILE", help="Write the plan to this new file (default: in the state directory).")
@ledger_options
def create(
    skill_id: str,
    variables: tuple[str, ...],
    inputs: tuple[str, ...],
    runner: str | None,
    secret_ref: str | None,
    scope: tuple[str, ...],
    ttl: str,
    unsandboxed: bool,
    no_ledger: bool,
    actor: str | None,
    out: str | None,
    as_json: bool,
    **place: Any,
) -> int:
    """Create the plan of one call of SKILL; nothing is executed and nothing is authorized.

    The file is canonical JSON: its SHA-256 is the digest that is approved.
    """
    given = {name: each.value for name, each in given_values(variables, inputs, ()).items()}
    order = new_order(
        skill_id,
        inputs=given,
        runner=runner,
        secret_ref=secret_ref,
        scope=scope,
        ttl_seconds=max(1, int(seconds_of("--ttl", ttl))),
        unsandboxed=unsandboxed,
        requested_by=checked_actor(actor) or user_name(),
    )
    created = create_plan(open_project(**place), order, out, with_ledger=not no_ledger)
    if as_json:
        print_json({**_document(created.plan), "file": created.file, **created.decision.summary()})
    else:
        _describe(created)
    return 0


@command.command(epilog="Example: gert plan show chat.plan.json")
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def show(file: str, as_json: bool) -> int:
    """Show a plan and its authorization."""
    plan = load_plan(file)
    try:
        authorization = load_authorization(file)
    except Refused:
        authorization = None
    if as_json:
        print_json({**_document(plan), "authorization": authorization})
        return 0
    _print_plan(plan)
    if authorization is None:
        print_pair("approved", "no", DOUBTFUL)
    else:
        print_pair("approved", f"{authorization.grant.verdict}, until {authorization.expires_at}", GOOD)
        for title, names in (("tickets", authorization.grant.tickets), ("by", authorization.grant.approvers)):
            if names:
                print_pair(title, " ".join(names))
        print_pair("key", f"{authorization.key_id} ({authorization.alg})")
    return 0


@command.command(epilog="Example: gert plan approve chat.plan.json --detach")
@click.argument("file", metavar="FILE")
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Add a policy file or folder to the floor.")
@click.option("--wait", "waits", is_flag=True, help="Wait for approvals from elsewhere, such as `gert approve`.")
@click.option("--detach", is_flag=True, help="Exit while the plan waits for approvals; call this again to continue.")
@click.option("--break-glass", metavar="REASON", help="Override governance in an emergency, if its rules allow it.")
@click.option("--as", "actor", metavar="ACTOR", help="Actor to record (default: the current user).")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
@ledger_options
def approve(
    file: str,
    policies: tuple[str, ...],
    waits: bool,
    detach: bool,
    break_glass: str | None,
    actor: str | None,
    quiet: bool,
    as_json: bool,
    config: str | None,
    state_dir: str | None,
    db: str | None,
    dsn: str | None,
) -> int:
    """Ask governance about a plan, get the approvals it needs, and sign the authorization.

    This is an ordinary run of a runbook with one step: `gert approvals` lists its tickets, and `gert run` its record.
    The authorization is written beside FILE.
    """
    project = open_project(config, state_dir, db, dsn)
    plan = load_plan(file)
    approval = asyncio.run(approval_of(project, plan, file))
    mode = approval_mode(waits=waits, detach=detach)
    who = checked_actor(actor)
    place = {"state_dir": project.state, "db": db, "dsn": dsn}
    if approval.run_id is not None:
        again = ResumeOptions(run_id=approval.run_id, actor=who, approvals=mode, **place)  # type: ignore[arg-type]
        executed = drive_in_view(partial(resume, again), as_json=as_json, quiet=quiet)
    else:
        options = RunOptions(
            file=approval.runbook,
            actor=who or plan.requested_by,
            policies=policies,
            config=config,
            approvals=mode or "terminal",
            break_glass=break_glass,
            **place,  # type: ignore[arg-type]
        )
        begin = partial(execute, options, on_start=lambda setup: approval.remember(setup.run_id))
        executed = drive_in_view(begin, as_json=as_json, quiet=quiet)
    more = {"authorization": authorization_file(file)} if executed.status == "completed" else {}
    code = show_result(executed, as_json=as_json, quiet=quiet, more=more)
    if not as_json and not quiet and executed.status == "completed":
        print_line(f"authorized: {printable(authorization_file(file))}")
        print_line(f"execute it once with: gert runner run {printable(file)}")
    return code


@command.command(epilog="Example: gert plan verify chat.plan.json")
@click.argument("file", metavar="FILE")
@ledger_options
def verify(file: str, as_json: bool, **place: Any) -> int:
    """Check a plan as its runner would, without executing it; exit with 1 if it would be refused."""
    checks = asyncio.run(verify_plan(open_project(**place), file))
    holds = all(check.passed for check in checks)
    if as_json:
        print_json({"valid": holds, "checks": checks})
    else:
        marks = {True: ("✓", GOOD), False: ("✗", BAD), None: ("-", None)}
        for check in checks:
            mark, colour = marks[check.passed]
            reason = f": {printable(check.reason)}" if check.reason else ""
            print_line(f"{click.style(mark, fg=colour)} {check.number} {check.name}{reason}")
    return 0 if holds else 1


def _document(plan: Plan) -> dict[str, Any]:
    return {"plan": plan_data(plan), "digest": plan_digest(plan)}


def _describe(created: CreatedPlan) -> None:
    _print_plan(created.plan)
    rule = f" by {created.decision.rule}" if created.decision.rule else ""
    print_pair("verdict", f"{created.decision.verdict.word}{rule}")
    print_pair("file", created.file)
    print_line(f"approve it with: gert plan approve {printable(created.file)}")


def _print_plan(plan: Plan) -> None:
    policy = plan.network_policy
    reach = f"{' '.join(policy.methods)} {' '.join(policy.domains)}" if policy is not None else "none"
    for title, value in (
        ("plan", plan.plan_id),
        ("digest", plan_digest(plan)),
        ("skill", f"{plan.skill_id} {plan.skill_digest}"),
        ("runner", plan.runner_id),
        ("network", reach),
        ("secret", f"{plan.secret_ref}, scope {' '.join(plan.scope)}" if plan.secret_ref else "none"),
        ("valid", f"{plan.ttl_seconds} s after it is approved, for one execution"),
        ("spent in", plan.ledger or "the state directory, once in each"),
        ("isolation", "NONE: a program may run without a sandbox" if plan.unsandboxed else None),
        *(("input", f"{name} = {value}") for name, value in plan.inputs.items()),
    ):
        if value is not None:
            print_pair(title, value)
