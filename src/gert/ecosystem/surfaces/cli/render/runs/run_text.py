"""Runs as text and JSON: rows of a list, the details of one run, and the next commands."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, get_args

import click
import msgspec

from gert.ecosystem.host.approvals.respond import TicketView
from gert.ecosystem.host.approvals.ticket_document import pending_document
from gert.ecosystem.host.config.variables import again_words_of
from gert.ecosystem.host.redrive.abandon import Abandoned
from gert.ecosystem.host.runs.details import agent_facts, in_doubt_facts, outcome_facts
from gert.ecosystem.host.runs.listed_run import ListedRun
from gert.ecosystem.host.runs.logs import logs_command
from gert.ecosystem.host.runs.row import run_row
from gert.ecosystem.host.shapes.runs import OutcomeDocument, RunRow, StatusFacts
from gert.ecosystem.surfaces.cli.live.output_lines import FailureTail
from gert.ecosystem.surfaces.cli.render.governance.ticket_text import due_text
from gert.ecosystem.surfaces.cli.render.output import folded, near_path, plural
from gert.ecosystem.surfaces.cli.render.table import Cell
from gert.ecosystem.surfaces.cli.render.text import (
    BAD,
    CATEGORY,
    DOUBTFUL,
    GOOD,
    LIVELY,
    LONGEST_NAME,
    QUIET,
    QUOTED,
    age,
    clip,
    elapsed,
    pairs,
    took_text,
    value_text,
)
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.text import one_line, path_text, printable
from gert.kernel.ledger.runner_fold import RunnerSnapshot

HEADINGS: Final = ("run", "runbook", "started", "by", "mode", "status", "result", "events", "took")
SPARE: Final = ("took", "events", "mode", "by", "started")
"""Columns to leave out on a narrow terminal, in this order."""
FIRM: Final = ("started",)
"""Columns that matter more than the whole name of a runbook."""

LONGEST_WHY: Final = 1000
_SHORT_DIGEST: Final = len("sha256:") + 12
_SENTENCES: Final = ("because", "finally", "in doubt")

CHOICES: Final = get_args(Reconciliation)

COLOURS: Final = {
    "running": LIVELY,
    "waiting": DOUBTFUL,
    "cut-off": DOUBTFUL,
    "completed": GOOD,
    "failed": BAD,
    "error": BAD,
    "cancelled": BAD,
    "abandoned": None,
    "active": LIVELY,
    "paused": DOUBTFUL,
    "in-doubt": DOUBTFUL,
}


def row(entry: ListedRun, now: datetime) -> list[Cell]:
    """One run in a list."""
    said = run_row(entry)
    waits = f" ({_waits(entry)})" if entry.tickets else ""
    agent = entry.kind == "agent"
    execution = entry.head.runner
    name = execution.skill_id if execution is not None else said["runbook_name"] or ("" if agent else "?")
    return [
        clip(entry.run_id, 2 * LONGEST_NAME),
        clip(name, LONGEST_NAME),
        f"{age(now - entry.started)} ago" if entry.started is not None else "",
        clip((said["tenant"] if agent else said["actor"]) or "", LONGEST_NAME),
        "try" if said["trial"] else entry.kind if entry.kind != "runbook" else said["mode"] or "",
        (f"{entry.status}{waits}", COLOURS[entry.status]),
        _result(entry, said),
        str(entry.events),
        elapsed(timedelta(seconds=said["duration"])) if said["duration"] is not None else "",
    ]


def _waits(entry: ListedRun) -> str:
    """What the tickets of a run are, in a word."""
    if not entry.is_driven and any(view.is_answered for view in entry.tickets):
        return "answered"
    is_late = not entry.is_driven and any(entry.expired_at(view) for view in entry.tickets)
    return "expired" if is_late else plural(len(entry.tickets), "ticket")


def ticket_rows(entry: ListedRun) -> Iterator[tuple[str, str]]:
    """What a run waits for: each ticket, what to do about it, and what went wrong with it, under titles."""
    for view in entry.tickets:
        status: str = view.status
        if not entry.is_driven and (view.is_answered or entry.expired_at(view)):
            status = due_text(_resume(entry), entry.expired_at(view))
        yield ("waits for", f"ticket {view.id} of `{view.ticket.request.place}`: {status}")
        yield from (("note", note) for note in view.notes)


def _result(entry: ListedRun, said: RunRow) -> Cell:
    """What became of a run: why it did not complete, or else its outcome."""
    if why := said["why"]:
        return one_line(_why(entry, why), LONGEST_WHY)
    outcome = said["outcome"]
    return (f"{outcome['category']}: {outcome['code']}", CATEGORY.get(outcome["category"])) if outcome else ""


def as_document(entry: ListedRun) -> dict[str, Any]:
    """The details of a run as JSON; secrets were redacted before they were recorded."""
    if entry.kind == "agent":
        return {**run_row(entry), **agent_facts(entry), "next": list(commands(entry))}
    if entry.head.runner is not None:
        facts = msgspec.to_builtins(entry.head.runner)
        return {**run_row(entry), **facts, "last_event": entry.last, "next": list(commands(entry))}
    start = entry.start.data if entry.start is not None else {}
    end = entry.end.data if entry.end is not None else {}
    hashes = ("runbook_hash", "tool_hashes", "policy_hashes")
    return {
        **run_row(entry),
        "outcome": outcome_facts(entry),
        "file": entry.started_with.file if entry.started_with is not None else None,
        "host": start.get("host"),
        "gert_version": start.get("gert_version"),
        "parent_run_id": start.get("parent_run_id"),
        **{name: start.get(name) for name in hashes},
        "inputs": start.get("inputs", {}),
        "input_sources": start.get("input_sources", {}),
        "pending": [pending_document(view, entry.now) for view in entry.tickets],
        "in_doubt": in_doubt_facts(entry),
        "last_event": entry.last,
        "end": {
            name: end[name]
            for name in ("failure", "failed_step", "finally_failure", "outcome", "break_glass")
            if name in end
        }
        or None,
        "signed_by": end.get("signing_key_id") if end.get("signature") else None,
        "next": list(commands(entry)),
    }


def about(entry: ListedRun, now: datetime, printed: Mapping[str, str], *, interrupted: bool = False) -> Iterator[str]:
    """The details of a run, line by line.

    printed: what its failed step printed, by stream
    interrupted: a process ended during a call of it
    """
    said = as_document(entry)
    if entry.kind == "agent":
        yield from _about_agent(entry, said, now)
        return
    if entry.head.runner is not None:
        yield from _about_execution(entry, entry.head.runner, said, now)
        return
    status = click.style(entry.status, fg=COLOURS[entry.status])
    yield f"run {click.style(printable(entry.run_id), bold=True)}: {status}"
    began = f"{said['started']}, {_ago(entry.started, now)}" if said["started"] else "never"
    rows = [
        ("runbook", said["runbook_name"]),
        ("file", near_path(said["file"]) if said["file"] else None),
        ("digest", _short(said["runbook_hash"])),
        ("started", f"{began}, by {said['actor']}" + (f" on {said['host']}" if said["host"] else "")),
        ("started by", f"run {said['parent_run_id']}" if said["parent_run_id"] else None),
        ("mode", said["mode"]),
        ("gert", said["gert_version"]),
        ("recorded", f"{plural(entry.events, 'event')} in {near_path(entry.trace or entry.place.name)}"),
        *(("tool", f"{name} {_short(digest)}") for name, digest in (said["tool_hashes"] or {}).items()),
        *(("policy", f"{name} {_short(digest)}") for name, digest in (said["policy_hashes"] or {}).items()),
    ]
    yield from (_line(title, value) for title, value in rows if value)
    yield from _inputs(said)
    yield from _end(entry, said, printed, interrupted=interrupted)
    yield from (_line(title, value) for title, value in ticket_rows(entry))
    yield from _in_doubt(entry)
    yield from (_line("next", command) for command in said["next"])


def about_status(entry: ListedRun, facts: StatusFacts, printed: Mapping[str, str]) -> Iterator[str]:
    """The status of a run in a few lines: its outcome or failure, what it waits for, and what to do next."""
    status = click.style(facts["status"], fg=COLOURS[entry.status])
    yield f"run {clip(facts['run_id'], 2 * LONGEST_NAME)}: {status}"
    rows = [
        ("tenant", facts["tenant_id"]),
        ("events", f"{facts['last_event_seq']}, the last `{facts['last_event_type']}` at {facts['updated_at']}"),
        ("paused for", ", ".join(agent_facts(entry).get("pauses", ())) or None),
        ("waits for", facts["blocked_on"] if not entry.tickets else None),
        *ticket_rows(entry),
    ]
    yield from (_line(title, value) for title, value in rows if value is not None)
    yield from _outcome(facts["outcome"])
    if facts["failed_step"] is not None:
        yield _line("failed at", path_text(facts["failed_step"]))
    if facts["failure_reason"] is not None:
        yield _line("because", facts["failure_reason"])
    yield from last_output(entry, printed)
    if (command := output_command(entry)) is not None:
        yield _line("output", command)
    yield from _in_doubt(entry)
    yield from (_line("next", command) for command in commands(entry))


def _in_doubt(entry: ListedRun) -> Iterator[str]:
    """The calls of a run that have no result, and what to do about each."""
    for call in entry.in_doubt:
        check = f"check the target, then pass --reconcile {'|'.join(CHOICES)}"
        then = "`gert resume` calls it again" if call.idempotent else check
        yield _line(
            "in doubt", f"{path_text(call.path)} ({call.target}): gert stopped before recording a result; {then}"
        )


def last_output(entry: ListedRun, printed: Mapping[str, str]) -> Iterator[str]:
    """The last lines that the failed step of a run printed."""
    tail = FailureTail()
    for stream, text in printed.items():
        tail.feed(stream, text)
    message = entry.head.runbook.failure if entry.head.runbook is not None else None
    yield from (f"    {click.style(QUOTED, fg=QUIET)}{line}" for line in tail.lines(message or ""))


def output_command(entry: ListedRun) -> str | None:
    """The command that shows all that the failed step of a run printed."""
    found = entry.head.runbook
    if found is None:
        return None
    return logs_command(entry.run_id, found.failure_kind, found.failed_step, entry.place.words)


def commands(entry: ListedRun) -> Iterator[str]:
    """The commands to run next."""
    where = entry.place.words
    if entry.kind == "agent":
        tickets = entry.head.agent.tickets.values() if entry.head.agent is not None else ()
        yield from (f"gert approve {each.ticket_id}{where}" for each in tickets)
        if entry.status in ("active", "paused"):
            yield f"gert run tail {entry.run_id} --follow{where}"
        yield f"gert run verify-ledger {entry.run_id}{where}"
    elif entry.kind == "runner":
        recover = entry.status == "cut-off"
        yield f"gert runner recover{where}" if recover else f"gert run verify-ledger {entry.run_id}{where}"
    elif entry.status == "running":
        yield f"gert run tail {entry.run_id} --follow{where}"
    elif entry.status in ("waiting", "cut-off"):
        yield from (f"gert approve {view.id}{where}" for view in _answerable(entry))
        yield _resume(entry)
        yield f"gert run abandon {entry.run_id} --reason TEXT{where}"
    elif entry.status != "completed" and entry.started_with is not None and not entry.is_trial:
        failed = entry.head.runbook.failed_step if entry.head.runbook is not None else None
        step = shlex.quote(path_text(failed)) if failed else "STEP"  # as people read it, which the command takes, too
        yield f"gert rerun {entry.run_id} --from {step}{where}{again_words_of(entry.start)}"


def _answerable(entry: ListedRun) -> list[TicketView]:
    """The tickets that wait for their first answer."""
    return [view for view in entry.tickets if not view.waiting and entry.expired_at(view) is None]


def _resume(entry: ListedRun) -> str:
    return f"gert resume {entry.run_id}{_reconciled(entry)}{entry.place.words}{again_words_of(entry.start)}"


def _reconciled(entry: ListedRun) -> str:
    """The --reconcile options that a resume requires; the operator knows which choice is right."""
    open_calls = (call.path for call in entry.in_doubt if not call.idempotent)
    return "".join(f" --reconcile {shlex.quote(path_text(path))}=CHOICE" for path in open_calls)


def _about_agent(entry: ListedRun, said: dict[str, Any], now: datetime) -> Iterator[str]:
    status = click.style(entry.status, fg=COLOURS[entry.status])
    yield f"agent run {click.style(printable(entry.run_id), bold=True)}: {status}"
    cost = f", {said['model_cost_total']:.6f} USD" if said["model_cost_total"] else ""
    rows = [
        ("tenant", said["tenant"]),
        ("started", f"{said['started']}, {_ago(entry.started, now)}"),
        ("recorded", f"{plural(entry.events, 'event')} in {entry.place.name}, the last at {entry.last}"),
        ("models", f"{plural(said['model_calls'], 'call')}{cost}" if said["model_calls"] else None),
        ("tools", plural(said["tool_calls"], "call") if said["tool_calls"] else None),
        ("progress", f"{said['percent']} %" if said["current_stage"] else None),
        ("stage", said["current_stage"]),
        ("last step", said["last_step_key"]),
        *(("paused for", reason) for reason in said["pauses"]),
        ("waits for", said["blocked_on"]),
        ("failed at", said["failure_step"]),
        ("because", said["failure_reason"]),
        *(("next", command) for command in said["next"]),
    ]
    yield from (_line(title, value) for title, value in rows if value)


def _about_execution(entry: ListedRun, found: RunnerSnapshot, said: dict[str, Any], now: datetime) -> Iterator[str]:
    status = click.style(entry.status, fg=COLOURS[entry.status])
    yield f"execution {click.style(printable(entry.run_id), bold=True)}: {status}"
    rows = [
        ("skill", found.skill_id),
        ("runner", found.runner_id),
        ("plan", found.digest),
        ("started", f"{said['started']}, {_ago(entry.started, now)}" + (f", by {found.actor}" if found.actor else "")),
        ("started by", f"run {found.parent_run_id}" if found.parent_run_id else None),
        ("recorded", f"{plural(entry.events, 'event')} in {entry.place.name}"),
        ("exit code", found.exit_code),
        ("because", f"{found.rule}: {found.message}" if found.rule else None),
        *(("next", command) for command in said["next"]),
    ]
    yield from (_line(title, value) for title, value in rows if value is not None)


def abandoned_lines(ended: Abandoned) -> Iterator[str]:
    """The result of abandoning a run."""
    yield f"{printable(ended.run_id)} is closed: {ended.status}, {plural(ended.events, 'event')}"
    if ended.tickets:
        yield f"closed {plural(len(ended.tickets), 'ticket')}: {', '.join(map(printable, ended.tickets))}"
    for path in ended.in_doubt:
        yield f"the outcome of `{printable(path)}` is unknown: gert stopped before recording a result"
    if ended.finally_steps and ended.status == "cancelled":
        steps = plural(ended.finally_steps, "step")
        yield f"{steps} of `finally` did not run: abandoning a run calls no tools"
    if not ended.redriven:
        yield "its runbook, tools, policies or answers have changed: the record was closed without replaying it"
    if ended.warning is not None:
        yield f"warning: {printable(ended.warning)}"


def _inputs(said: dict[str, Any]) -> Iterator[str]:
    for name, value in (said["inputs"] or {}).items():
        source = said["input_sources"].get(name) if isinstance(said["input_sources"], dict) else None
        yield _line("input", f"{name} = {value_text(value)}" + (f" ({source})" if source else ""))


def _end(entry: ListedRun, said: dict[str, Any], printed: Mapping[str, str], *, interrupted: bool) -> Iterator[str]:
    end = said["end"] or {}
    if entry.end is not None:
        end_data = entry.end.data
        waited = end_data.get("waited")
        waited = None if waited is None else str(waited)
        yield _line("took", took_text(str(end_data.get("duration", "")), waited, interrupted=interrupted))
    yield from _outcome(outcome_facts(entry))
    for title, name in (("failed at", "failed_step"), ("because", "failure"), ("finally", "finally_failure")):
        value = end.get(name)
        if isinstance(value, dict):
            value = f"{value.get('kind')}: {value.get('message')}"
        if isinstance(value, str):
            yield _line(title, path_text(value) if name == "failed_step" else value)
        if name == "failure":
            yield from last_output(entry, printed)
    if (command := output_command(entry)) is not None:
        yield _line("output", command)
    if end.get("break_glass"):
        yield _line("glass", f"{end['break_glass']} decisions overridden")


def _outcome(outcome: OutcomeDocument | None) -> Iterator[str]:
    if outcome is not None:
        yield _line("outcome", f"{outcome['category']}: {outcome['code']}")
        yield from (_line("", text) for text in pairs(outcome.get("meta", {})))


def _short(digest: str | None) -> str | None:
    """As much of a digest as people compare; `--json` has all of it."""
    return f"{digest[:_SHORT_DIGEST]}…" if digest is not None and len(digest) > _SHORT_DIGEST else digest


def _line(title: str, value: object) -> str:
    before = (f"  {clip(title, LONGEST_NAME)}:" if title else "").ljust(14) + " "
    shown = clip(str(value))
    return before + (folded(shown, len(before), len(before)) if title in _SENTENCES else shown)


def _why(entry: ListedRun, why: str) -> str:
    """Why a run failed, with the step as people read it; a message that begins with its name says it once."""
    failed = entry.head.runbook.failed_step if entry.head.runbook is not None else None
    if not failed or not why.startswith(f"{failed}: "):
        return why
    name, message = path_text(failed), why.removeprefix(f"{failed}: ")
    last = path_text(failed[failed.rfind("/") + 1 :])
    return message if message.startswith((f"`{name}`", f"`{last}`: ")) else f"{name}: {message}"


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{elapsed(max(now - moment, timedelta()))} ago" if moment is not None else ""
