"""Small traces to verify: a run of six events, chained, and sealed on demand."""

import base64
from collections.abc import Sequence
from typing import Any

from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS, ChainReport, read_chain
from gert.kernel.events.envelope import Envelope, encode
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.trace_seal import seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.signature import Key, Keys, parse_key

HMAC_KEY = parse_key("a shared secret for tests", "shared")
PRIVATE_KEY = parse_key("ed25519:" + base64.b64encode(bytes(range(32))).decode(), "prod-2026")
PUBLIC_KEY = parse_key(str(PRIVATE_KEY.public_text), "prod-2026")
KEYS = Keys([HMAC_KEY, PUBLIC_KEY])
ALICE = Principal("human", "alice@example.com", role="oncall")

OUTCOME = says.Outcome("resolved", "service_restarted", {"status_code": "200", "größe": 1.5})

STORY: tuple[tuple[Payload, str | None, Principal | None], ...] = (
    (
        says.RunStart(
            runbook="service-health-check",
            runbook_hash="sha256:" + "a1" * 32,
            actor="alice@example.com",
            host="runner-03",
            gert_version="0.1.0",
            mode="real",
            inputs={"hostname": "srv1.example.com"},
            input_sources={"hostname": "cli"},
        ),
        None,
        ALICE,
    ),
    (says.InputResolved(name="hostname", source="cli", value="srv1.example.com"), None, None),
    (
        says.StepStart(
            step_id="restart", step_type="tool", tool="restart-service", contract_summary={"risk": "medium"}
        ),
        "triage/degraded/restart",
        None,
    ),
    (
        says.StepComplete(step_id="restart", status="success", duration="4.2s", outputs={"ok": True}),
        "triage/degraded/restart",
        None,
    ),
    (says.OutcomeResolved(step_id="done", structured_outcome=OUTCOME), "done", None),
    (says.RunComplete(status="completed", mode="real", duration="4.3s", outcome=OUTCOME), None, None),
)


class Chain:
    """The end of a chain that is being written."""

    def __init__(self, head: str = GENESIS, count: int = 0) -> None:
        self.head = head
        self.count = count

    def append(self, line: bytes) -> None:
        self.head = sha256_hex(line)
        self.count += 1


def stamped(chain: Chain, payload: Payload, path: str | None = None, principal: Principal | None = None) -> Envelope:
    return Envelope(
        seq=chain.count + 1,
        run_id="run-2026-02-28-001",
        type=payload.type,
        timestamp=f"2026-02-28T14:30:{chain.count:02d}.000000Z",
        principal=principal,
        path=path,
        prev_hash=chain.head,
        data=to_data(payload),
    )


def trace(key: Key | None = None, story: Sequence[tuple[Payload, str | None, Principal | None]] = STORY) -> list[bytes]:
    """Write a story as lines; its `run_complete` is sealed with the key, or without one."""
    chain, lines = Chain(), []
    for payload, path, principal in story:
        event = stamped(chain, payload, path, principal)
        lines.append(encode(seal(event, key) if event.type == "run_complete" else event))
        chain.append(lines[-1])
    return lines


def rechained(lines: Sequence[bytes]) -> list[bytes]:
    """Do what a forger does: give every line the hash of the one before, and claim the new head."""
    import msgspec

    chain, rewritten = Chain(), []
    for line in lines:
        event: dict[str, Any] = msgspec.json.decode(line)
        event["prev_hash"] = chain.head
        if "chain_hash" in event["data"]:
            event["data"]["chain_hash"] = chain.head
        rewritten.append(msgspec.json.encode(event))
        chain.append(rewritten[-1])
    return rewritten


def read(lines: Sequence[bytes]) -> ChainReport:
    return read_chain(lines)
