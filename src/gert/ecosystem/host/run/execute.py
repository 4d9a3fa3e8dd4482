"""Running a runbook: from options to a recorded, sealed run and its result. Every surface calls this."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gert.ecosystem.approvals.port import ApprovalProvider, Channel
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.approvals.ticket_file import RunRef
from gert.ecosystem.host.approvals.answers import tickets_for_run
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.key_files import with_key_files
from gert.ecosystem.host.config.platform import machine_id, platform
from gert.ecosystem.host.config.settings import secret_variables, where_recorded
from gert.ecosystem.host.config.state_dir import new_run_id
from gert.ecosystem.host.config.supported import TRANSPORTS, Transport, require_supported
from gert.ecosystem.host.config.trace_keys import signing_key
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.redrive.record import Opened, begin_record
from gert.ecosystem.host.run.call_binding import Binding
from gert.ecosystem.host.run.console import Console
from gert.ecosystem.host.run.evidence import EvidenceDialogue, EvidenceFile, EvidenceGiver, collect
from gert.ecosystem.host.run.journal import Journal, now
from gert.ecosystem.host.run.live_output import LiveOutput
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.rate_limit import count_recent
from gert.ecosystem.host.run.sanitize import Intake
from gert.ecosystem.host.run.session import Cast, Stage, conduct
from gert.ecosystem.host.run.signals import Relay
from gert.ecosystem.host.run.worlds import DryRun, Probe, Real, World
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import FileResolver
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.process.environment import PARENT_RUN
from gert.ecosystem.tools.stdio import Place
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import Given, ResolvedInputs
from gert.kernel.engine.requests import Subject
from gert.kernel.engine.run import secret_names
from gert.kernel.foundation.redaction import Redactor
from gert.kernel.foundation.signature import Key
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.program import Program
from gert.kernel.scenario.inputs import replayed_inputs

if TYPE_CHECKING:
    from gert.ecosystem.host.scenarios.folders import Loaded
    from gert.ecosystem.host.scenarios.record import Recording

AUTO_RECORD: Final = "GERT_AUTO_RECORD"


async def execute(
    options: RunOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    on_start: Callable[[Setup], object] | None = None,
    environ: Mapping[str, str] | None = None,
    relay: Relay | None = None,
) -> Executed:
    """Run a runbook; an error that stops it before anything ran is raised, everything after is in the result.

    relay: hands signals to the run where the caller listens to them; otherwise the run does
    """
    environ = with_key_files(os.environ if environ is None else environ)
    observers = tuple(observers)
    prepared = Prepared(options, environ)
    if options.mode != "replay":
        require_supported(prepared.program)
    console = console if console is not None else Console.standard(*everyone(observers))
    loaded = _scenario(prepared)
    declared = prepared.program.runbook.meta.inputs
    if loaded is not None:
        inputs, redactor = replayed_inputs(declared, loaded.scenario, options.given), Redactor()
    else:
        inputs = await resolve(declared, options.given, resolvers(options, environ, console), prepared.floor.policies)
        redactor = prepared.redactor(inputs)
    played = loaded.folder.name if loaded is not None else None
    starter = loaded.scenario.actor if loaded is not None and options.actor is None else None
    recent = None
    if loaded is None:
        recent = await count_recent(prepared.program, prepared.floor.policies, prepared.ledger, environ, now())
    setup = prepared.setup(inputs, redactor, played, starter, recent)
    prepared.options = options = where_recorded(
        options, prepared.settings, prepared.program.runbook.meta.name, setup.run_id
    )
    setup = with_trace(setup, options)
    live = LiveOutput(setup.run_id)
    if loaded is not None:
        cast = _replay(loaded, setup)
    else:
        cast = world_for(prepared, setup, inputs, redactor, (*observers, live), console, os.getcwd())
    recording = _recording(prepared, setup)
    key = signing_key(environ)
    async with AsyncExitStack() as held:
        opened = await open_record(prepared, setup, held)
        if on_start is not None:
            on_start(setup)
        journal = new_journal(prepared, setup, opened, key, observers, live)
        return await conduct(
            Stage(
                options=options,
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
                recording=recording,
            )
        )


def run_file(file: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> Executed:
    """Run a runbook and wait for it to end; `options` are those of `RunOptions`.

    Within a running event loop, await `execute` instead.
    """
    given = {name: Given(value, "api") for name, value in (inputs or {}).items()}
    return asyncio.run(execute(RunOptions(file=file, given=given, **options)))


def _scenario(prepared: Prepared) -> "Loaded | None":
    """The scenario that answers, in a replay."""
    named = prepared.options.scenario
    if named is None:
        return None
    from gert.ecosystem.host.scenarios.folders import load, pick

    return load(prepared.workspace, pick(prepared.options.file, named), prepared.program)


def _replay(loaded: "Loaded", setup: Setup) -> Cast:
    from gert.ecosystem.host.scenarios.replay import Replay, script_for

    return Cast(world=Replay(script_for(loaded.scenario, setup)))


def _recording(prepared: Prepared, setup: Setup) -> "Recording | None":
    """The scenario this run is to become, if somebody wants one."""
    options = prepared.options
    if setup.mode != "real" or not (options.record or prepared.environ.get(AUTO_RECORD)):
        return None
    from gert.ecosystem.host.scenarios.record import Recording, recording_folder

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
) -> Cast:
    """Who answers; tools run in the folder `working`."""
    program, options = prepared.program, prepared.options

    def printed(path: str, stream: str, text: str) -> None:
        for observer in observers:
            observer.printed(path, stream, text)

    transports = {
        name: transport(
            # A gert that a tool calls says which run started its run.
            environment={**prepared.environ, PARENT_RUN: setup.run_id},
            secrets=inputs.secrets,
            redactor=redactor,
            withheld=frozenset((*secret_names(program), *_bound(program, inputs), *_ours(prepared))),
            working=working,
            on_output=printed if observers else None,
            platform=platform(),
            run_id=setup.run_id,
        )
        for name, transport in TRANSPORTS.items()
    }
    givers: list[EvidenceGiver] = []
    if options.evidence:
        file = EvidenceFile(options.evidence, setup.actor)
        file.require_steps({step.id for step in program.steps if isinstance(step, ManualStep)})
        givers.append(file)
    givers.append(EvidenceDialogue(console, setup.actor))
    approvals = _approvals(prepared, setup, console)
    binding = Binding(
        secrets=inputs.secrets, key=prepared.approval_key, host=machine_id(), locate=_locate(program, transports)
    )
    real = Real(
        program,
        Intake(redactor),
        transports=transports,
        approvals=approvals,
        collect=lambda ask: collect(ask, *givers),
        binding=binding,
    )
    worlds: dict[str, World] = {
        "dry-run": DryRun(real, options.probe_effects),
        "probe": Probe(real, options.probe_effects),
    }

    def abort() -> None:
        for transport in transports.values():
            transport.kill_all()

    settle = approvals.settle if isinstance(approvals, TicketApprovals) else None
    return Cast(world=worlds.get(setup.mode, real), abort=abort, settle=settle, binding=binding)


def _locate(program: Program, transports: Mapping[str, Transport]) -> Callable[[Subject], Place | None]:
    """How the program of a call is found, where its transport starts one."""

    def locate(subject: Subject) -> Place | None:
        lookup = program.tool_names.get(subject.tool) if subject.tool is not None else None
        tool = lookup.tool if lookup is not None else None
        transport = transports.get(tool.meta.transport) if tool is not None else None
        if tool is None or transport is None:
            return None
        return transport.locate(tool, tool.actions[subject.action], subject.inputs)

    return locate


def _approvals(prepared: Prepared, setup: Setup, console: Console) -> ApprovalProvider:
    """Who is asked for approval: whoever sits at the terminal, or people elsewhere."""
    options = prepared.options
    if options.approvals == "terminal":
        return TerminalApprovals(console, setup.actor, now, lambda: f"ticket-{new_run_id(now())}")
    database = prepared.database
    run = RunRef(
        run_id=setup.run_id,
        runbook=setup.program.runbook.meta.name,
        file=os.path.abspath(options.file),
        state_dir=prepared.state,
        db=os.path.abspath(database) if isinstance(database, str) else "",
        dsn=database.given if isinstance(database, Dsn) else "",
    )
    tickets = tickets_for_run(prepared.state, prepared.environ, prepared.settings)
    if setup.mode == "real":
        tickets.prepare()
    return TicketApprovals(tickets, run, channels=_channels(prepared), detach=options.approvals == "detach")


def _channels(prepared: Prepared) -> list[Channel]:
    """The ways settings know to reach people."""
    if prepared.settings.approvals is None:
        return []
    from gert.ecosystem.host.channels.settings import channels_for  # seldom needed, and not small

    return channels_for(prepared.settings, prepared.environ, prepared.state)


def _bound(program: Program, inputs: ResolvedInputs) -> Iterator[str]:
    """The environment variables secret inputs come from; a tool gets them as inputs, or not at all."""
    for name in inputs.secrets:
        source = program.runbook.meta.inputs[name].from_
        if source is not None and source.startswith("env/"):
            yield source.removeprefix("env/")


def _ours(prepared: Prepared) -> Iterator[str]:
    """Variables of ours: of the ledger, which whoever has it could change, and of those we tell."""
    yield from secret_variables(prepared.program.runbook.meta, prepared.settings)
    if isinstance(prepared.database, Dsn) and prepared.database.variable is not None:
        yield prepared.database.variable


async def open_record(prepared: Prepared, setup: Setup, held: AsyncExitStack) -> Opened:
    """Open the record of a new run."""
    return await begin_record(
        held,
        setup.run_id,
        state=prepared.state,
        database=prepared.database,
        trace=prepared.options.trace,
        is_real=setup.mode == "real",
        sync=prepared.options.sync,
        environ=prepared.environ,
    )


def new_journal(
    prepared: Prepared,
    setup: Setup,
    opened: Opened,
    key: Key | None,
    observers: tuple[Observer, ...],
    live: LiveOutput,
) -> Journal:
    """The journal of a new run; its documents and its private key are stored with the first append."""
    documents = {document.digest: document.source for document in prepared.documents.values()}
    return Journal(
        setup.run_id,
        opened.ledger,
        mirror=opened.mirror,
        key=key,
        observers=observers,
        has_secrets=bool(setup.secret_inputs),
        documents=tuple(documents.items()),
        private=prepared.approval_key.encode(),
        witness=prepared.witness,
        live=live if opened.ledger is not None else None,
    )


def with_trace(setup: Setup, options: RunOptions) -> Setup:
    """The setup of a run whose mirror is the file that settings or options name."""
    if setup.start is None or not options.trace:
        return setup
    start = msgspec.structs.replace(setup.start, trace=os.path.abspath(options.trace))
    return msgspec.structs.replace(setup, start=start)


def resolvers(options: RunOptions, environ: Mapping[str, str], console: Console) -> Resolvers:
    """Where inputs are looked for."""
    folder = os.path.dirname(os.path.abspath(options.file))
    table: dict[str, Any] = {"env": EnvResolver(environ), "file": FileResolver(folder)}
    # In a dry run nobody is asked for anything, but an input is no question of the run: it has to be known.
    table["prompt"] = PromptResolver(console)
    return Resolvers(table)


def everyone(observers: tuple[Observer, ...]) -> tuple[Callable[[], None], Callable[[], None]]:
    """How to make everyone who watches step aside for a question, and come back."""

    def pause() -> None:
        for observer in observers:
            observer.pause()

    def unpause() -> None:
        for observer in observers:
            observer.unpause()

    return pause, unpause
