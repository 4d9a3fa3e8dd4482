"""The state of a run: it comes back as it was written, and anything else is refused."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.ecosystem.host.state import STATE_VERSION, RunState, decode_state, encode_state
from gert.errors import IntegrityError

STATE = RunState(
    run_id="run-1",
    runbook="book",
    file="/p/book.yaml",
    runbook_hash="sha256:00",
    mode="real",
    actor="kim",
    host="here",
    gert_version="gert 1",
    working="/p",
    started="2026-02-28T12:00:00.000000Z",
    trace="/p/runs/run-1/trace.jsonl",
    tool_hashes={"note": "sha256:01"},
    inputs={"n": 1, "text": "ä\n", "deep": {"a": [1, None, True, 1.5]}},
    input_sources={"n": "cli", "key": "env/KEY"},
    secret_inputs=("key",),
    approvals="detach",
    timeout=1.5,
)


def test_a_state_comes_back() -> None:
    assert decode_state(encode_state(STATE), "s") == STATE


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_whatever_the_inputs_are_they_come_back(inputs: dict[str, Any]) -> None:
    state = msgspec.structs.replace(STATE, inputs=inputs)
    assert decode_state(encode_state(state), "s") == state


def test_a_state_is_written_for_people() -> None:
    assert json.loads(encode_state(STATE))["version"] == STATE_VERSION
    assert encode_state(STATE).count(b"\n") > 20


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(RunState)])
def test_no_field_can_be_changed_or_left_out(name: str) -> None:
    document = json.loads(encode_state(STATE))
    for changed in ({**document, name: "other"}, {key: value for key, value in document.items() if key != name}):
        with pytest.raises(IntegrityError, match="its digest does not hold"):
            decode_state(json.dumps(changed).encode(), "s")


def test_no_field_can_be_added() -> None:
    document = json.loads(encode_state(STATE))
    with pytest.raises(IntegrityError, match="its digest does not hold"):
        decode_state(json.dumps({**document, "more": 1}).encode(), "s")


def test_cut_anywhere_it_is_refused() -> None:
    data = encode_state(STATE)
    for length in range(len(data) - 1):
        with pytest.raises(IntegrityError, match="`s`"):
            decode_state(data[:length], "s")


def test_with_any_byte_changed_it_is_refused_or_says_the_same() -> None:
    """A space more or less changes nothing that is said."""
    data = encode_state(STATE)
    for at in range(0, len(data), 3):
        for byte in (0, 0x20, 0x22, data[at] ^ 1):
            changed = data[:at] + bytes([byte]) + data[at + 1 :]
            with suppress(IntegrityError):
                assert decode_state(changed, "s") == STATE


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "is not the state of a run", id="nothing"),
        pytest.param(b"null", "is not the state of a run", id="null"),
        pytest.param(b"[]", "is not the state of a run", id="a list"),
        pytest.param(b'"x"', "is not the state of a run", id="a text"),
        pytest.param(b"\xff\xfe", "is not the state of a run", id="no text"),
        pytest.param(b"\x00" * 100, "is not the state of a run", id="zeros"),
        pytest.param(b"[" * 100_000, "is not the state of a run", id="too deep"),
        pytest.param(b'{"version":' + b"[" * 100_000, "is not the state of a run", id="too deep within"),
        pytest.param(b"{}", "another version of gert", id="an empty map"),
        pytest.param(b'{"version": 1}', "expected version 2, found `1`", id="an earlier version"),
        pytest.param(b'{"version": "2"}', "another version of gert", id="a version that is text"),
        pytest.param(b'{"version": 2}', "its digest does not hold", id="no digest"),
        pytest.param(b'{"version": 2, "digest": null}', "its digest does not hold", id="an empty digest"),
    ],
)
def test_what_is_no_state_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(IntegrityError) as refusal:
        decode_state(data, "s")
    assert says in refusal.value.message
    assert "\n" not in refusal.value.message
