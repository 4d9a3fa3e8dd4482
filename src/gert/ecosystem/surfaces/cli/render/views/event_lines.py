"""The lines to show for each event of a running run."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gert.ecosystem.surfaces.cli.live.output_lines import FailureTail, LineFeed
from gert.ecosystem.surfaces.cli.render.events import describe
from gert.ecosystem.surfaces.cli.render.events.failures import Failures
from gert.ecosystem.surfaces.cli.render.events.interruptions import Interruptions
from gert.ecosystem.surfaces.cli.render.events.steps import does_text
from gert.ecosystem.surfaces.cli.render.text import BAD, QUIET, QUOTED, Description, Subject
from gert.ecosystem.surfaces.cli.render.views.event_position import Positions
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.path import ancestors
from gert.kernel.events.payload import Payload

INDENT: Final = "  "

BLOCKS: Final = ("branch", "parallel", "repeat", "group")
MOST_ITEMS: Final = 20
"""Items of a loop that each have a line of their own."""

AT_ONCE: Final = ("assert", "end")
"""Step types that take no time: their end implies their start."""


class StyledText(NamedTuple):
    """A piece of a line, and its colour."""

    text: str
    colour: str | None = None


Line = tuple[StyledText, ...]


class LineRenderer:
    """Renders events and output as lines; keeps only running steps.

    starts: emit a line when a step starts; the live view shows that differently, and counts the items of long loops
    verbose: include all output of tools; else the last lines of steps that fail
    """

    def __init__(self, *, starts: bool = True, verbose: bool = False) -> None:
        self._starts = starts
        self._verbose = verbose
        self._places = Positions()
        self._running: dict[str, says.StepStart] = {}
        self._feeds: dict[str, dict[str, LineFeed]] = {}
        self._tails: dict[str, FailureTail] = {}
        self._failures = Failures()
        self._interruptions = Interruptions()
        self._long_loops: set[str] = set()
        self._previews: dict[str, list[Line]] = {}

    def said(self, event: Envelope, payload: Payload) -> Iterator[Line]:
        """Yield the lines of an event, if it is shown."""
        path = event.path or ""
        begun = self._running.get(path)
        if isinstance(payload, says.StepStart):
            self._running[path] = payload
        elif isinstance(payload, says.StepComplete):
            self._running.pop(path, None)
            yield from self._rest(path)
        elif isinstance(payload, says.StepRetry):
            self._tails.pop(path, None)
        # Before anything is filtered: positions depend on all events.
        place = self._places.of(event, payload)
        interrupted = self._interruptions.within(event, payload)
        if isinstance(payload, says.ForEachStart) and payload.item_count > MOST_ITEMS:
            self._long_loops.add(path)
        elif isinstance(payload, says.StepComplete):
            self._long_loops.discard(path)
        lines: list[Line] = []
        if self._is_shown(payload, begun) and not self._is_counted(path, payload):
            does = does_text(begun) if begun is not None and begun.step_type not in AT_ONCE else ""
            words = describe(self._failures.once(event, payload), Subject(place.name, does, interrupted))
            if words.news:
                lines = list(description_lines(words, place.depth))
        if isinstance(payload, says.PreviewCaptured | says.PreviewSkipped):
            # Kept until it is known whether a prompt shows it.
            self._previews[path] = lines
            return
        preview = self._previews.pop(path, ())
        if not _is_prompt(payload):
            yield from preview
        yield from lines
        if isinstance(payload, says.StepComplete):
            tail = self._tails.pop(path, None)
            if tail is not None and payload.failure is not None:
                yield from self._quote(path, tail.lines(payload.failure.message))

    def printed(self, path: str, stream: str, text: str) -> Iterator[Line]:
        """Yield the lines that this output completes."""
        if self._verbose:
            feed = self._feeds.setdefault(path, {}).setdefault(stream, LineFeed())
            yield from self._quote(path, feed.feed(text))
        elif path in self._running:
            self._tails.setdefault(path, FailureTail()).feed(stream, text)

    def rest(self) -> Iterator[Line]:
        """Yield previews that no prompt showed, and lines that tools never completed."""
        for lines in self._previews.values():
            yield from lines
        self._previews.clear()
        for path in list(self._feeds):
            yield from self._rest(path)

    def _rest(self, path: str) -> Iterator[Line]:
        for feed in self._feeds.pop(path, {}).values():
            yield from self._quote(path, feed.rest())

    def _quote(self, path: str, lines: list[str]) -> Iterator[Line]:
        if lines:
            place = self._places.of_path(path)
            # Among lanes, each line names its step.
            whose = f"{place.name} {QUOTED}" if self._places.is_in_lanes(path) else QUOTED
            for line in lines:
                yield StyledText(INDENT * (place.depth + 1)), StyledText(whose, QUIET), StyledText(line)

    def _is_counted(self, path: str, payload: Payload) -> bool:
        """Whether it is one of many items that go well: the live view counts them."""
        if self._starts or self._verbose or not self._long_loops:
            return False
        is_well = isinstance(payload, says.StepStart | says.BranchEnter | says.GroupStart) or (
            isinstance(payload, says.StepComplete) and payload.status == "success"
        )
        return is_well and any(outer in self._long_loops for outer in ancestors(path))

    def _is_shown(self, payload: Payload, begun: says.StepStart | None) -> bool:
        if _is_prompt(payload):
            return False
        if isinstance(payload, says.PreviewCaptured | says.PreviewSkipped) and not self._starts and not self._verbose:
            return False
        if isinstance(payload, says.StepStart):
            return payload.step_type not in AT_ONCE and (self._starts or payload.step_type in BLOCKS)
        if isinstance(payload, says.StepComplete) and begun is not None and begun.step_type == "end":
            return payload.status != "success"
        return True


def _is_prompt(payload: Payload) -> bool:
    """Whether a question of this process follows: it shows the preview and what is asked for."""
    return isinstance(payload, says.ApprovalSubmitted) and payload.method in ("terminal", "stdin")


def description_lines(words: Description, depth: int) -> Iterator[Line]:
    """Lay out a description: the icon, the text, and the notes below."""
    yield StyledText(INDENT * depth), StyledText(words.icon, words.colour), StyledText(f" {words.text}")
    # Notes of a failure are coloured, because they are read first.
    colour = BAD if words.colour == BAD else QUIET
    for note in words.notes:
        yield StyledText(INDENT * (depth + 1)), StyledText(note, colour)
