"""Messages that control a run: which of them count."""

import asyncio
from typing import Any

import msgspec
import pytest

from gert.ecosystem.host.config.keys.approval_keys import ApprovalKeys
from gert.ecosystem.host.run.driver.control import Control, ControlMessage, encode_control, read_control
from gert.errors import IntegrityError
from gert.kernel.engine.requests import CallTool, CollectEvidence
from gert.kernel.foundation.signature import parse_key
from gert.kernel.governance.contract import Contract
from gert.kernel.ledger.record import MAX_MESSAGE, Message

SECRET = "a shared secret that is long enough to be one"
KEY = parse_key(SECRET, "ann")
KEYS = ApprovalKeys({"GERT_APPROVAL_KEY_ANN": SECRET, "GERT_APPROVAL_OWNER_ANN": "ann"})
UNOWNED = ApprovalKeys({"GERT_APPROVAL_KEY_ANN": SECRET})
SAID = ControlMessage(by="ann", timestamp="2026-02-28T14:30:00Z", reason="wrong")


def message(body: bytes, kind: str = "cancel", run_id: str = "run-1") -> Message:
    return Message(1, run_id, kind, "2026-02-28T14:30:01Z", body)  # type: ignore[arg-type]


SIGNED = encode_control("run-1", "cancel", SAID, KEY)


def flipped(**changes: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(SIGNED), **changes})


@pytest.mark.parametrize("body", [SIGNED, encode_control("run-1", "cancel", SAID)])
def test_on_a_ledger_of_ones_own_a_signature_is_not_needed(body: bytes) -> None:
    assert read_control(message(body), KEYS, must_sign=False).by == "ann"


def test_on_a_shared_ledger_a_signed_message_counts() -> None:
    assert read_control(message(SIGNED), KEYS, must_sign=True).reason == "wrong"


@pytest.mark.parametrize(
    ("received", "keys", "why"),
    [
        pytest.param(message(encode_control("run-1", "cancel", SAID)), KEYS, "is not signed", id="unsigned"),
        pytest.param(message(SIGNED, run_id="run-2"), KEYS, "signature", id="copied to another run"),
        pytest.param(message(SIGNED, kind="advance"), KEYS, "signature", id="copied to another kind"),
        pytest.param(message(flipped(reason="right")), KEYS, "signature", id="reason changed after signing"),
        pytest.param(message(flipped(by="bob")), KEYS, "signature", id="sender changed after signing"),
        pytest.param(
            message(encode_control("run-1", "cancel", msgspec.structs.replace(SAID, by="bob"), KEY)),
            KEYS,
            "does not speak for `bob`",
            id="signed by ann in the name of bob",
        ),
        pytest.param(message(SIGNED), UNOWNED, "has no owner", id="a key without an owner"),
        pytest.param(message(SIGNED), ApprovalKeys({}), "key", id="no keys at all"),
        pytest.param(message(b"{"), KEYS, "cannot be read", id="half a message"),
        pytest.param(message(b"[" * 100_000), KEYS, "cannot be read", id="deep nesting"),
        pytest.param(message(b" " * MAX_MESSAGE + SIGNED), KEYS, "cannot be read", id="too long"),
        pytest.param(message(flipped(by="")), KEYS, "does not name its sender", id="no sender"),
        pytest.param(message(flipped(by="a\u001b[2Jnn")), KEYS, "does not name its sender", id="escapes in a name"),
    ],
)
def test_what_does_not_count_on_a_shared_ledger(received: Message, keys: ApprovalKeys, why: str) -> None:
    with pytest.raises(IntegrityError, match=why):
        read_control(received, keys, must_sign=True)


class Unstopped:
    def cancel(self, reason: str, message_id: int | None = None) -> object:
        raise AssertionError(reason)


@pytest.mark.parametrize("path", ["look[a%2Fb]", "look[a/b]"])
def test_a_step_is_named_by_its_path_as_recorded_or_as_people_read_it(path: str) -> None:
    async def main() -> None:
        control = Control("run-1", {}, steps=True)
        said = ControlMessage(by="ann", timestamp="2026-02-28T14:30:00Z", path=path, evidence={})
        control._advance(1, said, Unstopped())
        control._give(2, said, Unstopped())
        named: dict[str, Any] = {"key": "k", "path": "look[a%2Fb]", "step_id": "look[a%2Fb]"}
        call = CallTool(**named, tool="t", action="go", inputs={}, contract=Contract())
        assert await asyncio.wait_for(control.gate(call), 60) == 1
        answer = await asyncio.wait_for(
            control.give(CollectEvidence(**named, instructions="", contract=Contract())), 60
        )
        assert answer.message_id == 2

    asyncio.run(main())
