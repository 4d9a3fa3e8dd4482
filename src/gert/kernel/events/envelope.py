"""The envelope around every event, and its one line of JSON.

The line that is written is the line that is hashed, stored and verified: nothing is ever encoded a second
time. `data` comes last, which lets the seal sign a line without parsing it.
"""

import json
import re
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from gert.errors import TraceError
from gert.kernel.events.catalogue import decode_payload, kind_of
from gert.kernel.events.payload import Payload, as_written, check_json, plain, said
from gert.kernel.foundation.names import is_run_id
from gert.kernel.foundation.principal import KERNEL, Principal
from gert.kernel.foundation.text import printable
from gert.kernel.foundation.timestamps import format_timestamp, parse_timestamp
from gert.kernel.foundation.values import MAX_INTEGER

__all__ = [
    "MAX_LINE_BYTES",
    "Envelope",
    "Header",
    "PlainLine",
    "decode",
    "decode_exact",
    "decode_plain",
    "encode",
    "encode_payload",
    "format_timestamp",
    "parse_timestamp",
    "require_unambiguous",
]

_PayloadT = TypeVar("_PayloadT", bound=Payload)

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is refused by writer and reader alike."""

_LARGE = re.compile(rb"[:,\[]-?[0-9][0-9.eE+-]{14}")
"""Matches a possible number beyond ±(2^53-1), which not every reader keeps; or part of a text."""
_NUMERIC = bytes(ord("0") if chr(byte) in "0123456789.eE+-" else byte for byte in range(256))
_LONG = b"0" * 15
"""What a match of `_LARGE` contains once its characters are translated; looking for it takes a quarter of the time."""
_MAX_SHOWN = 80
_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:\d{3})?Z\Z", re.ASCII)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a trace; without a principal, the kernel itself acted.

    answers: `N:HASH`, the number of answers received so far, and the rolling hash over them; on the first event
        after an answer
    """

    # 0 means the trace does not number its events; gert always does, from 1 on.
    seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    run_id: str
    type: str
    timestamp: str
    principal: Principal | None = None
    tenant: str | None = None
    path: str | None = None
    answers: str | None = None
    prev_hash: str
    data: dict[str, Any]

    @property
    def by(self) -> Principal:
        """The principal."""
        return self.principal or KERNEL

    @property
    def payload(self) -> Payload:
        """The data of the event, as a class of the catalogue."""
        return decode_payload(self.type, self.data)


def encode(event: Envelope) -> bytes:
    """Encode an event as a line, without a line break, or raise TraceError."""
    _check(event)
    try:
        line = _ENCODER.encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"the event `{event.type}` cannot be written: {said(error)}") from error
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(f"the event `{event.type}` is too large: expected at most {MAX_LINE_BYTES} bytes")
    return line


def encode_payload(
    payload: Payload,
    seq: int,
    run_id: str,
    timestamp: str,
    principal: Principal | None,
    path: str | None,
    prev_hash: str,
    tenant: str | None = None,
    data: msgspec.Raw | None = None,
    answers: str | None = None,
) -> bytes:
    """Encode an event as `encode` does, in one pass.

    For the engine's own events, whose values were checked on input; a test keeps the two equal.

    data: the payload, if it was encoded before
    """
    said = payload if data is None else data
    line = _encode(_Line(seq, run_id, payload.type, timestamp, principal, tenant, path, answers, prev_hash, said))
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(f"the event `{payload.type}` is too large: expected at most {MAX_LINE_BYTES} bytes")
    return line


def decode(line: bytes) -> Envelope:
    """Decode the line of an event; unknown fields are ignored."""
    if len(line) > MAX_LINE_BYTES:
        raise TraceError(f"the line is too large: expected at most {MAX_LINE_BYTES} bytes, found {len(line)}")
    if not line.strip():
        raise TraceError("the line is empty")
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise TraceError(f"the line is not an event: {said(error)}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"the line is not UTF-8 at byte {_not_utf8(line)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"the line is not JSON: {said(error)}") from error


def decode_exact(line: bytes) -> Envelope | None:
    """Decode a line that is the same when it is encoded again, as nearly all are; None for any other.

    Every JSON reader reads such a line alike: it has no duplicate key, no large number and no invalid text.
    """
    try:
        value = msgspec.json.decode(line)
        if _ENCODER.encode(value) != line or _has_large_number(line):
            return None
        return msgspec.convert(value, Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError):
        return None


def decode_plain(line: bytes, type_name: str) -> "PlainLine[Any] | None":
    """Decode a line of this type, in one pass, if it is what gert writes of an event; None for any other.

    Such a line has no field that this version does not know; for the rest it is as exact as one of `decode_exact`.
    """
    decoder = _plain_decoder(type_name)
    if decoder is None:
        return None
    try:
        event = decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if event.type != type_name or _encode(event) != line or _has_large_number(line):
        return None
    return event


def _has_large_number(line: bytes) -> bool:
    return _LONG in line.translate(_NUMERIC) and _LARGE.search(line) is not None


def require_unambiguous(line: bytes) -> None:
    """Refuse a line that two JSON readers may read differently: a duplicate key, a large number, invalid text."""
    if decode_exact(line) is not None:
        return
    try:
        value = json.loads(line.decode(), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise TraceError(f"the line is not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the line is not JSON: {said(error)}") from error
    if b"\r" in line:
        raise TraceError("the line contains a carriage return")
    check_json(value, at="")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise TraceError(f"the key `{printable(repeated[:_MAX_SHOWN])}` occurs twice in one object")
    return value


def _no_constant(name: str) -> None:
    raise TraceError(f"`{name}` is not a JSON number")


class Header(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of an envelope before its data, in the same order.

    Only fields that may be omitted have a default that a value can equal.
    """

    seq: int
    run_id: str
    type: str
    timestamp: str
    principal: Principal | None = None
    tenant: str | None = None
    path: str | None = None
    answers: str | None = None
    prev_hash: str = ""


class _Line(Header, omit_defaults=True, gc=False):
    """An envelope around a payload that is not yet plain data."""

    data: Payload | msgspec.Raw | None = None


class PlainLine(Header, Generic[_PayloadT], kw_only=True, omit_defaults=True, gc=False):
    """An event as gert writes it, with its payload; read as an `Envelope` is."""

    data: _PayloadT

    @property
    def payload(self) -> _PayloadT:
        """The data of the event, as a class of the catalogue."""
        return self.data


@lru_cache(maxsize=256)
def _plain_decoder(type_name: str) -> "msgspec.json.Decoder[PlainLine[Any]] | None":
    kind = kind_of(type_name)
    return None if kind is None else msgspec.json.Decoder(PlainLine[kind])  # type: ignore[valid-type]


_ENCODER = msgspec.json.Encoder(enc_hook=plain)
_encode = _ENCODER.encode
_DECODER = msgspec.json.Decoder(Envelope)
_TEXTS = ("run_id", "type", "timestamp", "prev_hash")
_OPTIONAL_TEXTS = ("tenant", "path", "answers")


def _check(event: Envelope) -> None:
    _check_types(event)
    if not 1 <= event.seq <= MAX_INTEGER:
        raise TraceError("expected `seq` to be numbered from 1 on, and within 2^53-1")
    if not is_run_id(event.run_id):
        raise TraceError(f"`{event.run_id}` is not a run id")
    if not _TYPE.match(event.type):
        raise TraceError(f"`{event.type}` is not a type of event")
    if not _HASH.match(event.prev_hash):
        raise TraceError("expected `prev_hash` to be 64 hexadecimal digits")
    if not _TIMESTAMP.match(event.timestamp):
        raise TraceError(f"expected a timestamp such as `2026-02-28T14:30:00.000000Z`, found `{event.timestamp}`")
    parse_timestamp(event.timestamp)
    if event.principal is not None:
        as_written(event.principal, "the `principal`", at="principal")
    for name in _OPTIONAL_TEXTS:
        check_json(getattr(event, name), at=name)
    check_json(event.data, at="data")


def _check_types(event: Envelope) -> None:
    """Refuse what the reader would refuse: fields are not checked when an event is created."""
    _expect(event, ("seq",), int, "a number")
    _expect(event, _TEXTS, str, "text")
    _expect(event, _OPTIONAL_TEXTS, str | None, "text")
    _expect(event, ("principal",), Principal | None, "a principal")
    _expect(event, ("data",), dict, "an object")


def _expect(event: Envelope, names: tuple[str, ...], kind: type | UnionType, what: str) -> None:
    for name in names:
        value = getattr(event, name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TraceError(f"expected `{name}` to be {what}")


def _not_utf8(line: bytes) -> int:
    """Return the position of the invalid byte: the JSON library counts from the start of a text inside the line."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(line)
