"""Step keys that are the same each time the same workflow runs."""

import re
from collections import Counter

from gert.errors import InputError
from gert.kernel.foundation.arguments import checks_arguments

_OTHER = re.compile(r"[^a-z0-9_]+")


@checks_arguments
class StepKey:
    """Makes the keys of one namespace: `{namespace}_{label}_{n}`, with n from 1 for each label."""

    __slots__ = ("_given", "_namespace")

    def __init__(self, namespace: str) -> None:
        self._namespace = normalized(namespace)
        self._given: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"StepKey(namespace={self._namespace!r})"

    @property
    def namespace(self) -> str:
        """Return the namespace as it is written in the keys."""
        return self._namespace

    def next(self, label: str) -> str:
        """Return the next key of a label."""
        # Counted after normalization: two labels that normalize alike never get the same key.
        name = normalized(label)
        self._given[name] += 1
        return f"{self._namespace}_{name}_{self._given[name]}"


def normalized(text: str) -> str:
    """Return the text in lower-case letters, digits and underscores; other characters become one underscore."""
    name = _OTHER.sub("_", text.lower()).strip("_")
    if not name:
        raise InputError(f"expected a name with at least one letter or digit, found `{text}`")
    return name
