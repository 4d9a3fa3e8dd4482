"""Which templates may read an unknown value."""

from collections.abc import Iterable, Mapping
from typing import Any

from gert.kernel.template import EACH, MISSING, Template, templates_in
from gert.kernel.template.unknown import Unknown, is_unknown
from gert.kernel.template.values import field


def reads_unknown(template: Template, data: Mapping[str, Any]) -> bool:
    """Whether a template may read something unknown."""
    return not template.is_text and any(_leads_to_unknown(data, each.path) for each in template.references)


def any_reads_unknown(compiled: Any, data: Mapping[str, Any]) -> bool:
    """Whether any template in a nested value may read something unknown."""
    return any(reads_unknown(template, data) for _, template in templates_in(compiled))


def _leads_to_unknown(value: Any, path: Iterable[Any]) -> bool:
    if isinstance(value, Unknown):
        return True
    segments = tuple(path)
    if not segments:
        return is_unknown(value)
    first, rest = segments[0], segments[1:]
    if isinstance(value, Mapping):
        if first is EACH:
            return any(_leads_to_unknown(item, rest) for item in value.values())
        return str(first) in value and _leads_to_unknown(value[str(first)], rest)
    if isinstance(value, list | tuple):
        if first is EACH:
            return any(_leads_to_unknown(item, rest) for item in value)
        text = str(first)
        if text.isascii() and text.isdecimal():
            found = field(value, text)
            return found is not MISSING and _leads_to_unknown(found, rest)
        # A function may index a list differently from a path.
        return any(_leads_to_unknown(item, rest) for item in value)
    return False
