"""The timeline of a recorded run: one line per event."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

import click

from gert.ecosystem.surfaces.cli.render.events import describe
from gert.ecosystem.surfaces.cli.render.events.agent import is_agent
from gert.ecosystem.surfaces.cli.render.events.failures import Failures
from gert.ecosystem.surfaces.cli.render.events.interruptions import Interruptions
from gert.ecosystem.surfaces.cli.render.output import plural, print_line, print_pair
from gert.ecosystem.surfaces.cli.render.text import (
    BAD,
    CATEGORY,
    DOUBTFUL,
    GOOD,
    LONGEST_NAME,
    QUIET,
    Subject,
    clip,
    outcome_text,
    value_text,
)
from gert.ecosystem.surfaces.cli.render.views.event_lines import INDENT, Line, StyledText, description_lines
from gert.ecosystem.surfaces.cli.render.views.event_position import Positions
from gert.errors import TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events import runner
from gert.kernel.events.envelope import Envelope, parse_timestamp
from gert.kernel.foundation.principal import KERNEL
from gert.kernel.ledger import runner_fold
from gert.kernel.ledger.agent_fold import AgentSnapshot, fold
from gert.kernel.ledger.runner_fold import RunnerSnapshot

TIME_WIDTH: Final = 11
MOST_FIELDS: Final = 40
LONGEST_DETAIL: Final = 400


def print_timeline(events: Iterable[Envelope], *, verbose: bool = False) -> None:
    """Print the timeline of one run; with `verbose`, also contracts, all data of an event, and the actor.

    The trace is not verified here: the last lines name the command that verifies it.
    """
    timeline = _Timeline(verbose=verbose)
    for event in events:
        timeline.say_event(event)
    timeline.say_end()


class _Timeline:
    """The state between two events: the start time, the position, and the end of the run."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._places = Positions()
        self._failures = Failures()
        self._interruptions = Interruptions()
        self._began: datetime | None = None
        self._count = 0
        self._after = 0
        self._end: says.RunComplete | None = None
        self._unreadable = False
        self._agent: AgentSnapshot | None = None
        self._execution: RunnerSnapshot | None = None

    def say_event(self, event: Envelope) -> None:
        if not self._count:
            self._say_header(event)
        self._count += 1
        self._after += self._end is not None
        payload = event.payload
        if isinstance(payload, says.RunComplete):
            self._end, self._after = payload, 0
        elif event.type == says.RunComplete.type:
            self._unreadable = True
        if is_agent(payload):
            self._agent = fold(self._agent or AgentSnapshot(), payload, event.seq)
        if isinstance(payload, runner.EVENTS):
            self._execution = runner_fold.fold(self._execution or RunnerSnapshot(), payload)
        place = self._places.of(event, payload)
        if isinstance(payload, says.ContractEvaluated) and not self._verbose:
            return  # every step has one, and without details the line has no content
        subject = Subject(place.name, interrupted=self._interruptions.within(event, payload))
        first, *notes = description_lines(describe(self._failures.once(event, payload), subject), place.depth)
        _say_line(self._offset(event), first)
        for note in notes:
            _say_line("", note)
        if self._verbose:
            for title, text in _details(event):
                _say_line(
                    "", (StyledText(INDENT * (place.depth + 2)), StyledText(f"{title}: ", QUIET), StyledText(text))
                )

    def say_end(self) -> None:
        if not self._count:
            print_line("no events")
            return
        print_line()
        print_pair("events", str(self._count))
        if self._agent is not None:
            _say_agent_end(self._agent)
            return
        if self._execution is not None:
            status = self._execution.status
            print_pair("status", status, {"completed": GOOD, "failed": BAD, "in-doubt": DOUBTFUL}.get(status))
            return
        if self._end is None:
            why = "its `run_complete` cannot be read" if self._unreadable else "there is no `run_complete`"
            print_pair("status", f"incomplete: {why}", DOUBTFUL)
            return
        end = self._end
        print_pair("status", end.status, GOOD if end.status == "completed" else BAD)
        if end.outcome is not None:
            print_pair("outcome", outcome_text(end.outcome), CATEGORY[end.outcome.category])
        print_pair("seal", _seal_text(end, self._after))

    def _say_header(self, event: Envelope) -> None:
        print_pair("run", clip(event.run_id, LONGEST_NAME))
        print_pair("from", clip(event.timestamp, LONGEST_NAME))
        print_line()

    def _offset(self, event: Envelope) -> str:
        try:
            moment = parse_timestamp(event.timestamp)
        except TraceError:
            return "?"
        self._began = self._began or moment
        return f"{(moment - self._began) / timedelta(seconds=1):+.3f}s"


def _say_agent_end(snapshot: AgentSnapshot) -> None:
    """Print the status of an agent run after the events shown; more may follow."""
    status = snapshot.status
    print_pair("status", status, {"completed": GOOD, "failed": BAD, "paused": DOUBTFUL}.get(status))
    if snapshot.failure_reason is not None and status == "failed":
        print_pair("because", clip(snapshot.failure_reason))
    if snapshot.model_calls:
        print_pair("models", f"{plural(snapshot.model_calls, 'call')}, {snapshot.model_cost:.6f} USD")
    if snapshot.tool_calls:
        print_pair("tools", plural(snapshot.tool_calls, "call"))


def _say_line(time: str, line: Line) -> None:
    text = "".join(click.style(span.text, fg=span.colour) if span.colour else span.text for span in line)
    print_line(f"{click.style(time.rjust(TIME_WIDTH), fg=QUIET)}  {text}".rstrip())


def _details(event: Envelope) -> Iterator[tuple[str, str]]:
    """All data of an event, one line per value; objects are expanded one level."""
    yield from islice(_fields(event.data), MOST_FIELDS)
    if event.by != KERNEL:
        by = event.by
        extra = ", ".join(filter(None, (by.role, by.model)))
        yield "by", clip(f"{by.kind} {by.id}{f' ({extra})' if extra else ''}", LONGEST_DETAIL)
    if event.path is not None:
        yield "path", clip(event.path, LONGEST_DETAIL)
    yield "seq", str(event.seq)
    yield "prev_hash", clip(event.prev_hash, LONGEST_DETAIL)


def _fields(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in data.items():
        title = clip(name, LONGEST_NAME)
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield f"{title}.{clip(str(key), LONGEST_NAME)}", value_text(inner, LONGEST_DETAIL)
        else:
            yield title, value_text(value, LONGEST_DETAIL)


def _seal_text(end: says.RunComplete, after: int) -> str:
    later = f"; {plural(after, 'event')} after the seal" if after else ""
    if end.signature is None:
        return f"not signed{later}"
    key = f" by key `{clip(end.signing_key_id, LONGEST_NAME)}`" if end.signing_key_id else ""
    alg = f" ({clip(end.signature_alg, 40)})" if end.signature_alg else ""
    return f"signed{key}{alg}, not verified: run `gert trace verify`{later}"
