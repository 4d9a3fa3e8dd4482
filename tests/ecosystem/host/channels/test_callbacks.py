"""Signed callbacks: only what a key we hold has signed is put to a ticket, and everything else leaves no trace."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import BOB_KEY, MALLORY_KEY, NOON, SHARED, asking, no, signed, yes
from tests.ecosystem.host.channels.connections import Got, House, visit

from gert.kernel.foundation.signature import parse_key
from gert.kernel.governance.approval import Response

JSON = {"Content-Type": "application/json"}


def as_sent(response: Response) -> dict[str, Any]:
    """An answer in the documented fields."""
    return {
        "ticket_id": response.ticket_id,
        "approved": response.approved,
        "approver_id": response.approver,
        "timestamp": response.timestamp,
        "signature": response.signature,
        "signature_alg": response.signature_alg,
        "key_id": response.key_id,
        "reason": response.reason,
        "method": "http",
    }


async def call(house: House, document: Any, ticket_id: str | None = None) -> Got:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return await house.ask("POST", f"/callback/{ticket_id or house.file.id}", body, JSON)


@pytest.mark.parametrize("key", [BOB_KEY, SHARED], ids=["ed25519", "hmac"])
@pytest.mark.parametrize("answer", [yes, no], ids=["approved", "rejected"])
def test_a_signed_answer_counts(tmp_path: Path, key: Any, answer: Callable[[], Response]) -> None:
    async def act(house: House) -> None:
        said = signed(house.file, key, answer())
        got = await call(house, as_sent(said))
        assert got.status == 200
        status = "approved" if said.approved else "rejected"
        assert json.loads(got.body) == {
            "ticket_id": house.file.id, "received": True, "objection": None,
            "status": "pending", "approvals": 0, "needed": 1,
        }  # fmt: skip
        assert house.now().status == status
        assert house.now().responses[0].response.signature == said.signature

    visit(tmp_path, act, require_signed_approvals=True)


def test_a_replay_is_told_by_the_ticket(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        said = as_sent(signed(house.file))
        assert (await call(house, said)).status == 200
        again = await call(house, said)
        assert again.status == 409
        assert json.loads(again.body)["objection"] == "`bob` has already responded"
        assert house.now().approvals == 1

    visit(tmp_path, act, min_approvers=2)


def changed(**changes: Any) -> Callable[[House], dict[str, Any]]:
    return lambda house: {**as_sent(signed(house.file)), **changes}


def without(*names: str) -> Callable[[House], dict[str, Any]]:
    return lambda house: {k: v for k, v in as_sent(signed(house.file)).items() if k not in names}


def for_another_ticket(house: House) -> dict[str, Any]:
    other = house.store.opened(key="other")
    return as_sent(signed(other))


def of_another_ticket_renamed(house: House) -> dict[str, Any]:
    return {**for_another_ticket(house), "ticket_id": house.file.id}


def of_an_unknown_key(house: House) -> dict[str, Any]:
    return as_sent(signed(house.file, parse_key("a secret nobody else has", "nobody")))


def of_a_key_that_calls_itself_ann(house: House) -> dict[str, Any]:
    return as_sent(signed(house.file, MALLORY_KEY, yes("ann")))


def for_another_request(house: House) -> dict[str, Any]:
    request = asking(request_hash="sha256:" + "1" * 64)
    ticket = msgspec.structs.replace(house.file.ticket, request=request)
    return as_sent(signed(msgspec.structs.replace(house.file, ticket=ticket)))


STRANGERS: list[Any] = [
    pytest.param(without("signature"), 401, "must be signed", id="unsigned"),
    pytest.param(
        without("signature", "signature_alg", "key_id"), 401, "must be signed", id="without a word of signatures"
    ),
    pytest.param(changed(signature=None), 401, "must be signed", id="a signature that is null"),
    pytest.param(changed(signature=""), 409, "no valid signature", id="an empty signature"),
    pytest.param(changed(signature="AAAA"), 409, "no valid signature", id="a forged signature"),
    pytest.param(changed(approved=False), 409, "no valid signature", id="flipped after signing"),
    pytest.param(changed(approver_id="eve"), 409, "no valid signature", id="in another name"),
    pytest.param(changed(timestamp="2026-01-02T12:00:01Z"), 409, "no valid signature", id="at another time"),
    pytest.param(changed(signature_alg="hmac-sha256"), 409, "no valid signature", id="another algorithm"),
    pytest.param(changed(signature_alg="none"), 409, "no valid signature", id="no algorithm"),
    pytest.param(changed(key_id="ann"), 409, "no valid signature", id="another key"),
    pytest.param(changed(ticket_id="run-9"), 409, "for another ticket", id="another ticket"),
    pytest.param(for_another_ticket, 409, "for another ticket", id="meant for another ticket"),
    pytest.param(of_another_ticket_renamed, 409, "no valid signature", id="renamed from another ticket"),
    pytest.param(for_another_request, 409, "no valid signature", id="signed for another request"),
    pytest.param(of_an_unknown_key, 409, "no key `nobody` is known", id="an unknown key"),
    pytest.param(of_a_key_that_calls_itself_ann, 409, "no valid signature", id="a key under another's name"),
    pytest.param(without("approved"), 400, "not a response", id="no verdict"),
    pytest.param(changed(approved="true"), 400, "not a response", id="a verdict that is text"),
    pytest.param(changed(approved=1), 400, "not a response", id="a verdict that is a number"),
    pytest.param(without("approver_id"), 400, "not a response", id="no name"),
    pytest.param(changed(approver_id=["bob"]), 400, "not a response", id="a list of names"),
    pytest.param(lambda _: b"", 400, "not a response", id="nothing"),
    pytest.param(lambda _: b"{", 400, "not a response", id="half of it"),
    pytest.param(lambda _: b"\xff\xfe", 400, "not a response", id="no text"),
    pytest.param(lambda _: b"[" * 50_000, 400, "not a response", id="nested without end"),
    pytest.param(lambda _: b'{"x":' * 10_000, 400, "not a response", id="nested otherwise"),
]


@pytest.mark.parametrize(("document", "status", "why"), STRANGERS)
def test_what_no_key_has_signed_leaves_nothing_on_the_ticket(
    tmp_path: Path, document: Callable[[House], Any], status: int, why: str
) -> None:
    async def act(house: House) -> None:
        got = await call(house, document(house))
        assert got.status == status, got.text
        said = json.loads(got.body)
        assert why in said["objection"]
        assert said["received"] is False
        assert house.now() == house.file

    visit(tmp_path, act)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(yes(at=NOON - timedelta(seconds=31)), "older than the request", id="given before the request"),
        pytest.param(yes(at=NOON + timedelta(minutes=31)), "from the future", id="given in the future"),
        pytest.param(yes("ann"), "started the run", id="by who started it"),
        pytest.param(yes(reason="x" * 3000), "reason is too long", id="with a reason without end"),
    ],
)
def test_what_is_signed_and_could_not_count_is_not_posted(tmp_path: Path, answer: Response, why: str) -> None:
    async def act(house: House) -> None:
        got = await call(house, as_sent(signed(house.file, SHARED, answer)))
        assert got.status == 409
        assert why in json.loads(got.body)["objection"]
        now = house.now()
        assert now.status == "pending"
        assert now.responses == ()

    visit(tmp_path, act, separation_of_duties=True)


def test_after_the_time_a_signed_answer_is_too_late(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        house.clock.forward(minutes=31)
        got = await call(house, as_sent(signed(house.file)))
        assert got.status == 409
        assert "too late" in got.text
        assert house.now().responses == ()

    visit(tmp_path, act)


def test_a_ticket_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        said = {**as_sent(signed(house.file)), "ticket_id": "run-9"}
        assert (await call(house, said, "run-9")).status == 404
        assert [each.id for each in await house.store.all()] == [house.file.id]

    visit(tmp_path, act)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
def test_a_page_elsewhere_cannot_post_what_is_taken_for_json(tmp_path: Path, kind: str) -> None:
    async def act(house: House) -> None:
        body = json.dumps(as_sent(signed(house.file))).encode()
        got = await house.ask("POST", f"/callback/{house.file.id}", body, {"Content-Type": kind})
        assert got.status == 415
        assert house.now() == house.file

    visit(tmp_path, act)


def test_a_callback_is_not_asked_for(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        assert (await house.ask("GET", f"/callback/{house.file.id}")).status == 405

    visit(tmp_path, act)
