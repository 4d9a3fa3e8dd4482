"""Send spans and metrics with the OpenTelemetry SDK, over OTLP/HTTP or to exporters of the calling program.

The standard variables `OTEL_EXPORTER_OTLP_*` say where to and with which headers. Imported only if telemetry is on.
"""

import base64
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import requests
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from gert._version import __version__
from gert.kernel.ledger.spans.measurements import METRICS, measurements_of
from gert.kernel.ledger.spans.span import Span

METRIC_SECONDS: Final = 30.0
"""Seconds between two exports of metrics of a running process."""
_SCOPE: Final = InstrumentationScope("gert", __version__)
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_PROTOCOLS: Final = ("", "http/protobuf")
_NOT_TAKEN: Final = "the collector did not take it"
_FINAL: Final = 400
"""A status that the library does not retry: it would wait, and the end of the run with it."""


class OtlpSink:
    """Sends spans, and the metrics that they measure.

    span_exporter, metric_exporter: those of the calling program (default: OTLP/HTTP, unless a variable says `none`)
    """

    def __init__(
        self,
        span_exporter: SpanExporter | None = None,
        metric_exporter: MetricExporter | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        with_metrics: bool = True,
    ) -> None:
        # Without a handler, Python prints warnings of the library to standard error.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self._protocol = "" if span_exporter is not None else _protocol(environ)
        self.resource = _resource(environ)
        self._owned: tuple[SpanExporter | MetricExporter | None, ...] = ()
        self._sessions: list[_Session] = []
        if self._protocol in _PROTOCOLS and span_exporter is None:
            span_exporter, metric_exporter = self._otlp(environ, with_metrics=with_metrics)
            self._owned = (span_exporter, metric_exporter)
        self._spans, self._metrics = span_exporter, metric_exporter
        self._reader = self._meters = None
        self._instruments: dict[str, Any] = {}
        self._next_metrics = time.monotonic() + METRIC_SECONDS
        if metric_exporter is not None:
            self._reader = InMemoryMetricReader(
                preferred_temporality=metric_exporter._preferred_temporality,
                preferred_aggregation=metric_exporter._preferred_aggregation,
            )
            self._meters = MeterProvider([self._reader], resource=self.resource, shutdown_on_exit=False)
            meter = self._meters.get_meter("gert", __version__)
            for metric in METRICS:
                make = meter.create_histogram if metric.instrument == "histogram" else meter.create_counter
                self._instruments[metric.name] = make(metric.name, unit=metric.unit, description=metric.description)

    def send(self, spans: Sequence[Span], *, last: bool) -> str | None:
        """Send spans, and metrics now and then; return why that failed."""
        if self._protocol not in _PROTOCOLS:
            return f"OTEL_EXPORTER_OTLP_PROTOCOL is `{self._protocol[:40]}`, and only `http/protobuf` is supported"
        failed = False
        if spans and self._spans is not None:
            failed = self._spans.export(readable(spans, self.resource)) is not SpanExportResult.SUCCESS
        if not failed:
            failed = not self._measure(spans, last=last)
        return next((each.problem for each in self._sessions if each.problem), _NOT_TAKEN) if failed else None

    def stop(self) -> None:
        """Give up what is under way; exporters of the calling program stay open."""
        owned, self._owned = self._owned, ()
        for each in owned:
            if each is not None:
                each.shutdown()

    def _otlp(
        self, environ: Mapping[str, str], *, with_metrics: bool
    ) -> tuple[SpanExporter | None, MetricExporter | None]:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        def wanted(name: str) -> bool:
            return environ.get(name, "").strip().lower() != "none"

        def session() -> _Session:
            self._sessions.append(_Session())
            return self._sessions[-1]

        return (
            OTLPSpanExporter(session=session()) if wanted("OTEL_TRACES_EXPORTER") else None,
            OTLPMetricExporter(session=session()) if with_metrics and wanted("OTEL_METRICS_EXPORTER") else None,
        )

    def _measure(self, spans: Sequence[Span], *, last: bool) -> bool:
        if self._metrics is None or self._reader is None:
            return True
        for span in spans:
            for found in measurements_of(span):
                instrument = self._instruments[found.metric.name]
                (instrument.record if found.metric.instrument == "histogram" else instrument.add)(
                    found.value, dict(found.attributes)
                )
        if not last and time.monotonic() < self._next_metrics:
            return True
        self._next_metrics = time.monotonic() + METRIC_SECONDS
        data = self._reader.get_metrics_data()
        return data is None or self._metrics.export(data) is MetricExportResult.SUCCESS


def readable(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    """Convert spans to those of the SDK."""
    return [_readable(span, resource) for span in spans]


def otlp_json(spans: Sequence[Span]) -> bytes:
    """Encode spans as OTLP/JSON on one line, as collectors read it from files."""
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    request = encode_spans(readable(spans, _resource(os.environ, instance=False)))
    message: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    for span in _spans_in(message):
        for link in (span, *span.get("links", ())):
            # Protobuf's JSON has bytes in base64; OTLP wants ids in hexadecimal.
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in link:
                    link[name] = base64.b64decode(link[name]).hex()
    return msgspec.json.encode(message)


def _spans_in(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            yield from scope.get("spans", ())


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    status = Status(StatusCode.ERROR, span.message) if span.error is not None else Status(StatusCode.UNSET)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id is not None else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(mark.name, mark.attributes, mark.at) for mark in span.marks],
        links=[Link(_context(link.trace_id, link.span_id), link.attributes) for link in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _resource(environ: Mapping[str, str], *, instance: bool = True) -> Resource:
    """Return what is exported: the names of the environment, or `gert`; metrics of two processes are kept apart."""
    own: dict[str, Any] = {"service.version": __version__}
    if not instance:
        return Resource({**own, "service.name": environ.get("OTEL_SERVICE_NAME") or "gert"})
    if "OTEL_SERVICE_NAME" not in environ and "service.name" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        own["service.name"] = "gert"
    return Resource.create({**own, "service.instance.id": str(uuid.uuid4())})


def _protocol(environ: Mapping[str, str]) -> str:
    general = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    return (environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or general).strip().lower()


class _Session(requests.Session):
    """Reads no body of an answer, which may have no end, and reports failures as final: gert itself sends again.

    problem: why the last request failed
    """

    problem: str | None = None

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Make a request."""
        try:
            response = super().request(*args, **{**options, "stream": True})
        except requests.ConnectionError:
            self.problem = "the collector cannot be reached"
            response = requests.Response()
        else:
            response.close()
            self.problem = None if response.ok else f"the collector answered {response.status_code}"
        if self.problem is not None:
            response.status_code = _FINAL
        return response
