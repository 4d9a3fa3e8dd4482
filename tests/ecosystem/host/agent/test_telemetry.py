"""Agent runs in OpenTelemetry: with the SDK's in-memory exporter, on every ledger that processes share."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.ecosystem.host.agent.places import TENANT, Charge, Place, ask, in_loop, soon

from gert.agent import ArtanaKernel, ToolPermanentError, otel_export
from gert.ecosystem.host.config.telemetry import export_for
from gert.ecosystem.ledger.verify_run import verify_run
from gert.ecosystem.notify import exporter as room
from gert.ecosystem.notify.exporter import FLUSH_SECONDS, Exporter
from gert.errors import InputError
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.signature import Keys
from gert.kernel.ledger.spans.run_spans import RunSpans
from gert.kernel.ledger.spans.span import Span, nanoseconds, span_id_of, trace_id_of


def spans_by_id(found: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    by_id = {f"{span.context.span_id:016x}": span for span in found if span.context is not None}
    assert len(by_id) == len(found)
    return by_id


def add_tools(kernel: ArtanaKernel) -> None:
    """One tool that works, and one that does not."""

    @kernel.tool()
    async def charge(amount: int) -> str:
        return f"charged {amount}"

    @kernel.tool()
    async def broken() -> str:
        raise ToolPermanentError("no")


async def worked(kernel: ArtanaKernel, run_id: str) -> None:
    """A run with a model call, a tool call, and one that fails."""
    add_tools(kernel)
    async with kernel.run(tenant=TENANT, run_id=run_id):
        await ask(kernel, run_id, "up?", "q1")
        await kernel.step_tool(
            run_id=run_id, tenant=TENANT, tool_name="charge", arguments=Charge(amount=3), step_key="c1"
        )
        with pytest.raises(Exception, match="no"):
            await kernel.step_tool(run_id=run_id, tenant=TENANT, tool_name="broken", arguments="{}", step_key="b1")


@in_loop
async def test_the_spans_of_an_agent_run_are_those_of_its_events(shared: Place) -> None:
    memory = InMemorySpanExporter()
    async with shared.kernel(store={"export": otel_export(span_exporter=memory)}) as kernel:
        await worked(kernel, "r")
        lines = await kernel.ledger.lines("r")
    found = spans_by_id(memory.get_finished_spans())
    run = RunSpans("r")
    expected = {span.span_id: span for line in lines for span in run.add(decode(line))}
    assert run.is_over
    assert found.keys() == expected.keys()
    for name, span in found.items():
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == trace_id_of("r")
        assert (span.name, span.start_time, span.end_time) == (
            expected[name].name,
            expected[name].start,
            expected[name].end,
        )
        assert (span.status.status_code is StatusCode.ERROR) == (expected[name].error is not None)
        assert (f"{span.parent.span_id:016x}" if span.parent else None) == expected[name].parent_id
    names = sorted(span.name for span in found.values())
    assert [name for name in names if not name.startswith("chat ")] == [
        "execute_tool broken",
        "execute_tool charge",
        "invoke_agent",
    ]
    (root,) = [span for span in found.values() if span.parent is None]
    assert root.context is not None
    assert f"{root.context.span_id:016x}" == span_id_of("r", 1)
    (chat,) = [span for span in found.values() if span.name.startswith("chat ")]
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.usage.input_tokens"] == 3
    assert chat.attributes["gert.cost_usd"] == 0.25
    assert "up?" not in str([span.to_json() for span in found.values()]), "prompts are content"


@in_loop
async def test_a_process_that_resumes_a_run_exports_what_ends_in_it(shared: Place) -> None:
    before, after = InMemorySpanExporter(), InMemorySpanExporter()
    async with shared.kernel(store={"export": otel_export(span_exporter=before)}) as kernel:
        await kernel.start_run(tenant=TENANT, run_id="r")
        await ask(kernel, "r", "one?", "q1")
    async with shared.kernel(store={"export": otel_export(span_exporter=after)}) as kernel:
        async with kernel.run(tenant=TENANT, run_id="r"):
            await ask(kernel, "r", "one?", "q1")
            await ask(kernel, "r", "two?", "q2")
        lines = await kernel.ledger.lines("r")
    first, second = spans_by_id(before.get_finished_spans()), spans_by_id(after.get_finished_spans())
    assert [span.name.split()[0] for span in first.values()] == ["chat"]
    assert [span.name.split()[0] for span in second.values()] == ["chat", "invoke_agent"]
    (root,) = [span for span in second.values() if span.parent is None]
    assert root.start_time == nanoseconds(decode(lines[0]).timestamp)
    assert f"{root.context.span_id:016x}" == span_id_of("r", 1), "it began in the other process"
    assert {f"{span.parent.span_id:016x}" for span in (*first.values(), *second.values()) if span.parent} == {
        span_id_of("r", 1)
    }


@in_loop
async def test_concurrent_runs_and_calls_are_exported_whole(shared: Place) -> None:
    memory = InMemorySpanExporter()
    async with shared.kernel(store={"export": otel_export(span_exporter=memory)}) as kernel:

        async def one(number: int) -> None:
            async with kernel.run(tenant=TENANT, run_id=f"r{number}"):
                await asyncio.gather(*(ask(kernel, f"r{number}", f"q{each}", f"s{each}") for each in range(5)))

        await asyncio.gather(*(one(number) for number in range(4)))
    found = spans_by_id(memory.get_finished_spans())
    assert len(found) == 4 * 6


class Slow(SpanExporter):
    """An exporter that hangs until it is let go, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.calls, self.free = error, 0, threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.free.wait(60)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.free.set()


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        pytest.param(None, "the collector did not answer in time", id="one that hangs"),
        pytest.param(RuntimeError("secret detail"), "the exporter failed (RuntimeError)", id="one that raises"),
    ],
)
@in_loop
async def test_a_sick_exporter_changes_nothing_and_is_reported_once(
    shared: Place, error: Exception | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gert.agent")
    sick = Slow(error)
    async with shared.kernel(store={"export": otel_export(span_exporter=sick)}) as kernel:
        for number in range(3):
            await worked_once(kernel, f"r{number}")
            assert (await verify_run(kernel.ledger, f"r{number}", Keys())).holds
    (said,) = [record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()]
    assert problem in said
    assert "secret detail" not in caplog.text
    assert sick.calls >= 1
    sick.free.set()


async def worked_once(kernel: ArtanaKernel, run_id: str) -> None:
    async with kernel.run(tenant=TENANT, run_id=run_id):
        await ask(kernel, run_id, "up?", "q1")


class Sink:
    """Takes spans once it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.taken: list[Span] = []

    def send(self, spans: Sequence[Span], *, last: bool) -> str | None:
        self.free.wait(60)
        self.taken += spans
        return None

    def stop(self) -> None:
        self.free.set()


@in_loop
async def test_what_does_not_fit_the_queue_is_read_from_the_ledger_later(
    shared: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_LINES", 10)
    monkeypatch.setattr(room, "_BATCH", 1)
    sink = Sink()
    exporting = Exporter(lambda: sink, flush_seconds=60)
    async with shared.kernel(store={"export": exporting}) as kernel:
        async with kernel.run(tenant=TENANT, run_id="r"):
            for number in range(30):
                await ask(kernel, "r", f"q{number}", f"s{number}")
        assert len(exporting._queue) <= 10, "the queue is bounded"
        sink.free.set()
    assert exporting.problem is None
    assert len({span.span_id for span in sink.taken}) == len(sink.taken) == 31


class Restarting:
    """Takes nothing at first."""

    def __init__(self) -> None:
        self.taken: list[Span] = []
        self.refused = 0

    def send(self, spans: Sequence[Span], *, last: bool) -> str | None:
        if not self.refused:
            self.refused = len(spans)
            return "the collector answered 503"
        self.taken += spans
        return None

    def stop(self) -> None:
        pass


@in_loop
async def test_a_collector_that_restarts_gets_what_it_did_not_take(
    shared: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_DELAY", 0.01)
    sink = Restarting()
    exporting = Exporter(lambda: sink, flush_seconds=60)
    async with shared.kernel(store={"export": exporting}) as kernel, kernel.run(tenant=TENANT, run_id="r"):
        await ask(kernel, "r", "first", "s1")
        await soon(lambda: sink.refused > 0)
        await ask(kernel, "r", "second", "s2")
    assert exporting.problem is None
    assert len({span.span_id for span in sink.taken}) == 3


@pytest.mark.parametrize("text", ["soon", "-1", "601", "nan"])
def test_how_long_a_run_waits_is_a_number_of_seconds(text: str) -> None:
    with pytest.raises(InputError, match="`GERT_OTEL_FLUSH_SECONDS` to be a number of seconds"):
        export_for(None, {"GERT_OTEL": "1", "GERT_OTEL_FLUSH_SECONDS": text})


@pytest.mark.parametrize(("text", "seconds"), [("", FLUSH_SECONDS), ("0", 0.0), ("7.5", 7.5)])
def test_how_long_a_run_waits_for_the_collector(text: str, seconds: float) -> None:
    made = export_for(None, {"GERT_OTEL": "1", "GERT_OTEL_FLUSH_SECONDS": text})
    assert isinstance(made, Exporter)
    assert made._flush_seconds == seconds


@in_loop
async def test_telemetry_is_off_unless_a_switch_says_otherwise(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with shared.kernel() as kernel:
        assert kernel.ledger.export is None
    monkeypatch.setenv("GERT_OTEL", "1")
    async with shared.anew().kernel() as kernel:
        assert kernel.ledger.export is not None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with shared.anew().kernel() as kernel:
        assert kernel.ledger.export is None
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("GERT_OTEL", "maybe")
    with pytest.raises(ValueError, match="GERT_OTEL"):
        shared.anew().store()


@in_loop
async def test_no_thread_is_left_when_the_store_is_closed(shared: Place) -> None:
    memory, before = InMemorySpanExporter(), set(threading.enumerate())
    for number in range(3):
        async with shared.kernel(store={"export": otel_export(span_exporter=memory)}) as kernel:
            await worked_once(kernel, f"r{number}")
    await soon(
        lambda: not [each for each in threading.enumerate() if each.name == "gert-telemetry" and each not in before]
    )
    assert len(memory.get_finished_spans()) == 6, "the exporter of the program stays open"
