"""Running a runbook: from options to a recorded, sealed run and its result. Every surface calls this."""

import asyncio
import getpass
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from msgspec import field

from gert.ecosystem.approvals.terminal import TerminalApprovals
from gert.ecosystem.executors.stdio import Stdio
from gert.ecosystem.host.console import Console
from gert.ecosystem.host.documents import Checked, Workspace
from gert.ecosystem.host.driver import MAX_PARALLEL, Driver
from gert.ecosystem.host.evidence import EvidenceDialogue, EvidenceFile, EvidenceGiver, collect
from gert.ecosystem.host.facts import platform
from gert.ecosystem.host.intake import Intake
from gert.ecosystem.host.journal import Journal, now
from gert.ecosystem.host.keys import signing_key
from gert.ecosystem.host.observer import Observer
from gert.ecosystem.host.policies import Floor, floor_for, sound
from gert.ecosystem.host.runs import RunFolder, new_run_id, state_dir
from gert.ecosystem.host.variables import resolve
from gert.ecosystem.host.version import version_line
from gert.ecosystem.host.worlds import PROBED_EFFECTS, DryRun, Probe, Real, World
from gert.ecosystem.inputs import Resolvers
from gert.ecosystem.inputs.env import EnvResolver
from gert.ecosystem.inputs.file import FileResolver
from gert.ecosystem.inputs.prompt import PromptResolver
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.memory import MemoryStore
from gert.ecosystem.stores.port import Store
from gert.ecosystem.stores.sqlite import SqliteStore
from gert.errors import DocumentError, InputError, TraceError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import Given, ResolvedInputs
from gert.kernel.engine.run import RunResult, run, secret_names
from gert.kernel.events.vocabulary import RunMode
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.redaction import Redactor, parts_of
from gert.kernel.foundation.secret_refs import masked
from gert.kernel.runbook.documents.steps import ManualStep
from gert.kernel.runbook.program import Program

MODES: Final[tuple[RunMode, ...]] = ("real", "dry-run", "probe")
INTERRUPTED: Final = "interrupted"
_STOPS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is asked to be; times are in seconds.

    sync: whether events are on disk before the next question is put
    """

    file: str
    given: Mapping[str, Given] = field(default_factory=dict)
    mode: RunMode = "real"
    actor: str | None = None
    trace: str | None = None
    db: str | None = None
    state_dir: str | None = None
    sync: bool = True
    policies: tuple[str, ...] = ()
    evidence: str | None = None
    max_parallel: int = MAX_PARALLEL
    timeout: float | None = None
    probe_effects: frozenset[str] = PROBED_EFFECTS


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended: its id, its result, and where it is recorded."""

    run_id: str
    runbook: str
    mode: RunMode
    result: RunResult
    events: int
    trace: str | None
    db: str | None
    interrupted: bool

    def as_json(self) -> dict[str, Any]:
        """The result as machines read it."""
        said: dict[str, Any] = masked(msgspec.to_builtins(self.result, enc_hook=str))
        return {
            "run_id": self.run_id,
            "runbook": self.runbook,
            "mode": self.mode,
            **{name: value for name, value in said.items() if value not in (None, [], ())},
            "duration": round(self.result.duration, 3),
            "events": self.events,
            "trace": self.trace,
            "db": self.db,
        }


async def execute(
    options: RunOptions,
    *,
    observers: Iterable[Observer] = (),
    console: Console | None = None,
    on_start: Callable[[Setup], object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Executed:
    """Run a runbook; an error that stops it before anything ran is raised, everything after is in the result."""
    environ = dict(os.environ) if environ is None else environ
    observers = tuple(observers)
    prepared = _Prepared(options, environ)
    console = console if console is not None else Console.standard(_all(observers, "pause"), _all(observers, "unpause"))
    inputs = await resolve(prepared.program.runbook.meta.inputs, options.given, _resolvers(options, environ, console))
    redactor = prepared.redactor(inputs)
    setup = prepared.setup(inputs, redactor)
    world, abort = _world(prepared, setup, inputs, redactor, observers, console)
    key = signing_key(environ)
    store, folder = _store(options, setup, prepared)
    if on_start is not None:
        on_start(setup)
    journal = Journal(store, setup.run_id, key=key, observers=observers, has_secrets=bool(inputs.secrets))
    try:
        driver = Driver(world, journal, max_parallel=options.max_parallel)
        with _interruptible(driver, abort) as pressed, _limited(driver, prepared.timeout):
            result = await driver.drive(run(setup))
    finally:
        journal.close()
        store.close()
    return Executed(
        run_id=setup.run_id,
        runbook=prepared.program.runbook.meta.name,
        mode=options.mode,
        result=result,
        events=journal.events,
        trace=_trace_of(options, folder),
        db=options.db,
        interrupted=bool(pressed),
    )


def _named(options: RunOptions) -> Iterator[tuple[str, str]]:
    """What the caller gave in words, by the name of its option."""
    yield "FILE", options.file
    for name in ("actor", "trace", "db", "state_dir", "evidence"):
        value = getattr(options, name)
        if value is not None:
            yield {"actor": "--as"}.get(name, f"--{name.replace('_', '-')}"), value
    yield from (("--policy", each) for each in options.policies)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def run_file(file: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> Executed:
    """Run a runbook and wait for it to end; `options` are those of `RunOptions`.

    Within a running event loop, await `execute` instead.
    """
    given = {name: Given(value, "api") for name, value in (inputs or {}).items()}
    return asyncio.run(execute(RunOptions(file=file, given=given, **options)))


class _Prepared:
    """Everything that is known before inputs are resolved."""

    def __init__(self, options: RunOptions, environ: Mapping[str, str]) -> None:
        if options.mode not in MODES:
            raise UsageError(f"`{options.mode}` is not a mode", hint=f"one of {', '.join(MODES)}")
        if options.trace and options.db:
            raise UsageError("a run is recorded in one place", hint="give --trace or --db, not both")
        for name, value in _named(options):
            if not _is_text(value):
                raise UsageError(f"{name} is not UTF-8 text")
        self.options = options
        self.environ = environ
        workspace = Workspace()
        self.checked: Checked = sound(workspace.program(options.file))
        if self.checked.program is None:
            raise DocumentError(f"`{options.file}` is not a runbook")
        self.program: Program = self.checked.program
        self.floor: Floor = floor_for(workspace, options.file, self.program, options.policies)
        folder = os.path.dirname(os.path.abspath(options.file))
        project = workspace.project(folder)
        self.groups = dict(project.groups) if project is not None else {}
        self.state = state_dir(options.state_dir, workspace.project_root(folder), environ)
        self.actor = options.actor or _user()
        if options.mode != "dry-run":
            self._require_secrets()

    @property
    def timeout(self) -> float | None:
        """Seconds the whole run may take: the shorter of what the caller and the runbook say."""
        declared = self.program.runbook.meta.timeout
        limits = [self.options.timeout, parse_duration(declared).total_seconds() if declared else None]
        return min((limit for limit in limits if limit is not None), default=None)

    def redactor(self, inputs: ResolvedInputs) -> Redactor:
        """Everything that must not be shown: declared secrets, secret inputs, and our own keys."""
        # The label of a key is public, and so is a key that only verifies.
        ours = [
            value
            for name, value in self.environ.items()
            if name.startswith("GERT_") and "KEY" in name and not name.endswith("_ID") and "public:" not in value
        ]
        declared = [self.environ.get(name, "") for name in secret_names(self.program)]
        known = [*declared, *(part for text in inputs.secrets.values() for part in parts_of(text)), *ours]
        # Output is read as UTF-8, whatever it is: a secret that is not has a second look.
        read = [each.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for each in known]
        return Redactor([*known, *read])

    def setup(self, inputs: ResolvedInputs, redactor: Redactor) -> Setup:
        """The run, as the engine is given it."""
        for name, value in inputs.values.items():
            if redactor.value(value).masked:
                # Masked, it would be another value than was given, and a tool would be called with that.
                raise InputError(
                    f"the input `{name}` holds a secret and is not declared as one",
                    hint=f"declare it with `secret: true` in `meta.inputs.{name}`",
                )
        return Setup(
            program=self.program,
            run_id=new_run_id(now()),
            runbook_hash=self.checked.document.digest,
            mode=self.options.mode,
            actor=self.actor,
            host=socket.gethostname(),
            gert_version=version_line(),
            policies=tuple(self.floor.policies),
            policy_hashes=self.floor.digests,
            inputs=inputs.values,
            input_sources=inputs.sources,
            secret_inputs=frozenset(inputs.secrets),
            groups=self.groups,
            explores=self.options.mode != "real",
        )

    def _require_secrets(self) -> None:
        for secret in self.program.runbook.meta.secrets:
            if secret.required and not self.environ.get(secret.env):
                raise InputError(
                    f"the runbook requires the secret `{secret.env}`",
                    hint=f"set the environment variable: {secret.description or secret.env}",
                )


def _world(
    prepared: _Prepared,
    setup: Setup,
    inputs: ResolvedInputs,
    redactor: Redactor,
    observers: tuple[Observer, ...],
    console: Console,
) -> tuple[World, Callable[[], object]]:
    """Who answers, and how to end at once what it started."""
    if setup.mode == "dry-run":
        return DryRun(), lambda: None
    program, options = prepared.program, prepared.options

    def printed(path: str, stream: str, text: str) -> None:
        for observer in observers:
            observer.printed(path, stream, text)

    stdio = Stdio(
        environment=prepared.environ,
        secrets=inputs.secrets,
        redactor=redactor,
        withheld=frozenset((*secret_names(program), *_bound(program, inputs))),
        working=os.getcwd(),
        on_output=printed if observers else None,
        platform=platform(),
    )
    givers: list[EvidenceGiver] = []
    if options.evidence:
        file = EvidenceFile(options.evidence, setup.actor)
        file.require_steps({step.id for step in program.steps if isinstance(step, ManualStep)})
        givers.append(file)
    givers.append(EvidenceDialogue(console, setup.actor))
    real = Real(
        program,
        Intake(redactor),
        transports={"stdio": stdio},
        approvals=TerminalApprovals(console, setup.actor, now, lambda: f"ticket-{new_run_id(now())}"),
        collect=lambda ask: collect(ask, *givers),
    )
    return (Probe(real, options.probe_effects) if setup.mode == "probe" else real), stdio.kill_all


def _bound(program: Program, inputs: ResolvedInputs) -> Iterator[str]:
    """The environment variables secret inputs come from; a tool gets them as inputs, or not at all."""
    for name in inputs.secrets:
        source = program.runbook.meta.inputs[name].from_
        if source is not None and source.startswith("env/"):
            yield source.removeprefix("env/")


def _store(options: RunOptions, setup: Setup, prepared: _Prepared) -> tuple[Store, RunFolder | None]:
    """Where the run is recorded. Every real run is; others only where somebody asks for it."""
    if options.db:
        return SqliteStore(options.db, sync=options.sync), None
    if setup.mode != "real":
        return (JsonlStore(options.trace, None, sync=options.sync) if options.trace else MemoryStore()), None
    folder = RunFolder(prepared.state, setup.run_id)
    folder.create()
    trace = os.path.abspath(options.trace) if options.trace else folder.trace
    try:
        store = JsonlStore(trace, folder.answers, sync=options.sync)
    except TraceError as problem:
        folder.discard()
        raise UsageError(problem.message, hint=problem.hint) from None
    folder.write_state(
        {
            "run_id": setup.run_id,
            "runbook": setup.program.runbook.meta.name,
            "file": os.path.abspath(options.file),
            "runbook_hash": setup.runbook_hash,
            "mode": setup.mode,
            "actor": setup.actor,
            "host": setup.host,
            "gert_version": setup.gert_version,
            "trace": trace,
            "inputs": {name: value for name, value in setup.inputs.items() if name not in setup.secret_inputs},
            "input_sources": setup.input_sources,
            "secret_inputs": sorted(setup.secret_inputs),
            "policies": [os.path.abspath(path) for path in options.policies],
            "max_parallel": options.max_parallel,
        }
    )
    return store, folder


def _trace_of(options: RunOptions, folder: RunFolder | None) -> str | None:
    return options.trace or (folder.trace if folder is not None else None)


def _resolvers(options: RunOptions, environ: Mapping[str, str], console: Console) -> Resolvers:
    folder = os.path.dirname(os.path.abspath(options.file))
    table: dict[str, Any] = {"env": EnvResolver(environ), "file": FileResolver(folder)}
    # In a dry run nobody is asked for anything, but an input is no question of the run: it has to be known.
    table["prompt"] = PromptResolver(console)
    return Resolvers(table)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"uid-{os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _all(observers: tuple[Observer, ...], method: str) -> Callable[[], None]:
    def tell() -> None:
        for observer in observers:
            getattr(observer, method)()

    return tell


def _mind_children() -> None:
    """Whoever started us may have asked the system to forget children as they end; then nobody knew how they ended."""
    with suppress(AttributeError, ValueError):  # a system without this signal, or not the main thread
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@contextmanager
def _limited(driver: Driver, timeout: float | None) -> Iterator[None]:
    """Stop the run when its time is over."""
    if timeout is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(timeout, driver.cancel, "timeout")
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _interruptible(driver: Driver, abort: Callable[[], object]) -> Iterator[list[bool]]:
    """Ctrl-C once stops what is under way and finishes the record; twice ends everything at once."""
    loop = asyncio.get_running_loop()
    pressed: list[bool] = []
    _mind_children()
    task = asyncio.current_task()

    def press() -> None:
        pressed.append(True)
        if len(pressed) == 1:
            driver.cancel(INTERRUPTED)
            return
        abort()
        if task is not None:
            task.cancel()

    caught = []
    for number in _STOPS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # whoever started us wants it so: `nohup`, or a job in the background
        try:
            loop.add_signal_handler(number, press)
            caught.append(number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # not the main thread, or a system without signals: the caller's own handling stays
    try:
        yield pressed
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
