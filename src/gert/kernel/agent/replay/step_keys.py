"""Keys of steps: the same workflow gives its steps the same keys each time it runs."""

import re
from collections import Counter

from gert.errors import InputError
from gert.kernel.foundation.arguments import checks_arguments

_OTHER = re.compile(r"[^a-z0-9_]+")


@checks_arguments
class StepKey:
    """Gives the keys of one namespace: `{namespace}_{label}_{n}`, with n from 1 for each label."""

    __slots__ = ("_given", "_namespace")

    def __init__(self, namespace: str) -> None:
        self._namespace = normalized(namespace)
        self._given: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"StepKey(namespace={self._namespace!r})"

    @property
    def namespace(self) -> str:
        """The namespace as it stands in the keys."""
        return self._namespace

    def next(self, label: str) -> str:
        """Give the next key of a label."""
        # Counted as it is written: two labels that are written alike never get the same key.
        name = normalized(label)
        self._given[name] += 1
        return f"{self._namespace}_{name}_{self._given[name]}"


def normalized(text: str) -> str:
    """The text in lower-case letters, digits and underscores; whatever stands between them becomes one underscore."""
    name = _OTHER.sub("_", text.lower()).strip("_")
    if not name:
        raise InputError(f"expected a name with at least one letter or digit, found `{text}`")
    return name
