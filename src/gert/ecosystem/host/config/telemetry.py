"""Whether runs are exported to OpenTelemetry: a switch, the settings, and the standard variables of the exporter."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from gert.errors import InputError
from gert.kernel.ledger.export import RunExport

if TYPE_CHECKING:
    # An agent needs nothing of runbooks.
    from gert.ecosystem.notify.exporter import Exporter, SpanSink
    from gert.kernel.runbook.documents.project import TelemetryBlock

SWITCH: Final = "GERT_OTEL"
FLUSH: Final = "GERT_OTEL_FLUSH_SECONDS"
CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_HEADERS: Final = tuple(f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_"))
_YES: Final = ("1", "true", "on", "yes")
_LONGEST_WAIT: Final = 600
_NO: Final = ("", "0", "false", "off", "no")


def is_exported(block: "TelemetryBlock | None", environ: Mapping[str, str]) -> bool:
    """Return whether runs are exported: `OTEL_SDK_DISABLED` prevents it, `GERT_OTEL` decides, then the settings do."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get(SWITCH, "").strip():
        return _flag(environ, SWITCH)
    return block is not None and block.export


def captures_content(block: "TelemetryBlock | None", environ: Mapping[str, str]) -> bool:
    """Return whether prompts, answers, arguments and results are exported, too."""
    return _flag(environ, CONTENT) if environ.get(CONTENT, "").strip() else block is not None and block.capture_content


def export_for(
    block: "TelemetryBlock | None",
    environ: Mapping[str, str],
    on_problem: Callable[[str], object] = lambda _: None,
) -> RunExport | None:
    """Return what exports the runs of a ledger; None if telemetry is off, and then nothing of it is imported."""
    if not is_exported(block, environ):
        return None
    return exporter(captures_content(block, environ), on_problem, flush_seconds=_seconds(environ))


def exporter(
    captures: bool,
    on_problem: Callable[[str], object] = lambda _: None,
    span_exporter: Any = None,
    metric_exporter: Any = None,
    flush_seconds: float | None = None,
) -> "Exporter":
    """Return an exporter over OTLP, or over exporters of the calling program."""
    from gert.ecosystem.notify.exporter import FLUSH_SECONDS, Exporter

    def make() -> "SpanSink":
        from gert.ecosystem.notify.otlp import OtlpSink

        return OtlpSink(span_exporter, metric_exporter)

    wait = FLUSH_SECONDS if flush_seconds is None else flush_seconds
    return Exporter(make, captures=captures, flush_seconds=wait, on_problem=on_problem)


def telemetry_variables(block: "TelemetryBlock | None", environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a process that has no settings exports as this one does."""
    if not is_exported(block, environ):
        return {SWITCH: "0"}
    content = {CONTENT: "true" if captures_content(block, environ) else "false"}
    waits = {FLUSH: environ[FLUSH]} if FLUSH in environ else {}
    return {SWITCH: "1", **waits, **content, **{name: environ[name] for name in secret_headers(block, environ)}}


def secret_headers(block: "TelemetryBlock | None", environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables with credentials of the collector, which tools do not get."""
    if is_exported(block, environ):
        yield from (name for name in _HEADERS if environ.get(name))


def _seconds(environ: Mapping[str, str]) -> float | None:
    """Return how long the end of a run waits for the collector, where a variable says it."""
    text = environ.get(FLUSH, "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise InputError(f"expected `{FLUSH}` to be a number of seconds from 0 to {_LONGEST_WAIT}, found `{text[:40]}`")
    return seconds


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in (*_YES, *_NO):
        raise InputError(f"expected `{name}` to be 1 or 0, found `{text[:40]}`")
    return text in _YES
