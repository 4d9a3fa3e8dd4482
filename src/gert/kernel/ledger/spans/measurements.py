"""What spans measure: durations, tokens, cost, and how long approvals were waited for."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from gert.kernel.ledger.spans.span import Attributes, Span

Instrument = Literal["histogram", "counter"]


class Metric(NamedTuple):
    """A metric as it is registered."""

    name: str
    instrument: Instrument
    unit: str
    description: str


OPERATION: Final = Metric("gen_ai.client.operation.duration", "histogram", "s", "Duration of model and tool calls")
TOKENS: Final = Metric("gen_ai.client.token.usage", "histogram", "{token}", "Tokens of model calls")
COST: Final = Metric("gert.cost", "counter", "USD", "Cost of model calls")
RUN: Final = Metric("gert.run.duration", "histogram", "s", "Duration of runs")
STEP: Final = Metric("gert.step.duration", "histogram", "s", "Duration of steps")
APPROVAL: Final = Metric("gert.approval.wait", "histogram", "s", "Time that an approval was waited for")
METRICS: Final = (OPERATION, TOKENS, COST, RUN, STEP, APPROVAL)

_OPERATIONS: Final = ("chat", "execute_tool")
_OF_OPERATION: Final = (
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model",
    "gen_ai.tool.name", "error.type",
)  # fmt: skip
_TOKENS: Final = (("gen_ai.usage.input_tokens", "input"), ("gen_ai.usage.output_tokens", "output"))


class Measurement(NamedTuple):
    """One value of a metric."""

    metric: Metric
    value: float
    attributes: Attributes


def measurements_of(span: Span) -> Iterator[Measurement]:
    """Yield what an ended span measures."""
    said = span.attributes
    if said.get("gen_ai.operation.name") in _OPERATIONS:
        about = _only(said, *_OF_OPERATION)
        yield Measurement(OPERATION, span.seconds, about)
        for name, kind in _TOKENS:
            if isinstance(count := said.get(name), int):
                yield Measurement(TOKENS, count, {**about, "gen_ai.token.type": kind})
        if isinstance(cost := said.get("gert.cost_usd"), float):
            yield Measurement(COST, cost, _only(said, "gen_ai.provider.name", "gen_ai.request.model"))
    if "gert.run.kind" in said:
        names = ("gert.run.kind", "gert.run.mode", "gert.run.status", "gen_ai.workflow.name", "error.type")
        yield Measurement(RUN, span.seconds, _only(said, *names))
    elif "gert.step.type" in said:
        yield Measurement(STEP, span.seconds, _only(said, "gert.step.type", "gert.step.status", "error.type"))
    elif "gert.ticket.id" in said:
        yield Measurement(APPROVAL, span.seconds, _only(said, "gert.approval.status", "gert.risk"))


def _only(said: Attributes, *names: str) -> Attributes:
    return {name: said[name] for name in names if name in said}
