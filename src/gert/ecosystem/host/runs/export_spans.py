"""Export a recorded run as spans: as OTLP/JSON, or to a collector."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import ModuleType
from typing import Final

from gert.errors import TraceError, Unavailable, UsageError
from gert.kernel.events.envelope import decode
from gert.kernel.ledger.spans.run_spans import RunSpans
from gert.kernel.ledger.spans.span import Span

_BATCH: Final = 256


def spans_of(lines: Iterable[bytes], *, captures: bool) -> Iterator[Span]:
    """Yield the spans of a run in the order in which they ended; then those that have not."""
    run: RunSpans | None = None
    for line in lines:
        try:
            event = decode(line)
        except TraceError:
            continue  # `gert run verify` names lines that cannot be read
        run = run or RunSpans(event.run_id, captures=captures)
        yield from run.add(event)
    yield from run.unfinished() if run is not None else ()


def spans_as_json(lines: Iterable[bytes], *, captures: bool) -> Iterator[bytes]:
    """Yield the spans of a run as lines of OTLP/JSON."""
    encode: Callable[[list[Span]], bytes] = _library().otlp_json
    found = spans_of(lines, captures=captures)
    while batch := list(islice(found, _BATCH)):
        yield encode(batch) + b"\n"


def send_spans(lines: Iterable[bytes], *, captures: bool) -> int:
    """Send the spans of a run to the collector of the environment; return how many."""
    sink = _library().OtlpSink(with_metrics=False)
    found, sent = spans_of(lines, captures=captures), 0
    while batch := list(islice(found, _BATCH)):
        problem = sink.send(batch, last=False)
        if problem is not None:
            raise Unavailable(f"the spans were not sent: {problem}", hint="see OTEL_EXPORTER_OTLP_ENDPOINT")
        sent += len(batch)
    return sent


def _library() -> ModuleType:
    try:
        from gert.ecosystem.notify import otlp
    except ImportError:
        raise UsageError("spans need the extra `otel`", hint="pip install 'gert[otel]'") from None
    return otlp
