"""Check the settings of a tool when it is registered."""

import math
import re
from typing import Final, get_args

from gert.errors import InputError
from gert.kernel.agent.ports.tool import ToolRiskLevel

MAX_ATTEMPTS: Final = 10
MAX_BACKOFF_SECONDS: Final = 60.0

# Every vendor accepts these names.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
# A signature is written as `name|tool_version|schema_version|schema_hash`, and signatures are joined by commas.
_VERSION: Final = re.compile(r"[^|,\s]{1,64}\Z")


def check_name(function: object, name: str | None) -> str:
    """Return the name of a tool: the one passed, or the function's."""
    if not callable(function) or isinstance(function, type):
        raise InputError("expected a function to register as a tool")
    called = name if name is not None else getattr(function, "__name__", None)
    if not isinstance(called, str):
        raise InputError("a tool needs a name", hint="register a function, or pass `name`")
    if not _NAME.match(called):
        raise InputError(
            f"`{called}` cannot be the name of a tool",
            hint="use at most 64 letters, digits, underscores and dashes; pass `name` to set another name",
        )
    return called


def check_versions(name: str, tool_version: object, schema_version: object, risk_level: object) -> None:
    """Refuse versions that would make a signature ambiguous, and unknown risk levels."""
    for what, version in (("tool_version", tool_version), ("schema_version", schema_version)):
        if not isinstance(version, str) or not _VERSION.match(version):
            raise InputError(f"expected `{what}` of the tool `{name}` to be text without spaces, `|` and `,`")
    if risk_level not in get_args(ToolRiskLevel):
        raise InputError(f"expected the risk level of the tool `{name}` to be {' | '.join(get_args(ToolRiskLevel))}")


def check_limits(name: str, timeout_seconds: object, max_attempts: object, backoff_seconds: object) -> None:
    """Refuse invalid limits."""
    if timeout_seconds is not None and not _is_number(timeout_seconds, above=0):
        raise InputError(f"expected `timeout_seconds` of the tool `{name}` to be greater than zero")
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InputError(f"expected `max_attempts` of the tool `{name}` to be a number from 1 to {MAX_ATTEMPTS}")
    if backoff_seconds != 0 and not _is_number(backoff_seconds, above=0):
        raise InputError(f"expected `backoff_seconds` of the tool `{name}` to be 0 or more")


def _is_number(value: object, above: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > above
