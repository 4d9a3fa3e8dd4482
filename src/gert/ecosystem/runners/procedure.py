"""The procedure of a runner: verify, spend, execute, write down, exit. One plan, one process, no way back.

Until the plan is spent every refusal leaves it unspent and without a trace. From then on there is a record, whatever
happens, or the plan is in doubt.
"""

import asyncio
from typing import Final

import msgspec

from gert.ecosystem.runners.artifacts import StateFolder
from gert.ecosystem.runners.execution import Performed, Prepared, perform, prepare
from gert.ecosystem.runners.report import report_text
from gert.ecosystem.runners.sandbox import Machine, isolation_of
from gert.ecosystem.runners.secrets import resolve
from gert.ecosystem.runners.verification import Invocation, Runner, Started, Verified, verify
from gert.ecosystem.runners.wire import Lookup, Reach, tls_context
from gert.errors import GertError, Refused
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.governance.network import read_address, read_network
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runner.execution_record import ExecutionRecord, Isolation, record_bytes
from gert.kernel.runner.exit_codes import RunnerExit, exit_after_start, exit_before_start

_STOP_GRACE: Final = 5.0
"""Seconds that an execution has to end after it was stopped."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner ends: refused before the start, or with a record.

    refusal: why it was refused, or why there is no complete record
    """

    exit_code: int
    record: ExecutionRecord | None = None
    refusal: GertError | None = None


async def run_plan(invocation: Invocation, runner: Runner) -> Finished:
    """Run the whole procedure."""
    try:
        with StateFolder(runner.state) as folder:
            # (1) to (9)
            verified = await verify(invocation, runner, folder)
            # (10) What will be done is known before anything happens.
            runner.observe("prepare")
            machine = await runner.probe() if verified.skill.program is not None else None
            prepared = prepare(verified.skill, verified.plan, verified.files, lambda: _isolation(verified, machine))
            reach = _reach(verified.runner, runner.lookup)
            # (11) No way back from here.
            runner.observe("spend")
            await runner.spend.begin(
                Started(
                    plan=verified.plan,
                    digest=verified.digest,
                    authorization=verified.authorization,
                    scope=verified.scope,
                    isolation=prepared.isolation.level,
                    dispatched=invocation.dispatched,
                    documents=((verified.plan.skill_digest, verified.source),),
                )
            )
            try:
                return await _execute(runner, folder, verified, prepared, machine, reach)
            except Refused as refusal:
                # The plan is spent and has no record: the outcome is in doubt, whatever the reason.
                return Finished(exit_code=RunnerExit.RECORD, refusal=Refused("record/write", refusal.message))
    except Refused as refusal:
        return Finished(exit_code=exit_before_start(refusal), refusal=refusal)


def _isolation(verified: Verified, machine: Machine | None) -> Isolation:
    return isolation_of(machine or Machine(None, "it was not looked at"), unsandboxed=verified.plan.unsandboxed)


def _reach(block: RunnerBlock, lookup: Lookup | None) -> Reach:
    addresses = {domain: read_address(text) for domain, text in block.addresses.items()}
    networks = (read_network(text) for text in block.private_addresses)
    return Reach(
        context=tls_context(block.ca_file),
        addresses={domain: found for domain, found in addresses.items() if found is not None},
        private=tuple(network for network in networks if network is not None),
        lookup=lookup,
    )


async def _execute(
    runner: Runner, folder: StateFolder, verified: Verified, prepared: Prepared, machine: Machine | None, reach: Reach
) -> Finished:
    """Execute a spent plan, and write down what happened."""
    started, paths, done = runner.clock(), verified.plan.artifacts, Performed()
    hashes: dict[str, str] = {}
    # (12) What is asked for is on disk before it is asked.
    runner.observe("request")
    hashes["request"] = folder.write(paths.request, canonical(prepared.artifact()))
    # (13) and (14)
    error = await _attempt(runner, verified, prepared, machine, reach, done)
    # (15) What came back, and what people read.
    runner.observe("response")
    hashes["response"] = folder.write(paths.response, canonical(done.response(error)))
    ended = runner.clock()
    record = ExecutionRecord(
        plan_id=verified.plan.plan_id,
        plan_digest=verified.digest,
        runner_id=verified.plan.runner_id,
        vendor=verified.plan.vendor,
        skill_id=verified.plan.skill_id,
        scope=verified.scope,
        secret_ref=verified.plan.secret_ref,
        started_at=format_timestamp(started),
        ended_at=format_timestamp(ended),
        exit_code=RunnerExit.DONE if error is None else exit_after_start(error),
        isolation=prepared.isolation,
        request_artifact=paths.request,
        response_artifact=paths.response,
        log_artifact=paths.log,
        hashes=hashes,
        host=runner.host,
        gert_version=runner.version,
        requests=done.meter.sent,
        outputs=done.redactor.value(done.outputs).value,
        rule=error.rule if error is not None else None,
        message=error.message if error is not None else None,
    )
    runner.observe("log")
    report = str(done.redactor.text(report_text(record, done.exchanges)).value)
    hashes["log"] = folder.write(paths.log, report.encode())
    # (16) The record comes last: if there is one, everything is there.
    runner.observe("record")
    record_digest = folder.write(paths.record, record_bytes(record))
    runner.observe("report")
    try:
        await runner.spend.finish(record, record_digest)
    except GertError as problem:
        return Finished(exit_code=RunnerExit.RECORD, record=record, refusal=problem)
    return Finished(exit_code=record.exit_code, record=record)


async def _attempt(
    runner: Runner, verified: Verified, prepared: Prepared, machine: Machine | None, reach: Reach, done: Performed
) -> Refused | None:
    """Resolve the secret and execute, within the time there is; return why it did not succeed, without the secret."""
    left = (verified.expires - runner.clock()).total_seconds()
    seconds = max(0.0, min(left, parse_duration(verified.skill.timeout).total_seconds()))

    async def work() -> None:
        runner.observe("secret")
        reference = verified.plan.secret_ref
        secret = await resolve(reference, runner.resolving) if reference is not None else None
        runner.observe("execute")
        await perform(prepared, secret, reach, machine, done)

    working, stopped = asyncio.create_task(work()), asyncio.create_task(runner.stop.wait())
    try:
        await asyncio.wait({working, stopped}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=_STOP_GRACE)
            if runner.stop.is_set():
                return Refused("cancelled/signal", "the runner was stopped before the execution ended")
            return Refused("timeout/limit", f"the execution did not end within {seconds:g} seconds")
        return _error_of(working, done)
    finally:
        stopped.cancel()
        working.cancel()


def _error_of(working: "asyncio.Task[None]", done: Performed) -> Refused | None:
    problem = working.exception() if not working.cancelled() else None
    if problem is None:
        return None
    if isinstance(problem, GertError):
        rule = problem.rule if isinstance(problem, Refused) else "plan/inputs"
        return Refused(rule, str(done.redactor.text(problem.message).value))
    # A bug: its text may hold anything.
    return Refused("internal/bug", f"internal error: {type(problem).__name__}")
