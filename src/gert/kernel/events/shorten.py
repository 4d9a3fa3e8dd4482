"""Shortens events that would not fit a line: large values are replaced by their size and digest.

The state and the stored answer keep such values whole; the digest in the trace identifies them.
"""

from typing import Any, Final, TypeVar

import msgspec

from gert.errors import TraceError
from gert.kernel.events.payload import Payload, plain
from gert.kernel.foundation.canonical import digest

P = TypeVar("P", bound=Payload)

# Tried in order: values longer than this many bytes are replaced.
_LIMITS: Final = (1024 * 1024, 64 * 1024, 4 * 1024, 256)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=plain)
_MAX_DEPTH: Final = 250


def shortened(payload: P, longest: int) -> P:
    """Return the event with enough values replaced to fit, or raise TraceError."""
    data = msgspec.to_builtins(payload, enc_hook=plain)
    for limit in _LIMITS:
        cut = {name: _cut(value, limit, _MAX_DEPTH) for name, value in data.items()}
        if len(_ENCODER.encode(cut)) > longest:
            continue
        try:
            return msgspec.convert(cut, type(payload))
        except msgspec.ValidationError:
            continue
    raise TraceError(f"the event `{payload.type}` is too large to be written")


def _cut(value: Any, limit: int, depth: int) -> Any:
    """Replace every text, and every list or map of many small values, that is too long."""
    if isinstance(value, str):
        return value if len(value) <= limit // 4 else _told(value, limit)
    if depth <= 0 or not isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, dict):
        return {key: _inner(item, limit, depth) for key, item in value.items()}
    return [_inner(item, limit, depth) for item in value]


def _inner(value: Any, limit: int, depth: int) -> Any:
    cut = _cut(value, limit, depth - 1)
    if isinstance(cut, dict | list | tuple) and len(_ENCODER.encode(cut)) > limit:
        return _told(value, 0)
    return cut


def _told(value: Any, limit: int) -> Any:
    encoded = _ENCODER.encode(value)
    return f"[{len(encoded)} bytes, {digest(encoded)}]" if len(encoded) > limit else value
