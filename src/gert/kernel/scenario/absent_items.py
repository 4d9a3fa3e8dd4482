"""Items that a test names and a loop did not have: `must_not_reach` of such an item passes, whatever ran."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from gert.kernel.events.path import split
from gert.kernel.events.runbook import ForEachStart
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.places import is_index, segments_of

_MOST: Final = 3


class AbsentItem(NamedTuple):
    """An item that a loop did not have.

    found: what it had, for messages
    is_impossible: its items have other names: the loop has keys and this is an index, or the other way round
    """

    item: str
    loop: str
    found: str
    is_impossible: bool

    def __str__(self) -> str:
        return f"the loop `{self.loop}` had no item `{shorten(self.item)}`; {self.found}"


def absent_items(name: str, loops: Mapping[str, ForEachStart]) -> Iterator[AbsentItem]:
    """Yield the items in the name of a step that none of the loops there had; loops that did not run have none.

    loops: those that ran, by path
    """
    if "[" not in name:
        return
    segments = segments_of(name) or []
    for at, (loop, item) in enumerate(segments):
        ran = [] if item is None else [each for path, each in loops.items() if _is_at(segments[: at + 1], path)]
        if item is None or not ran or any(_has(each, item) for each in ran):
            continue
        yield AbsentItem(item, loop, _found(ran), all(_is_impossible(each, item) for each in ran))


def _is_at(written: list[tuple[str, str | None]], path: str) -> bool:
    """Return whether the end of a loop's path is as written; the last item is of the loop itself."""
    known = split(path)[-len(written) :]
    if len(known) < len(written):
        return False
    pairs = zip(written[:-1], known[:-1], strict=True)
    return known[-1].name == unquote(written[-1][0]) and all(
        unquote(name) == each.name and (item is None or each.item in (item, unquote(item)))
        for (name, item), each in pairs
    )


def _has(loop: ForEachStart, item: str) -> bool:
    if loop.keys:
        return item in loop.keys or unquote(item) in loop.keys
    return is_index(item) and len(item) < 9 and int(item) < loop.item_count


def _is_impossible(loop: ForEachStart, item: str) -> bool:
    if loop.item_count == 0:
        return False
    return is_index(item) and not any(map(is_index, loop.keys)) if loop.keys else not is_index(item)


def _found(loops: list[ForEachStart]) -> str:
    keys = list(dict.fromkeys(shorten(key) for loop in loops for key in loop.keys))
    if keys:
        return f"it had {listing(keys, _MOST)}"
    most = max(loop.item_count for loop in loops)
    return f"it had `0` to `{most - 1}`" if most > 1 else "it had `0`" if most else "it had none"
