"""A new run that takes the recorded answers of an old one up to a step, and goes on live (DECISIONS 57)."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from msgspec import field

from gert.ecosystem.host.config.key_files import with_key_files
from gert.ecosystem.host.config.ledger_location import masked, open_ledger
from gert.ecosystem.host.config.settings import where_recorded
from gert.ecosystem.host.config.supported import require_supported
from gert.ecosystem.host.config.trace_keys import sealing_keys, signing_key
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.redrive.fork import Fork, StepPlace, fork_at
from gert.ecosystem.host.redrive.record import Adopt, Record, find_run, load_record, no_such_run
from gert.ecosystem.host.redrive.resume import changes
from gert.ecosystem.host.redrive.verify_recorded import Rehearing
from gert.ecosystem.host.run.console import Console
from gert.ecosystem.host.run.execute import everyone, new_journal, open_record, resolvers, with_trace, world_for
from gert.ecosystem.host.run.journal import Journal, Logged, now, read_answers
from gert.ecosystem.host.run.live_output import LiveOutput
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import ApprovalMode, Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared, user_name
from gert.ecosystem.host.run.rate_limit import count_recent
from gert.ecosystem.host.run.session import Stage, conduct
from gert.ecosystem.host.run.signals import Relay
from gert.ecosystem.host.run.start_record import RunState
from gert.ecosystem.host.runs.entry import place_for
from gert.ecosystem.ledger.holder import is_gone
from gert.errors import GertError, InDoubt, IntegrityError, UsageError
from gert.kernel.engine.frame import Recent, Setup
from gert.kernel.engine.inputs import Given, ResolvedInputs
from gert.kernel.engine.requests import Ask, CallExtension, CallTool, Said
from gert.kernel.events.payload import Payload
from gert.kernel.events.runbook import RunForked
from gert.kernel.foundation.principal import Principal
from gert.kernel.ledger.record import Head, Lease


class RerunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which run is taken up again, from where, and how.

    step: the first step that runs live
    given: secret inputs that cannot be found again, and others as long as the way to the step stays the same
    allow_changed: the runbook, a tool or a policy was changed, and the new run goes by what is there now
    break_glass: the reason for overriding governance; that of the old run is not taken over
    adopt_unsealed: why the answers of a run that is not sealed are taken into a sealed one
    """

    run_id: str
    step: str
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    actor: str | None = None
    given: Mapping[str, Given] = field(default_factory=dict)
    allow_changed: bool = False
    approvals: ApprovalMode | None = None
    break_glass: str | None = None
    adopt_unsealed: str | None = None
    witness: str | None = None
    sync: bool = True


async def rerun(
    options: RerunOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
) -> Executed:
    """Run a runbook again from a step on; what keeps it from that is raised, and nothing is recorded of it."""
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    console = console if console is not None else Console.standard(*everyone(observers))
    source = await _source(options, environ)
    state = source.state
    run_options = _options(options, state)
    prepared = Prepared(run_options, environ)
    require_supported(prepared.program)
    changed = list(changes(prepared, state))
    if changed and not options.allow_changed:
        raise IntegrityError(
            f"{changed[0]} was changed since the run began",
            hint="`gert rerun --allow-changed` takes what is there now, if the way up to the step is the same",
        )
    step = StepPlace(options.step, prepared.program)
    inputs = await _inputs(prepared, state, options, environ, console)
    redactor = prepared.redactor(inputs)
    counted = await count_recent(prepared.program, prepared.floor.policies, prepared.ledger, environ, now())
    draft = msgspec.structs.replace(
        prepared.setup(inputs, redactor, recent=counted, working=state.working), parent_run_id=state.run_id
    )
    strictly = not changed and _plain(inputs) == state.inputs

    async def fork_with(recent: Recent | None) -> Fork:
        given = msgspec.structs.replace(draft, recent=recent)
        lanes, hear = state.max_parallel, Rehearing(environ, prepared.settings).hear
        answers = read_answers(source.answers)
        return await fork_at(step, given, answers, list(source.lines), strictly=strictly, lanes=lanes, hear=hear)

    fork = await fork_with(state.recent or (Recent() if counted is not None else None))
    _require_no_doubt(fork, step)
    # What was executed on the way is not executed again; that it may be by now, the breaker still has to say.
    setup = with_recent(draft, _without(counted, fork.executed))
    if setup.recent != state.recent:
        await fork_with(setup.recent)
    live = LiveOutput(setup.run_id)
    cast = world_for(prepared, setup, inputs, redactor, (*observers, live), console, state.working)
    key = signing_key(environ)
    prepared.options = run_options = where_recorded(run_options, prepared.settings, state.runbook, setup.run_id)
    setup = with_trace(setup, run_options)
    async with AsyncExitStack() as held:
        opened = await open_record(prepared, setup, held)
        journal = new_journal(prepared, setup, opened, key, observers, live)
        forked = RunForked(
            source_run_id=state.run_id,
            from_step=options.step,
            source_chain_hash=source.report.head,
            answered=len(fork.answers),
        )
        adopted = source.adopted and msgspec.structs.replace(source.adopted, source_run_id=state.run_id)
        return await conduct(
            Stage(
                options=run_options,
                prepared=prepared,
                setup=setup,
                cast=cast,
                ledger=opened.ledger,
                journal=journal,
                redactor=redactor,
                environ=environ,
                trace=opened.trace,
                timeout=prepared.timeout,
                relay=relay,
                # What is taken over, is taken at the beginning: this run did not wait for it.
                recorded=[_at_beginning(entry) for entry in fork.answers],
                on_live=_say(journal, [each for each in (adopted, forked) if each is not None], setup.actor),
            )
        )


async def _source(options: RerunOptions, environ: Mapping[str, str]) -> Record:
    """The run that is taken up again: read, and never changed."""
    place = place_for(options.state_dir, options.db, environ, options.dsn)
    if not place.is_there:
        raise no_such_run(options.run_id, place.name)
    try:
        async with open_ledger(place.ledger, environ, read_only=True) as ledger:
            run_id = await find_run(ledger, options.run_id, place.name)
            _require_over(await ledger.head(run_id), await ledger.lease(run_id), place.words)
            why = options.adopt_unsealed
            adopt = None if why is None else Adopt(options.actor or user_name(), why)
            return await load_record(ledger, run_id, sealing_keys(environ), adopt)
    except GertError as problem:
        raise masked(place.ledger, problem) from None


def _require_over(head: Head | None, lease: Lease | None, words: str) -> None:
    """Refuse a run that goes on, or can."""
    found = head.runbook if head is not None else None
    if head is None or found is None or found.ended is not None:
        return
    if lease is not None and not (lease.holder is not None and is_gone(lease.holder)):
        raise UsageError(f"run `{head.run_id}` is still running", hint="wait for it to end")
    if found.tickets:
        raise UsageError(
            f"run `{head.run_id}` waits for approval",
            hint=f"`gert resume --run {head.run_id}{words}` resumes it, "
            f"`gert run abandon {head.run_id}{words}` ends it",
        )


def with_recent(setup: Setup, recent: Recent | None) -> Setup:
    """The setup of a run that other executions of the last hour were counted for."""
    start = setup.start
    if start is not None:
        start = msgspec.structs.replace(start, recent=None if recent is None else msgspec.to_builtins(recent))
    return msgspec.structs.replace(setup, recent=recent, start=start)


def _options(options: RerunOptions, state: RunState) -> RunOptions:
    return RunOptions(
        file=state.file,
        mode=state.mode,
        actor=options.actor,
        db=options.db,
        dsn=options.dsn,
        state_dir=options.state_dir,
        sync=options.sync,
        policies=state.policies,
        evidence=state.evidence,
        config=state.config,
        witness=options.witness,
        approvals=options.approvals or state.approvals,
        break_glass=options.break_glass,
        max_parallel=state.max_parallel,
        timeout=state.timeout,
    )


async def _inputs(
    prepared: Prepared, state: RunState, options: RerunOptions, environ: Mapping[str, str], console: Console
) -> ResolvedInputs:
    """The inputs of the old run, unless one is given; secrets are looked for again."""
    declared = prepared.program.runbook.meta.inputs
    before = {
        name: Given(value, state.input_sources.get(name, "default"))
        for name, value in state.inputs.items()
        if name in declared and value is not None and name not in state.secret_inputs
    }
    found = resolvers(prepared.options, environ, console)
    return await resolve(declared, {**before, **options.given}, found, prepared.floor.policies)


def _plain(inputs: ResolvedInputs) -> dict[str, Any]:
    return {name: value for name, value in inputs.values.items() if name not in inputs.secrets}


def _at_beginning(entry: Logged) -> Logged:
    return msgspec.structs.replace(entry, answer=msgspec.structs.replace(entry.answer, at=0.0, idle=()))


def _require_no_doubt(fork: Fork, step: StepPlace) -> None:
    """Calls of other lanes that were made and have no answer would be made again, and nobody asked for that."""
    doubtful = [
        ask.path for ask in fork.beside if isinstance(ask, CallTool | CallExtension) and not ask.contract.idempotent
    ]
    if doubtful:
        listed = ", ".join(f"`{path}`" for path in doubtful)
        raise InDoubt(
            f"{listed} would be called beside `{step.text}`, and nobody knows whether that happened before",
            hint="name the block around both with --from, or go on with the run itself: `gert resume`",
        )


def _without(counted: Recent | None, executed: Mapping[str, int]) -> Recent | None:
    """What earlier runs executed, without what the new run is about to count as its own on the way."""
    if counted is None or counted.flaw is not None:
        return counted
    left = {target: count - executed.get(target, 0) for target, count in counted.executed.items()}
    return Recent({target: count for target, count in left.items() if count > 0})


def _say(journal: Journal, opening: Iterable[Payload], actor: str) -> Callable[[list[Ask[Any]]], None]:
    def go_live(_: list[Ask[Any]]) -> None:
        for payload in opening:
            journal.say(Said(payload, None, Principal("human", actor)))

    return go_live
