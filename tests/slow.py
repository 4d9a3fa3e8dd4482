"""The files whose tests take longest, so that they begin first; a test that is too slow is made faster, not listed."""

from typing import Final

import pytest

SLOW: Final = ()


def slowest_first(items: list[pytest.Item]) -> None:
    """Put the tests of slow files first, and leave the others in their order."""
    order = {file: place for place, file in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(order)))
