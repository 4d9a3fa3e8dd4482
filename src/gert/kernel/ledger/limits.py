"""Limits on the names that things are looked up by: one rule for all ledgers.

Postgres stores no NUL in a text and no long text in an index, and a lone surrogate cannot be encoded anywhere.
"""

from collections.abc import Sequence
from typing import Final

from gert.errors import InputError, RunError
from gert.kernel.foundation.names import is_run_id
from gert.kernel.ledger.record import Call, Expect

MAX_NAME_BYTES: Final = 2000
"""With the id of its run it must fit into a third of a page, which is what Postgres allows in an index."""

MAX_TOGETHER_BYTES: Final = 2500
"""The same for tenant, tool and semantic key, which share an index."""

_SHORT: Final = 500
"""Text of this many characters always fits."""


def check_run_id(run_id: str) -> None:
    """Refuse an invalid run id: RunError."""
    if not is_run_id(run_id):
        raise RunError(f"`{run_id}` is not a run id", hint="letters, digits and ._:@+=~- only")


def check_name(what: str, name: str | None) -> None:
    """Refuse a name that not every ledger can store and find: InputError."""
    if name is not None and (size := _size(what, name)) > MAX_NAME_BYTES:
        raise InputError(f"the {what} is too long: expected at most {MAX_NAME_BYTES} bytes, found {size}")


def check_tool(tenant: str | None, name: str, semantic_key: str | None) -> None:
    """Refuse names that a tool call cannot be looked up by: InputError."""
    found = {"tenant": tenant or "", "tool name": name, "semantic key": semantic_key or ""}
    for what, text in found.items():
        check_name(what, text)
    if (size := sum(len(text.encode()) for text in found.values())) > MAX_TOGETHER_BYTES:
        raise InputError(
            "tenant, tool name and semantic key are too long together: "
            f"expected at most {MAX_TOGETHER_BYTES} bytes, found {size}"
        )


def check_call(call: Call) -> None:
    """Refuse a request that could not be stored and found: InputError."""
    # Nearly all are short and plain: one check is enough.
    text = f"{call.key}{call.name}{call.tenant}{call.semantic_key}"
    if len(text) <= _SHORT and text.isascii() and "\0" not in text:
        return
    check_name("step key", call.key)
    if call.kind == "tool" or call.semantic_key is not None:
        check_tool(call.tenant, call.name, call.semantic_key)
    else:
        # It is not looked up, and the reason of a pause may be long.
        check_name("tenant", call.tenant)
        _size(f"name of the {call.kind}", call.name)


def check_expects(expects: Sequence[Expect]) -> None:
    """Refuse expectations about keys that cannot exist: InputError."""
    for key, _ in expects:
        check_name("step key", key)


def _size(what: str, text: str) -> int:
    """The number of bytes of a text that a ledger can store."""
    if "\0" in text:
        raise InputError(f"the {what} holds a NUL character, which cannot be stored")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"the {what} holds a lone surrogate, which cannot be encoded") from None
