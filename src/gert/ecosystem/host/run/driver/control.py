"""Control of a run from another process: messages in its inbox that cancel it, let a step begin, or give evidence.

A surface that starts a run in the background talks to it this way only. On a ledger that others can write to, a message
counts only with a signature by a key that speaks for its sender (LEDGER).
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from gert.ecosystem.approvals.responses import messages_of
from gert.ecosystem.host.config.keys.approval_keys import ApprovalKeys
from gert.ecosystem.host.run.world.evidence import NO_REASON, EvidenceEntries, NoEvidence
from gert.errors import Busy, GertError, IntegrityError, Unavailable
from gert.kernel.engine.requests import CallExtension, CallTool, CollectEvidence, EvidenceAnswer, Request
from gert.kernel.events.path import is_read_as
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.canonical import canonical
from gert.kernel.foundation.signature import Key, Signature, sign, verify
from gert.kernel.foundation.text import printable
from gert.kernel.governance.decide import person_key
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_MESSAGE, Message, MessageKind
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map

_LOOK_AGAIN: Final = 5.0
_RETRY: Final = 1.0
_NOTE: Final = 300
MAX_BY: Final = 256


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a message to a run says.

    path: the step it is about; None for the whole run
    reason: why the run is cancelled, or the evidence refused
    evidence: by name, as in a file for `--evidence`; it is evidence of the sender, whom `by` in it does not change
    folder: where relative paths of attachments begin
    """

    by: str
    timestamp: str
    path: str | None = None
    reason: str | None = None
    evidence: dict[str, Any] | None = None
    folder: str | None = None
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None


def encode_control(run_id: str, kind: MessageKind, message: ControlMessage, key: Key | None = None) -> bytes:
    """The bytes of a message, signed where a key is given."""
    if key is not None:
        made = sign(key, _signed_bytes(run_id, kind, message))
        message = msgspec.structs.replace(message, signature=made.value, signature_alg=made.alg, key_id=made.key_id)
    return msgspec.json.encode(message)


def read_control(message: Message, keys: ApprovalKeys, *, must_sign: bool) -> ControlMessage:
    """The message as it was sent; IntegrityError where it does not count."""
    # (1) It can be read, and names its sender.
    try:
        said = msgspec.json.decode(message.body[: MAX_MESSAGE + 1], type=ControlMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise IntegrityError("the message cannot be read") from None
    if not said.by.strip() or len(said.by) > MAX_BY or printable(said.by) != said.by:
        raise IntegrityError("the message does not name its sender")
    if said.signature is None:
        if must_sign:
            raise IntegrityError(f"the message of `{said.by}` is not signed, and others can write to this ledger")
        return said
    # (2) The signature is over this message to this run, by a key that is known here.
    signature = Signature(said.signature_alg or "", said.key_id, said.signature)
    verify(keys, signature, _signed_bytes(message.run_id, message.kind, said))
    # (3) The key speaks for the sender.
    owners = keys.owners(said.key_id)
    if owners is None and must_sign:
        raise IntegrityError(f"the key `{said.key_id}` has no owner")
    if owners is not None and person_key(said.by) not in {person_key(each) for each in owners}:
        raise IntegrityError(f"the key `{said.key_id}` does not speak for `{said.by}`")
    return said


def _signed_bytes(run_id: str, kind: MessageKind, message: ControlMessage) -> bytes:
    bare = msgspec.structs.replace(message, signature=None, signature_alg=None, key_id=None)
    return canonical({"run_id": run_id, "kind": kind, "message": msgspec.to_builtins(bare)})


class Cancels(Protocol):
    """What a message can cancel."""

    def cancel(self, reason: str, message_id: int | None = None) -> object:
        """Stop the run in order."""


class Control:
    """Takes the messages to one run.

    steps: wait for a message before every tool and extension call
    must_sign: others can write to the ledger
    """

    def __init__(
        self, run_id: str, environ: Mapping[str, str], *, must_sign: bool = False, steps: bool = False
    ) -> None:
        self._run_id = run_id
        self._keys = ApprovalKeys(environ)
        self._must_sign = must_sign
        self._steps = steps
        self._ledger: Ledger | None = None
        self._came = asyncio.Condition()
        self._advances: list[tuple[int, str | None]] = []
        self._evidence: list[tuple[int, ControlMessage]] = []

    def attach(self, ledger: Ledger) -> None:
        """Use the ledger that the run is recorded in."""
        self._ledger = ledger

    async def watch(self, run: Cancels) -> None:
        """Take messages until the run ends. Only evidence may have come before: the rest was for another process."""
        ledger = self._ledger
        if ledger is None:
            return
        last, is_first = 0, True
        while True:
            try:
                async for message in messages_of(ledger, self._run_id, since=last):
                    last = message.id
                    if message.taken is None and (not is_first or message.kind == "evidence"):
                        await self._take(ledger, message, run)
                is_first = False
                await ledger.wait_for_message(self._run_id, last, _LOOK_AGAIN)
            except (Busy, Unavailable):
                await asyncio.sleep(_RETRY)
            except GertError as problem:
                # Nothing would reach the run any more, and a step that waits for a person would wait for ever.
                run.cancel(f"no message can reach the run: {problem.message}")
                return

    async def _take(self, ledger: Ledger, message: Message, run: Cancels) -> None:
        handle = self._handlers.get(message.kind)
        if handle is None:
            return
        try:
            said = read_control(message, self._keys, must_sign=self._must_sign)
        except IntegrityError as problem:
            await self._note(ledger, f"a `{message.kind}` message was refused: {problem.message}")
            return
        async with self._came:
            handle(self, message.id, said, run)
            self._came.notify_all()

    def _cancel(self, number: int, said: ControlMessage, run: Cancels) -> None:
        reason = f"cancelled by {said.by}" + (f": {printable(said.reason)}" if said.reason else "")
        run.cancel(reason, number)

    def _advance(self, number: int, said: ControlMessage, run: Cancels) -> None:
        self._advances.append((number, said.path))

    def _give(self, number: int, said: ControlMessage, run: Cancels) -> None:
        self._evidence.append((number, said))

    _handlers: Final[Mapping[str, Callable[["Control", int, ControlMessage, Cancels], None]]] = {
        "cancel": _cancel,
        "advance": _advance,
        "evidence": _give,
    }

    async def gate(self, ask: Request[Any]) -> int | None:
        """Wait until a call may begin, in a run that goes step by step; the message that let it."""
        if not self._steps or not isinstance(ask, CallTool | CallExtension):
            return None
        async with self._came:
            while True:
                for entry in self._advances:
                    if entry[1] is None or is_read_as(ask.path, entry[1]):
                        self._advances.remove(entry)
                        return entry[0]
                await self._came.wait()

    async def give(self, ask: CollectEvidence) -> EvidenceAnswer:
        """Wait for evidence that fits a step; what does not fit is refused with a note, and the step waits on."""
        async with self._came:
            while True:
                for entry in [each for each in self._evidence if is_read_as(ask.path, each[1].path or "")]:
                    self._evidence.remove(entry)
                    answer = await self._checked(ask, *entry)
                    if answer is not None:
                        return answer
                await self._came.wait()

    async def _checked(self, ask: CollectEvidence, number: int, said: ControlMessage) -> EvidenceAnswer | None:
        if said.evidence is None:  # as a step may call a piece of its evidence `reject`
            failure = Failure("rejected", printable(said.reason or "").strip() or NO_REASON)
            return EvidenceAnswer(failure=failure, message_id=number)
        try:
            answer = await _entries(ask.path, said).give(ask)
        except NoEvidence as problem:
            if problem.failure.kind == "evidence":
                await self._refuse(ask, problem.failure.message)
                return None
            answer = EvidenceAnswer(failure=problem.failure)
        if answer is not None and answer.by is not None and person_key(answer.by.id) != person_key(said.by):
            await self._refuse(ask, f"`{said.by}` cannot give evidence as `{answer.by.id}`")
            return None
        return msgspec.structs.replace(answer, message_id=number) if answer is not None else None

    async def _refuse(self, ask: CollectEvidence, why: str) -> None:
        if self._ledger is not None:
            await self._note(self._ledger, f"evidence for `{ask.path}` was refused: {why}")

    async def _note(self, ledger: Ledger, text: str) -> None:
        # A note is for people; the run does not depend on it.
        with suppress(GertError):
            await ledger.post(self._run_id, "note", printable(text)[:_NOTE].encode())


def _entries(path: str, said: ControlMessage) -> EvidenceEntries:
    """The evidence of a message in the form of an evidence file, so that one set of rules checks both."""
    root = read(msgspec.json.encode({path: said.evidence})).tree.root
    return EvidenceEntries(root if isinstance(root, Map) else Map(0), "the evidence", said.folder or os.sep, said.by)
