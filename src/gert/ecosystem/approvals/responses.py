"""A response to a request for approval as it travels: the message in an inbox, and what makes it fit to be one."""

import re
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.text import is_text, printable
from gert.kernel.governance.approval import Response
from gert.kernel.ledger.port import Ledger
from gert.kernel.ledger.record import MAX_MESSAGE, Message

MAX_APPROVER: Final = 256
MAX_REASON: Final = 2000
_LONGEST: Final = {
    "approver": MAX_APPROVER,
    "reason": MAX_REASON,
    "timestamp": 64,
    "ticket_id": 128,
    "request_hash": 128,
    "signature": 1024,
    "signature_alg": 64,
    "key_id": 128,
}
_RECORDED: Final = 200
_UNREADABLE: Final = "the response cannot be read"
UNKNOWN: Final = "unknown"
"""Who responded, where the response does not say it in a form that can be read."""
# Letters and marks that count as printable and show nothing: Unicode's default ignorables, and the empty Braille cell.
UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)


# Fields that the message and the kernel's response both have under this name.
_SAME_NAME: Final = (
    "approved", "timestamp", "reason", "ticket_id", "request_hash", "signature", "signature_alg", "key_id",
)  # fmt: skip


class ResponseMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response as services send it and an inbox keeps it (ecosystem-v0 §6.4)."""

    ticket_id: str
    approved: bool
    approver_id: str
    timestamp: str
    signature: str | None = None
    signature_alg: str | None = None
    key_id: str | None = None
    reason: str | None = None
    request_hash: str = ""

    def response(self) -> Response:
        """The response in the words of the kernel."""
        return Response(approver=self.approver_id, **{name: getattr(self, name) for name in _SAME_NAME})


def encode_response(response: Response) -> bytes:
    """The message that carries a response."""
    same = {name: getattr(response, name) for name in _SAME_NAME}
    return msgspec.json.encode(ResponseMessage(approver_id=response.approver, **same))


async def messages_of(
    ledger: Ledger, run_id: str, ticket_id: str | None = None, *, since: int = 0
) -> AsyncIterator[Message]:
    """Every message to a run, or about one ticket, in the order received; the ledger gives them in pages."""
    while page := await ledger.messages(run_id, ticket_id=ticket_id, since=since):
        for each in page:
            yield each
        since = page[-1].id


def is_rejection(message: Message) -> bool:
    """Whether a message is a response that rejects, signed or not."""
    response = response_in(message)
    return response.unfit is None and not response.approved


def response_in(message: Message) -> Response:
    """The response in a message; what is none says so, and can be recorded."""
    response = _decoded(message.body)
    flaw = unfit(response) if response.unfit is None else None
    if flaw is not None:
        response = msgspec.structs.replace(recordable(response), unfit=flaw)
    return msgspec.structs.replace(response, received_at=message.received_at, message_id=message.id)


def _decoded(body: bytes) -> Response:
    if len(body) > MAX_MESSAGE:
        return _no_response(f"the response is too long: expected at most {MAX_MESSAGE} bytes")
    try:
        return msgspec.json.decode(body, type=ResponseMessage).response()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _no_response(_UNREADABLE)


def _no_response(why: str) -> Response:
    return Response(approver=UNKNOWN, approved=False, timestamp="", unfit=why)


def bare(response: Response) -> Response:
    """A response without what only the run that verifies it may add."""
    return msgspec.structs.replace(
        response, verified=False, flaw=None, unfit=None, scripted=False, received_at=None, message_id=None
    )


def unfit(response: Response) -> str | None:
    """Why something is no response at all, whatever it is about."""
    try:
        msgspec.convert(msgspec.to_builtins(response), Response)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
        return _UNREADABLE
    for name, longest in _LONGEST.items():
        text = getattr(response, name) or ""
        if len(text) > longest:
            return f"the {name.replace('_', ' ')} is too long: expected at most {longest} characters, found {len(text)}"
        if not is_text(text):
            return f"the {name.replace('_', ' ')} is not valid text"
    if UNSEEN.search(response.approver):
        return "the approver's name holds something that cannot be seen"
    return None


def recordable(response: Response) -> Response:
    """What can be recorded of something that is no response."""
    kept = {name: _cut(getattr(response, name)) for name in _LONGEST}
    return Response(
        **{**kept, "approver": kept["approver"] or UNKNOWN, "timestamp": kept["timestamp"] or ""},  # type: ignore[arg-type]
        approved=response.approved is True,
    )


def _cut(value: object) -> str | None:
    if value is None:
        return None
    text = printable(value if isinstance(value, str) else type(value).__name__)
    if len(text) <= _RECORDED:
        return text
    # Two long texts that begin alike can still be distinguished.
    return f"{text[:_RECORDED]}… ({sha256_hex(text.encode())[:12]})"
