"""A new tool file, and the result of trying an action, for people."""

import os
import shlex
from collections.abc import Iterator
from typing import Any, Final

import click

from gert.ecosystem.host.tools.new_tool import NewTool
from gert.ecosystem.host.tools.try_action import Tried
from gert.ecosystem.surfaces.cli.render.governance.contract_text import RISK_COLOURS
from gert.ecosystem.surfaces.cli.render.output import plural, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.text import BAD, DONE, DOUBTFUL, FAILED, GOOD, QUIET, clip, tidy, value_text
from gert.kernel.foundation.text import PRINTED_NOTHING, printable, with_marked_newlines

MOST_LINES: Final = 100
_MOST_ACTIONS: Final = 8


def print_new(made: NewTool) -> None:
    """Print what was written, and what to do next."""
    file = os.path.relpath(made.file or "")
    verb = "added to" if made.is_added else "wrote"
    print_line(
        f"{click.style(DONE, fg=GOOD)} {verb} {printable(file)}: {plural(len(made.actions), 'action')}, to be reviewed"
    )
    for name, inputs in list(made.actions.items())[:_MOST_ACTIONS]:
        print_line(f"  {printable(name)}" + (f": {', '.join(map(printable, inputs))}" if inputs else ""))
    if len(made.actions) > _MOST_ACTIONS:
        print_line(f"  … and {len(made.actions) - _MOST_ACTIONS} more")
    if not made.is_known:
        why = "effects or writes are unknown: say in the file what each action touches and writes"
        print_line(click.style(why, fg=DOUBTFUL))
    name, inputs = next(iter(made.actions.items()))
    given = "".join(f" --input {printable(each)}=VALUE" for each in inputs)
    print_line("Next:")
    print_line(f"  gert validate {printable(file)}")
    # A tool is found by its name only where runbooks look for it.
    is_found = file == os.path.join("tools", f"{made.name}.tool.yaml")
    print_line(f"  gert tool try {printable(made.name if is_found else file)} {printable(name)}{given}")


def print_tried(tried: Tried) -> None:
    """Print what an action did."""
    print_pair("tool", f"{tried.tool} {tried.action} ({tried.file})")
    for title, text in _call(tried.call):
        print_pair(title, text)
    if tried.decision is not None:
        rule = f" by {tried.rule}" if tried.rule else ""
        colour = RISK_COLOURS.get(tried.risk or "")
        print_pair("policy", f"{tried.decision}, {tried.risk} risk{rule}", colour, folds=True)
    if tried.preview is not None:
        _quote("preview", tried.preview)
    elif tried.no_preview is not None:
        print_pair("preview", f"not made: {tried.no_preview}", QUIET)
    if tried.mode == "dry-run":
        print_pair("result", "not run: this was a dry-run", DOUBTFUL)
        return
    _result(tried)
    if tried.exit_code is not None:
        _quote("stdout", tried.stdout)
        _quote("stderr", tried.stderr)
    for at, (name, value) in enumerate(tried.outputs.items()):
        print_pair("outputs" if at == 0 else "", f"{name} = {value_text(value) or '(empty)'} ({_type(value)})")
    for name in tried.missing:
        print_pair("", f"{name} was not found in what it printed", DOUBTFUL)
    for violation in tried.violations:
        print_pair("contract", f"{FAILED} {violation['kind']}: {violation['message']}", BAD, folds=True)
    if tried.holds and tried.status == "success":
        print_pair("contract", f"{DONE} it gave what its contract declares", GOOD)
    print_pair("recorded", f"run {tried.run_id}")


def _result(tried: Tried) -> None:
    if tried.status == "success":
        print_pair("result", f"{DONE} success in {tried.duration}", GOOD)
        return
    why = f": {tried.failure['message']}" if tried.failure is not None else ""
    print_pair("result", f"{FAILED} {tried.status}{why}", BAD, folds=True)


def _call(call: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The command or call, and what it is given."""
    if "transport" in call:
        yield "call", f"{call.get('call')} ({call['transport']})"
    elif call:
        yield "command", with_marked_newlines(shlex.join([call.get("program", ""), *call.get("arguments", ())]))
    for name in ("env", "cwd", "stdin"):
        if name in call:
            yield name, value_text(call[name])


def _quote(title: str, text: str) -> None:
    lines = text.splitlines()
    if not lines:
        print_pair(title, PRINTED_NOTHING, QUIET)
    for at, line in enumerate(lines[:MOST_LINES]):
        print_pair(title if at == 0 else "", f"│ {tidy(line)}")
    if len(lines) > MOST_LINES:
        print_pair("", f"│ … {len(lines) - MOST_LINES:,} more lines; `gert logs last` has all of them")


def _type(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
    return names.get(type(value), clip(type(value).__name__))
