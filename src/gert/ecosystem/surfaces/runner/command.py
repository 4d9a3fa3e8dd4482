"""`gert-runner run`: parse, run the procedure once, say how it ended."""

import asyncio
import json
import sys
from typing import Any

import click

from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.host.runner.one_shot import Finished, RunnerExit, RunnerOptions, run_once
from gert.errors import GertError, Refused
from gert.kernel.foundation.text import printable
from gert.kernel.runner.exit_codes import exit_before_start


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version_line(), message="%(version)s")
def group() -> None:
    """Execute approved plans, each in a process of its own."""


@group.command(
    epilog="Example: gert-runner run --plan chat.plan.json --runner-id local --secret-ref env://OPENAI_API_KEY "
    "--scope llm:chat --ttl-seconds 900"
)
@click.option("--plan", required=True, metavar="FILE", help="Plan to execute.")
@click.option("--runner-id", required=True, metavar="ID", help="Id of this runner, as the project registers it.")
@click.option("--secret-ref", metavar="REF", help="Reference to the secret, as in the plan.")
@click.option("--scope", multiple=True, metavar="LABEL", help="Scope label; may be given more than once.")
@click.option("--ttl-seconds", type=click.IntRange(1), required=True, help="Seconds the authorization is honoured.")
@click.option("--authorization", metavar="FILE", help="Authorization of the plan (default: beside the plan).")
@click.option("--project", "folder", metavar="DIR", help="Folder in the project (default: the working directory).")
@click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
@click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
@click.option("--db", metavar="FILE", help="SQLite ledger in which the plan is spent.")
@click.option("--dsn", metavar="DSN", help="Postgres ledger in which the plan is spent; env:NAME names a variable.")
@click.option("--no-ledger", is_flag=True, help="Spend the plan in the state directory; it must be made for that.")
@click.option("--dispatched", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run(plan: str, as_json: bool, **options: Any) -> int:
    """Verify a plan, resolve its secret in memory, execute it once, write its artifacts, and exit.

    Exit codes: 0 done; 10 plan, 11 authorization, 12 expiry, 13 runner, 14 scope, 15 spent, 16 skill, 17 policy,
    18 artifacts or 19 isolation refused, and nothing was executed; 20 secret, 22 network, 23 vendor, 24 transport,
    25 timeout, 26 response, 27 program, 28 stopped, and the record says more; 29 no complete record.
    """
    try:
        finished = asyncio.run(run_once(RunnerOptions(plan=plan, **options)))
    except Refused as refusal:
        finished = Finished(exit_code=exit_before_start(refusal), refusal=refusal)
    _show(finished, as_json=as_json)
    return finished.exit_code


def _show(finished: Finished, *, as_json: bool) -> None:
    record, refusal = finished.record, finished.refusal
    rule = record.rule if record is not None else refusal.rule if isinstance(refusal, Refused) else None
    message = refusal.message if refusal is not None else record.message if record is not None else None
    said = {
        "exit_code": int(finished.exit_code),
        "plan_id": record.plan_id if record is not None else None,
        "rule": rule,
        "message": message,
        "hint": refusal.hint if refusal is not None else None,
        "requests": record.requests if record is not None else 0,
    }
    if as_json:
        click.echo(json.dumps(said))
    elif message is not None:
        click.echo(f"error: {printable(message)}" + (f" ({rule})" if rule else ""), err=True)
        if said["hint"]:
            click.echo(f"  hint: {printable(str(said['hint']))}", err=True)
    elif record is not None:
        click.echo(f"{record.plan_id}: done, record in {printable(record.log_artifact)}")


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code; an unexpected error says its kind and nothing else."""
    try:
        with group.make_context("gert-runner", list(arguments)) as running:
            result = group.invoke(running)
        return result if isinstance(result, int) else RunnerExit.DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as problem:
        click.echo(f"error: {printable(problem.format_message())}", err=True)
        return RunnerExit.USAGE
    except GertError as problem:
        click.echo(f"error: {printable(problem.message)}", err=True)
        if problem.hint:
            click.echo(f"  hint: {printable(problem.hint)}", err=True)
        return RunnerExit.USAGE
    except BaseException as problem:
        # Its text and its traceback may hold a secret.
        sys.stderr.write(f"error: internal error: {type(problem).__name__}\n")
        return RunnerExit.INTERNAL
