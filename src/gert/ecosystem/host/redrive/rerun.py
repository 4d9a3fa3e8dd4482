"""Rerun: a new run takes the recorded answers of an old one up to a step, and is live from there (DECISIONS 57)."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.config.keys.trace_keys import sealing_keys
from gert.ecosystem.host.config.ledger_location import masking_password, open_ledger
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.embedding.ports import Parts
from gert.ecosystem.host.redrive.fork import Fork, StepName, fork_at
from gert.ecosystem.host.redrive.recorded_run import Record, RedriveOptions, load_record
from gert.ecosystem.host.redrive.redrive import approval_check
from gert.ecosystem.host.redrive.resume import changes
from gert.ecosystem.host.run.driver.signals import Relay
from gert.ecosystem.host.run.execute import drive_new_run, pausing, world_for
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.record.journal import RecordedAnswer, now
from gert.ecosystem.host.run.record.lease import is_driven
from gert.ecosystem.host.run.record.live_output import LiveOutput
from gert.ecosystem.host.run.record.rate_limit import count_recent
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.host.run.world.input_sources import resolvers
from gert.ecosystem.host.runs.find import find_run, no_such_run
from gert.ecosystem.host.runs.place import place_for
from gert.errors import InDoubt, IntegrityError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import GivenInput, ResolvedInputs
from gert.kernel.engine.requests import CallExtension, CallTool, Emit
from gert.kernel.events.runbook import Recent, RunForked
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.text import path_text
from gert.kernel.ledger.record import Head


class RerunOptions(RedriveOptions, frozen=True, kw_only=True):
    """The run to rerun, the step to begin with, and how.

    step: the first step that runs live
    given: others than secret ones, too, as long as the events up to the step stay the same
    break_glass: the reason for overriding governance; that of the old run is not taken over
    """

    step: str
    break_glass: str | None = None


async def rerun(
    options: RerunOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
    parts: Parts | None = None,
) -> Executed:
    """Run a runbook again from a step on; an error that prevents it is raised, and nothing is recorded."""
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    console = console if console is not None else Console.standard(*pausing(observers))
    source = await _source(options, environ)
    run = options.run_options(source, actor=options.actor, state_dir=options.state_dir, break_glass=options.break_glass)
    prepared = Prepared(run, environ, Workspace(stored=source.documents), parts)
    prepared.require_supported(source.start.working)
    changed = list(changes(prepared, source))
    if changed and not options.allow_changed:
        raise IntegrityError(
            f"{changed[0]} was changed since the run began",
            hint="`gert rerun --allow-changed` takes what is there now, if the way up to the step is the same",
        )
    step = StepName(options.step, prepared.program)
    inputs = await _inputs(prepared, source, options, console)
    redactor = prepared.redactor(inputs)
    counted = await count_recent(prepared.program, prepared.floor.policies, prepared.ledger, environ, now())
    run_id = prepared.begin()
    strictly = not changed and _plain(inputs) == source.inputs

    def setup_with(recent: Recent | None) -> Setup:
        working, parent = source.start.working, source.run_id
        return prepared.setup(inputs, redactor, run_id=run_id, recent=recent, working=working, parent_run_id=parent)

    async def fork_with(given: Setup) -> Fork:
        lanes, verify = source.start.max_parallel, approval_check(prepared.verifier)
        return await fork_at(step, given, source.logged, source.lines, strictly=strictly, lanes=lanes, verify=verify)

    fork = await fork_with(setup_with(source.start.recent or (Recent() if counted is not None else None)))
    _require_no_doubt(fork, step)
    # What was executed before the step is not executed again; the limit per hour still has to allow it now.
    setup = setup_with(_without(counted, fork.executed))
    if setup.recent != source.start.recent:
        await fork_with(setup)
    output = LiveOutput(setup.run_id)
    live = world_for(prepared, setup, inputs, redactor, (*observers, output), console, source.start.working)
    forked = RunForked(
        source_run_id=source.run_id,
        from_step=options.step,
        source_chain_hash=source.report.head,
        answered=len(fork.answers),
        source_root_run_id=source.started.root_run_id,
    )
    adopted = source.adopted and msgspec.structs.replace(source.adopted, source_run_id=source.run_id)
    return await drive_new_run(
        prepared,
        setup,
        live,
        output,
        observers,
        relay,
        # The new run takes them at its beginning: it did not wait for them.
        recorded=[_at_beginning(entry) for entry in fork.answers],
        opening=[Emit(each, None, Principal("human", setup.actor)) for each in (adopted, forked) if each is not None],
    )


async def _source(options: RerunOptions, environ: Mapping[str, str]) -> Record:
    """The record of the old run: read, and never changed."""
    place = place_for(options.state_dir, options.db, environ, options.dsn)
    if not place.is_there:
        raise no_such_run(options.run_id, place.name)
    with masking_password(place.ledger):
        async with open_ledger(place.ledger, environ, read_only=True) as ledger:
            run_id = await find_run(ledger, options.run_id, place.name)
            _require_over(await ledger.head(run_id), place.words, is_running=await is_driven(ledger, run_id))
            return await load_record(ledger, run_id, sealing_keys(environ), options.adopt)


def _require_over(head: Head | None, words: str, *, is_running: bool) -> None:
    """Refuse a run that is running, or can be resumed."""
    found = head.runbook if head is not None else None
    if head is None or found is None or found.ended is not None:
        return
    if is_running:
        raise UsageError(f"run `{head.run_id}` is still running", hint="wait for it to end")
    if found.awaited:
        raise UsageError(
            f"run `{head.run_id}` waits for approval",
            hint=f"`gert resume {head.run_id}{words}` resumes it, `gert run abandon {head.run_id}{words}` ends it",
        )


async def _inputs(prepared: Prepared, source: Record, options: RerunOptions, console: Console) -> ResolvedInputs:
    """The inputs of the old run, unless one is given; secrets are resolved again."""
    declared = prepared.program.runbook.meta.inputs
    before = {
        name: GivenInput(value, source.started.input_sources.get(name, "default"))
        for name, value in source.inputs.items()
        if name in declared and value is not None
    }
    found = resolvers(prepared, console)
    given = {**before, **options.given}
    return await resolve(declared, given, found, prepared.floor.policies, source.secret_sources)


def _plain(inputs: ResolvedInputs) -> dict[str, Any]:
    return {name: value for name, value in inputs.values.items() if name not in inputs.secrets}


def _at_beginning(entry: RecordedAnswer) -> RecordedAnswer:
    return msgspec.structs.replace(entry, answer=msgspec.structs.replace(entry.answer, at=0.0, idle=()))


def _require_no_doubt(fork: Fork, step: StepName) -> None:
    """Refuse where calls of other lanes that may have happened would be made again."""
    doubtful = [
        ask.path for ask in fork.beside if isinstance(ask, CallTool | CallExtension) and not ask.contract.idempotent
    ]
    if doubtful:
        listed = listing(map(path_text, doubtful))
        raise InDoubt(
            f"{listed} would be called beside `{step.text}`, and the outcome of the first call is unknown",
            hint="name the block around both with --from, or resume the run itself: `gert resume`",
        )


def _without(counted: Recent | None, executed: Mapping[str, int]) -> Recent | None:
    """What earlier runs executed, without what the new run is about to count as its own on the way."""
    if counted is None or counted.flaw is not None:
        return counted
    left = {target: count - executed.get(target, 0) for target, count in counted.executed.items()}
    return Recent({target: count for target, count in left.items() if count > 0})
