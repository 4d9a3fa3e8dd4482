"""Calls of parts: `async` or plain, cancellable, and never longer than a limit."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from gert.ecosystem.host.embedding.ports import Parts
from gert.ecosystem.tools.call import call, within
from gert.errors import GertError, UsageError
from gert.kernel.agent.steps.error_text import error_summary
from gert.kernel.foundation.text import one_line
from gert.kernel.runbook.documents.project import PROVIDER_NAME

LONGEST_CALL: Final = 30 * 24 * 3600.0
"""Seconds of a call that its caller limits; even then a part that ignores its cancellation is abandoned."""
MAX_MESSAGE: Final = 500

_METHODS: Final = {
    "approvals": ("submit", "wait"),
    "inputs": ("resolve",),
    "prompt": ("resolve",),
    "tools": ("execute",),
    "verifier": ("verify",),
}


async def call_part(method: Any, argument: Any, limit: float = LONGEST_CALL) -> Any:
    """Call a method of a part with one argument; TimeoutError after `limit` seconds."""
    try:
        return await within(limit, call(partial(method, argument), {}))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            # The part raised it: passed on, it would look as if the run were cancelled.
            raise RuntimeError("the call cancelled itself") from None
        raise


def error_of(error: Exception) -> str:
    """What a part raised, as one line that may be recorded once it is redacted."""
    return one_line(error.message, MAX_MESSAGE) if isinstance(error, GertError) else error_summary(error, MAX_MESSAGE)


def name_of(part: object) -> str:
    """The name of a part in records: its class."""
    return one_line(type(part).__name__, 64)


def require_parts(parts: Parts) -> Parts:
    """Refuse parts that lack a method, before the run begins."""
    for place, part in _each(parts):
        kind = place.partition("[")[0]
        for method in _METHODS[kind]:
            if not callable(getattr(part, method, None)):
                raise UsageError(
                    f"`{place}` of the parts has no method `{method}`",
                    hint=f"it needs {' and '.join(f'`{each}`' for each in _METHODS[kind])}; see docs/embedding.md",
                )
    for name in parts.inputs:
        if not re.fullmatch(PROVIDER_NAME, name):
            raise UsageError(f"`{name}` is not the name of a provider", hint="inputs are bound as `provider/NAME.PATH`")
    return parts


def _each(parts: Parts) -> Iterator[tuple[str, object]]:
    for kind in _METHODS:
        part = getattr(parts, kind)
        if isinstance(part, Mapping):
            yield from ((f"{kind}[{name}]", each) for name, each in part.items())
        elif part is not None:
            yield kind, part
