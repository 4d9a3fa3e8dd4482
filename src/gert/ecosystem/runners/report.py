"""The report of an execution for people: `run.md`."""

from collections.abc import Iterator, Sequence

from gert.ecosystem.runners.gateway import Exchange
from gert.kernel.foundation.text import printable
from gert.kernel.runner.execution_record import ExecutionRecord

_LONGEST = 200


def report_text(record: ExecutionRecord, exchanges: Sequence[Exchange]) -> str:
    """Return the report as Markdown; names of others are shown as code, so that they cannot be markup."""
    return "\n".join(_lines(record, exchanges)) + "\n"


def _lines(record: ExecutionRecord, exchanges: Sequence[Exchange]) -> Iterator[str]:
    result = "done" if record.exit_code == 0 else f"failed with exit code {record.exit_code}"
    yield f"# {_code(record.skill_id)}: {result}"
    yield ""
    for title, value in (
        ("Plan", record.plan_id),
        ("Digest", record.plan_digest),
        ("Runner", f"{record.runner_id} on {record.host}, {record.gert_version}"),
        ("Vendor", record.vendor),
        ("Scope", " ".join(record.scope)),
        ("Secret", record.secret_ref or "none"),
        ("Started", record.started_at),
        ("Ended", record.ended_at),
        ("Reason", f"{record.rule}: {record.message}" if record.rule else ""),
    ):
        if value:
            yield f"- {title}: {_code(value)}"
    yield ""
    yield f"Requests that left the runner: {record.requests}"
    for exchange in exchanges:
        yield f"- {_code(f'{exchange.method} https://{exchange.host}{exchange.target}')}: {_code(_answer(exchange))}"
    yield ""
    yield f"Isolation: {record.isolation.level}"
    yield from (f"- enforced: {each}" for each in record.isolation.enforced)
    yield from (f"- not enforced: {each}" for each in record.isolation.not_enforced)
    yield ""
    yield "Artifacts:"
    for name, path in (("request", record.request_artifact), ("response", record.response_artifact)):
        yield f"- {_code(path)} {_code(record.hashes[name])}"


def _answer(exchange: Exchange) -> str:
    if exchange.refusal is not None:
        return f"refused by {exchange.refusal.rule}"
    received = exchange.received
    return f"{received.status}, {len(received.body)} bytes" if received is not None else "no answer"


def _code(text: str) -> str:
    shown = printable(text).replace("`", "'")
    return f"`{shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '…'}`"
