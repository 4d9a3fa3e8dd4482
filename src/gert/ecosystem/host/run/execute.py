"""Running a runbook: from options to a recorded, sealed run and its result. Every surface calls this."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from gert.ecosystem.approvals.drop_box import DropBox
from gert.ecosystem.approvals.port import ApprovalProvider, Channel
from gert.ecosystem.approvals.provider import TicketApprovals
from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.host.config.approval_keys import approval_verifier
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.key_files import with_key_files
from gert.ecosystem.host.config.platform import machine_id, platform
from gert.ecosystem.host.config.settings import secret_variables
from gert.ecosystem.host.config.state_dir import new_run_id
from gert.ecosystem.host.config.supported import TRANSPORTS, Transport, require_supported
from gert.ecosystem.host.config.trace_keys import signing_key
from gert.ecosystem.host.config.variables import resolve
from gert.ecosystem.host.redrive.record import open_record
from gert.ecosystem.host.run.call_binding import Binding
from gert.ecosystem.host.run.console import Console
from gert.ecosystem.host.run.evidence import EvidenceDialogue, EvidenceFile, EvidenceGiver, collect
from gert.ecosystem.host.run.journal import Journal, RecordedAnswer, now
from gert.ecosystem.host.run.live_output import LiveOutput
from gert.ecosystem.host.run.observer import Observer
from gert.ecosystem.host.run.options import Executed, RunOptions
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.host.run.rate_limit import count_recent
from gert.ecosystem.host.run.sanitize import Sanitizer
from gert.ecosystem.host.run.session import LiveWorld, Session, drive_run
from gert.ecosystem.host.run.signals import Relay
from gert.ecosystem.host.run.worlds import DryRun, Probe, Real, World
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import FileResolver
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.process.environment import PARENT_RUN
from gert.ecosystem.tools.stdio import ProgramLocation
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import GivenInput, ResolvedInputs
from gert.kernel.engine.requests import Emit, Subject
from gert.kernel.engine.run import secret_names
from gert.kernel.foundation.redaction import Redactor
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
    console = console if console is not None else Console.standard(*pausing(observers))
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
    run_id = prepared.begin()
    setup = prepared.setup(inputs, redactor, played, starter, run_id=run_id, recent=recent)
    output = LiveOutput(setup.run_id)
    if loaded is not None:
        live = _replay(loaded, setup, redactor)
    else:
        live = world_for(prepared, setup, inputs, redactor, (*observers, output), console, os.getcwd())
    recording = _recording(prepared, setup)
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
            witness=prepared.witness,
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


def run_file(file: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> Executed:
    """Run a runbook and wait for it to end; `options` are those of `RunOptions`.

    Within a running event loop, await `execute` instead.
    """
    given = {name: GivenInput(value, "api") for name, value in (inputs or {}).items()}
    return asyncio.run(execute(RunOptions(file=file, given=given, **options)))


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


def _recording(prepared: Prepared, setup: Setup) -> "Recording | None":
    """The scenario that is recorded of this run, if one is wanted."""
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
) -> LiveWorld:
    """The world that answers the run; tools run in the folder `working`."""
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
        Sanitizer(redactor),
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

    tickets = approvals if isinstance(approvals, TicketApprovals) else None
    return LiveWorld(
        world=worlds.get(setup.mode, real),
        redactor=redactor,
        abort=abort,
        attach=tickets.attach if tickets is not None else None,
        settle=tickets.settle if tickets is not None else None,
        binding=binding,
    )


def _locate(program: Program, transports: Mapping[str, Transport]) -> Callable[[Subject], ProgramLocation | None]:
    """How the program of a call is found, where its transport starts one."""

    def locate(subject: Subject) -> ProgramLocation | None:
        lookup = program.tool_names.get(subject.tool) if subject.tool is not None else None
        tool = lookup.tool if lookup is not None else None
        transport = transports.get(tool.meta.transport) if tool is not None else None
        if tool is None or transport is None:
            return None
        return transport.locate(tool, tool.actions[subject.action], subject.inputs)

    return locate


def _approvals(prepared: Prepared, setup: Setup, console: Console) -> ApprovalProvider:
    """How approval is obtained: at the terminal, or with tickets in the ledger."""
    options = prepared.options
    if options.approvals == "terminal":
        return TerminalApprovals(console, setup.actor, now, lambda: f"ticket-{new_run_id(now())}")
    must_sign = isinstance(prepared.database, Dsn)
    drop_box = drop_box_for(prepared)
    if setup.mode == "real" and drop_box is not None:
        drop_box.prepare()
    return TicketApprovals(
        setup.run_id,
        approval_verifier(prepared.environ, is_strict=must_sign),
        must_sign=must_sign,
        channels=_channels(prepared),
        drop_box=drop_box,
        detach=options.approvals == "detach",
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
    from gert.ecosystem.host.channels.settings import channels_for  # seldom needed, and not small

    return channels_for(prepared.settings, prepared.environ, prepared.state)


def _bound(program: Program, inputs: ResolvedInputs) -> Iterator[str]:
    """The environment variables secret inputs come from; a tool gets them as inputs, or not at all."""
    for name in inputs.secrets:
        source = program.runbook.meta.inputs[name].from_
        if source is not None and source.startswith("env/"):
            yield source.removeprefix("env/")


def _ours(prepared: Prepared) -> Iterator[str]:
    """Variables that tools do not get: the address of the ledger, and secrets of notices."""
    yield from secret_variables(prepared.program.runbook.meta, prepared.settings)
    if isinstance(prepared.database, Dsn) and prepared.database.variable is not None:
        yield prepared.database.variable


def resolvers(options: RunOptions, environ: Mapping[str, str], console: Console) -> Resolvers:
    """Where inputs are looked for."""
    folder = os.path.dirname(os.path.abspath(options.file))
    table: dict[str, Any] = {"env": EnvResolver(environ), "file": FileResolver(folder)}
    # A dry run requests nothing of people, but an input is resolved before the run begins: it has to be known.
    table["prompt"] = PromptResolver(console)
    return Resolvers(table)


def pausing(observers: tuple[Observer, ...]) -> tuple[Callable[[], None], Callable[[], None]]:
    """How to make everyone who watches step aside for a question, and come back."""

    def pause() -> None:
        for observer in observers:
            observer.pause()

    def unpause() -> None:
        for observer in observers:
            observer.unpause()

    return pause, unpause
