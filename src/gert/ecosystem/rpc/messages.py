"""The messages of JSON-RPC 2.0, read strictly: one object a line, no duplicate key, NaN or lone surrogate, no batch."""

from typing import Any, Final, TypeAlias

import msgspec

from gert.errors import CanonicalError, InputError, RpcFault
from gert.kernel.foundation.canonical_v1 import loads
from gert.kernel.foundation.text import one_line

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CANCELLED: Final = -32800
"""As in the Language Server Protocol: the caller cancelled the request."""

CANCEL: Final = "$/cancelRequest"
"""The notification that cancels a request; its params are `{"id": …}`."""

Id: TypeAlias = int | str
_MAX_MESSAGE: Final = 500
_ENCODER: Final = msgspec.json.Encoder()


class Call(msgspec.Struct, frozen=True):
    """A request; a notification has no id."""

    id: Id | None
    method: str
    params: Any


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request; its id is None if the peer could not read the request."""

    id: Id | None
    result: Any
    fault: RpcFault | None


class Malformed(Exception):
    """A line is not a message; `code` is the error code that JSON-RPC has for it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def decode(line: bytes) -> Call | Reply:
    """Read one line; Malformed if it is not a message."""
    try:
        value = _value(line)
    except UnicodeDecodeError:
        raise Malformed(PARSE_ERROR, "the line is not UTF-8") from None
    except CanonicalError as problem:
        raise Malformed(PARSE_ERROR, problem.message) from None
    if not isinstance(value, dict):
        what = "a batch, which gert does not use" if isinstance(value, list) else "no JSON object"
        raise Malformed(INVALID_REQUEST, f"the line is {what}")
    if value.get("jsonrpc") != "2.0":
        raise Malformed(INVALID_REQUEST, 'the message has no `"jsonrpc": "2.0"`')
    return _call(value) if "method" in value else _reply(value)


def _value(line: bytes) -> Any:
    """Parse a line strictly; CanonicalError says why it is not JSON, or ambiguous.

    The strict reader takes many times as long as the plain one, which keeps the last of several equal keys. But in a
    line without escapes quotes do nothing but enclose texts, so if all of them are written again, no key was lost.
    """
    if b"\\" not in line:
        try:
            value = msgspec.json.decode(line)
            if _ENCODER.encode(value).count(b'"') == line.count(b'"'):
                return value
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            pass  # the strict reader says why
    return loads(line.decode("utf-8"))


def _call(value: dict[str, Any]) -> Call:
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        raise Malformed(INVALID_REQUEST, "`method` is not text")
    if params is not None and not isinstance(params, dict | list):
        raise Malformed(INVALID_REQUEST, "`params` is neither an object nor a list")
    if "id" in value and not _is_id(value["id"]):
        raise Malformed(INVALID_REQUEST, "`id` is neither a whole number nor text")
    return Call(value.get("id"), method, params)


def _reply(value: dict[str, Any]) -> Reply:
    if "id" not in value or not (value["id"] is None or _is_id(value["id"])):
        raise Malformed(INVALID_REQUEST, "the answer has no valid `id`")
    if ("result" in value) == ("error" in value):
        raise Malformed(INVALID_REQUEST, "an answer has either `result` or `error`")
    return Reply(value["id"], value.get("result"), _fault(value["error"]) if "error" in value else None)


def _fault(error: Any) -> RpcFault:
    if not isinstance(error, dict):
        raise Malformed(INVALID_REQUEST, "`error` is not an object")
    code, message = error.get("code"), error.get("message")
    if isinstance(code, bool) or not isinstance(code, int) or not isinstance(message, str):
        raise Malformed(INVALID_REQUEST, "`error` has no `code` that is a whole number, or no `message` that is text")
    return RpcFault(one_line(message, _MAX_MESSAGE), code=code, data=error.get("data"))


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def call_line(number: Id | None, method: str, params: Any) -> bytes:
    """Return the line of a request, or of a notification without a number."""
    head = {"jsonrpc": "2.0"} if number is None else {"jsonrpc": "2.0", "id": number}
    return _line({**head, "method": method} if params is None else {**head, "method": method, "params": params})


def result_line(number: Id, result: Any) -> bytes:
    """Return the line of an answer."""
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def fault_line(number: Id | None, fault: RpcFault) -> bytes:
    """Return the line of an error."""
    error = {"code": fault.code, "message": fault.message}
    return _line(
        {"jsonrpc": "2.0", "id": number, "error": error if fault.data is None else {**error, "data": fault.data}}
    )


def _line(message: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(message) + b"\n"
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"the message has no JSON form: {problem}") from None
