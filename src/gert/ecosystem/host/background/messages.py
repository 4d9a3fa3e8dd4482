"""Send messages to a run that another process drives: cancel it, let its next call begin, give evidence."""

import asyncio
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.approval_keys import key_to_sign_with
from gert.ecosystem.host.config.ledger_location import Database, open_ledger
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.run.driver.control import ControlMessage, encode_control
from gert.ecosystem.ledger.holder import is_running
from gert.errors import UsageError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_MESSAGE, MessageKind

_PATIENCE: Final = 2.0
"""Seconds after which a driver that takes no messages is signalled instead, where it runs on this machine."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a message, to which ledger.

    key: the variable or file of the key to sign with; needed where others can write to the ledger
    """

    database: Database
    by: str | None = None
    key: str | None = None
    key_id: str | None = None


async def cancel_run(sender: Sender, run_id: str, environ: Mapping[str, str], reason: str | None = None) -> None:
    """Cancel a run that is being driven: it stops in order, and its `finally` steps run.

    A driver that takes no messages (`gert exec` in a terminal) gets SIGTERM, if it runs on this machine.
    """
    async with open_ledger(sender.database, environ) as ledger:
        lease = await ledger.lease(run_id)
        if lease is None:
            await _require_run(ledger, run_id)
            raise UsageError(
                f"no process drives run `{run_id}`", hint=f"`gert run abandon {run_id}` ends a run that waits"
            )
        message = await _post(ledger, sender, run_id, "cancel", ControlMessage(**_said(sender, reason=reason)), environ)
        if await _is_taken(ledger, run_id, message):
            return
        if lease.holder is not None and is_running(lease.holder):
            os.kill(lease.holder.pid, signal.SIGTERM)


async def stop_driver(database: Database, run_id: str, environ: Mapping[str, str]) -> None:
    """Signal the process that drives a run, if it runs on this machine: it stops the run in order.

    For the process that started it: a signal needs no key, and the system lets no other user send one.
    """
    async with open_ledger(database, environ, read_only=True) as ledger:
        lease = await ledger.lease(run_id)
    if lease is not None and lease.holder is not None and is_running(lease.holder):
        os.kill(lease.holder.pid, signal.SIGTERM)


async def advance_run(sender: Sender, run_id: str, environ: Mapping[str, str], path: str | None = None) -> None:
    """Let a call begin in a run that goes step by step: the one at `path`, or the next."""
    async with open_ledger(sender.database, environ) as ledger:
        await _require_driven(ledger, run_id)
        await _post(ledger, sender, run_id, "advance", ControlMessage(**_said(sender, path=path)), environ)


async def give_evidence(
    sender: Sender,
    run_id: str,
    path: str,
    environ: Mapping[str, str],
    evidence: Mapping[str, Any] | None = None,
    reject: str | None = None,
    folder: str | None = None,
) -> None:
    """Give the evidence of a manual step, or reject the step with a reason; the run checks it when it takes it.

    folder: where relative paths of attachments begin (default: the working folder)
    """
    if reject is not None:  # also without a reason: an empty one confirms nothing
        said = ControlMessage(**_said(sender, path=path, reason=reject))
    else:
        said = ControlMessage(
            **_said(sender, path=path, evidence=dict(evidence or {}), folder=os.path.abspath(folder or os.curdir))
        )
    async with open_ledger(sender.database, environ) as ledger:
        await _require_run(ledger, run_id)
        await _post(ledger, sender, run_id, "evidence", said, environ)


def _said(sender: Sender, **others: Any) -> dict[str, Any]:
    return {"by": sender.by or user_name(), "timestamp": "", **others}


async def _post(
    ledger: Ledger,
    sender: Sender,
    run_id: str,
    kind: MessageKind,
    message: ControlMessage,
    environ: Mapping[str, str],
) -> int:
    """Post a message and return the id of the last message before it."""
    if sender.key is None and isinstance(sender.database, Dsn):
        raise UsageError("a message to a run on a shared ledger has to be signed", hint="name your key with --key")
    key = key_to_sign_with(sender.key, environ, sender.key_id) if sender.key is not None else None
    message = msgspec.structs.replace(message, timestamp=format_timestamp(await ledger.time()))
    body = encode_control(run_id, kind, message, key)
    if len(body) > MAX_MESSAGE:
        raise UsageError(f"the message is too long: expected at most {MAX_MESSAGE} bytes, found {len(body)}")
    known = await ledger.messages(run_id)
    await ledger.post(run_id, kind, body)
    return known[-1].id if known else 0


async def _is_taken(ledger: Ledger, run_id: str, after: int) -> bool:
    """Whether the driver takes a cancellation soon."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE
    while loop.time() < end:
        messages = await ledger.messages(run_id, since=after)
        if any(each.kind == "cancel" and each.taken is not None for each in messages):
            return True
        if await ledger.lease(run_id) is None:
            return True
        await asyncio.sleep(0.1)
    return False


async def _require_run(ledger: Ledger, run_id: str) -> None:
    """Refuse messages to a run that is not there, or has ended."""
    head = await ledger.head(run_id)
    if head is None:
        raise UsageError(f"there is no run `{run_id}`", hint="`gert run list` shows the runs of this ledger")
    if head.runbook is not None and head.runbook.ended is not None:
        raise UsageError(f"run `{run_id}` has ended: {head.runbook.ended}", hint=f"see `gert run show {run_id}`")


async def _require_driven(ledger: Ledger, run_id: str) -> None:
    await _require_run(ledger, run_id)
    if await ledger.lease(run_id) is None:
        raise UsageError(f"no process drives run `{run_id}`", hint=f"`gert resume {run_id}` resumes it")
