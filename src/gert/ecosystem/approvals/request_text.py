"""A request for approval as text: what would run, which rule asks, and who may approve."""

import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.foundation.text import PRINTED_NOTHING, exact_line, one_line, printable
from gert.kernel.governance.approval import ApprovalRequest

_MAX_SHOWN: Final = 2000
_MAX_TITLE: Final = 100
_MAX_REMINDER: Final = 400
_MAX_COMMAND: Final = 64 * 1024
"""A command is shown whole; a longer one cannot be read by a person."""
_MAX_LINES: Final = 200
_MAX_WHOLE: Final = 5000
_DIFF: Final = {"+": "green", "-": "red", "@": "cyan"}
"""The styles of the lines of a diff, by their first character."""


class StyledLine(NamedTuple):
    """A line of text, and how a terminal shows it."""

    text: str
    style: str | None = None


def compact(request: ApprovalRequest, *, number: int | None = None) -> Iterator[StyledLine]:
    """What an approver decides on: the command, its inputs, the preview; `summary` has the rest.

    number: of one among several requests that are shown together
    """
    begun = "approval needed for step" if number is None else f"{number}."
    yield StyledLine(f"{begun} {_headline(request)}", "bold")
    rows = [(name, value) for name, value in command_rows(request) if name not in ("program", "folder")]
    for name, value in rows or [("target", request.target)]:
        yield StyledLine(
            f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_COMMAND, _ASK)}", "cyan" if name == "command" else None
        )
    if request.description:
        yield StyledLine(f"  {'description:'.ljust(15)}{_shown(request.description, more=_ASK)}")
    for at, (name, value) in enumerate(request.inputs.items()):
        heading = "inputs:" if at == 0 else ""
        yield StyledLine(
            f"  {heading.ljust(15)}{exact_line(name)}: {_shown(value, more=_ASK)}{hidden_note(request, name)}"
        )
    for line in _preview(request):
        added = line.startswith("    │ ") and _DIFF.get(line[6:7])
        yield StyledLine(line, added or None)


def reminder(request: ApprovalRequest, *, number: int | None = None) -> Iterator[StyledLine]:
    """The step and what would run, once more: the lines above may have left the screen."""
    [(name, value), *_] = [*command_rows(request), ("target", request.target)]
    label = "step:" if number is None else f"{number}. step:"
    yield StyledLine(f"  {label.ljust(15)}{_headline(request)}", "bold")
    yield StyledLine(f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_REMINDER, _ABOVE)}", "cyan")


def _headline(request: ApprovalRequest) -> str:
    title = f": {one_line(request.title, _MAX_TITLE)}" if request.title else ""
    return f"`{_cut(exact_line(request.place), _MAX_TITLE)}`{title}"


def rule_line(request: ApprovalRequest) -> StyledLine:
    """Why approval is needed, and of whom."""
    limits = [f"{request.min_approvers} different people"] if request.min_approvers > 1 else []
    limits += [f"by {_approvers(request)}"] if request.approvers or request.separation_of_duties else []
    words = "; ".join([f"{request.risk_level} risk", f"rule: {request.rule or 'the default for this risk'}", *limits])
    return StyledLine(f"  {'because:'.ljust(15)}{_shown(words)}", "yellow")


def summary(request: ApprovalRequest, *, whole: bool = False) -> Iterator[str]:
    """What an approver must see, line by line; secrets are masked.

    whole: for the person who has seen `compact`: values are not cut, as far as a person can read them, and a preview is
        repeated only if it was cut, before all else
    """
    if whole and len(_preview_lines(request)) > _MAX_LINES:
        yield from _preview(request, _MAX_WHOLE)
    longest = _MAX_COMMAND if whole else _MAX_SHOWN
    title = f": {_shown(request.title)}" if request.title else ""
    yield from ("", f"approval needed for step `{_shown(request.place)}`{title}")
    rows: list[tuple[str, Any]] = [
        *([("description", request.description)] if request.description else []),
        (request.run_kind, request.origin),
        ("run", request.run_id),
        ("target", request.target),
        *command_rows(request),
        ("risk", request.risk_level),
        ("rule", request.rule or "the default for this risk"),
        *((name, value) for name, value in request.contract.items() if name not in ("inputs", "outputs")),
        ("asked by", request.requested_by or "the kernel"),
        ("approvers", _approvers(request)),
        ("needed", f"{request.min_approvers} different people" if request.min_approvers > 1 else "one"),
        *([("notified", ", ".join(request.notify))] if request.notify else []),
        ("request", request.request_hash),
    ]
    started = dict(command_rows(request))
    for name, value in rows:
        yield f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_COMMAND if name in started else longest)}"
    if request.inputs:
        yield "  inputs:"
    for name, value in request.inputs.items():
        yield f"    {exact_line(name)}: {_shown(value, longest)}{hidden_note(request, name)}"
    if not whole:
        yield from _preview(request)


def _preview_lines(request: ApprovalRequest) -> list[str]:
    return masked(request.preview).splitlines() if request.preview is not None else []


def _preview(request: ApprovalRequest, most: int = _MAX_LINES) -> Iterator[str]:
    """What the preview printed, or why it was not run."""
    if request.preview_skipped is not None:
        command = _shown(shlex.join(request.preview_command))
        yield f"  preview:       not run, {_shown(request.preview_skipped)}: {command}"
    if request.preview is not None:
        yield f"  preview:       {_shown(shlex.join(request.preview_command))}"
        lines = _preview_lines(request)
        if not lines:
            yield f"    {PRINTED_NOTHING}"
        yield from (f"    │ {printable(line.expandtabs(4))}" for line in lines[:most])
        if len(lines) > most:
            yield f"    │ … ({len(lines) - most} more lines)"


def command_rows(request: ApprovalRequest) -> Iterator[tuple[str, Any]]:
    """The command or call that would be made, and where its program was found."""
    call = request.command
    if call is None:
        return
    if "transport" in call:
        yield "call", f"{call.get('call')} ({call['transport']})"
        started = shlex.join([call["program"], *call.get("arguments", ())]) if "program" in call else None
        yield "server", started or call.get("connect")
    else:
        yield "command", shlex.join([call.get("program", ""), *call.get("arguments", ())])
    yield from ((name, call[name]) for name in ("env", "cwd", "stdin") if name in call)
    if request.plan is not None:
        yield from plan_rows(request.plan)
    if request.program is not None:
        yield "program", request.program
    if request.folder is not None:
        yield "folder", request.folder


def plan_rows(plan: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The plan that a runner would execute: who reaches what, with which secret, and for how long."""
    policy = plan.get("network_policy") or {}
    named = plan.get("plan_id") or "named when it is executed; without its id and date:"
    yield "plan", f"{named} {digest_value(plan)}"
    yield "runner", plan.get("runner_id")
    reaches = f"{' '.join(policy.get('methods', ()))} {' '.join(policy.get('domains', ()))}".strip()
    yield "network", f"https: {reaches}" if reaches else "none"
    yield "secret", f"{plan.get('secret_ref') or 'none'} ({' '.join(plan.get('scope') or ()) or 'no scope'})"
    yield "valid for", f"{plan.get('ttl_seconds')} s, one execution"
    if plan.get("unsandboxed"):
        yield "isolation", "NONE: the program may run without a sandbox"


def hidden_note(request: ApprovalRequest, name: str) -> str:
    """A remark on an input that is not shown although the tool does not declare it secret."""
    return " (marked secret by the runbook, not by the tool)" if request.hidden.get(name) == "runbook" else ""


def _approvers(request: ApprovalRequest) -> str:
    who = " and ".join(f"one of {', '.join(names)}" for names in request.approvers) or "anyone"
    return f"{who}, but not the person who started the run" if request.separation_of_duties else who


_JSON: Final = "; `gert approvals show --json` has all of them"
_ASK: Final = "; ? shows them"
_ABOVE: Final = "; they are above"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(value: Any, most: int = _MAX_SHOWN, more: str = _JSON) -> str:
    """A value on one line; it says how much was cut, since what is not seen is approved too.

    more: where the rest can be seen
    """
    if value is None:
        return "not declared"
    plain = masked(value)
    text = exact_line(plain if isinstance(plain, str) else msgspec.json.encode(plain).decode())
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most} more characters{more})"
