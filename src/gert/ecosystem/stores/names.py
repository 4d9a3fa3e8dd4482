"""The names things are looked up by: one rule for all ledgers, so that what one of them keeps every other would.

Postgres keeps no NUL in a text and no long text in an index, and half a character is text nowhere.
"""

from collections.abc import Sequence
from typing import Final

from gert.errors import InputError
from gert.kernel.agent.ledger import Call, Expect

MAX_NAME_BYTES: Final = 2000
"""With the id of its run it must fit into a third of a page, which is what Postgres allows in an index."""

MAX_TOGETHER_BYTES: Final = 2500
"""The same for tenant, tool and semantic key, which stand in an index together."""

_SHORT: Final = 500
"""So many characters fit, whatever they are."""


def check_name(what: str, name: str | None) -> None:
    """Refuse a name that not every ledger could keep and find: InputError."""
    if name is not None and (size := _size(what, name)) > MAX_NAME_BYTES:
        raise InputError(f"the {what} is too long: expected at most {MAX_NAME_BYTES} bytes, found {size}")


def check_tool(tenant: str | None, name: str, semantic_key: str | None) -> None:
    """Refuse what a call of a tool could not be found by: InputError."""
    found = {"tenant": tenant or "", "tool name": name, "semantic key": semantic_key or ""}
    for what, text in found.items():
        check_name(what, text)
    if (size := sum(len(text.encode()) for text in found.values())) > MAX_TOGETHER_BYTES:
        raise InputError(
            "tenant, tool name and semantic key are too long together: "
            f"expected at most {MAX_TOGETHER_BYTES} bytes, found {size}"
        )


def check_call(call: Call) -> None:
    """Refuse a request that could not be kept and found: InputError."""
    # Nearly all are short and plain: one look is enough for all that is said of them.
    text = f"{call.key}{call.name}{call.tenant}{call.semantic_key}"
    if len(text) <= _SHORT and text.isascii() and "\0" not in text:
        return
    check_name("step key", call.key)
    if call.kind == "tool" or call.semantic_key is not None:
        check_tool(call.tenant, call.name, call.semantic_key)
    else:
        # Nobody looks for it, and the reason of a pause may be long.
        check_name("tenant", call.tenant)
        _size(f"name of the {call.kind}", call.name)


def check_expects(expects: Sequence[Expect]) -> None:
    """Refuse beliefs about keys that cannot be: InputError."""
    for key, _ in expects:
        check_name("step key", key)


def _size(what: str, text: str) -> int:
    """How many bytes a text has that a ledger can keep."""
    if "\0" in text:
        raise InputError(f"the {what} holds a NUL character, which cannot be kept")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(f"the {what} holds half a character, which cannot be written down") from None
