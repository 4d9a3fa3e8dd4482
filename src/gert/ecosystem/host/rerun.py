"""A new run that takes the recorded answers of an old one up to a step, and goes on live (DECISIONS 57)."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import field

from gert.ecosystem.host.conduct import Stage, conduct
from gert.ecosystem.host.console import Console
from gert.ecosystem.host.database import open_database
from gert.ecosystem.host.execute import everyone, open_store, resolvers, trace_of, world_for
from gert.ecosystem.host.forking import Fork, StepPlace, fork_at
from gert.ecosystem.host.journal import Journal, Logged, now, read_answers
from gert.ecosystem.host.key_files import with_key_files
from gert.ecosystem.host.keys import signing_key
from gert.ecosystem.host.ledger import open_file
from gert.ecosystem.host.observer import Observer
from gert.ecosystem.host.options import ApprovalMode, Executed, RunOptions
from gert.ecosystem.host.prepare import Prepared
from gert.ecosystem.host.recent import count_recent
from gert.ecosystem.host.rehearing import Rehearing
from gert.ecosystem.host.resume import changes
from gert.ecosystem.host.run_entry import Entry, Place, place_for
from gert.ecosystem.host.run_list import Runs
from gert.ecosystem.host.runs import RunFolder
from gert.ecosystem.host.settings import where_recorded
from gert.ecosystem.host.state import RunState
from gert.ecosystem.host.stopping import Relay
from gert.ecosystem.host.supported import require_supported
from gert.ecosystem.host.variables import resolve
from gert.ecosystem.stores.append_file import read_lines
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES
from gert.ecosystem.stores.recovery import is_json
from gert.errors import InDoubt, IntegrityError, UsageError
from gert.kernel.engine.asks import Ask, CallExtension, CallTool, Said
from gert.kernel.engine.frame import Recent
from gert.kernel.engine.inputs import Given, ResolvedInputs
from gert.kernel.events.chain import ChainReport, read_chain
from gert.kernel.events.runbook import RunForked
from gert.kernel.foundation.principal import Principal


class RerunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which run is taken up again, from where, and how.

    step: the first step that runs live
    given: secret inputs that cannot be found again, and others as long as the way to the step stays the same
    allow_changed: the runbook, a tool or a policy was changed, and the new run goes by what is there now
    break_glass: the reason for overriding governance; that of the old run is not taken over
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
    source = _Source(place_for(options.state_dir, options.db, environ, options.dsn), options.run_id, environ)
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
    counted = count_recent(prepared.program, prepared.floor.policies, prepared.state, prepared.database, now())
    draft = msgspec.structs.replace(prepared.setup(inputs, redactor), parent_run_id=state.run_id)
    strictly = not changed and _plain(inputs) == state.inputs

    async def fork_with(recent: Recent | None) -> Fork:
        given = msgspec.structs.replace(draft, recent=recent)
        lanes, hear = state.max_parallel, Rehearing(environ, prepared.settings).hear
        return await fork_at(step, given, source.answers, source.lines, strictly=strictly, lanes=lanes, hear=hear)

    fork = await fork_with(state.recent or (Recent() if counted is not None else None))
    _require_no_doubt(fork, step)
    # What was executed on the way is not executed again; that it may be by now, the breaker still has to say.
    setup = msgspec.structs.replace(draft, recent=_without(counted, fork.executed))
    if setup.recent != state.recent:
        await fork_with(setup.recent)
    cast = world_for(prepared, setup, inputs, redactor, observers, console, state.working)
    key = signing_key(environ)
    run_options = where_recorded(run_options, prepared.settings, state.runbook, setup.run_id)
    with ExitStack() as held:
        store, folder = open_store(run_options, setup, prepared, held, state.working)
        journal = Journal(store, setup.run_id, key=key, observers=observers, has_secrets=bool(inputs.secrets))
        forked = RunForked(
            source_run_id=state.run_id,
            from_step=options.step,
            source_chain_hash=source.report.head,
            answered=len(fork.answers),
        )
        return await conduct(
            Stage(
                options=run_options,
                prepared=prepared,
                setup=setup,
                cast=cast,
                store=store,
                journal=journal,
                redactor=redactor,
                environ=environ,
                trace=trace_of(run_options, folder),
                timeout=prepared.timeout,
                relay=relay,
                # What is taken over, is taken at the beginning: this run did not wait for it.
                recorded=[_at_beginning(entry) for entry in fork.answers],
                on_live=_say(journal, forked, setup.actor),
            )
        )


class _Source:
    """The run that is taken up again: read, and never changed."""

    def __init__(self, place: Place, run_id: str, environ: Mapping[str, str]) -> None:
        with Runs(place, environ) as runs:
            entry = runs.entry(runs.find(run_id))
            self.state: RunState = _require_over(entry)
            self.lines = list(runs.lines(entry))
        self.report: ChainReport = read_chain(self.lines)
        if self.report.breaks or not self.report.events:
            why = self.report.breaks[0].message if self.report.breaks else "it has no events"
            raise IntegrityError(f"the record of run `{entry.run_id}` does not hold: {why}")
        # A line that was not written whole is no event.
        self.lines = self.lines[: self.report.events]
        self.answers = _answers(entry)


def _require_over(entry: Entry) -> RunState:
    """The state of a run that nobody goes on with."""
    if entry.kind == "agent":
        raise UsageError(f"run `{entry.run_id}` is an agent run", hint="an agent replays its own steps when it is run")
    if entry.standing == "running":
        raise UsageError(f"run `{entry.run_id}` is still running", hint="wait for it to end")
    if entry.standing == "waiting":
        raise UsageError(
            f"run `{entry.run_id}` waits for approval",
            hint=f"`gert resume --run {entry.run_id}{entry.place.words}` goes on with it, "
            f"`gert run abandon {entry.run_id}{entry.place.words}` ends it",
        )
    if entry.state is None:
        raise UsageError(f"run `{entry.run_id}` does not say how it was started", hint="run it with `gert exec`")
    return entry.state


def _answers(entry: Entry) -> list[Logged]:
    """The answers of a run; one that was not written whole is none."""
    if entry.place.database is not None:
        with open_database(entry.place.database, read_only=True) as store:
            return _read(store.answers(entry.run_id), entry)
    path = RunFolder(entry.place.state, entry.run_id).answers
    with open_file(path) as file, open(file.fileno(), "rb", closefd=False) as lines:
        whole = [line for line in read_lines(lines, MAX_ANSWER_BYTES) if line.endswith(b"\n")]
    # After a loss of power the end of a line may be there, and zeros in place of its beginning.
    if whole and not is_json(whole[-1]):
        whole.pop()
    return _read(whole, entry)


def _read(lines: Iterable[bytes], entry: Entry) -> list[Logged]:
    try:
        return list(read_answers(lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IntegrityError(f"the answers of run `{entry.run_id}` cannot be read") from None


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


def _say(journal: Journal, forked: RunForked, actor: str) -> Callable[[list[Ask[Any]]], None]:
    def go_live(_: list[Ask[Any]]) -> None:
        journal.say(Said(forked, None, Principal("human", actor)))

    return go_live
