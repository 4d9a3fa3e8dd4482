"""Parameters of which `make test` takes a sample; all others are marked `soak`."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest

# The type of what `pytest.param` gives has no public name.
Parameters = list[Any]


def sampled(values: Mapping[str, Any] | Iterable[Any], kept: Collection[Any]) -> Parameters:
    """All values, named by their keys or by themselves; those whose names are not kept are soaked."""
    named = values if isinstance(values, Mapping) else {value: value for value in values}
    return [
        pytest.param(value, id=str(name), marks=[] if name in kept else pytest.mark.soak)
        for name, value in named.items()
    ]
