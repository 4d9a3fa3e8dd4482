from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.events.traces import (
    HMAC_KEY,
    KEYS,
    OUTCOME,
    PRIVATE_KEY,
    PUBLIC_KEY,
    STORY,
    Chain,
    rechained,
    stamped,
    trace,
)

from gert.errors import IntegrityError, TraceError
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import decode, encode
from gert.kernel.events.trace_seal import SealReport, check_seal, seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.signature import Keys, parse_key, sign

FIXTURES = Path(__file__).parent / "fixtures"
SEALED = trace(PRIVATE_KEY)
SHARED = trace(HMAC_KEY)
UNSIGNED = trace()
THIEF = parse_key("ed25519:" + "dGhpZWYh" * 5 + "A0E=", "prod-2026")


def verdict(lines: list[bytes], keys: Keys = KEYS, **demands: object) -> SealReport:
    return check_seal(read_chain(lines), keys, **demands)  # type: ignore[arg-type]


def failed(report: SealReport) -> list[str]:
    return [check.name for check in report.failures]


@pytest.mark.parametrize(
    ("lines", "signer"),
    [pytest.param(SEALED, "prod-2026", id="ed25519"), pytest.param(SHARED, "shared", id="hmac-sha256")],
)
def test_a_genuine_seal_holds(lines: list[bytes], signer: str) -> None:
    report = verdict(lines)
    assert report.holds
    assert report.proven
    assert report.signed_by == signer
    assert [check.number for check in report.checks] == [1, 2, 3, 4, 5]
    report.require()


def test_an_auditor_needs_only_the_public_key() -> None:
    assert not PUBLIC_KEY.can_sign
    assert verdict(SEALED, Keys([PUBLIC_KEY])).proven


def test_the_claimed_head_is_the_previous_hash() -> None:
    event = decode(SEALED[-1])
    assert event.data["chain_hash"] == event.prev_hash == sha256_hex(SEALED[-2])
    assert list(event.data)[-5:] == [
        "chain_hash",
        "signature",
        "signing_key_id",
        "signature_alg",
        "body_signature",
    ]


def test_a_sealed_event_can_be_read() -> None:
    payload = decode(SEALED[-1]).payload
    assert isinstance(payload, says.RunComplete)
    assert payload.outcome == OUTCOME
    assert payload.signature_alg == "ed25519"


def notified(lines: list[bytes]) -> list[bytes]:
    """Add what may follow the end; nobody needs a key for that."""
    chain = Chain(sha256_hex(lines[-1]), len(lines))
    return [
        *lines,
        encode(stamped(chain, says.WebhookSent(url="https://example.com", delivered=False, attempts=3))),
    ]


@pytest.mark.parametrize(
    ("lines", "keys", "sealed", "after"),
    [
        pytest.param(SEALED, KEYS, 6, 0, id="nothing follows the seal"),
        pytest.param(notified(SEALED), KEYS, 6, 1, id="a notification"),
        pytest.param(notified(notified(SEALED)), KEYS, 6, 2, id="two notifications"),
        pytest.param(notified(UNSIGNED), Keys(), 0, 1, id="a trace that is not signed"),
        pytest.param(notified(SEALED), Keys([HMAC_KEY]), 0, 1, id="a seal that fails"),
    ],
)
def test_what_follows_the_seal_is_told_apart(lines: list[bytes], keys: Keys, sealed: int, after: int) -> None:
    report = verdict(lines, keys, require_signature=False)
    assert (report.sealed, report.after_seal) == (sealed, after)
    assert report.proven is (sealed > 0)


def test_the_end_says_what_follows_it() -> None:
    assert verdict(SEALED).checks[1].reason == "`run_complete` at line 6"
    assert verdict(notified(SEALED)).checks[1].reason == "`run_complete` at line 6, and 1 after it outside the seal"


def test_without_a_demand_an_unsigned_trace_holds_and_is_not_proven() -> None:
    report = verdict(UNSIGNED, Keys(), require_signature=False)
    assert report.holds
    assert not report.proven
    assert report.signed_by is None
    assert [check.passed for check in report.checks] == [True, True, True, None, None]


def test_without_a_demand_a_signed_trace_is_checked_without_its_signature() -> None:
    report = verdict(SEALED, Keys(), require_signature=False)
    assert report.holds
    assert not report.proven
    assert "no key was given" in report.checks[3].reason


# ── what must not pass ───────────────────────────────────────────────────────────────────────────────


def changed(lines: list[bytes] = SEALED, at: int = -1, without: str = "", **fields: object) -> list[bytes]:
    """Change the data of one event in place, without touching the others."""
    event = msgspec.json.decode(lines[at])
    for name in without.split():
        del event["data"][name]
    event["data"].update(fields)
    return [*lines[:at], msgspec.json.encode(event), *lines[len(lines) + at + 1 if at < 0 else at + 1 :]]


def with_end(old: bytes, new: bytes) -> list[bytes]:
    """Change the bytes of the last line."""
    assert old in SEALED[-1]
    return [*SEALED[:-1], SEALED[-1].replace(old, new)]


END = decode(SEALED[-1]).data
SHORTER = (*STORY[:2], STORY[-1])
OTHER_END = (*STORY[:-1], (says.RunComplete(status="failed", mode="real", duration="4.3s"), None, None))
BOTH = ["signature", "body"]


@pytest.mark.parametrize(
    ("lines", "checks"),
    [
        pytest.param([], ["chain", "complete"], id="no events"),
        pytest.param(SEALED[:-1], ["complete"], id="the end is cut off"),
        pytest.param([*SEALED[:-1], SEALED[-1][:-1]], ["complete"], id="the end is torn"),
        pytest.param([*SEALED, b"{"], ["complete"], id="something torn follows the end"),
        pytest.param([*SEALED, b""], ["complete"], id="an empty line follows the end"),
        pytest.param([*SEALED, SEALED[-1]], ["chain"], id="two ends"),
        # the events before the end
        pytest.param(changed(at=1, source="env"), ["chain"], id="an event was changed in place"),
        pytest.param([*SEALED[:3], *SEALED[4:]], ["chain"], id="an event was removed"),
        pytest.param(
            [*rechained(SEALED[1:-1]), SEALED[-1]],
            ["chain", "head", "signature"],
            id="a genuine old seal on a rewritten chain",
        ),
        pytest.param(
            [*trace(PRIVATE_KEY, SHORTER)[:-1], SEALED[-1]],
            ["chain", "head", "signature"],
            id="the end of another trace",
        ),
        pytest.param(rechained(changed(at=1, source="env")), BOTH, id="changed and chained again"),
        pytest.param(
            rechained([line.replace(b"run-2026", b"run-1999") for line in SEALED]),
            BOTH,
            id="passed off as another run",
        ),
        # other signatures, or none
        pytest.param(UNSIGNED, BOTH, id="never signed"),
        pytest.param(trace(None, SHORTER), BOTH, id="cut short and sealed again without a key"),
        pytest.param(trace(THIEF, SHORTER), BOTH, id="cut short and sealed again with another key"),
        pytest.param(trace(THIEF), BOTH, id="signed with another key of the same name"),
        pytest.param([*UNSIGNED[:-1], trace(THIEF)[-1]], BOTH, id="an end by a thief"),
        pytest.param(trace(None, OTHER_END), BOTH, id="another end, unsigned"),
        pytest.param(
            changed(without="signature signing_key_id signature_alg body_signature"),
            BOTH,
            id="all signatures taken off",
        ),
        pytest.param(changed(without="signature"), BOTH, id="the first signature taken off"),
        pytest.param(changed(without="body_signature"), ["body"], id="the second signature taken off"),
        pytest.param(changed(signature=""), BOTH, id="an empty signature"),
        pytest.param(changed(signature=["x"]), BOTH, id="a signature that is no text"),
        pytest.param(changed(signature=None), BOTH, id="a signature that is null"),
        pytest.param(changed(signature=END["body_signature"]), BOTH, id="the second signature as the first"),
        pytest.param(changed(body_signature=END["signature"]), ["body"], id="the first signature as the second"),
        # what the seal says about itself
        pytest.param(changed(without="chain_hash"), ["head", "body"], id="the claimed head taken off"),
        pytest.param(changed(chain_hash=END["chain_hash"].upper()), ["head", "body"], id="a head in capitals"),
        pytest.param(changed(chain_hash=7), ["head", "body"], id="a claimed head that is no text"),
        pytest.param(changed(signing_key_id="shared"), BOTH, id="the name of another key"),
        pytest.param(changed(signing_key_id="unknown"), BOTH, id="the name of an unknown key"),
        pytest.param(changed(without="signing_key_id"), BOTH, id="no name of a key"),
        pytest.param(changed(signature_alg="hmac-sha256"), BOTH, id="the algorithm swapped"),
        pytest.param(changed(signature_alg="none"), BOTH, id="the algorithm none"),
        pytest.param(changed(without="signature_alg"), BOTH, id="no algorithm"),
        # what the end says about the run
        pytest.param(with_end(b'"completed"', b'"failed"'), ["body"], id="the status"),
        pytest.param(with_end(b'"resolved"', b'"no_action"'), ["body"], id="the category of the outcome"),
        pytest.param(with_end(b"service_restarted", b"nothing_to_see"), ["body"], id="the code of the outcome"),
        pytest.param(with_end(b"14:30:05", b"14:30:06"), ["body"], id="the time of the end"),
        pytest.param(with_end(b'"4.3s"', b'"1s"'), ["body"], id="the duration"),
        pytest.param(
            with_end(b'"prev_hash"', b'"principal":{"kind":"human","id":"eve"},"prev_hash"'),
            ["body"],
            id="who ended it",
        ),
        pytest.param(changed(extra=1), ["body"], id="a field added at the end"),
        pytest.param(
            with_end(b'"status":', b'"status":"failed","status":'),
            ["chain", "body"],
            id="a field given twice, for readers who take the first",
        ),
        pytest.param(
            with_end(b'"data":', b'"data":{"status":"error"},"data":'), ["chain", "body"], id="data given twice"
        ),
        pytest.param([*SEALED[:-1], SEALED[-1] + b" "], ["body"], id="a space after the last line"),
        pytest.param([*SEALED[:-1], SEALED[-1] + b"\r"], ["chain", "body"], id="the last line end converted"),
    ],
)
def test_what_does_not_hold(lines: list[bytes], checks: list[str]) -> None:
    report = verdict(lines)
    assert failed(report) == checks
    assert not report.holds
    assert not report.proven
    assert report.signed_by is None
    with pytest.raises(IntegrityError):
        report.require()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        pytest.param(Keys(), "no key `prod-2026` is known", id="no key at all"),
        pytest.param(Keys([HMAC_KEY]), "no key `prod-2026` is known", id="only another key"),
        pytest.param(Keys(default=HMAC_KEY), "is for hmac-sha256", id="a default of another algorithm"),
        pytest.param(Keys(default=THIEF), "is invalid", id="a default that did not sign"),
    ],
)
def test_without_the_right_key_nothing_is_proven(keys: Keys, why: str) -> None:
    report = verdict(SEALED, keys)
    assert failed(report) == ["signature", "body"]
    assert why in report.failures[0].reason


def test_holding_a_key_demands_a_signature() -> None:
    assert not verdict(UNSIGNED, KEYS, require_signature=False).holds


def test_naming_a_key_demands_its_signature() -> None:
    assert verdict(SEALED, key_id="prod-2026").proven
    assert failed(verdict(SEALED, key_id="shared")) == ["signature", "body"]
    assert failed(verdict(UNSIGNED, Keys(), require_signature=False, key_id="shared")) == [
        "signature",
        "body",
    ]


DEFAULT = parse_key(str(PRIVATE_KEY.public_text))
NAMELESS = trace(replace(PRIVATE_KEY, id="default"))


@pytest.mark.parametrize(
    ("lines", "keys", "signer", "why"),
    [
        pytest.param(SEALED, KEYS, "prod-2026", "signed by key `prod-2026`", id="a listed key"),
        pytest.param(
            SEALED,
            Keys(default=DEFAULT),
            "default",
            "signed by the default key, which the trace calls `prod-2026`",
            id="the default key, under the name of another",
        ),
        pytest.param(
            SEALED,
            Keys([HMAC_KEY], default=parse_key(str(PRIVATE_KEY.public_text), "backup")),
            "backup",
            "signed by the default key, which the trace calls `prod-2026`",
            id="a default key with a name",
        ),
        pytest.param(
            SEALED, Keys(default=PUBLIC_KEY), "prod-2026", "signed by key `prod-2026`", id="a default so named"
        ),
        pytest.param(NAMELESS, Keys(default=DEFAULT), "default", "signed by key `default`", id="the default key"),
    ],
)
def test_the_signer_is_the_key_that_was_found_to_hold(lines: list[bytes], keys: Keys, signer: str, why: str) -> None:
    report = verdict(lines, keys)
    assert report.proven
    assert report.signed_by == signer
    assert report.checks[3].reason == why
    assert report.checks[4].reason == f"`run_complete` {why}"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        pytest.param(Keys([PUBLIC_KEY]), None, id="the listed key satisfies it"),
        pytest.param(Keys([PUBLIC_KEY], default=PUBLIC_KEY), None, id="a listed key that is the default too"),
        pytest.param(
            Keys([HMAC_KEY], default=DEFAULT),
            "expected a signature by key `prod-2026`, and no key of that id is listed",
            id="the default key does not, though its signature holds",
        ),
        pytest.param(
            Keys(default=PUBLIC_KEY),
            "expected a signature by key `prod-2026`, and no key of that id is listed",
            id="nor does a default key of that name",
        ),
    ],
)
def test_a_demand_by_name_is_satisfied_by_a_listed_key_only(keys: Keys, why: str | None) -> None:
    report = verdict(SEALED, keys, key_id="prod-2026")
    assert report.proven is (why is None)
    assert [check.reason for check in report.failures] == ([] if why is None else [why, why])


def test_a_demand_by_name_says_what_was_found() -> None:
    assert "by key `shared`, found `prod-2026`" in verdict(SEALED, key_id="shared").failures[0].reason
    nameless = verdict(changed(without="signing_key_id"), key_id="shared").failures[0].reason
    assert nameless == "expected a signature by key `shared`, found one that names no key"


def test_naming_a_run_demands_its_trace() -> None:
    assert verdict(SEALED, run_id="run-2026-02-28-001").proven
    assert failed(verdict(SEALED, run_id="run-2026-02-28-002")) == ["chain"]


def test_a_public_key_used_as_a_shared_secret_proves_nothing() -> None:
    published = parse_key("base64:" + str(PUBLIC_KEY.public_text).partition(":")[2], "prod-2026")
    assert failed(verdict(trace(published))) == ["signature", "body"]


def test_a_signature_from_before_there_was_a_choice_needs_its_key() -> None:
    lines = changed(SHARED, without="signature_alg")
    report = verdict(lines)
    assert report.checks[3].passed
    assert failed(report) == ["body"]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        pytest.param(decode(SEALED[0]), "only `run_complete` is sealed", id="another event"),
        pytest.param(decode(SEALED[-1]), "already sealed", id="an event that has a seal"),
        pytest.param(decode(UNSIGNED[-1]), "already sealed: it has `chain_hash`", id="an event that claims a head"),
    ],
)
def test_what_is_not_sealed(event: object, why: str) -> None:
    with pytest.raises(TraceError) as caught:
        seal(event, PRIVATE_KEY)  # type: ignore[arg-type]
    assert why in caught.value.message


def test_a_public_key_does_not_seal() -> None:
    chain = Chain()
    event = stamped(chain, says.RunComplete(status="completed", mode="real", duration="1s"))
    with pytest.raises(IntegrityError, match="cannot sign"):
        seal(event, PUBLIC_KEY)


def test_a_signature_for_something_else_is_no_seal() -> None:
    # Approvals and plans are signed with the same code; what they sign never looks like a head or a line.
    other = sign(PRIVATE_KEY, b"sha256:" + sha256_hex(SEALED[-2]).encode()).value
    assert failed(verdict(changed(signature=other))) == ["signature", "body"]


@given(st.sampled_from([SEALED, SHARED]), st.data())
def test_any_edit_of_any_byte_is_found(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"\n".join(lines)
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.binary(min_size=1, max_size=1).filter(lambda byte: byte != whole[at : at + 1]))
    how = data.draw(st.sampled_from(["replace", "insert", "delete"]))
    forged = {
        "replace": whole[:at] + byte + whole[at + 1 :],
        "insert": whole[:at] + byte + whole[at:],
        "delete": whole[:at] + whole[at + 1 :],
    }[how]
    if forged != whole:
        assert not verdict(forged.split(b"\n")).holds


@given(st.integers(0, len(b"\n".join(SEALED)) - 1))
def test_a_trace_cut_anywhere_does_not_hold(length: int) -> None:
    report = verdict(b"\n".join(SEALED)[:length].split(b"\n"))
    assert "complete" in failed(report)


# ── traces that hold forever ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["ed25519", "hmac-sha256"])
def test_a_trace_of_the_past_still_holds(name: str) -> None:
    label, _, text = (FIXTURES / f"{name}.key.txt").read_text(encoding="utf-8").strip().partition(" ")
    lines = (FIXTURES / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    report = verdict(lines, Keys([parse_key(text, label)]))
    assert report.proven, report.failures
    assert report.signed_by == label
    assert read_chain(lines).events == 7
