"""Running a runbook: from options to a recorded, sealed run and its result. Every surface calls this."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from gert.ecosystem.approvals.drop_box import DropBox
from gert.ecosystem.approvals.port import ApprovalProvider, Channel
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.approval_keys import approval_verifier
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.config.keys.trace_keys import signing_key
from gert.ecosystem.host.config.machine.platform import machine_id
from gert.ecosystem.host.config.state_dir import new_run_id
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.embedding.ports import Parts
from gert.ecosystem.host.redrive.recorded_run import open_record
from gert.ecosystem.host.run.driver.control import Control
from gert.ecosystem.host.run.driver.signals import Relay
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.record.journal import Journal, RecordedAnswer, now
from gert.ecosystem.host.run.record.live_output import LiveOutput
from gert.ecosystem.host.run.record.rate_limit import count_recent
from gert.ecosystem.host.run.session import LiveWorld, Session, drive_run
from gert.ecosystem.host.run.world.call_binding import Binding
from gert.ecosystem.host.run.world.callers import Callers
from gert.ecosystem.host.run.world.console import Console
from gert.ecosystem.host.run.world.evidence import EvidenceDialogue, EvidenceEntries, EvidenceGiver, collect
from gert.ecosystem.host.run.world.input_sources import resolvers
from gert.ecosystem.host.run.world.sanitize import Sanitizer
from gert.ecosystem.host.run.world.worlds import DryRun, Probe, Real, World
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import GivenInput, ResolvedInputs
from gert.kernel.engine.requests import CallExtension, CallTool, Emit
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.ledger.port import Ledger
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.documents.tool import RUNNER
from gert.kernel.scenario.inputs import replayed_inputs

if TYPE_CHECKING:
    from gert.ecosystem.host.runner.transport import RunnerTransport
    from gert.ecosystem.host.scenarios.folders import Loaded
    from gert.ecosystem.host.scenarios.record_scenario import Recording

AUTO_RECORD: Final = "GERT_AUTO_RECORD"


async def execute(
    options: RunOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    on_start: Callable[[Setup], object] | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
    parts: Parts | None = None,
    workspace: Workspace | None = None,
) -> Executed:
    """Run a runbook; an error that stops it before anything ran is raised, everything after is in the result.

    relay: hands signals to the run where the caller listens to them; otherwise the run does
    parts: what the calling program brings: approvals, inputs, tools, the verification of signatures
    workspace: where documents are read from, if not only from files
    """
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    prepared = Prepared(options, environ, workspace, parts=parts)
    if options.mode != "replay":
        prepared.require_supported(os.getcwd())
    console = console if console is not None else Console.standard(*pausing(observers))
    loaded = _scenario(prepared)
    declared = prepared.program.runbook.meta.inputs
    if loaded is not None:
        inputs, redactor = replayed_inputs(declared, loaded.scenario, options.given), Redactor()
    else:
        inputs = await resolve(declared, options.given, resolvers(prepared, console), prepared.floor.policies)
        redactor = prepared.redactor(inputs)
    played = loaded.folder.name if loaded is not None else None
    starter = loaded.scenario.actor if loaded is not None and options.actor is None else None
    recent = None
    if loaded is None:
        recent = await count_recent(prepared.program, prepared.floor.policies, prepared.ledger, environ, now())
    run_id = prepared.begin()
    setup = prepared.setup(inputs, redactor, played, starter, run_id=run_id, recent=recent)
    output = LiveOutput(setup.run_id)
    if loaded is not None:
        live = _replay(loaded, setup, redactor)
    else:
        live = world_for(prepared, setup, inputs, redactor, (*observers, output), console, os.getcwd())
    recording = recording_for(prepared, setup)
    return await drive_new_run(prepared, setup, live, output, observers, relay, on_start=on_start, recording=recording)


async def drive_new_run(
    prepared: Prepared,
    setup: Setup,
    live: LiveWorld,
    output: LiveOutput,
    observers: tuple[Observer, ...],
    relay: Relay | None,
    *,
    on_start: Callable[[Setup], object] | None = None,
    recording: "Recording | None" = None,
    recorded: Iterable[RecordedAnswer] | None = None,
    opening: Sequence[Emit] = (),
) -> Executed:
    """Record and drive a new run; its documents and its private key are stored with the first append.

    recorded: answers of another run that this one takes; `opening` is emitted after them
    """
    key = signing_key(prepared.environ)
    async with AsyncExitStack() as held:
        opened = await open_record(held, prepared, setup)
        if on_start is not None:
            on_start(setup)
        documents = {document.digest: document.source for document in prepared.documents.values()}
        journal = Journal(
            setup.run_id,
            opened.ledger,
            mirror=opened.mirror,
            key=key,
            observers=observers,
            has_secrets=bool(setup.secret_inputs),
            documents=tuple(documents.items()),
            private=prepared.approval_key.encode(),
            live=output if opened.ledger is not None else None,
        )
        session = Session(
            prepared=prepared,
            setup=setup,
            live=live,
            opened=opened,
            journal=journal,
            timeout=prepared.timeout,
            relay=relay,
            recording=recording,
            recorded=recorded,
            on_live=lambda _: journal.say_all(opening),
        )
        return await drive_run(session)


def run_file(
    file: str, inputs: Mapping[str, Any] | None = None, *, parts: Parts | None = None, **options: Any
) -> Executed:
    """Run a runbook and wait for it to end; `options` are those of `RunOptions`.

    Within a running event loop, await `execute` instead.
    """
    given = {name: GivenInput(value, "api") for name, value in (inputs or {}).items()}
    return asyncio.run(execute(RunOptions(file=file, given=given, **options), parts=parts))


def _scenario(prepared: Prepared) -> "Loaded | None":
    """The scenario that answers, in a replay."""
    named = prepared.options.scenario
    if named is None:
        return None
    from gert.ecosystem.host.scenarios.folders import find_scenario, load

    return load(prepared.workspace, find_scenario(prepared.options.file, named), prepared.program)


def _replay(loaded: "Loaded", setup: Setup, redactor: Redactor) -> LiveWorld:
    from gert.ecosystem.host.scenarios.replay import Replay, script_for

    return LiveWorld(world=Replay(script_for(loaded.scenario, setup)), redactor=redactor)


def recording_for(prepared: Prepared, setup: Setup, *, is_checked: bool = True) -> "Recording | None":
    """The scenario that is recorded of this run, if one is wanted.

    is_checked: refuse a folder that cannot be written, before the run begins; else its end reports that
    """
    options = prepared.options
    if setup.mode != "real" or not (options.record or prepared.environ.get(AUTO_RECORD)):
        return None
    from gert.ecosystem.host.scenarios.record_scenario import Recording, recording_folder

    if options.record and not is_checked:
        return Recording(options.record, options.file)
    folder = recording_folder(options.record, options.file, setup.run_id, prepared.environ)
    return Recording(folder, options.file) if folder is not None else None


def world_for(
    prepared: Prepared,
    setup: Setup,
    inputs: ResolvedInputs,
    redactor: Redactor,
    observers: tuple[Observer, ...],
    console: Console,
    working: str,
) -> LiveWorld:
    """The world that answers the run; tools run in the folder `working`."""
    program, options = prepared.program, prepared.options

    callers = Callers(prepared, setup.run_id, inputs, redactor, observers, working, setup.started)
    runner = _runner(prepared, setup)
    if runner is not None:
        callers.transports[RUNNER] = runner
    givers: list[EvidenceGiver] = []
    if options.evidence:
        file = EvidenceEntries.from_file(options.evidence, setup.actor)
        file.require_steps({step.id for step in program.steps if isinstance(step, ManualStep)})
        givers.append(file)
    control = _control(prepared, setup)
    givers.append(control if control is not None else EvidenceDialogue(console, setup.actor))
    approvals = _approvals(prepared, setup, console)
    binding = Binding(
        secrets=inputs.secrets,
        key=prepared.approval_key,
        host=machine_id(),
        locate=callers.locate,
        plan=runner.plan_of if runner is not None else None,
        # A detached run may be resumed by a principal who holds the secret; who requests it need not.
        lacks=callers.lacks if options.approvals != "detach" else None,
    )
    real = Real(
        program,
        Sanitizer(redactor),
        transports=callers.transports,
        extensions=callers.extensions,
        embedded=callers.embedded,
        approvals=approvals,
        collect=lambda ask: collect(ask, *givers),
        binding=binding,
        secrets=inputs.secrets,
    )
    rendered = {
        name: lookup.tool
        for name, lookup in program.tool_names.items()
        if lookup.tool is not None and name not in callers.embedded
    }
    worlds: dict[str, World] = {
        "dry-run": DryRun(real, options.probe_effects, rendered),
        "probe": Probe(real, options.probe_effects, rendered),
    }

    tickets = approvals if isinstance(approvals, TicketApprovals) else None

    def knows(ask: CallTool | CallExtension) -> bool:
        if isinstance(ask, CallExtension):
            return callers.extensions.is_durable(ask.extension)
        return runner is not None and runner.knows(ask)

    def attach(ledger: Ledger) -> None:
        for each in (tickets, control, runner):
            if each is not None:
                each.attach(ledger)

    return LiveWorld(
        world=worlds.get(setup.mode, real),
        redactor=redactor,
        abort=callers.kill_all,
        close=callers.close,
        attach=attach,
        settle=tickets.settle if tickets is not None else None,
        binding=binding,
        knows=knows,
        control=control,
        on_rest=approvals.rest if isinstance(approvals, TerminalApprovals) else None,
    )


def _runner(prepared: Prepared, setup: Setup) -> "RunnerTransport | None":
    """How skills are called; None for a program whose tools name none."""
    tools = (lookup.tool for lookup in prepared.program.lookups.values())
    if not any(tool is not None and tool.meta.transport == RUNNER for tool in tools):
        return None
    from gert.ecosystem.host.runner.transport import runner_transport  # most runbooks call no skill

    return runner_transport(prepared, setup)


def _control(prepared: Prepared, setup: Setup) -> Control | None:
    """What takes messages to the run, where another process controls it."""
    options = prepared.options
    if not options.controlled:
        return None
    must_sign = isinstance(prepared.database, Dsn)
    return Control(setup.run_id, prepared.environ, must_sign=must_sign, steps=options.steps)


def _approvals(prepared: Prepared, setup: Setup, console: Console) -> ApprovalProvider:
    """How approval is obtained: by the embedding program, at the terminal, or with tickets in the ledger."""
    options = prepared.options
    if prepared.parts.approvals is not None:
        from gert.ecosystem.host.embedding.approvals import EmbeddedApprovals

        return EmbeddedApprovals(prepared.parts.approvals, prepared.verifier(), now)
    if options.approvals == "terminal":
        return TerminalApprovals(
            console, setup.actor, now, lambda: f"ticket-{new_run_id(now())}", rests=not console.is_terminal
        )
    must_sign = isinstance(prepared.database, Dsn)
    drop_box = drop_box_for(prepared)
    if setup.mode == "real" and drop_box is not None:
        drop_box.prepare()
    return TicketApprovals(
        setup.run_id,
        prepared.verifier(),
        must_sign=must_sign,
        channels=_channels(prepared),
        drop_box=drop_box,
        detach=options.approvals == "detach",
        warn=console.warn,
    )


def drop_box_for(prepared: Prepared) -> DropBox | None:
    """The drop box that the settings name."""
    said = prepared.settings.approvals
    if said is None or said.drop_box is None:
        return None
    return DropBox(said.drop_box, approval_verifier(prepared.environ, is_strict=True))


def _channels(prepared: Prepared) -> list[Channel]:
    """The ways settings know to reach people."""
    if prepared.settings.approvals is None:
        return []
    from gert.ecosystem.host.channels.channels_for import channels_for  # seldom needed, and not small

    return channels_for(prepared.settings, prepared.environ, prepared.state)


def pausing(observers: tuple[Observer, ...]) -> tuple[Callable[[], None], Callable[[], None]]:
    """How to make everyone who watches step aside for a question, and come back."""

    def pause() -> None:
        for observer in observers:
            observer.pause()

    def unpause() -> None:
        for observer in observers:
            observer.unpause()

    return pause, unpause
