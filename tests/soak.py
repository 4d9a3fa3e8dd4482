"""What `make test` takes a sample of, and `make soak` all: parameters, and examples of properties."""

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pytest

TIMES: Final = int(os.environ.get("GERT_TEST_TIMES", "1"))

# The type of what `pytest.param` gives has no public name.
Parameters = list[Any]


def sampled(values: Mapping[str, Any] | Iterable[Any], kept: Collection[Any]) -> Parameters:
    """All values, named by their keys or by themselves; those whose names are not kept are soaked."""
    named = values if isinstance(values, Mapping) else {value: value for value in values}
    return [
        pytest.param(value, id=str(name), marks=[] if name in kept else pytest.mark.soak)
        for name, value in named.items()
    ]


def examples(count: int) -> int:
    """So many examples of a property; in `make soak` many times as many."""
    return count * TIMES
