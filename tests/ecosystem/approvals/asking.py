"""A request for approval, people who answer it, and a clock that stands still."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gert.ecosystem.approvals.signatures import KeyVerifier, sign_response
from gert.ecosystem.approvals.ticket_file import RunRef, TicketFile
from gert.ecosystem.approvals.tickets import Tickets
from gert.kernel.engine.requests import ApprovalRequest, AwaitApproval, Response, SubmitApproval
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.foundation.signature import Key, Keys, parse_key

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HALF_AN_HOUR = 1800.0
REQUEST = ApprovalRequest(
    run_id="run-1",
    runbook="restart-service",
    step_id="restart",
    title="Restart it",
    risk_level="high",
    rule="rules[0]",
    contract={"effects": ["service"], "writes": ["service"], "idempotent": False},
    target="kubectl/restart",
    inputs={"name": "web", "token": f"Bearer {secret_ref('key')}", "n": [1, {"a": None}]},
    request_hash="sha256:" + "0" * 64,
    min_approvers=1,
    approvers=(),
    admitted=(),
    separation_of_duties=False,
    require_signed_approvals=False,
    requested_by="ann",
    approval_timeout=HALF_AN_HOUR,
)
RUN = RunRef(run_id="run-1", runbook="restart-service", file="/x/book.yaml", state_dir="/x", key="restart!submit")

ANN_KEY = parse_key("ed25519:" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=", "ann")
BOB_KEY = parse_key("ed25519:" + "YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE=", "bob")
SHARED = parse_key("base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ==", "shared")
MALLORY_KEY = parse_key("ed25519:" + "bWFsbG9yeSBoYXMgYSBrZXkgb2YgaGVyIG93biwgdG8=", "ann")


def public(key: Key) -> Key:
    assert key.public_text is not None
    return parse_key(key.public_text, key.id)


def verifier(*keys: Key, **owners: str) -> KeyVerifier:
    held = Keys(keys or (public(ANN_KEY), public(BOB_KEY), SHARED))
    return KeyVerifier(held, lambda key_id: [owners[key_id]] if key_id in owners else None)


class Clock:
    """A clock that is set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


def asking(**changes: Any) -> ApprovalRequest:
    return msgspec.structs.replace(REQUEST, **changes)


def tickets(folder: Path, clock: Clock | None = None, check: KeyVerifier | None = None) -> Tickets:
    return Tickets(str(folder / "approvals"), clock or Clock(), check or verifier())


def opened(store: Tickets, **changes: Any) -> TicketFile:
    return store.open(asking(**changes), RUN, "ticket")


def yes(approver: str = "bob", at: datetime = NOON, **more: Any) -> Response:
    return Response(approver=approver, approved=True, timestamp=format_timestamp(at), **more)


def no(approver: str = "bob", at: datetime = NOON, **more: Any) -> Response:
    return Response(approver=approver, approved=False, timestamp=format_timestamp(at), **more)


def signed(file: TicketFile, key: Key = BOB_KEY, response: Response | None = None) -> Response:
    return sign_response(response if response is not None else yes(), file.ticket, key)


def submitting(request: ApprovalRequest = REQUEST, key: str = RUN.key) -> SubmitApproval:
    return SubmitApproval(key=key, path="restart", step_id="restart", request=request)


def waiting(ticket_id: str, request: ApprovalRequest = REQUEST) -> AwaitApproval:
    return AwaitApproval(key="restart!wait", path="restart", step_id="restart", ticket_id=ticket_id, request=request)


def path_of(store: Tickets, file: TicketFile) -> Path:
    return Path(store.folder, f"{file.id}.json")
