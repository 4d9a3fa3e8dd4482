"""Operations for a person's own editor: runs, events, approvals, evidence and inputs. Agents get none of these."""

import asyncio
import os
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, field

from gert.ecosystem.host.approvals.respond import Verdict, respond
from gert.ecosystem.host.approvals.ticket_document import answered_document, ticket_document
from gert.ecosystem.host.approvals.ticket_ledger import NoLedger, open_tickets
from gert.ecosystem.host.background.messages import Sender, advance_run, give_evidence
from gert.ecosystem.host.operations.access import Access, Refused
from gert.ecosystem.host.operations.documents import RunbookPath
from gert.ecosystem.host.operations.runs import MOST_LINES, RunId
from gert.ecosystem.host.runs.listed_run import STATUSES
from gert.ecosystem.host.runs.listing import Runs
from gert.ecosystem.host.runs.row import run_row
from gert.ecosystem.host.shapes.approvals import AnsweredTicket, TicketList
from gert.ecosystem.host.shapes.documents import InputList
from gert.ecosystem.host.shapes.runs import EventPage, RunList, RunRow, Sent
from gert.kernel.runbook.documents.runbook import Runbook

MOST_EVENTS: Final = 1000


class ListRuns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List recorded runs, the newest first."""

    status: Annotated[str | None, Meta(description=f"One of {', '.join(STATUSES)}.")] = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


async def list_runs(access: Access, said: ListRuns) -> RunList:
    """Id, runbook, start, actor, status and outcome of each run."""
    if said.status is not None and said.status not in STATUSES:
        raise Refused("unknown_status", f"no status `{said.status}`", field="status", hint=", ".join(STATUSES))
    return {"runs": await asyncio.to_thread(_runs, access, said)}


def _runs(access: Access, said: ListRuns) -> list[RunRow]:
    found: list[RunRow] = []
    with Runs(access.place) as runs:
        for entry in runs.newest():
            if said.status is None or entry.is_of(said.status):
                found.append(run_row(entry))
            if len(found) == said.limit:
                break
    return found


class Events(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the events of a run."""

    run_id: RunId
    since: Annotated[int, Meta(ge=0, description="Events after this number of the ledger.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_EVENTS)] = MOST_LINES


async def events(access: Access, said: Events) -> EventPage:
    """Events in order, numbered by the ledger: an editor that reconnects asks for those it has not seen."""
    access.require_run_id(said.run_id)
    lines, total = await asyncio.to_thread(_events, access, said)
    found = [msgspec.json.decode(line) for line in lines]
    return {"run_id": said.run_id, "events": found, "last": said.since + len(found), "total": total}


def _events(access: Access, said: Events) -> tuple[list[bytes], int]:
    with Runs(access.place) as runs:
        entry = runs.entry(runs.find(said.run_id))
        lines = runs.reader.ask(lambda ledger: ledger.lines(entry.run_id, said.since, said.limit))
        return lines, entry.events


class ListApprovals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List approval tickets."""

    all: Annotated[bool, Meta(description="Also closed ones.")] = False


async def list_approvals(access: Access, said: ListApprovals) -> TicketList:
    """Open tickets with exactly what will run, oldest first."""
    try:
        async with open_tickets(access.place, access.environ) as tickets:
            found = await tickets.all(*(() if said.all else ("pending",)))
            now = await tickets.time()
    except NoLedger:
        return {"tickets": []}
    rows: list[Any] = [ticket_document(view, now) for view in found]
    return {"tickets": rows}


class AnswerApproval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Approve or reject a ticket, as the person at this editor."""

    ticket_id: Annotated[str, Meta(description="The id of a ticket.")]
    verdict: Literal["approve", "reject"]
    reason: str | None = None
    approver: Annotated[str | None, Meta(description="Approver to record (default: the current user).")] = None
    key: Annotated[str | None, Meta(description="Variable or file of the key to sign with.")] = None


async def answer_approval(access: Access, said: AnswerApproval) -> AnsweredTicket:
    """Post the response to the run; the run decides whether it counts."""
    access.require_write()
    verdict = Verdict(
        ticket=said.ticket_id,
        approved=said.verdict == "approve",
        approver=said.approver,
        reason=said.reason,
        key=said.key,
    )
    given = await respond(verdict, access.place, access.environ)
    return answered_document(given, verdict.approved, access.place.words)


class Advance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let the next call of a run begin that goes step by step."""

    run_id: RunId
    path: str | None = None
    key: str | None = None


async def advance(access: Access, said: Advance) -> Sent:
    """Send the message; the run records it."""
    access.require_write()
    run_id = access.require_run_id(said.run_id)
    await advance_run(Sender(database=access.database, key=said.key), run_id, access.environ, said.path)
    return {"run_id": run_id, "message": "advance", "sent": True}


class GiveEvidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give the evidence of a manual step, or reject the step."""

    run_id: RunId
    path: Annotated[str, Meta(description="The path of the step.")]
    evidence: dict[str, Any] = field(default_factory=dict)
    reject: str | None = None
    key: str | None = None


async def evidence(access: Access, said: GiveEvidence) -> Sent:
    """Send it to the run, which checks it and records who gave it."""
    access.require_write()
    run_id = access.require_run_id(said.run_id)
    sender = Sender(database=access.database, key=said.key)
    await give_evidence(sender, run_id, said.path, access.environ, said.evidence, said.reject)
    return {"run_id": run_id, "message": "evidence", "sent": True}


class Inputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the inputs of a runbook, to build a form."""

    path: RunbookPath


async def inputs(access: Access, said: Inputs) -> InputList:
    """Each input with type, limits, default and source; `needed` says that a person has to give it."""
    model = access.workspace().check(access.runbook(said.path)).document.model
    if not isinstance(model, Runbook):
        raise Refused("invalid_runbook", "the runbook is not valid", field="path")
    found: dict[str, Any] = {}
    for name, block in model.meta.inputs.items():
        parameter = block.parameter()
        source = block.from_
        is_set = source is not None and source.startswith("env/") and source.removeprefix("env/") in access.environ
        found[name] = {
            **parameter.summary(),
            "from": source,
            "needed": parameter.must_be_given and not is_set and source in (None, "prompt"),
        }
    return {"runbook_name": model.meta.name, "inputs": found}


class Watch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Validate files now and whenever they change."""

    paths: Annotated[list[str], Meta(description="Files below the served folder.", max_length=1000)]


def watched(access: Access, said: Watch) -> dict[str, str]:
    """The files to watch, by the path that the editor knows."""
    return {path: access.file(path, "paths") for path in said.paths}


def stamp(path: str) -> tuple[int, int] | None:
    """What changes when a file is written; None where it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
