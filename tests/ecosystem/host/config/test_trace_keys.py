"""Which keys an environment holds, and that none of them is ever shown."""

import base64
import traceback

import pytest

from gert.ecosystem.host.config.keys.trace_keys import signing_key, verification_keys
from gert.errors import IntegrityError
from gert.kernel.foundation.signature import Keys, parse_key

PRIVATE = "ed25519:" + base64.b64encode(bytes(range(32))).decode()
PUBLIC = str(parse_key(PRIVATE).public_text)
OTHER = "ed25519:" + base64.b64encode(bytes(range(1, 33))).decode()
SECRET = "a shared secret for tests"
SIGNING, LABEL = "GERT_TRACE_SIGNING_KEY", "GERT_TRACE_SIGNING_KEY_ID"
NAMED = "GERT_TRACE_KEY_PROD_2026"


@pytest.mark.parametrize(
    ("environ", "key_id", "text"),
    [
        pytest.param({}, None, None, id="no key, no signature"),
        pytest.param({SIGNING: SECRET}, "default", SECRET, id="a shared secret"),
        pytest.param({SIGNING: PRIVATE}, "default", PRIVATE, id="a private key"),
        pytest.param({SIGNING: PRIVATE, LABEL: ""}, "default", PRIVATE, id="an empty label is none"),
        pytest.param({SIGNING: PRIVATE, LABEL: "prod-2026"}, "prod-2026", PRIVATE, id="a key with its label"),
        pytest.param({NAMED: PRIVATE, LABEL: "prod-2026"}, "prod-2026", PRIVATE, id="the key its label names"),
        pytest.param(
            {NAMED: PRIVATE, SIGNING: SECRET, LABEL: "prod-2026"}, "prod-2026", PRIVATE, id="the named key wins"
        ),
        pytest.param({NAMED: PRIVATE, SIGNING: SECRET}, "default", SECRET, id="without its label it does not"),
        pytest.param({NAMED: PRIVATE}, None, None, id="a key that is not named does not sign"),
    ],
)
def test_which_key_signs(environ: dict[str, str], key_id: str | None, text: str | None) -> None:
    key = signing_key(environ)
    assert (None if key is None else key.id) == key_id
    assert key == (None if text is None else parse_key(text, key_id))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param({SIGNING: ""}, "is empty", id="an empty key"),
        pytest.param({SIGNING: "   "}, "is empty", id="a blank key"),
        pytest.param({SIGNING: "pssst"}, "too short", id="a short secret"),
        pytest.param({SIGNING: "base64:pssst!pssst"}, "not valid base64", id="not base64"),
        pytest.param({SIGNING: "ed25519:cHNzc3Q="}, "must be 32 bytes", id="a seed that is too short"),
        pytest.param({SIGNING: "rs256:pssst-pssst"}, "not supported", id="an algorithm we do not have"),
        pytest.param({SIGNING: "-----BEGIN PRIVATE KEY-----\npssst"}, "PEM", id="a PEM file cut short"),
        pytest.param({SIGNING: PUBLIC}, "is public and cannot sign", id="a public key"),
        pytest.param(
            {NAMED: PUBLIC, SIGNING: PRIVATE, LABEL: "prod-2026"}, "cannot sign", id="the named one is public"
        ),
        pytest.param({NAMED: "pssst", SIGNING: PRIVATE, LABEL: "prod-2026"}, NAMED, id="the named one is bad"),
        pytest.param(
            {LABEL: "prod-2026"}, "names the key `prod-2026`, but that key is not set", id="a label without a key"
        ),
        pytest.param({SIGNING: PRIVATE, LABEL: "x" * 129}, "a key id is", id="a label that is too long"),
        pytest.param({SIGNING: PRIVATE, LABEL: "a\x1b[31m"}, "a key id is", id="a label that steers a terminal"),
    ],
)
def test_a_bad_key_is_refused_and_not_shown(environ: dict[str, str], message: str) -> None:
    with pytest.raises(IntegrityError, match=message) as refusal:
        signing_key(environ)
    assert refusal.value.hint
    shown = "".join(traceback.format_exception(refusal.value)) + str(refusal.value.hint)
    assert "pssst" not in shown.replace("match=", "")
    assert "cHNzc3Q" not in shown


def found(keys: Keys, key_id: str | None) -> str | None:
    """The id of the key that answers for an id."""
    try:
        return keys.find(key_id).id
    except IntegrityError:
        return None


class TestOneKeyByName:
    @pytest.mark.parametrize(
        ("environ", "text"),
        [
            pytest.param({NAMED: PUBLIC}, PUBLIC, id="the key of that id"),
            pytest.param({NAMED: PUBLIC, SIGNING: SECRET}, PUBLIC, id="before the signing key"),
            pytest.param({SIGNING: SECRET}, None, id="no signing key without a label, which is `default`"),
            pytest.param({SIGNING: SECRET, LABEL: ""}, None, id="no signing key with an empty label"),
            pytest.param({SIGNING: SECRET, LABEL: "prod-2026"}, SECRET, id="a signing key of that label"),
            pytest.param({SIGNING: SECRET, LABEL: "dev"}, None, id="no signing key of another label"),
            pytest.param({"GERT_TRACE_KEY_DEV": SECRET}, None, id="no key of another id"),
            pytest.param({}, None, id="no key at all"),
        ],
    )
    def test_is_the_only_one_held(self, environ: dict[str, str], text: str | None) -> None:
        keys = verification_keys(environ, "prod-2026")
        assert list(keys) == ([] if text is None else [parse_key(text, "prod-2026")])
        assert keys.lists("prod-2026") is (text is not None)
        assert found(keys, "dev") is None

    def test_the_signing_key_is_the_default(self) -> None:
        assert list(verification_keys({SIGNING: SECRET}, "default")) == [parse_key(SECRET, "default")]

    @pytest.mark.parametrize("key_id", ["prod 2026", "prod\u20112026", "prod-2026\u200b"])
    def test_an_id_that_reads_alike_is_another(self, key_id: str) -> None:
        environ = {NAMED: PUBLIC, SIGNING: SECRET}
        assert found(verification_keys(environ, None), key_id) is None
        assert list(verification_keys(environ, key_id)) == []

    def test_is_refused_if_it_is_bad(self) -> None:
        with pytest.raises(IntegrityError, match=f"`{NAMED}` does not hold a valid key"):
            verification_keys({NAMED: "short", SIGNING: SECRET}, "prod-2026")


class TestAllKeys:
    @pytest.mark.parametrize("key_id", ["prod-2026", "prod_2026", "PROD-2026"])
    def test_are_found_by_the_name_an_id_leads_to(self, key_id: str) -> None:
        keys = verification_keys({NAMED: PUBLIC, SIGNING: SECRET}, None)
        assert keys.find(key_id) == parse_key(PUBLIC, key_id)
        assert keys.lists(key_id)

    @pytest.mark.parametrize(
        ("environ", "count", "asked", "answers"),
        [
            pytest.param({}, 0, "any", None, id="none are held"),
            pytest.param({"GERT_TRACE_KEY_": "", "PATH": "x"}, 0, "any", None, id="other variables are no keys"),
            pytest.param({SIGNING: SECRET}, 1, "any", "default", id="the signing key answers for any id"),
            pytest.param({SIGNING: SECRET, LABEL: "dev"}, 1, "dev", "dev", id="and for its label"),
            pytest.param({SIGNING: SECRET, LABEL: "dev"}, 1, None, "dev", id="and for a signature without a label"),
            pytest.param({NAMED: PUBLIC}, 1, "any", None, id="a named key answers for its id alone"),
            pytest.param({NAMED: PUBLIC}, 1, None, None, id="and not for a signature without a label"),
            pytest.param({NAMED: PUBLIC, SIGNING: SECRET}, 2, "any", "default", id="both are held"),
        ],
    )
    def test_are_held(self, environ: dict[str, str], count: int, asked: str | None, answers: str | None) -> None:
        keys = verification_keys(environ, None)
        assert len(keys) == count
        assert found(keys, asked) == answers

    @pytest.mark.parametrize("name", [NAMED, SIGNING])
    def test_are_refused_if_one_is_bad(self, name: str) -> None:
        with pytest.raises(IntegrityError, match=f"`{name}` does not hold a valid key") as refusal:
            verification_keys({SIGNING: SECRET, name: "pssst"}, None)
        assert "pssst" not in refusal.value.message

    def test_do_not_show_their_secrets(self) -> None:
        keys = verification_keys({NAMED: PRIVATE, SIGNING: SECRET}, None)
        assert repr(keys) == "Keys(prod_2026, default)"
