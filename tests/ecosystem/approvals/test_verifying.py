"""Signatures on answers, and whose keys they were made with."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.approvals.asking import ANN_KEY, BOB_KEY, REQUEST, SHARED, public, verifier, yes

from gert.ecosystem.approvals.signatures import NO_KEYS, sign_response
from gert.ecosystem.host.config.keys.approval_keys import ApprovalKeys, approval_verifier, key_to_sign_with, named_key
from gert.errors import IntegrityError, UsageError
from gert.kernel.foundation.signature import ED25519, HMAC_SHA256, Key, parse_key
from gert.kernel.governance.approval import Response
from gert.kernel.governance.approval_rules import Ticket

TICKET = Ticket(id="run-1-abc", request=REQUEST)
BOB_TEXT = "ed25519:YmNkZWZBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWmE="
SHARED_TEXT = "base64:c2hhcmVkIHNlY3JldCBvZiB0aGUgc2VydmljZQ=="


def by(key: Key, response: Response | None = None, **changes: Any) -> Response:
    """Signed, and changed afterwards."""
    return msgspec.structs.replace(sign_response(response or yes(), TICKET, key), **changes)


@pytest.mark.parametrize("key", [ANN_KEY, BOB_KEY, SHARED], ids=["ed25519", "another", "hmac"])
def test_a_signature_by_a_key_we_hold_is_verified(key: Key) -> None:
    checked = verifier().verify(by(key), TICKET)
    assert (checked.verified, checked.flaw) == (True, None)


def test_an_answer_without_a_signature_is_neither_verified_nor_flawed() -> None:
    assert verifier().verify(yes(), TICKET) == yes()


def test_whatever_an_answer_says_of_itself_is_forgotten() -> None:
    forged = yes(verified=True, scripted=True, flaw="none")
    assert verifier().verify(forged, TICKET) == yes()
    assert NO_KEYS.verify(forged, TICKET) == yes()


def test_a_signature_binds_to_our_ticket_and_not_to_the_one_the_answer_names() -> None:
    other = Ticket(id="run-2-abc", request=REQUEST)
    for said in (by(BOB_KEY), by(BOB_KEY, ticket_id=""), by(BOB_KEY, ticket_id=other.id)):
        assert verifier().verify(said, other).flaw == "the signature by key `bob` is invalid"
    changed = Ticket(id=TICKET.id, request=msgspec.structs.replace(REQUEST, request_hash="sha256:other"))
    assert verifier().verify(by(BOB_KEY), changed).flaw == "the signature by key `bob` is invalid"


@pytest.mark.parametrize(
    ("response", "flaw"),
    [
        pytest.param(by(BOB_KEY, signature=None), "the signature is missing", id="the signature taken away"),
        pytest.param(by(BOB_KEY, signature=""), "the signature by key `bob` is invalid", id="empty"),
        pytest.param(
            by(BOB_KEY, signature_alg=None), "the signature algorithm `` is unknown", id="the algorithm taken away"
        ),
        pytest.param(by(BOB_KEY, signature_alg="none"), "the signature algorithm `none` is unknown", id="alg none"),
        pytest.param(by(BOB_KEY, signature_alg="rs256"), "the signature algorithm `rs256` is unknown", id="rs256"),
        pytest.param(
            by(BOB_KEY, signature_alg="Ed25519"), "the signature algorithm `Ed25519` is unknown", id="other case"
        ),
        pytest.param(
            by(BOB_KEY, signature_alg=HMAC_SHA256),
            "the key `bob` is for ed25519, and the signature says hmac-sha256",
            id="downgraded",
        ),
        pytest.param(
            by(SHARED, signature_alg=ED25519),
            "the key `shared` is for hmac-sha256, and the signature says ed25519",
            id="exchanged",
        ),
        pytest.param(by(BOB_KEY, key_id="eve"), "no key `eve` is known", id="unknown key"),
        pytest.param(by(BOB_KEY, key_id=None), "no key `default` is known", id="no key named"),
        pytest.param(by(BOB_KEY, key_id="ann"), "the signature by key `ann` is invalid", id="another's key"),
        pytest.param(by(BOB_KEY, approved=False), "the signature by key `bob` is invalid", id="flipped"),
    ],
)
def test_why_a_signature_does_not_hold(response: Response, flaw: str) -> None:
    checked = verifier().verify(response, TICKET)
    assert (checked.verified, checked.flaw) == (False, flaw)


def test_a_public_key_used_as_a_shared_secret_signs_nothing() -> None:
    text = public(BOB_KEY).public_text
    assert text is not None
    forger = parse_key("base64:" + text.removeprefix("ed25519-public:"), "bob")
    assert not verifier().verify(by(forger), TICKET).verified


def test_an_approver_that_has_no_canonical_form_is_a_flaw_and_no_crash() -> None:
    checked = verifier().verify(by(BOB_KEY, approver="b\udc80b"), TICKET)
    assert checked.flaw is not None
    assert not checked.verified


# --- owners


@pytest.mark.parametrize(
    ("approver", "holds"),
    [("bob", True), ("BOB", True), (" bob ", True), ("ann", False), ("bobby", False)],
)
def test_a_key_with_an_owner_signs_for_its_owner_only(approver: str, holds: bool) -> None:
    checked = verifier(public(BOB_KEY), bob="bob").verify(by(BOB_KEY, yes(approver)), TICKET)
    assert checked.verified is holds
    if not holds:
        assert checked.flaw == f"the key `bob` does not speak for `{approver}`"


# --- keys of an environment


def env(**names: str) -> dict[str, str]:
    return {f"GERT_APPROVAL_{name}": value for name, value in names.items()}


BOB_PUBLIC = public(BOB_KEY).public_text or ""


@pytest.mark.parametrize(
    ("environ", "key", "holds"),
    [
        pytest.param(env(VERIFY_KEY=BOB_PUBLIC), BOB_KEY, True, id="the key to verify with answers for any id"),
        pytest.param(env(SIGNING_KEY=BOB_TEXT), BOB_KEY, True, id="the signing key is accepted"),
        pytest.param(env(KEY_BOB=BOB_PUBLIC), BOB_KEY, True, id="the key of that id"),
        pytest.param(env(VERIFY_KEY=SHARED_TEXT, KEY_BOB=BOB_PUBLIC), BOB_KEY, True, id="the id goes first"),
        pytest.param(env(VERIFY_KEY=SHARED_TEXT, SIGNING_KEY=BOB_TEXT), BOB_KEY, False, id="verify before signing"),
        pytest.param(env(KEY_ANN=BOB_PUBLIC), BOB_KEY, False, id="the key of another id"),
        pytest.param(env(VERIFY_KEY=SHARED_TEXT), BOB_KEY, False, id="another key"),
        pytest.param({}, BOB_KEY, False, id="none"),
        pytest.param({"GERT_TRACE_SIGNING_KEY": BOB_TEXT}, BOB_KEY, False, id="a key for traces"),
        pytest.param(env(KEY_BOB=BOB_PUBLIC, OWNER_BOB="ann, bob"), BOB_KEY, True, id="owned by two"),
        pytest.param(env(KEY_BOB=BOB_PUBLIC, OWNER_BOB="ann"), BOB_KEY, False, id="owned by another"),
        pytest.param(env(KEY_BOB=BOB_PUBLIC, OWNER_BOB=""), BOB_KEY, False, id="without an owner"),
        pytest.param(env(KEY_BOB=BOB_PUBLIC, OWNER="ann"), BOB_KEY, True, id="the owner of the other key"),
        pytest.param(env(VERIFY_KEY=BOB_PUBLIC, OWNER="ann"), BOB_KEY, False, id="the owner of the one key"),
        pytest.param(env(VERIFY_KEY=BOB_PUBLIC, OWNER_BOB="bob", OWNER="ann"), BOB_KEY, False, id="an id of no key"),
    ],
)
def test_which_key_of_an_environment_answers_for_an_id(environ: dict[str, str], key: Key, holds: bool) -> None:
    assert approval_verifier(environ).verify(by(key), TICKET).verified is holds


@pytest.mark.parametrize("name", ["VERIFY_KEY", "SIGNING_KEY", "KEY_BOB"])
@pytest.mark.parametrize("text", ["", " ", "tiny", "ed25519:AAAA", "base64:!", "-----BEGIN X", "ssh-ed25519 AAAA"])
def test_a_variable_that_holds_no_key_is_an_error_that_does_not_repeat_it(name: str, text: str) -> None:
    with pytest.raises(IntegrityError, match=f"`GERT_APPROVAL_{name}` does not hold a valid key") as problem:
        ApprovalKeys(env(**{name: text}))
    assert not text.strip() or text not in problem.value.message


def test_ones_own_key_holds_only_where_the_environment_has_none_for_it() -> None:
    assert approval_verifier({}, BOB_KEY).verify(by(BOB_KEY), TICKET).verified
    assert approval_verifier(env(SIGNING_KEY=SHARED_TEXT), BOB_KEY).verify(by(BOB_KEY), TICKET).verified
    assert not approval_verifier(env(VERIFY_KEY=SHARED_TEXT), BOB_KEY).verify(by(BOB_KEY), TICKET).verified
    ann_public = public(ANN_KEY).public_text or ""
    assert not approval_verifier(env(KEY_BOB=ann_public), BOB_KEY).verify(by(BOB_KEY), TICKET).verified


@pytest.mark.parametrize(
    ("name", "expected"), [("bob.key", "bob"), ("bob.pem", "bob"), ("bob", "bob"), ("bob@x.org", "bob@x.org")]
)
def test_a_file_of_a_key_says_what_it_is_called(tmp_path: Path, name: str, expected: str) -> None:
    file = tmp_path / name
    file.write_text(BOB_TEXT + "\n")
    assert key_to_sign_with(str(file), {}).id == expected
    assert key_to_sign_with(str(file), {}, "other").id == "other"


def test_a_variable_goes_before_a_file() -> None:
    assert key_to_sign_with("GERT_APPROVAL_KEY_BOB", env(KEY_BOB=BOB_TEXT)).id == "bob"
    assert key_to_sign_with("MINE", {"MINE": BOB_TEXT}).id == "default"


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 20_000, b"ed25519:AAAA", BOB_PUBLIC.encode()], ids=ascii)
def test_a_file_that_holds_no_key_to_sign_with_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "k.key"
    file.write_bytes(content)
    with pytest.raises(UsageError):
        key_to_sign_with(str(file), {})


@pytest.mark.parametrize("named", [BOB_TEXT, SHARED_TEXT, "/nonexistent/key", "a\0b", ".", "x" * 5000], ids=range(6))
def test_a_key_on_the_command_line_is_never_repeated(named: str) -> None:
    with pytest.raises(UsageError) as problem:
        named_key(named, {})
    assert named not in problem.value.message
    assert named == "." or named not in (problem.value.hint or "")
