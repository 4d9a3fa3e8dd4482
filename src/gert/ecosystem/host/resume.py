"""Going on with a run: the recorded answers first, the live world after (DECISIONS 35)."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import field

from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.host.approvals import tickets_for_run
from gert.ecosystem.host.binding import Binding
from gert.ecosystem.host.conduct import Stage, conduct
from gert.ecosystem.host.console import Console
from gert.ecosystem.host.continuing import ContinuedJournal, is_one_batch
from gert.ecosystem.host.database import database_for, name_of, open_database
from gert.ecosystem.host.driver import Suspended
from gert.ecosystem.host.execute import everyone, resolvers, world_for
from gert.ecosystem.host.facts import host_name
from gert.ecosystem.host.files import read_bounded
from gert.ecosystem.host.intake import Intake
from gert.ecosystem.host.journal import Logged, now, read_answers
from gert.ecosystem.host.key_files import with_key_files
from gert.ecosystem.host.keys import signing_key
from gert.ecosystem.host.observer import Observer
from gert.ecosystem.host.options import ApprovalMode, Executed, RunOptions
from gert.ecosystem.host.prepare import Prepared, user_name
from gert.ecosystem.host.reconciling import Missing, Reconciled, require_ended, settle_doubts
from gert.ecosystem.host.run_clock import RunClock
from gert.ecosystem.host.runs import RunFolder, state_dir
from gert.ecosystem.host.state import MAX_STATE_BYTES, RunState, decode_state
from gert.ecosystem.host.stopping import Relay
from gert.ecosystem.host.supported import require_supported
from gert.ecosystem.host.variables import resolve
from gert.ecosystem.host.version import version_line
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.port import Store
from gert.errors import Busy, DocumentError, IntegrityError, OutputsMissing, UsageError
from gert.kernel.engine.asks import Ask, AwaitApproval, Said
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import PROMPT, Given, InputBinding, ResolvedInputs
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode, parse_timestamp
from gert.kernel.events.runbook import FinallyStart, RunResumed
from gert.kernel.events.vocabulary import Reconciliation
from gert.kernel.foundation.names import is_safe_name
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.secret_refs import secret_ref

FINALLY: Final = FinallyStart.type


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which run goes on, and how.

    given: secret inputs that cannot be found again
    reconcile: what became of calls without a recorded result, by step; under `*` what holds for all others
    reconcile_outputs: what such calls gave that succeeded, each as `STEP.name=value`
    ticket: go on only if the run waits for this one
    allow_changed: the runbook, a tool or a policy was changed, and the run goes on with what is there now
    allow_running: resume although a tool that the run started before still runs
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
    state, folder = load_state(options, environ)
    with ExitStack() as held:
        store = held.enter_context(open_record(options, state, folder, held, environ))
        _require_unfinished(store, state)
        run = _options(options, state)
        prepared = Prepared(run, environ)
        require_supported(prepared.program)
        changed = changes(prepared, state)
        accepted = _accepted(store, state) if changed else {}
        new = [name for name, digest in changed.items() if accepted.get(name) != digest]
        if new and not options.allow_changed:
            since = "it was accepted" if new[0] in accepted else "the run began"
            raise IntegrityError(
                f"{new[0]} was changed since {since}",
                hint="`gert resume --allow-changed` goes on with what is there now, and records it",
            )
        if state.approval_key:
            # Without it the key is a new one: no approval that binds a secret input holds any more.
            prepared.approval_key = state.approval_key
        inputs = await _inputs(prepared, state, options, environ, console)
        redactor = prepared.redactor(inputs)
        setup = _setup(prepared, state, inputs)
        world = world_for(prepared, setup, inputs, redactor, observers, console, state.working)
        answers = _answers(store, state)
        resumed = RunResumed(
            actor=options.actor or user_name(),
            host=host_name(),
            gert_version=version_line(),
            answered=len(answers),
            ticket_id=options.ticket,
            accepted_changes=tuple(changed),
            accepted_digests=changed,
        )
        journal = ContinuedJournal(
            store,
            state.run_id,
            loosely=bool(changed),
            opening=Said(resumed, None, Principal("human", resumed.actor)),
            key=signing_key(environ),
            observers=observers,
            has_secrets=bool(inputs.secrets),
        )
        reconciled = Reconciled(world.world, Intake(redactor))
        timeout = _time_left(prepared, state, store)
        waits = run.approvals == "detach" and (timeout is None or timeout > 0)
        tickets = tickets_for_run(prepared.state, environ, prepared.settings) if waits else None
        go_live = _go_live(journal, store, reconciled, options, tickets, world.binding)
        journal.on_end = partial(go_live, [])
        return await conduct(
            Stage(
                options=run,
                prepared=prepared,
                setup=setup,
                cast=msgspec.structs.replace(world, world=reconciled),
                store=store,
                journal=journal,
                redactor=redactor,
                environ=environ,
                trace=state.trace,
                timeout=timeout,
                relay=relay,
                recorded=answers,
                on_live=go_live,
                clock=RunClock(store.events(state.run_id)),
            )
        )


def _go_live(
    journal: ContinuedJournal,
    store: Store,
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
            require_ended(options.run_id, announced, store.events(options.run_id))
        choices = settle_doubts(announced, options.reconcile, options.reconcile_outputs)
        unsupported = journal.unsupported()
        is_as_it_was = journal.repeats and not unsupported
        if is_as_it_was and announced and all(map(is_open, announced)):
            # Everything waits as it did: that somebody has looked is nothing to write down.
            raise Suspended(announced)
        if unsupported:
            # The power failed between the two files: the answers these events rest on are lost, and nobody had gone on.
            if not isinstance(store, JsonlStore) or not is_one_batch(unsupported):
                raise IntegrityError(
                    f"the record holds {len(unsupported)} events that its answers do not lead to",
                    hint="the log of answers was cut or changed; a loss of power takes the last of them at most",
                )
            store.set_aside(journal.events)
            journal.forget_rest()
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


def load_state(options: ResumeOptions, environ: Mapping[str, str]) -> tuple[RunState, RunFolder | None]:
    """The state of a run, from its folder or a database."""
    if not is_safe_name(options.run_id):
        raise UsageError(f"`{options.run_id}` is not a run id")
    database = database_for(options.db, options.dsn, environ)
    if database is not None:
        with open_database(database, read_only=True) as store:
            data = store.state(options.run_id)
        if data is None:
            raise UsageError(f"`{name_of(database)}` holds no run `{options.run_id}` that could be resumed")
        return _own(decode_state(data, f"{name_of(database)}: {options.run_id}"), options), None
    folder = RunFolder(_state_dir(options, environ), options.run_id)
    _require_starter(folder, options.run_id)
    if not os.path.isdir(folder.path):
        raise UsageError(
            f"there is no run `{options.run_id}` in `{os.path.dirname(folder.path)}`",
            hint="`gert run list` shows what there is; --state-dir, --db or --dsn say where else to look",
        )
    return _own(decode_state(read_bounded(folder.state, MAX_STATE_BYTES), folder.state), options), folder


def _require_starter(folder: RunFolder, run_id: str) -> None:
    """Refuse the run of somebody else: it goes on with their permissions, and its record is theirs."""
    try:
        owner = os.stat(folder.path).st_uid
    except PermissionError:
        is_foreign = True
    except OSError:
        return  # it is not there, which is said elsewhere
    else:
        is_foreign = os.name == "posix" and os.geteuid() not in (0, owner)
    if is_foreign:
        raise UsageError(
            f"the run `{run_id}` was not started by you, and only whoever started it can go on with it",
            hint="`gert approve` and `gert reject` answer its tickets",
        )


def _own(state: RunState, options: ResumeOptions) -> RunState:
    if state.run_id != options.run_id:
        raise IntegrityError(f"the state of run `{options.run_id}` is that of run `{state.run_id}`")
    return state


def _state_dir(options: ResumeOptions, environ: Mapping[str, str]) -> str:
    from gert.ecosystem.host.documents import Workspace

    return state_dir(options.state_dir, Workspace().project_root(os.getcwd()), environ)


def open_record(
    options: ResumeOptions, state: RunState, folder: RunFolder | None, held: ExitStack, environ: Mapping[str, str]
) -> AbstractContextManager[Any]:
    """The record of a run, held so that nobody else goes on with it."""
    database = database_for(options.db, options.dsn, environ)
    if database is not None:
        store = open_database(database, sync=options.sync)
        held.callback(store.close)
        held.enter_context(store.lease(state.run_id))
        return nullcontext(store)
    assert folder is not None  # noqa: S101 - what is in no database is in a folder
    if not os.path.lexists(folder.answers):
        # It is made before the state is: without it nobody knows what was answered.
        raise IntegrityError(f"there is no file `{folder.answers}`", hint="without its answers a run cannot go on")
    try:
        return JsonlStore.reopen(state.trace or folder.trace, folder.answers, sync=options.sync)
    except Busy:
        raise Busy(f"run `{state.run_id}` is being driven by another process", hint="wait for it to end") from None


def _require_unfinished(store: Store, state: RunState) -> None:
    report = read_chain(store.events(state.run_id))
    if report.breaks:
        first = report.breaks[0]
        raise IntegrityError(
            f"the record of run `{state.run_id}` was changed: its chain breaks at event {first.line}: {first.message}"
        )
    if report.completion is not None:
        raise UsageError(f"run `{state.run_id}` has ended", hint="`gert rerun` takes its answers for a new one")
    if not report.events:
        raise UsageError(f"run `{state.run_id}` never began: it has no events", hint="run it again with `gert exec`")
    if report.run_id != state.run_id:
        raise IntegrityError(f"the record of run `{state.run_id}` is that of run `{report.run_id}`")
    if not os.path.isdir(state.working):
        raise UsageError(f"the folder `{state.working}` is gone, and the tools of run `{state.run_id}` run there")


def _answers(store: Store, state: RunState) -> list[Logged]:
    """The log of answers; one that cannot be read was changed."""
    found: list[Logged] = []
    try:
        found.extend(read_answers(store.answers(state.run_id)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IntegrityError(
            f"answer {len(found) + 1} of run `{state.run_id}` was changed: it cannot be read"
        ) from None
    return found


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


def _accepted(store: Store, state: RunState) -> Mapping[str, str]:
    """The changes that the last resume accepted: each holds while the file has the digest it had then."""
    events = map(decode, store.events(state.run_id))
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
    )


def _time_left(prepared: Prepared, state: RunState, store: Store) -> float | None:
    """Seconds the run may still take; what stands in `finally` runs whatever became of the run, and has no limit."""
    if prepared.timeout is None or any(decode(line).type == FINALLY for line in store.events(state.run_id)):
        return None
    until = parse_timestamp(state.started) + timedelta(seconds=prepared.timeout)
    return max(0.0, (until - now()).total_seconds())
