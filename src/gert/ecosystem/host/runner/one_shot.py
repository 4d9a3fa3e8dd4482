"""The process `gert-runner run`: everything the procedure needs is put together here, once, and the process ends."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

import msgspec

from gert.ecosystem.host.config.keys.plan_keys import plan_keys
from gert.ecosystem.host.config.ledger_location import database_for, ledger_of, make_ledger_folder, open_ledger
from gert.ecosystem.host.config.machine.platform import host_name
from gert.ecosystem.host.config.machine.process_setup import set_up_process
from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.host.runner.plan_files import authorization_file, read_file
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.spend import FolderSpend, LedgerSpend
from gert.ecosystem.process.environment import ROOT_RUN
from gert.ecosystem.process.own_process import keep_secrets_in_memory
from gert.ecosystem.runners.procedure import Finished, run_plan
from gert.ecosystem.runners.secrets import Resolving
from gert.ecosystem.runners.verification import Invocation, Runner, Spend
from gert.kernel.runner.authorization import MAX_BYTES
from gert.kernel.runner.exit_codes import RunnerExit
from gert.kernel.runner.plan import MAX_PLAN_BYTES

__all__ = ["Finished", "RunnerExit", "RunnerOptions", "harden", "run_once"]

_TLS: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables by which libraries trust other certificates, or write down the keys of a session."""


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is started with.

    authorization: its file; beside the plan when left out
    folder: in the project of the runner; the working folder when left out
    no_ledger: the plan is spent in the state directory
    dispatched: gert itself starts the runner, in a clean environment
    """

    plan: str
    runner_id: str
    secret_ref: str | None = None
    scope: tuple[str, ...] = ()
    ttl_seconds: int
    authorization: str | None = None
    folder: str | None = None
    state_dir: str | None = None
    db: str | None = None
    dsn: str | None = None
    config: str | None = None
    no_ledger: bool = False
    dispatched: bool = False


async def run_once(options: RunnerOptions) -> Finished:
    """Run one plan; the caller's process ends afterwards."""
    environ = os.environ
    invocation = Invocation(
        plan=read_file(options.plan, MAX_PLAN_BYTES),
        authorization=read_file(options.authorization or authorization_file(options.plan), MAX_BYTES),
        runner_id=options.runner_id,
        secret_ref=options.secret_ref,
        scope=options.scope,
        ttl_seconds=options.ttl_seconds,
        dispatched=options.dispatched,
    )
    project = RunnerProject(
        options.folder,
        environ=environ,
        state=options.state_dir,
        database=database_for(options.db, options.dsn, environ),
        config=options.config,
    )
    stop = asyncio.Event()
    _listen(stop)
    asyncio.get_running_loop().set_default_executor(_Threads())
    async with AsyncExitStack() as held:
        runner_id = options.runner_id
        block = project.runners.get(runner_id)
        runner = Runner(
            keys=plan_keys(environ),
            runners=project.runners,
            skills=project.skills.get,
            policies=project.secrets_policies,
            spend=await _spend(project, held, no_ledger=options.no_ledger),
            state=project.state,
            clock=lambda: datetime.now(UTC),
            resolving=Resolving(
                environ=environ, sources=block.secrets if block is not None else None, dispatched=options.dispatched
            ),
            host=host_name(),
            version=version_line(),
            stop=stop,
        )
        return await run_plan(invocation, runner)


class _Threads(ThreadPoolExecutor):
    """Threads that are not waited for: a name server or a vault that does not answer cannot keep the process."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing more."""
        super().shutdown(wait=False, cancel_futures=True)


def harden() -> None:
    """Set up a process that will hold a secret: nothing is inherited, dumped or inspected."""
    for name in _TLS:
        os.environ.pop(name, None)
    set_up_process(os.environ)
    keep_secrets_in_memory()


async def _spend(project: RunnerProject, held: AsyncExitStack, *, no_ledger: bool) -> Spend:
    if no_ledger:
        return FolderSpend(project.state)
    own = project.database == ledger_of(project.state)
    if own:
        make_ledger_folder(project.state)
    ledger = await held.enter_async_context(open_ledger(project.database, project.environ))
    # The lease is given back before the ledger is closed.
    leases = await held.enter_async_context(AsyncExitStack())
    return LedgerSpend(
        ledger,
        project.ledger,
        leases,
        host=host_name(),
        version=version_line(),
        state=project.state if own else None,
        root_run=project.environ.get(ROOT_RUN),
    )


def _listen(stop: asyncio.Event) -> None:
    """Let the first signal end the execution in order; further ones change nothing."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        try:
            loop.add_signal_handler(name, stop.set)
        except (NotImplementedError, RuntimeError, ValueError):
            return  # not in the main thread, or not on this system: then the caller stops it otherwise
