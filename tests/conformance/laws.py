"""Laws that hold for the record of any run, whatever its runbook and its answers."""

from collections import Counter
from collections.abc import Iterator

from tests.conformance.runs import Refusing, events_of, execute

from gert.ecosystem.host.run.world.worlds import World
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.run import RunResult
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import split
from gert.kernel.events.payload import UnknownEvent


def lawful(setup: Setup, world: World, max_parallel: int = 16) -> RunResult:
    """Run once, and hold the run to what is promised of all runs."""
    result, lines, answers = execute(setup, world, max_parallel=max_parallel)
    require_lawful(lines)
    # The answers alone give the same run again, byte by byte.
    again = execute(setup, Refusing(), recorded=answers, max_parallel=max_parallel)
    assert again == (result, lines, answers)
    return result


def require_lawful(lines: list[bytes]) -> None:
    """Hold the record of a run to what is promised of all."""
    report, events = read_chain(lines), events_of(lines)
    # (1) The trace is chained and whole, and all of it is in the catalogue.
    assert report.intact
    assert report.complete
    assert [event.type for event in events if isinstance(event.payload, UnknownEvent)] == []
    # (2) Nothing went wrong in the engine itself: what was not raised would be on record.
    assert [event for event in events if (event.data.get("failure") or {}).get("kind") == "internal"] == []
    # (3) Every step that starts completes, once, while whatever holds it is running.
    assert list(misplaced(events)) == []
    # (4) What comes in pairs comes in pairs, and counts what it says it counts.
    assert list(miscounted(events)) == []


def misplaced(events: list[Envelope]) -> Iterator[str]:
    """The starts and ends that do not alternate, at each path of its own, or lie outside of what holds them.

    A step that was skipped, or failed before it could start, has an end only.
    """
    running: set[str | None] = set()
    inside: Counter[str] = Counter()
    for event in events:
        if event.type == "step_start":
            if event.path in running:
                yield f"`{event.path}` starts again before it is complete"
            running.add(event.path)
            yield from (
                f"`{event.path}` starts outside of `{each}`" for each in _around(event.path) if each not in running
            )
            inside.update(_around(event.path))
        elif event.type == "step_complete":
            if event.path not in running and event.data["status"] == "success":
                yield f"`{event.path}` is complete without a start"
            if event.path in running:
                inside.subtract(_around(event.path))
            if inside[event.path or ""]:
                yield f"`{event.path}` is complete before what it holds"
            running.discard(event.path)
    yield from (f"`{path}` is never complete" for path in running)


def _around(path: str | None) -> list[str]:
    """The steps that hold a step, and the loop it is an item of; `finally` is not a step."""
    text = path or ""
    segments = split(text)
    first = 1 if segments[0].name == "finally" and segments[0].item is None else 0
    found = []
    pieces = text.split("/")
    for at in range(first, len(segments), 2):
        whole = "/".join(pieces[: at + 1])
        if segments[at].item is not None:
            found.append("/".join([*pieces[:at], _without_item(pieces[at])]))
        if at < len(segments) - 1:
            found.append(whole)
    return found


def _without_item(piece: str) -> str:
    return piece[: piece.index("[")]


def miscounted(events: list[Envelope]) -> Iterator[str]:
    """Forks without a merge, arms that are not left, loops with another number of items than they say."""
    arms: Counter[tuple[str | None, str]] = Counter()
    forks: dict[str | None, int] = {}
    items: dict[str | None, int] = {}
    for event in events:
        data = event.data
        if event.type in ("branch_enter", "branch_exit"):
            arms[event.path, data["branch_label"]] += 1 if event.type == "branch_enter" else -1
        elif event.type == "parallel_fork":
            forks[event.path] = data["branch_count"]
        elif event.type == "parallel_merge":
            lanes = data["branch_outcomes"]
            if [each["index"] for each in lanes] != list(range(forks.pop(event.path, -1))):
                yield f"`{event.path}` merges other lanes than it forked"
        elif event.type == "for_each_start":
            items[event.path] = data["item_count"]
        elif event.type == "for_each_item":
            loop = _loop_of(event.path or "")
            items[loop] -= 1
            if items[loop] < 0:
                yield f"`{loop}` has more items than it says"
    yield from (f"the arm `{label}` of `{path}` is not left" for (path, label), count in arms.items() if count)
    yield from (f"`{path}` is never merged" for path in forks)
    if sum(event.type == "run_complete" for event in events) != 1 or events[-1].type != "run_complete":
        yield "the run does not end with `run_complete`"


def _loop_of(path: str) -> str:
    pieces = path.split("/")
    return "/".join([*pieces[:-1], _without_item(pieces[-1])])
