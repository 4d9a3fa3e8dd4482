"""`gert ext`: check extension runners."""

import asyncio
import os
from typing import Any, Final

import click

from gert.ecosystem.host.extensions.check import CheckResult, RunnerCheck
from gert.ecosystem.surfaces.cli.render.output import print_json, print_line
from gert.errors import CanonicalError, Exit, UsageError
from gert.kernel.foundation.canonical_v1 import loads
from gert.kernel.foundation.text import printable

_SIGNS: Final = {"passed": ("✓", "green"), "failed": ("✗", "red"), "warning": ("!", "yellow"), "skipped": ("-", None)}
_STDERR_LINES: Final = 10


@click.group(epilog="Example: gert ext check gert-ext-judge-llm")
def command() -> None:
    """Check the runners of extensions."""


@command.command(epilog="""Example: gert ext check ./gert-ext-disk --inputs '{"path": "/"}'""")
@click.argument("binary")
@click.option(
    "--inputs", metavar="JSON", help="Also call `execute` with these inputs; the runner has its effects (default: no)."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, metavar="SECONDS",
    help="Time limit for each call.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(binary: str, inputs: str | None, timeout: float, as_json: bool) -> int:
    """Check whether a program speaks the protocol of extension runners.

    BINARY is a path, or the name of a program on PATH with or without `gert-ext-`. The program is started twice. Exits
    with 1 if a check fails.
    """
    runner = RunnerCheck(binary, os.environ, inputs=_inputs(inputs), timeout=timeout)
    results = asyncio.run(runner.run())
    failed = any(result.status == "failed" for result in results)
    if as_json:
        print_json({"binary": binary, "passed": not failed, "checks": [_document(each) for each in results]})
    else:
        _print(results, runner.stderr if failed else "")
    return Exit.REFUSED if failed else Exit.DONE


def _inputs(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = loads(text)
    except CanonicalError as problem:
        raise UsageError(f"`--inputs`: {problem.message}", hint="""pass an object: --inputs '{"a": 1}'""") from None
    if not isinstance(value, dict):
        raise UsageError("`--inputs` takes a JSON object", hint="""pass an object: --inputs '{"a": 1}'""")
    return value


def _print(results: list[CheckResult], stderr: str) -> None:
    for result in results:
        sign, colour = _SIGNS[result.status]
        print_line(f"{click.style(sign, fg=colour)} {result.check}: {printable(result.message)}")
        if result.hint is not None:
            print_line(f"  hint: {result.hint}")
    lines = stderr.splitlines()[-_STDERR_LINES:]
    if lines:
        print_line("the last lines of its standard error:")
        for line in lines:
            print_line(f"  {printable(line)}")


def _document(result: CheckResult) -> dict[str, Any]:
    hint = {"hint": result.hint} if result.hint is not None else {}
    return {"check": result.check, "status": result.status, "message": result.message, **hint}
