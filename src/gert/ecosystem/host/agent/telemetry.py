"""Export of agent runs to OpenTelemetry, as a program asks for it."""

import logging
from typing import TYPE_CHECKING, Final

from gert.ecosystem.host.config.telemetry import exporter
from gert.kernel.ledger.export import RunExport

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

_LOG: Final = logging.getLogger("gert.agent")


def otel_export(
    *,
    capture_content: bool = False,
    span_exporter: "SpanExporter | None" = None,
    metric_exporter: "MetricExporter | None" = None,
) -> RunExport:
    """Return an export for a store: `SQLiteStore("runs.db", export=otel_export())`; it belongs to one store.

    capture_content: export prompts, answers, arguments, results and messages of errors, too
    span_exporter, metric_exporter: exporters of the program (default: OTLP/HTTP, from `OTEL_EXPORTER_OTLP_*`)
    """
    return exporter(capture_content, _LOG.warning, span_exporter, metric_exporter)
