"""What an answer must be before anybody judges it: plain, short, and not from the future."""

import re
from datetime import datetime
from typing import Final

import msgspec

from gert.errors import TraceError
from gert.kernel.engine.approval_rules import CLOCK_SKEW
from gert.kernel.engine.requests import Response
from gert.kernel.events.envelope import parse_timestamp
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.text import printable

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
# Letters and marks that count as printable and show nothing: Unicode's default ignorables, and the empty Braille cell.
UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)


def unfit(response: Response) -> str | None:
    """Why something is no answer at all, whatever it is about."""
    try:
        msgspec.convert(msgspec.to_builtins(response), Response)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
        return "the answer is not of the form an answer has"
    for name, longest in _LONGEST.items():
        text = getattr(response, name) or ""
        if len(text) > longest:
            return f"the {name.replace('_', ' ')} is too long: expected at most {longest} characters, found {len(text)}"
        if not _is_text(text):
            return f"the {name.replace('_', ' ')} is not valid text"
    if UNSEEN.search(response.approver):
        return "the approver's name holds something that cannot be seen"
    return None


def future(response: Response, now: datetime) -> str | None:
    """Whether an answer says that it will be given: whoever prepares one now can give it then."""
    try:
        given = parse_timestamp(response.timestamp)
    except (TraceError, OverflowError):
        return None  # judging says so
    return "the answer is from the future: the clock of whoever gave it is ahead" if given - now > CLOCK_SKEW else None


def recordable(response: Response) -> Response:
    """What can be kept of something that is no answer."""
    kept = {name: _cut(getattr(response, name)) for name in _LONGEST}
    return Response(
        **{**kept, "approver": kept["approver"] or "", "timestamp": kept["timestamp"] or ""},  # type: ignore[arg-type]
        approved=response.approved is True,
    )


def _cut(value: object) -> str | None:
    if value is None:
        return None
    text = printable(value if isinstance(value, str) else type(value).__name__)
    if len(text) <= _RECORDED:
        return text
    # Two long texts that begin alike are still told apart.
    return f"{text[:_RECORDED]}… ({sha256_hex(text.encode())[:12]})"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
