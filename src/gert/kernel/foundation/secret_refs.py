"""References to secrets: the state contains a reference instead of a secret input, so the kernel never sees its value.

A reference is the name of the input between two noncharacters, code points that Unicode reserves for internal use.
Documents may not contain them, templates do not produce them, and they are removed from everything that enters:
a reference can only come from a declared input, and no two texts can be joined into one. The host
replaces the references in a call with their values when it starts the process.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gert.errors import InputError
from gert.kernel.foundation.text import PLACEHOLDER

_OPEN: Final = "\ufdd0"
_CLOSE: Final = "\ufdd1"
_REFERENCE: Final = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_MARKS: Final = str.maketrans({_OPEN: "\ufffd", _CLOSE: "\ufffd"})
_MAX_DEPTH: Final = 200


def secret_ref(name: str) -> str:
    """Return the reference to a secret input."""
    return f"{_OPEN}{name}{_CLOSE}"


def refs_in(text: str) -> list[str]:
    """Return the names of the secrets that a text refers to."""
    return _REFERENCE.findall(text) if _OPEN in text else []


def is_marked(text: str) -> bool:
    """Whether a text contains a reference, or part of one."""
    return _OPEN in text or _CLOSE in text


def all_refs(value: Any, depth: int = _MAX_DEPTH) -> set[str]:
    """Return the names of the secrets that a nested value refers to."""
    if isinstance(value, str):
        return set(refs_in(value))
    if depth <= 0:
        return set()
    if isinstance(value, Mapping):
        return set().union(*(all_refs(each, depth - 1) for pair in value.items() for each in pair))
    if isinstance(value, list | tuple):
        return set().union(*(all_refs(each, depth - 1) for each in value))
    return set()


def reveal(text: str, secrets: Mapping[str, str]) -> str:
    """Replace references with their values; only for starting a process.

    A template that cuts or changes a reference would pass something other than the secret, so it is refused.
    """
    if _OPEN not in text and _CLOSE not in text:
        return text
    pieces = _REFERENCE.split(text)
    literals, names = pieces[::2], pieces[1::2]
    if any(name not in secrets for name in names) or any(_OPEN in each or _CLOSE in each for each in literals):
        raise InputError("a secret can only be passed whole", hint="use it in a template without a function")
    pieces[1::2] = [secrets[name] for name in names]
    return "".join(pieces)


def reveal_all(value: Any, secrets: Mapping[str, str]) -> Any:
    """Replace references in a nested value; only for passing it to a process."""
    return _mapped(value, lambda text: reveal(text, secrets), _MAX_DEPTH)


def masked(value: Any) -> Any:
    """Replace every reference with a placeholder, so that the value can be recorded and shown; text keeps its class."""
    return _mapped(
        value, lambda text: type(text)(_REFERENCE.sub(PLACEHOLDER, text)) if _OPEN in text else text, _MAX_DEPTH
    )


def without_marks(value: Any) -> Any:
    """Remove everything from an incoming value that could be mistaken for a reference."""
    return _mapped(value, lambda text: text.translate(_MARKS) if _OPEN in text or _CLOSE in text else text, _MAX_DEPTH)


def _mapped(value: Any, change: Callable[[str], str], depth: int) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        if depth <= 0:
            return PLACEHOLDER
        keys = _distinct_keys(value, change)
        return {key: _mapped(item, change, depth - 1) for key, item in zip(keys, value.values(), strict=True)}
    if isinstance(value, list | tuple):
        if depth <= 0:
            return PLACEHOLDER
        items = [_mapped(item, change, depth - 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _distinct_keys(keys: Iterable[Any], change: Callable[[str], str]) -> list[Any]:
    """Change the keys; two that become equal are both kept."""
    changed = [_mapped(key, change, 1) for key in keys]
    if len(set(changed)) == len(changed):
        return changed
    seen: Counter[Any] = Counter()
    apart = []
    for key in changed:
        seen[key] += 1
        apart.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return apart
