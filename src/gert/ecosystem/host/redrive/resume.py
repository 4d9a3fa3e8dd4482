"""Resume a run: the recorded answers first, then the live world (DECISIONS 35)."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import field

from gert.ecosystem.approvals.responses import messages_of
from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.config.keys.trace_keys import sealing_keys, signing_key
from gert.ecosystem.host.config.machine.platform import host_name
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.host.config.state_dir import RunFolder
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.embedding.ports import Parts
from gert.ecosystem.host.redrive.reconcile import Missing, Reconciled, reconcile_calls, require_ended
from gert.ecosystem.host.redrive.recorded_run import (
    Opened,
    Record,
    RedriveOptions,
    find_recorded,
    load_record,
    open_driven,
)
from gert.ecosystem.host.redrive.redrive import RedriveJournal, is_alike
from gert.ecosystem.host.run.driver.clock import RunClock
from gert.ecosystem.host.run.driver.driver import Suspended
from gert.ecosystem.host.run.driver.signals import Relay
from gert.ecosystem.host.run.execute import drop_box_for, pausing, recording_for, world_for
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.host.run.record.live_output import LiveOutput
from gert.ecosystem.host.run.session import Session, drive_run
from gert.ecosystem.host.run.world.call_binding import Binding
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.host.run.world.input_sources import resolvers
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.runs.find import LAST
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.errors import InputError, IntegrityError, OutputsMissing, UsageError
from gert.kernel.engine.inputs import PROMPT, InputBinding, ResolvedInputs
from gert.kernel.engine.requests import AwaitApproval, CallExtension, CallTool, Emit, Request
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.runbook import FinallyStart, RunResumed
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import path_text
from gert.kernel.ledger.port import Ledger

FINALLY: Final = FinallyStart.type


class ResumeOptions(RedriveOptions, frozen=True, kw_only=True):
    """The run to resume, and how.

    reconcile: the outcome of calls without a recorded result, by step; under `*` that of all others
    reconcile_outputs: outputs of such calls that succeeded, each as `STEP.name=value`
    ticket: resume only if the run waits for this one; a unique prefix is enough
    allow_running: resume although a tool that the run started before still runs
    record: the folder a scenario of the run is written to, in place of the one that it was started with
    principal: who resumes it, where that is no person; `actor` has its id
    """

    ticket: str | None = None
    reconcile: Mapping[str, Reconciliation] = field(default_factory=dict)
    reconcile_outputs: tuple[str, ...] = ()
    allow_running: bool = False
    record: str | None = None
    principal: Principal | None = None


async def resume(
    options: ResumeOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
    parts: Parts | None = None,
) -> Executed:
    """Resume a run; an error that prevents it is raised, and leaves the run as it was.

    At a terminal, outputs that a reconciled call must have are asked for.
    """
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    console = console if console is not None else Console.standard(*pausing(observers))
    while True:
        try:
            return await _resume(options, observers, console, environ, relay, parts)
        except OutputsMissing as problem:
            if not console.interactive:
                raise
            given = await _ask_for(problem, console)
            options = msgspec.structs.replace(options, reconcile_outputs=(*options.reconcile_outputs, *given))


def resume_run(run_id: str, *, parts: Parts | None = None, **options: Any) -> Executed:
    """Resume a run and wait for it to end; `options` are those of `ResumeOptions`.

    Within a running event loop, await `execute_resume` instead.
    """
    return asyncio.run(resume(ResumeOptions(run_id=run_id, **options), parts=parts))


async def _ask_for(problem: OutputsMissing, console: Console) -> list[str]:
    """Ask the operator for the outputs of calls that succeeded; raise the problem where one is not given."""
    missing = cast("list[Missing]", problem.missing)
    bindings = [
        InputBinding(name=f"{path_text(path)}.{name}", source=PROMPT, path="", parameter=parameter)
        for path, name, parameter in missing
    ]
    values = (await PromptResolver(console).resolve(bindings)).values
    if len(values) < len(bindings):
        raise problem
    return [f"{name}={value}" for name, value in values.items()]


async def _resume(
    options: ResumeOptions,
    observers: tuple[Observer, ...],
    console: Console,
    environ: Mapping[str, str],
    relay: Relay | None,
    parts: Parts | None,
) -> Executed:
    database = options.own_ledger(environ)
    async with AsyncExitStack() as held:
        run_id = await find_recorded(options.run_id, database, environ)
        ledger = await open_driven(held, run_id, database, environ, sync=options.sync)
        actor = options.actor or user_name()
        record = await load_record(ledger, run_id, sealing_keys(environ), options.adopt)
        _require_unfinished(record)
        if options.ticket is not None:
            options = msgspec.structs.replace(options, ticket=await _ticket(ledger, run_id, options.ticket))
        run = _options(options, record)
        prepared = Prepared(run, environ, Workspace(stored=record.documents), parts)
        prepared.require_supported(record.start.working)
        changed = changes(prepared, record)
        accepted = _accepted(record) if changed else {}
        new = [name for name, digest in changed.items() if accepted.get(name) != digest]
        if new and not options.allow_changed:
            since = "it was accepted" if new[0] in accepted else "the run began"
            raise IntegrityError(
                f"{new[0]} was changed since {since}",
                hint="`gert resume --allow-changed` uses what is there now, and records it",
            )
        if record.private is not None:
            # Without it the key would be a new one, and no approval that binds a secret input would hold.
            prepared.approval_key = record.private.decode()
        if prepared.witness is not None:
            from gert.ecosystem.host.config.witness import attach_witness  # most runs have no witness

            await attach_witness(ledger, record.run_id, database, prepared.settings, environ)
        ledger.export = export_for(prepared.settings.telemetry, environ)
        inputs = await _inputs(prepared, record, options, console)
        redactor = prepared.redactor(inputs)
        setup = record.setup(prepared, inputs)
        # A run must not be stuck because the folder that it was started with is taken by now.
        recording = recording_for(prepared, setup, is_checked=options.record is not None)
        _, left = await ledger.output(record.run_id)
        output = LiveOutput(record.run_id, (piece.key for piece in left))
        live = world_for(prepared, setup, inputs, redactor, (*observers, output), console, record.start.working)
        answers = record.logged
        resumed = RunResumed(
            actor=actor,
            host=host_name(),
            gert_version=version_line(),
            answered=len(answers),
            ticket_id=options.ticket,
            accepted_changes=tuple(changed),
            accepted_digests=changed,
        )
        mirror = _mirror(record, options)
        journal = RedriveJournal(
            record.run_id,
            record.lines,
            record.answers,
            ledger,
            mirror=mirror,
            same=is_alike if changed else None,
            opening=[
                Emit(payload, None, options.principal or Principal("human", actor))
                for payload in (record.adopted, resumed)
                if payload is not None
            ],
            adopt=record.adopted is not None,
            key=signing_key(environ),
            observers=observers,
            has_secrets=bool(inputs.secrets),
            live=output,
        )
        reconciled = Reconciled(live.world, Sanitizer(redactor))
        timeout = _time_left(prepared, record)
        waits = run.approvals == "detach" and (timeout is None or timeout > 0)
        head = await ledger.head(run_id)
        tickets = head.runbook.waits if head is not None and head.runbook is not None else {}
        is_open = await _open_tickets(ledger, prepared, record.run_id, live.binding, tickets) if waits else None
        go_live = _go_live(run_id, journal, record.lines, reconciled, options, is_open, tickets, live.knows)
        journal.on_end = partial(go_live, [])
        session = Session(
            prepared=prepared,
            setup=setup,
            live=msgspec.structs.replace(live, world=reconciled),
            opened=Opened(ledger, mirror, mirror.path if mirror is not None else None),
            journal=journal,
            timeout=timeout,
            relay=relay,
            recording=recording,
            recorded=answers,
            on_live=go_live,
            clock=RunClock(record.lines),
        )
        return await drive_run(session)


def _go_live(
    run_id: str,
    journal: RedriveJournal,
    lines: Iterable[bytes],
    world: Reconciled,
    options: ResumeOptions,
    is_open: Callable[[Request[Any]], bool] | None,
    waits: Mapping[str, str],
    knows: Callable[[CallTool | CallExtension], bool] | None,
) -> Callable[[list[Request[Any]]], None]:
    def go_live(announced: list[Request[Any]]) -> None:
        waited = [ask.ticket_id for ask in announced if isinstance(ask, AwaitApproval)]
        if options.ticket is not None and options.ticket not in waited:
            raise UsageError(
                f"the run does not wait for the ticket `{options.ticket}`",
                hint=f"it waits for {listing(waited)}" if waited else None,
            )
        if not options.allow_running:
            require_ended(run_id, announced, lines)
        choices = reconcile_calls(announced, options.reconcile, options.reconcile_outputs, knows)
        if is_open is not None and journal.repeats and announced and all(map(is_open, announced)):
            # Everything waits as it did: an attempt to resume is not recorded.
            raise Suspended(announced, {ask.key: waits[ask.path] for ask in announced if ask.path in waits})
        journal.go_live()
        for choice in choices:
            journal.say(Emit(choice.event, choice.path, None))
        world.settled = {choice.key: choice for choice in choices}

    return go_live


async def _ticket(ledger: Ledger, run_id: str, named: str) -> str:
    """The ticket that a unique prefix names, or `last`; one that the run does not wait for is refused later."""
    waiting = [row.ticket_id for row in await ledger.tickets("pending", run_id=run_id)]
    found = waiting if named == LAST else [each for each in waiting if named and each.startswith(named)]
    return found[0] if len(found) == 1 else named


async def _open_tickets(
    ledger: Ledger, prepared: Prepared, run_id: str, binding: Binding | None, waits: Mapping[str, str]
) -> Callable[[Request[Any]], bool]:
    """A predicate: whether a request waits for an open ticket that has no response yet.

    waits: tickets of agents, by the path of the step
    """
    now = await ledger.time()
    messages = messages_of(ledger, run_id)
    received = {each.ticket_id async for each in messages if each.taken is None and each.kind == "approval"}
    drop_box = drop_box_for(prepared)
    views = {path: await Tickets(ledger).get(ticket_id) for path, ticket_id in waits.items()}

    def is_open(ask: Request[Any]) -> bool:
        if isinstance(ask, CallExtension) and ask.path in views:
            view = views[ask.path]
            dropped = drop_box is not None and drop_box.holds(view.id)
            return view.status_at(now) == "pending" and not view.waiting and not dropped
        if not isinstance(ask, AwaitApproval) or ask.ticket_id in received:
            return False
        if binding is not None and binding.outdated(ask.request, ask.subject) is not None:
            return False
        if drop_box is not None and drop_box.holds(ask.ticket_id):
            return False
        return ask.expires_at is None or now <= parse_timestamp(ask.expires_at)

    return is_open


def _mirror(record: Record, options: ResumeOptions) -> Mirror | None:
    """The mirror of a run, brought up to its record; a run of a ledger that was named has none of its own."""
    path = record.start.trace
    if path is None and options.db is None and options.dsn is None:
        folder = RunFolder(record.start.state_dir or "", record.run_id)
        if not os.path.isdir(folder.path):
            folder.create()
        path = folder.trace
    return None if path is None else Mirror.complete(path, record.lines)


def _require_unfinished(record: Record) -> None:
    if record.report.completion is not None:
        raise UsageError(f"run `{record.run_id}` has ended", hint="`gert rerun` takes its answers for a new one")
    working = record.start.working
    if not os.path.isdir(working):
        raise UsageError(f"the folder `{working}` is gone, and the tools of run `{record.run_id}` run there")


def _options(options: ResumeOptions, record: Record) -> RunOptions:
    is_named = options.db is not None or options.dsn is not None
    return options.run_options(
        record,
        actor=record.started.actor,
        trace=None if is_named else record.start.trace,
        state_dir=options.state_dir or record.start.state_dir,
        record=options.record if options.record is not None else record.start.record,
    )


def changes(prepared: Prepared, record: Record) -> dict[str, str]:
    """What has changed since the run began, with its digest now; empty where it is gone."""
    found = {}
    if prepared.checked.document.digest != record.started.runbook_hash:
        found[f"the runbook `{record.start.file}`"] = prepared.checked.document.digest
    for kind, before, after in (
        ("the tool", record.start.tools, prepared.tool_hashes),
        ("the skill", record.start.skills, prepared.skill_hashes),
        ("the policy", record.started.policy_hashes, prepared.floor.digests),
    ):
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                found[f"{kind} `{name}`"] = after.get(name, "")
    return found


def _accepted(record: Record) -> Mapping[str, str]:
    """The changes that the last resume accepted: each holds while the file has the digest it had then."""
    events = map(decode, record.lines)
    resumed = [event.data.get("accepted_digests") for event in events if event.type == RunResumed.type]
    return (resumed[-1] or {}) if resumed else {}


async def _inputs(prepared: Prepared, record: Record, options: ResumeOptions, console: Console) -> ResolvedInputs:
    """The recorded inputs; secrets are resolved again."""
    declared = prepared.program.runbook.meta.inputs
    secret = {name: declared[name] for name in record.start.secret_inputs if name in declared}
    sources = resolvers(prepared, console)
    found = await resolve(secret, options.given, sources, prepared.floor.policies, record.secret_sources)
    for name in record.start.secret_inputs:
        if name not in found.secrets:
            raise InputError(
                f"the run was started with the secret input `{name}`, which the runbook no longer has",
                hint="declare it again, or start a new run with `gert exec`",
            )
    return record.resolved(found.secrets)


def _time_left(prepared: Prepared, record: Record) -> float | None:
    """Seconds the run may still take; `finally` runs however the run ended, and has no limit."""
    if prepared.timeout is None or any(decode(line).type == FINALLY for line in record.lines):
        return None
    until = parse_timestamp(record.started_at) + timedelta(seconds=prepared.timeout)
    return max(0.0, (until - now()).total_seconds())
