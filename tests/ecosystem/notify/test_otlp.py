"""The OpenTelemetry SDK as gert uses it: what the environment says, and metrics of spans."""

from typing import Any

import pytest
import requests
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.ecosystem.notify.servers import serving, status

from gert.ecosystem.notify.otlp import OtlpSink
from gert.kernel.ledger.spans.span import Span, span_id_of, trace_id_of


def chat(seq: int) -> Span:
    """A model call of a second."""
    return Span(
        name="chat m",
        trace_id=trace_id_of("r"),
        span_id=span_id_of("r", seq),
        kind="client",
        start=seq * 10**9,
        end=(seq + 1) * 10**9,
        attributes={"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3, "gert.cost_usd": 0.25},
    )


class Metrics(MetricExporter):
    """Keeps what is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **more: Any) -> MetricExportResult:
        self.sent.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        raise AssertionError("an exporter of the program is not shut down")


def test_spans_are_measured_and_metrics_follow_the_last_of_them() -> None:
    spans, metrics = InMemorySpanExporter(), Metrics()
    sink = OtlpSink(spans, metrics)
    assert sink.send([chat(1), chat(2)], last=False) is None
    assert metrics.sent == []
    assert sink.send([chat(3)], last=True) is None
    sink.stop()
    assert len(spans.get_finished_spans()) == 3
    (data,) = metrics.sent
    (scope,) = data.resource_metrics[0].scope_metrics
    found = {metric.name: metric.data.data_points[0] for metric in scope.metrics}
    assert found["gen_ai.client.operation.duration"].sum == 3.0
    assert found["gen_ai.client.token.usage"].sum == 9
    assert found["gert.cost"].value == 0.75


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        pytest.param(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "only `http/protobuf`", id="a protocol that is not there"
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "`http/json`",
            id="one for traces alone",
        ),
        pytest.param({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, None, id="nothing is wanted"),
    ],
)
def test_what_the_environment_says(environ: dict[str, str], problem: str | None) -> None:
    said = OtlpSink(environ=environ).send([chat(1)], last=True)
    assert said is None if problem is None else problem in str(said)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "gert"),
        ({"OTEL_SERVICE_NAME": "ops"}, "ops"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=pods,team=sre"}, "pods"),
    ],
)
def test_the_service_is_named_by_the_environment_or_gert(
    environ: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    sink = OtlpSink(InMemorySpanExporter(), environ=environ)
    assert sink.resource.attributes["service.name"] == name
    assert (
        sink.resource.attributes["service.instance.id"]
        != OtlpSink(InMemorySpanExporter()).resource.attributes["service.instance.id"]
    )


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_collector_that_refuses_is_asked_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would wait and ask again, and the end of the run would wait with it."""
    with serving(status(code)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url(""))
        assert OtlpSink().send([chat(1)], last=True) == f"the collector answered {code}"
        assert [each.target for each in server.requests] == ["/v1/traces"]


def test_a_collector_that_is_not_there_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refused(session: requests.Session, method: str, url: str, **_: Any) -> requests.Response:
        asked.append(url)
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", refused)
    assert OtlpSink(environ={}).send([chat(1)], last=True) == "the collector cannot be reached"
    assert len(asked) == 1
