"""What an operation returns, as an MCP result: structured, and repeated as text for clients that read only text."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from mcp_types import CallToolResult, TextContent

from gert.ecosystem.host.operations.access import Refused
from gert.kernel.foundation.text import without_invisible

MOST_BYTES: Final = 80_000
"""Clients refuse results above about 25,000 tokens."""


def result_of(said: Mapping[str, Any]) -> CallToolResult:
    """A result; one that is too large is an error that says how to ask for less."""
    shown = without_hidden(said)
    text = msgspec.json.encode(shown, enc_hook=str).decode()
    if len(text) > MOST_BYTES:
        hint = "ask for less: a filter, a limit, one step, or a cursor"
        return refusal(Refused("too_large", f"the result has {len(text)} characters", hint=hint))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=shown)


def refusal(refused: Refused) -> CallToolResult:
    """An error: nothing happened. Without structured content, which clients would validate."""
    text = msgspec.json.encode(without_hidden(refused.as_json()), enc_hook=str).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def without_hidden(value: Any) -> Any:
    """Remove characters that a person would not see, at every depth."""
    if isinstance(value, str):
        return without_invisible(value)
    if isinstance(value, dict):
        return {without_hidden(key): without_hidden(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_hidden(each) for each in value]
    return value
