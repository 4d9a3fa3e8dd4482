"""Going on with a run: the recorded answers first, the live world after (DECISIONS 35)."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import field

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.approvals.answers import tickets_for_run
from gert.ecosystem.host.config.key_files import with_key_files
from gert.ecosystem.host.config.ledger_location import Database, database_for, ledger_of
from gert.ecosystem.host.config.platform import host_name
from gert.ecosystem.host.config.state_dir import RunFolder, state_dir
from gert.ecosystem.host.config.supported import require_supported
from gert.ecosystem.host.config.trace_keys import sealing_keys, signing_key
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.config.version import version_line
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.redrive.reconcile import Missing, Reconciled, require_ended, settle_doubts
from gert.ecosystem.host.redrive.record import Adopt, Record, load_record, open_driven, require_own
from gert.ecosystem.host.redrive.resume_journal import ResumeJournal
from gert.ecosystem.host.run.call_binding import Binding
from gert.ecosystem.host.run.clock import RunClock
from gert.ecosystem.host.run.console import Console
from gert.ecosystem.host.run.driver import Suspended
from gert.ecosystem.host.run.execute import everyone, resolvers, world_for
from gert.ecosystem.host.run.journal import now, read_answers
from gert.ecosystem.host.run.live_output import LiveOutput
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import ApprovalMode, Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared, user_name
from gert.ecosystem.host.run.sanitize import Intake
from gert.ecosystem.host.run.session import Stage, conduct
from gert.ecosystem.host.run.signals import Relay
from gert.ecosystem.host.run.start_record import RunState
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.ledger.jsonl.mirror import Mirror
from gert.errors import DocumentError, IntegrityError, OutputsMissing, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import PROMPT, Given, InputBinding, ResolvedInputs
from gert.kernel.engine.requests import Ask, AwaitApproval, Said
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.runbook import FinallyStart, RunResumed
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.ledger.port import Ledger

FINALLY: Final = FinallyStart.type


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which run goes on, and how.

    given: secret inputs that cannot be found again
    reconcile: what became of calls without a recorded result, by step; under `*` what holds for all others
    reconcile_outputs: what such calls gave that succeeded, each as `STEP.name=value`
    ticket: go on only if the run waits for this one
    allow_changed: the runbook, a tool or a policy was changed, and the run goes on with what is there now
    allow_running: resume although a tool that the run started before still runs
    adopt_unsealed: why a run that is not sealed is continued with a signing key
    witness: the file or URL that sealed heads are appended to, in place of the one in settings
    """

    run_id: str
    ticket: str | None = None
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    actor: str | None = None
    given: Mapping[str, Given] = field(default_factory=dict)
    reconcile: Mapping[str, Reconciliation] = field(default_factory=dict)
    reconcile_outputs: tuple[str, ...] = ()
    allow_changed: bool = False
    allow_running: bool = False
    adopt_unsealed: str | None = None
    witness: str | None = None
    approvals: ApprovalMode | None = None
    sync: bool = True


async def resume(
    options: ResumeOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
) -> Executed:
    """Go on with a run; what keeps it from going on is raised, and nothing is changed by it.

    At a terminal, outputs that a reconciled call must have are asked for.
    """
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    console = console if console is not None else Console.standard(*everyone(observers))
    while True:
        try:
            return await _resume(options, observers, console, environ, relay)
        except OutputsMissing as problem:
            if not console.interactive:
                raise
            given = await _ask_for(problem, console)
            options = msgspec.structs.replace(options, reconcile_outputs=(*options.reconcile_outputs, *given))


async def _ask_for(problem: OutputsMissing, console: Console) -> list[str]:
    """Ask the operator for the outputs of calls that succeeded; raise the problem where one is not given."""
    missing = cast("list[Missing]", problem.missing)
    bindings = [
        InputBinding(name=f"{path}.{name}", source=PROMPT, path="", parameter=parameter)
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
) -> Executed:
    database = ledger_for(options, environ)
    async with AsyncExitStack() as held:
        ledger = await open_driven(held, options.run_id, database, environ, sync=options.sync)
        actor = options.actor or user_name()
        adopt = None if options.adopt_unsealed is None else Adopt(actor, options.adopt_unsealed)
        record = await load_record(ledger, options.run_id, sealing_keys(environ), adopt)
        state = record.state
        _require_unfinished(record)
        run = _options(options, state)
        prepared = Prepared(run, environ, Workspace(stored=record.documents))
        require_supported(prepared.program)
        changed = changes(prepared, state)
        accepted = _accepted(record) if changed else {}
        new = [name for name, digest in changed.items() if accepted.get(name) != digest]
        if new and not options.allow_changed:
            since = "it was accepted" if new[0] in accepted else "the run began"
            raise IntegrityError(
                f"{new[0]} was changed since {since}",
                hint="`gert resume --allow-changed` goes on with what is there now, and records it",
            )
        if record.private is not None:
            # Without it the key is a new one: no approval that binds a secret input holds any more.
            prepared.approval_key = record.private.decode()
        await _require_witnessed(ledger, options.run_id, run.witness or prepared.settings.witness)
        inputs = await _inputs(prepared, state, options, environ, console)
        redactor = prepared.redactor(inputs)
        setup = _setup(prepared, state, inputs)
        _, left = await ledger.output(state.run_id)
        live = LiveOutput(state.run_id, (piece.key for piece in left))
        world = world_for(prepared, setup, inputs, redactor, (*observers, live), console, state.working)
        answers = read_answers(record.answers)
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
        journal = ResumeJournal(
            state.run_id,
            record.lines,
            record.answers,
            ledger,
            mirror=mirror,
            loosely=bool(changed),
            opening=[
                Said(payload, None, Principal("human", actor))
                for payload in (record.adopted, resumed)
                if payload is not None
            ],
            adopt=record.adopted is not None,
            witness=prepared.witness,
            key=signing_key(environ),
            observers=observers,
            has_secrets=bool(inputs.secrets),
            live=live,
        )
        reconciled = Reconciled(world.world, Intake(redactor))
        timeout = _time_left(prepared, record)
        waits = run.approvals == "detach" and (timeout is None or timeout > 0)
        tickets = tickets_for_run(prepared.state, environ, prepared.settings) if waits else None
        go_live = _go_live(journal, record.lines, reconciled, options, tickets, world.binding)
        journal.on_end = partial(go_live, [])
        return await conduct(
            Stage(
                options=run,
                prepared=prepared,
                setup=setup,
                cast=msgspec.structs.replace(world, world=reconciled),
                ledger=ledger,
                journal=journal,
                redactor=redactor,
                environ=environ,
                trace=mirror.path if mirror is not None else None,
                timeout=timeout,
                relay=relay,
                recorded=answers,
                on_live=go_live,
                clock=RunClock(record.lines),
            )
        )


async def _require_witnessed(ledger: Ledger, run_id: str, where: str | None) -> None:
    """Refuse a run that the witness has seen further: its ledger was rolled back, and its steps may be done."""
    if where is None:
        return
    from gert.ecosystem.host.runs.witness import find_missing, is_url, read_witness  # most runs have no witness

    if not is_url(where) and not os.path.exists(where):
        return
    missing = await find_missing(ledger, run_id, await read_witness(where))
    if missing is not None:
        raise IntegrityError(f"run `{run_id}` is not what was witnessed: {missing}", hint="restore the newer ledger")


def _go_live(
    journal: ResumeJournal,
    lines: Iterable[bytes],
    world: Reconciled,
    options: ResumeOptions,
    tickets: Tickets | None,
    binding: Binding | None,
) -> Callable[[list[Ask[Any]]], None]:
    def is_open(ask: Ask[Any]) -> bool:
        return tickets is not None and _is_open(tickets, ask, binding)

    def go_live(announced: list[Ask[Any]]) -> None:
        waited = [ask.ticket_id for ask in announced if isinstance(ask, AwaitApproval)]
        if options.ticket is not None and options.ticket not in waited:
            raise UsageError(
                f"the run does not wait for the ticket `{options.ticket}`",
                hint=f"it waits for {', '.join(f'`{ticket}`' for ticket in waited)}" if waited else None,
            )
        if not options.allow_running:
            require_ended(options.run_id, announced, lines)
        choices = settle_doubts(announced, options.reconcile, options.reconcile_outputs)
        if journal.repeats and announced and all(map(is_open, announced)):
            # Everything waits as it did: that an operator has looked is nothing to write down.
            raise Suspended(announced)
        journal.go_live()
        for choice in choices:
            journal.say(Said(choice.event, choice.path, None))
        world.settled = {choice.key: choice for choice in choices}

    return go_live


def _is_open(tickets: Tickets, ask: Ask[Any], binding: Binding | None) -> bool:
    """Whether a question is about a ticket that nobody has decided; what is wrong with one, the run finds out.

    One that cannot be looked at, because somebody holds its lock, is no answer: the run can go on another time.
    """
    if not isinstance(ask, AwaitApproval):
        return False
    if binding is not None and binding.outdated(ask.request, ask.subject) is not None:
        return False
    try:
        file = tickets.judge(ask.ticket_id, ask.request, ask.created_at, ask.expires_at)
    except (UsageError, DocumentError, IntegrityError):
        return False
    return file.status == "pending"


def ledger_for(options: ResumeOptions, environ: Mapping[str, str]) -> Database:
    """The ledger of a run that is to be driven again: the one that was named, or that of the state directory."""
    if not is_safe_name(options.run_id):
        raise UsageError(f"`{options.run_id}` is not a run id")
    named = database_for(options.db, options.dsn, environ)
    database = named if named is not None else ledger_of(_state_dir(options, environ))
    require_own(database, options.run_id)
    return database


def _state_dir(options: ResumeOptions, environ: Mapping[str, str]) -> str:
    return state_dir(options.state_dir, Workspace().project_root(os.getcwd()), environ)


def _mirror(record: Record, options: ResumeOptions) -> Mirror | None:
    """The mirror of a run, brought up to its record; a run of a ledger that was named has none of its own."""
    state = record.state
    path = state.trace
    if path is None and options.db is None and options.dsn is None:
        folder = RunFolder(state.state_dir or "", state.run_id)
        if not os.path.isdir(folder.path):
            folder.create()
        path = folder.trace
    return None if path is None else Mirror.complete(path, record.lines)


def _require_unfinished(record: Record) -> None:
    state = record.state
    if record.report.completion is not None:
        raise UsageError(f"run `{state.run_id}` has ended", hint="`gert rerun` takes its answers for a new one")
    if not os.path.isdir(state.working):
        raise UsageError(f"the folder `{state.working}` is gone, and the tools of run `{state.run_id}` run there")


def _options(options: ResumeOptions, state: RunState) -> RunOptions:
    return RunOptions(
        file=state.file,
        mode=state.mode,
        actor=state.actor,
        trace=state.trace if options.db is None and options.dsn is None else None,
        db=options.db,
        dsn=options.dsn,
        state_dir=options.state_dir or state.state_dir,
        sync=options.sync,
        policies=state.policies,
        evidence=state.evidence,
        config=state.config,
        witness=options.witness,
        approvals=options.approvals or state.approvals,
        break_glass=state.break_glass,
        max_parallel=state.max_parallel,
        timeout=state.timeout,
    )


def changes(prepared: Prepared, state: RunState) -> dict[str, str]:
    """What is not as it was when the run began, and its digest now; that of what is gone is empty."""
    found = {}
    if prepared.checked.document.digest != state.runbook_hash:
        found[f"the runbook `{state.file}`"] = prepared.checked.document.digest
    for kind, before, after in (
        ("the tool", state.tool_hashes, prepared.tool_hashes),
        ("the policy", state.policy_hashes, prepared.floor.digests),
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


async def _inputs(
    prepared: Prepared, state: RunState, options: ResumeOptions, environ: Mapping[str, str], console: Console
) -> ResolvedInputs:
    """The inputs as they were; secrets are looked for again."""
    declared = prepared.program.runbook.meta.inputs
    secret = {name: declared[name] for name in state.secret_inputs if name in declared}
    sources = resolvers(prepared.options, environ, console)
    found = await resolve(secret, options.given, sources, prepared.floor.policies)
    values = {**state.inputs, **{name: secret_ref(name) for name in found.secrets}}
    ordered = {name: values[name] for name in state.input_sources if name in values}
    return ResolvedInputs(ordered, dict(state.input_sources), found.secrets)


def _setup(prepared: Prepared, state: RunState, inputs: ResolvedInputs) -> Setup:
    return Setup(
        program=prepared.program,
        run_id=state.run_id,
        runbook_hash=prepared.checked.document.digest,
        mode=state.mode,
        actor=state.actor,
        host=state.host,
        gert_version=state.gert_version,
        policies=tuple(prepared.floor.policies),
        policy_hashes=prepared.floor.digests,
        inputs=inputs.values,
        input_sources=inputs.sources,
        secret_inputs=frozenset(inputs.secrets),
        groups=prepared.groups,
        break_glass=state.break_glass,
        recent=state.recent,
        parent_run_id=state.parent_run_id,
        start=state.start,
    )


def _time_left(prepared: Prepared, record: Record) -> float | None:
    """Seconds the run may still take; what stands in `finally` runs whatever became of the run, and has no limit."""
    if prepared.timeout is None or any(decode(line).type == FINALLY for line in record.lines):
        return None
    until = parse_timestamp(record.state.started) + timedelta(seconds=prepared.timeout)
    return max(0.0, (until - now()).total_seconds())
