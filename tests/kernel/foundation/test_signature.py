import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.errors import IntegrityError
from gert.kernel.foundation.signature import (
    Key,
    Keys,
    Signature,
    find_approval_key_names,
    find_key_names,
    parse_key,
    sign,
    verify,
)

SEED = base64.b64encode(bytes(range(32))).decode()
SECRET = parse_key("a shared secret for tests", "shared")
PRIVATE = parse_key(f"ed25519:{SEED}", "prod")
PUBLIC = parse_key(str(PRIVATE.public_text), "prod")
KEYS = Keys([SECRET, PUBLIC])
MESSAGE = b"the message"

PEM_PUBLIC = f"""-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA{str(PRIVATE.public_text).partition(":")[2]}
-----END PUBLIC KEY-----
"""
PEM_PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
-----END PRIVATE KEY-----
"""


@pytest.mark.parametrize("key", [SECRET, PRIVATE], ids=["hmac-sha256", "ed25519"])
def test_a_signature_holds(key: Key) -> None:
    verify(KEYS, sign(key, MESSAGE), MESSAGE)


def test_signatures_are_the_ones_the_standards_define() -> None:
    # RFC 4231 test case 2 has a key of four bytes, so case 1 it is.
    key = parse_key(f"base64:{base64.b64encode(bytes([0x0B] * 20)).decode()}")
    assert sign(key, b"Hi There").value == "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    # RFC 8032 §7.1, test 2.
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = parse_key(f"ed25519:{base64.b64encode(seed).decode()}")
    assert key.public == bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    assert base64.b64decode(sign(key, b"\x72").value).hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


HMAC = sign(SECRET, MESSAGE)
ED25519 = sign(PRIVATE, MESSAGE)
PUBLISHED_AS_SECRET = parse_key(f"base64:{base64.b64encode(PUBLIC.public or b'').decode()}", "prod")


@pytest.mark.parametrize(
    ("signature", "message", "why"),
    [
        pytest.param(HMAC, b"another message", "is invalid", id="another message"),
        pytest.param(ED25519, b"another message", "is invalid", id="another message, asymmetric"),
        pytest.param(replace(HMAC, alg="rs256"), MESSAGE, "algorithm `rs256` is unknown", id="an unknown algorithm"),
        pytest.param(replace(HMAC, alg=""), MESSAGE, "algorithm `` is unknown", id="no algorithm"),
        pytest.param(replace(HMAC, alg="none"), MESSAGE, "algorithm `none` is unknown", id="the algorithm none"),
        pytest.param(replace(HMAC, alg="HMAC-SHA256"), MESSAGE, "is unknown", id="an algorithm in other letters"),
        pytest.param(replace(HMAC, key_id="other"), MESSAGE, "no key `other` is known", id="an unknown key"),
        pytest.param(
            replace(HMAC, key_id=None),
            MESSAGE,
            "no key `default` is known",
            id="no key named, and no default",
        ),
        pytest.param(
            replace(HMAC, alg="ed25519"),
            MESSAGE,
            "is for hmac-sha256",
            id="a shared key with the other algorithm",
        ),
        pytest.param(
            replace(ED25519, alg="hmac-sha256"),
            MESSAGE,
            "is for ed25519",
            id="a public key with the other algorithm",
        ),
        pytest.param(
            sign(PUBLISHED_AS_SECRET, MESSAGE),
            MESSAGE,
            "is for ed25519",
            id="a published key used as a shared secret",
        ),
        pytest.param(
            replace(HMAC, key_id="prod"), MESSAGE, "is for ed25519", id="a signature under another key's name"
        ),
        pytest.param(replace(HMAC, value=""), MESSAGE, "is invalid", id="an empty signature"),
        pytest.param(replace(ED25519, value=""), MESSAGE, "is invalid", id="an empty asymmetric signature"),
        pytest.param(replace(HMAC, value=HMAC.value.upper()), MESSAGE, "is invalid", id="another spelling of hex"),
        pytest.param(replace(HMAC, value="é"), MESSAGE, "is invalid", id="text that is not hex"),
        pytest.param(replace(ED25519, value="%%%"), MESSAGE, "is invalid", id="text that is not base64"),
        pytest.param(replace(ED25519, value="é"), MESSAGE, "is invalid", id="text that is not ASCII"),
        pytest.param(replace(ED25519, value=ED25519.value.rstrip("=")), MESSAGE, "is invalid", id="padding left out"),
        pytest.param(replace(ED25519, value="AAAA"), MESSAGE, "is invalid", id="a signature of the wrong length"),
        pytest.param(replace(ED25519, value=HMAC.value), MESSAGE, "is invalid", id="the value of another algorithm"),
    ],
)
def test_what_does_not_hold(signature: Signature, message: bytes, why: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        verify(KEYS, signature, message)
    assert why in caught.value.message


def test_bits_that_base64_leaves_over_do_not_count() -> None:
    start, last = ED25519.value[:-3], ED25519.value[-3]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = start + alphabet[alphabet.index(last) + 1] + "=="
    assert base64.b64decode(twin) == base64.b64decode(ED25519.value)
    with pytest.raises(IntegrityError):
        verify(KEYS, replace(ED25519, value=twin), MESSAGE)


def test_without_keys_nothing_holds() -> None:
    with pytest.raises(IntegrityError, match="no key `shared` is known"):
        verify(Keys(), HMAC, MESSAGE)


def test_the_default_answers_for_ids_that_are_not_listed() -> None:
    keys = Keys([PUBLIC], default=SECRET)
    verify(keys, replace(HMAC, key_id="rotated"), MESSAGE)
    verify(keys, replace(HMAC, key_id=None), MESSAGE)
    with pytest.raises(IntegrityError, match="is for ed25519"):
        verify(keys, replace(HMAC, key_id="prod"), MESSAGE)


def test_keys_are_counted_once() -> None:
    assert len(Keys([SECRET], default=SECRET)) == 1
    assert len(Keys([PUBLIC], default=SECRET)) == 2
    assert not Keys()
    assert repr(Keys([SECRET, PUBLIC])) == "Keys(shared, prod)"


@pytest.mark.parametrize(
    ("text", "alg", "can_sign"),
    [
        pytest.param("plain text key", "hmac-sha256", True, id="plain text"),
        pytest.param("with:colon:inside", "hmac-sha256", True, id="plain text with colons"),
        pytest.param("base64:AAECAwQFBgc=", "hmac-sha256", True, id="base64"),
        pytest.param("base64:-_-_-_-_-_8", "hmac-sha256", True, id="base64 for URLs, without padding"),
        pytest.param(f"ed25519:{SEED}\n", "ed25519", True, id="an asymmetric key, read from a file"),
        pytest.param(PUBLIC.public_text, "ed25519", False, id="a public key"),
        pytest.param(PEM_PUBLIC, "ed25519", False, id="a public key from a PEM file"),
        pytest.param(PEM_PRIVATE, "ed25519", True, id="a private key from a PEM file"),
    ],
)
def test_forms_of_keys(text: str, alg: str, can_sign: bool) -> None:
    key = parse_key(text)
    assert (key.alg, key.can_sign, key.id) == (alg, can_sign, "default")


def test_pem_files_hold_the_same_key() -> None:
    assert parse_key(PEM_PUBLIC).public == parse_key(PEM_PRIVATE).public == PRIVATE.public


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("", "is empty", id="nothing"),
        pytest.param(" \n", "is empty", id="only space"),
        pytest.param("short", "too short: expected at least 8 bytes, found 5", id="a short secret"),
        pytest.param("base64:AAEC", "too short", id="a short secret in base64"),
        pytest.param("base64:", "too short", id="base64 of nothing"),
        pytest.param("base64:%%%", "not valid base64", id="junk instead of base64"),
        pytest.param("base64:é", "not valid base64", id="letters base64 does not know"),
        pytest.param("base64:AAAAA", "not valid base64", id="base64 of an impossible length"),
        pytest.param("ed25519:AAEC", "must be 32 bytes for ed25519, found 3", id="a short seed"),
        pytest.param("ed25519-public:" + "A" * 43 + "=", "is a placeholder", id="a public key of zeros"),
        pytest.param("ed25519-private:" + SEED, "not supported", id="an unknown form of ed25519"),
        pytest.param("ED25519:" + SEED, "not supported", id="ed25519 in capitals"),
        pytest.param("ed25519 " + SEED, "not supported", id="a missing colon"),
        pytest.param("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA", "not supported", id="a key of ssh"),
        pytest.param(
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----",
            "PEM",
            id="another kind of PEM",
        ),
        pytest.param(
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
            "PEM",
            id="a PEM with something else",
        ),
        pytest.param(PEM_PUBLIC[:60], "PEM", id="a PEM cut off"),
        pytest.param("\ufeff" + PEM_PUBLIC, "byte order mark", id="a PEM with a byte order mark"),
        pytest.param("\ufeff" + str(PRIVATE.public_text), "byte order mark", id="a key with a byte order mark"),
        pytest.param("# for prod\n" + PEM_PUBLIC, "PEM", id="a PEM with a comment before it"),
        pytest.param(PEM_PUBLIC.strip() + "\n# for prod", "PEM", id="a PEM with a comment after it"),
        pytest.param("\n".join(PEM_PUBLIC.strip().splitlines()[1:-1]), "PEM", id="a PEM without its first line"),
        pytest.param("# prod\n" + str(PRIVATE.public_text), "not supported", id="a key with a comment before it"),
        pytest.param(f"{PRIVATE.public_text} # prod", "not valid base64", id="a key with a comment after it"),
        pytest.param(f'"{PRIVATE.public_text}"', "not supported", id="a key in quotes"),
        pytest.param(SEED, "base64 of 32 bytes", id="bare base64 of 32 bytes"),
        pytest.param(SEED.rstrip("="), "base64 of 32 bytes", id="bare base64 without padding"),
        pytest.param(bytes(range(32)).hex(), "hex of 32 bytes", id="bare hex of 32 bytes"),
        pytest.param("ed25519-publik:" + SEED, "not supported", id="a prefix with a typing error"),
        pytest.param("ed25519_public:" + SEED, "not supported", id="a prefix with an underscore"),
        pytest.param("bsae64:" + SEED, "did you mean", id="another prefix with a typing error"),
        pytest.param("ed-25519:" + SEED, "did you mean", id="a prefix with a dash too many"),
        pytest.param("ann ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA", "ssh", id="a line of allowed signers"),
        pytest.param('{"kty":"OKP","crv":"Ed25519","x":"AAAA"}', "JSON web key", id="a JSON web key"),
        pytest.param("\0e\0d\0" + "2" * 20, "control characters", id="a file in UTF-16"),
    ],
)
def test_what_is_not_a_key(text: str, why: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_key(text, "k1")
    assert why in caught.value.message
    assert text == "" or len(text) < 9 or text[8:] not in str(caught.value)


LOW_ORDER = [
    pytest.param("00" * 32, id="order 4"),
    pytest.param("01" + "00" * 31, id="the neutral point"),
    pytest.param("ec" + "ff" * 30 + "7f", id="order 2"),
    pytest.param("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", id="order 8"),
    pytest.param("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", id="order 8, the other"),
    pytest.param("ed" + "ff" * 30 + "7f", id="order 4 by another name"),
    pytest.param("ee" + "ff" * 30 + "7f", id="the neutral point by another name"),
]


@pytest.mark.parametrize("point", LOW_ORDER)
@pytest.mark.parametrize("sign_bit", [0, 0x80])
@pytest.mark.parametrize("pem", [False, True])
def test_a_key_that_anyone_can_forge_for_is_refused(point: str, sign_bit: int, pem: bool) -> None:
    data = bytes.fromhex(point)
    data = data[:-1] + bytes([data[-1] | sign_bit])
    text = f"ed25519-public:{base64.b64encode(data).decode()}"
    if pem:
        body = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + data).decode()
        text = f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----"
    with pytest.raises(IntegrityError, match=r"anyone can forge|is a placeholder"):
        parse_key(text, "k1")


@pytest.mark.parametrize("key_id", ["", " ", "a\nb", "x" * 129, "a\x1b[0m", "a b", "prod\u20112026", "pröd", "a\u200b"])
def test_what_is_not_a_key_id(key_id: str) -> None:
    with pytest.raises(IntegrityError, match="a key id is"):
        parse_key("plain text key", key_id)


def test_a_public_key_does_not_sign() -> None:
    with pytest.raises(IntegrityError, match="is public and cannot sign"):
        sign(PUBLIC, MESSAGE)


def test_a_secret_never_shows() -> None:
    for key in (SECRET, PRIVATE):
        shown = repr(key) + str(key) + repr(Keys([key]))
        assert "a shared secret" not in shown
        assert SEED not in shown
        assert repr(bytes(range(32))) not in shown
    assert SECRET.public_text is None


def test_a_short_shared_secret_is_called_weak() -> None:
    assert parse_key("12345678").is_weak
    assert not SECRET.is_weak
    assert not PUBLIC.is_weak


def test_where_keys_are_looked_for() -> None:
    assert find_key_names("prod-2026.@") == ["GERT_TRACE_KEY_PROD_2026__", "GERT_TRACE_SIGNING_KEY"]
    assert find_key_names(None) == ["GERT_TRACE_SIGNING_KEY"]
    assert find_approval_key_names("ops") == [
        "GERT_APPROVAL_KEY_OPS",
        "GERT_APPROVAL_VERIFY_KEY",
        "GERT_APPROVAL_SIGNING_KEY",
    ]
    assert find_approval_key_names() == ["GERT_APPROVAL_VERIFY_KEY", "GERT_APPROVAL_SIGNING_KEY"]


signing_keys = st.sampled_from([SECRET, PRIVATE])


@given(signing_keys, st.binary(max_size=50))
def test_any_message_can_be_signed(key: Key, message: bytes) -> None:
    signature = sign(key, message)
    verify(KEYS, signature, message)
    assert sign(key, message) == signature


@given(signing_keys, st.binary(max_size=50), st.binary(max_size=50))
def test_a_signature_is_over_one_message(key: Key, message: bytes, other: bytes) -> None:
    if message != other:
        with pytest.raises(IntegrityError):
            verify(KEYS, sign(key, message), other)


@given(signing_keys, st.data())
def test_no_character_of_a_signature_can_change(key: Key, data: st.DataObject) -> None:
    signature = sign(key, MESSAGE)
    at = data.draw(st.integers(0, len(signature.value) - 1))
    char = data.draw(st.characters().filter(lambda char: char != signature.value[at]))
    forged = replace(signature, value=signature.value[:at] + char + signature.value[at + 1 :])
    with pytest.raises(IntegrityError):
        verify(KEYS, forged, MESSAGE)


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_a_clear_error(text: str) -> None:
    try:
        key = parse_key(text)
    except IntegrityError:
        return
    verify(Keys(default=key), sign(key, MESSAGE), MESSAGE)
