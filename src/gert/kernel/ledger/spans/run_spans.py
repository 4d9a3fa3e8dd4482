"""Fold the events of one run, of whatever kind, into spans."""

from collections.abc import Callable
from typing import Final

from gert.kernel.events import agent, runbook, runner
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload, UnknownEvent
from gert.kernel.ledger.spans.agent import fold_agent
from gert.kernel.ledger.spans.open_spans import OpenSpans
from gert.kernel.ledger.spans.runbook import fold_runbook
from gert.kernel.ledger.spans.span import Span, nanoseconds

RUN: Final = "run"


class RunSpans:
    """The spans of one run, event by event.

    captures: prompts, arguments, results and messages of errors become attributes
    """

    def __init__(self, run_id: str, *, captures: bool = False) -> None:
        self._spans = OpenSpans(run_id, captures=captures)
        self._fold: Callable[[OpenSpans, Envelope, Payload], None] | None = None
        self._last = 0

    def add(self, event: Envelope) -> list[Span]:
        """Fold an event, and return the spans that ended with it."""
        said = event.payload
        if isinstance(said, UnknownEvent):
            return []
        if self._fold is None:
            self._fold = _fold_of(type(said))
        self._last = max(self._last, nanoseconds(event.timestamp))
        self._fold(self._spans, event, said)
        ended, self._spans.ended = self._spans.ended, []
        return ended

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: nothing of it is open."""
        return self._spans.get(RUN) is None

    def unfinished(self) -> list[Span]:
        """Return what has not ended, as far as it is known."""
        return self._spans.unfinished(self._last)


def _fold_of(kind: type[Payload]) -> Callable[[OpenSpans, Envelope, Payload], None]:
    if kind in runner.EVENTS:
        return fold_runner
    return fold_agent if kind in agent.EVENTS and kind not in runbook.EVENTS else fold_runbook


def fold_runner(spans: OpenSpans, event: Envelope, said: Payload) -> None:
    """Fold one event of a runner execution: one call of a vendor."""
    match said:
        case runner.PlanCreated():
            links = spans.join(said.parent_run_id, said.root_run_id)
            spans.begin(
                RUN,
                f"execute_tool {said.skill_id}",
                event,
                kind="client",
                links=links,
                parent_id=spans.caller,
                gen_ai__operation__name="execute_tool",
                gen_ai__tool__name=said.skill_id,
                gen_ai__tool__type="extension",
                gert__run__id=event.run_id,
                gert__run__kind="runner",
                gert__run__parent_id=said.parent_run_id,
                gert__step__path=said.plan.get("step"),
                gert__vendor=said.vendor,
                gert__runner__id=said.runner_id,
                gert__actor=said.actor,
            )
        case runner.PlanAuthorized():
            spans.mark(RUN, "plan.authorized", event, gert__decision=said.verdict, gert__rule=said.rule)
        case runner.RunnerStarted():
            spans.mark(RUN, "runner.started", event, gert__isolation=said.isolation)
        case runner.RunnerRecorded():
            is_done = said.exit_code == 0
            spans.say(
                spans.get(RUN),
                gert__run__status="completed" if is_done else "failed",
                gert__runner__exit_code=said.exit_code,
                gert__runner__recovered=said.recovered or None,
            )
            spans.end(RUN, event, error=None if is_done else said.rule or "failed", message=said.message)
        case runner.RunnerInDoubt():
            spans.say(spans.get(RUN), gert__run__status="in_doubt")
            spans.end(RUN, event, error="in_doubt", message=said.reason)
        case _:
            pass
