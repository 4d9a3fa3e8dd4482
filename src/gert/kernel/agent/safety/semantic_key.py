"""Semantic keys: the text that equal calls have in common, from a template and the arguments of a call."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.json_path import Absent, follow

_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*\Z")
_MAX_KEY: Final = 500
"""Characters of a key; a longer one is cut, and its hash appended."""


class Part(NamedTuple):
    """A piece of a template: text, or the path of a value."""

    text: str
    is_field: bool = False


class MissingField(LookupError):
    """An argument that the key needs is missing; `path` names it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the semantic key needs the argument `{path}`")
        self.path = path


def check_template(template: str) -> None:
    """Refuse a template that different calls could fill alike by accident: ValueError."""
    parts = parse(template)
    if not any(part.is_field for part in parts):
        raise ValueError("the template has no field: all calls would be the same")
    for before, after in pairwise(parts):
        if before.is_field and (after.is_field or not _marks(after.text)):
            raise ValueError(f"expected a separator such as `:` after `{{{before.text}}}`")


@cache
def parse(template: str) -> tuple[Part, ...]:
    """Split a template into its pieces: ValueError if it is malformed."""
    return tuple(part for part in _joined(_pieces(template)) if part.text)


def key_of_call(template: str, call: Mapping[str, str], arguments: Any) -> str:
    """Return the semantic key of a call.

    call: values of the call itself, such as `tenant_id`, which no argument replaces
    """
    parts = parse(template)
    marks = frozenset("%").union(*(_marks(part.text) for part in parts if not part.is_field))
    text = "".join(_filled(part.text, call, arguments, marks) if part.is_field else part.text for part in parts)
    return text if len(text) <= _MAX_KEY else f"{text[:_MAX_KEY]}#{sha256_hex(text.encode())}"


def require(arguments: Any, path: str) -> Any:
    """Return an argument: MissingField if there is none, or nothing in it."""
    try:
        value = follow(arguments, path)
    except Absent:
        raise MissingField(path) from None
    if value is None or value == "":
        raise MissingField(path)
    return value


def _filled(path: str, call: Mapping[str, str], arguments: Any, marks: frozenset[str]) -> str:
    value = call[path] if path in call else require(arguments, path)
    text = value if isinstance(value, str) else canonical_json_dumps(value)
    # A separator inside a value is not one: `a:b` + `c` and `a` + `b:c` are different calls.
    return "".join(f"%{ord(char):02x}" if char in marks else char for char in text)


def _marks(text: str) -> frozenset[str]:
    """Return the characters that separate fields."""
    return frozenset(char for char in text if not char.isalnum())


def _pieces(template: str) -> Iterator[Part]:
    at = 0
    for found in _PART.finditer(template):
        yield Part(template[at : found.start()])
        at = found.end()
        path = found[1]
        if path is not None and not _PATH.match(path):
            raise ValueError(f"expected the path of an argument, found `{{{path}}}`")
        if path is None and len(found[0]) == 1:
            raise ValueError(f"the template has a lone `{found[0]}`; write it twice")
        yield Part(found[0][0]) if path is None else Part(path, is_field=True)
    yield Part(template[at:])


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Join adjacent texts."""
    text = ""
    for part in parts:
        if part.is_field:
            yield Part(text)
            yield part
            text = ""
        else:
            text += part.text
    yield Part(text)
