"""A request for approval as text: what would run, which rule asks, and who may approve."""

import shlex
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from gert.kernel.foundation.canonical import digest_value
from gert.kernel.foundation.columns import cut_middle
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


def compact(request: ApprovalRequest, *, number: str | None = None) -> Iterator[StyledLine]:
    """What an approver decides on: the command, its inputs, the preview; `whole` has the rest.

    number: which it is of the requests that are shown together: `1 of 2`
    """
    yield _heading(_headline(request), number)
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
    yield from map(_diff_line, _preview(request))


def whole(request: ApprovalRequest, *, number: str | None = None) -> Iterator[StyledLine]:
    """All that is known, each once and uncut as far as a person can read it; what would run stands last."""
    yield StyledLine("")
    yield _heading(_full_headline(request), number)
    yield from map(_diff_line, _preview(request, _MAX_WHOLE))
    name, value = _what_runs(request)
    is_last = len(_shown(value, _MAX_COMMAND)) <= _MAX_REMINDER
    yield from map(StyledLine, _facts(request, _MAX_COMMAND, without=name if is_last else None))
    yield from reminder(request, number=number)


def reminder(request: ApprovalRequest, *, number: str | None = None) -> Iterator[StyledLine]:
    """The step and what would run: the lines above may have left the screen."""
    name, value = _what_runs(request)
    yield StyledLine(f"  {f'{number}:' if number else 'step:':<15}{_headline(request)}", "bold")
    yield StyledLine(f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_REMINDER, _ABOVE)}", "cyan")


def name_of(request: ApprovalRequest, width: int) -> str:
    """The step in so many columns."""
    return cut_middle(exact_line(request.place), width)


def _what_runs(request: ApprovalRequest) -> tuple[str, Any]:
    return next(command_rows(request), ("target", request.target))


def _diff_line(line: str) -> StyledLine:
    return StyledLine(line, (line.startswith("    │ ") and _DIFF.get(line[6:7])) or None)


def _heading(headline: str, number: str | None) -> StyledLine:
    return StyledLine(f"{'approval needed for step' if number is None else f'{number}:'} {headline}", "bold")


def _headline(request: ApprovalRequest) -> str:
    title = f": {one_line(request.title, _MAX_TITLE)}" if request.title else ""
    return f"`{_cut(exact_line(request.place), _MAX_TITLE)}`{title}"


def rule_line(request: ApprovalRequest) -> StyledLine:
    """Why approval is needed, and of whom."""
    limits = [f"{request.min_approvers} different people"] if request.min_approvers > 1 else []
    limits += [f"by {_approvers(request)}"] if request.approvers or request.separation_of_duties else []
    words = "; ".join([f"{request.risk_level} risk", f"rule: {request.rule or 'the default for this risk'}", *limits])
    return StyledLine(f"  {'because:'.ljust(15)}{_shown(words)}", "yellow")


def summary(request: ApprovalRequest) -> Iterator[str]:
    """What an approver must see, line by line; secrets are masked."""
    yield from ("", f"approval needed for step {_full_headline(request)}")
    yield from _facts(request, _MAX_SHOWN)
    yield from _preview(request)


def _full_headline(request: ApprovalRequest) -> str:
    return f"`{_shown(request.place)}`{f': {_shown(request.title)}' if request.title else ''}"


def _facts(request: ApprovalRequest, longest: int, without: str | None = None) -> Iterator[str]:
    """The rows of a request but for its preview.

    without: a row to leave out
    """
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
        if name != without:
            yield f"  {f'{name}:'.ljust(15)}{_shown(value, _MAX_COMMAND if name in started else longest)}"
    if request.inputs:
        yield "  inputs:"
    for name, value in request.inputs.items():
        yield f"    {exact_line(name)}: {_shown(value, longest)}{hidden_note(request, name)}"


def _preview(request: ApprovalRequest, most: int = _MAX_LINES) -> Iterator[str]:
    """What the preview printed, or why it was not run."""
    if request.preview_skipped is not None:
        command = _shown(shlex.join(request.preview_command))
        yield f"  preview:       not run, {_shown(request.preview_skipped)}: {command}"
    if request.preview is not None:
        yield f"  preview:       {_shown(shlex.join(request.preview_command))}"
        lines = masked(request.preview).splitlines()
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
