"""Keys and signatures, by algorithm name.

A key has exactly one algorithm, decided by how it is written and never by the signature that is
checked: otherwise a forger could use a published key as a shared secret and sign with it.
"""

import base64
import binascii
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gert.errors import IntegrityError
from gert.kernel.foundation.names import did_you_mean

HMAC_SHA256 = "hmac-sha256"
ED25519 = "ed25519"
DEFAULT_KEY_ID = "default"

MIN_SECRET_BYTES = 8
"""Shorter shared secrets are refused: they can be guessed from one signature."""

STRONG_SECRET_BYTES = 16
"""Shorter shared secrets are accepted, but `Key.is_weak` is true."""

_KEY_FORMS = (
    "write `base64:…` for a shared secret, `ed25519:…` or `ed25519-public:…` for a key, each followed by base64 and"
    " nothing else"
)
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[!-~]{1,128}\Z")
# Texts that look like a key. As plain text each would become a shared secret, and anyone could sign with a
# public key.
_LOOKS_LIKE_A_KEY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile("\ufeff"), "contains a byte order mark"),
    (re.compile(r"[\x00-\x08\x0e-\x1f\x7f]"), "contains control characters, as a binary file does"),
    (re.compile(r"-----\s*(?:BEGIN|END)"), "looks like a PEM file with something else in it"),
    (re.compile(r"\AM(?:Cow|C4C)[A-Za-z0-9+/\s]+=*\Z"), "looks like a PEM file without its first line"),
    (re.compile(r"(?i)\b(?:ssh|ecdsa)-[a-z0-9-]+\s|AAAAC3NzaC1lZDI1NTE5"), "is a key of ssh, which is not supported"),
    (re.compile(r'\{.*"kty"', re.DOTALL), "looks like a JSON web key"),
    (
        re.compile(r"(?i)(?:\A|[\s#;\"'])(?:ed25519|hmac-sha256|rs256)|(?:[\s#;\"'])base64:"),
        "is in a form that is not supported, or has something around it",
    ),
    (re.compile(r"\A[A-Za-z0-9+/_-]{43}=?\Z"), "is base64 of 32 bytes, which may be a key or a secret"),
    (re.compile(r"\A[0-9a-fA-F]{64}\Z"), "is hex of 32 bytes, which may be a key or a secret"),
)
# The bytes before the 32 bytes of an Ed25519 key in a PEM file (RFC 8410).
_PEM_PUBLIC = bytes.fromhex("302a300506032b6570032100")
_PEM_PRIVATE = bytes.fromhex("302e020100300506032b657004220420")
# The points of small order, without their sign bit; the last two are other encodings of 0 and 1.
_LOW_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature: its algorithm, the label of its key, and its text."""

    alg: str
    key_id: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key of one algorithm; its secret is never shown."""

    id: str
    alg: str
    public: bytes | None = None
    _secret: bytes | None = field(default=None, repr=False)

    @property
    def can_sign(self) -> bool:
        """Whether this key can sign, or only verify."""
        return self._secret is not None

    @property
    def is_weak(self) -> bool:
        """Whether a shared secret is short enough to warn about."""
        return self.alg == HMAC_SHA256 and len(self._secret or b"") < STRONG_SECRET_BYTES

    @property
    def public_text(self) -> str | None:
        """The text an auditor needs to verify with; a shared secret has none."""
        return None if self.public is None else f"ed25519-public:{base64.b64encode(self.public).decode()}"


class Keys:
    """Keys by id; the default, if there is one, is used for ids that are not listed."""

    __slots__ = ("_by_id", "_default")

    def __init__(self, keys: Iterable[Key] = (), default: Key | None = None) -> None:
        self._by_id = {key.id: key for key in keys}
        self._default = default

    def __iter__(self) -> Iterator[Key]:
        yield from self._by_id.values()
        if self._default is not None and self._default not in self._by_id.values():
            yield self._default

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Keys({', '.join(key.id for key in self)})"

    def lists(self, key_id: str) -> bool:
        """Return whether there is a key with exactly this id; the default does not count."""
        return key_id in self._by_id

    def find(self, key_id: str | None) -> Key:
        """Return the key for an id, or raise: a signature by an unknown key proves nothing."""
        key = self._by_id.get(_checked_id(key_id) if key_id else DEFAULT_KEY_ID, self._default)
        if key is None:
            raise IntegrityError(f"no key `{key_id or DEFAULT_KEY_ID}` is known")
        return key


def parse_key(text: str, key_id: str | None = None) -> Key:
    """Parse a key from text; surrounding white space is ignored.

    `ed25519:` holds the base64 of a 32-byte seed, `ed25519-public:` that of a public key, `base64:` that
    of a shared secret. A PEM file with an Ed25519 key is read as such. A text that looks like a key in any other form
    is refused; any other text is itself a shared secret.
    """
    name = DEFAULT_KEY_ID if key_id is None else _checked_id(key_id)
    text = text.strip()
    if not text:
        raise IntegrityError(f"the key `{name}` is empty", hint=_KEY_FORMS)
    if text.startswith("-----BEGIN"):
        return _pem_key(name, text)
    form, colon, rest = text.partition(":")
    reader = _KEY_READERS.get(form) if colon else None
    if reader is not None:
        return reader(name, _unbase64(rest, f"the key `{name}`"))
    for pattern, what in _LOOKS_LIKE_A_KEY:
        if pattern.search(text):
            raise IntegrityError(f"the key `{name}` {what}", hint=_KEY_FORMS)
    meant = did_you_mean(form, _KEY_READERS) if colon else None
    if meant is not None:
        raise IntegrityError(
            f"the key `{name}` is in a form that is not supported: did you mean `{meant}:`?", hint=_KEY_FORMS
        )
    return _secret_key(name, text.encode("utf-8", "surrogateescape"))


def sign(key: Key, message: bytes) -> Signature:
    """Sign a message; IntegrityError if the key cannot sign."""
    if key._secret is None:
        raise IntegrityError(f"the key `{key.id}` is public and cannot sign", hint="sign with the private key")
    return Signature(key.alg, key.id, _ALGORITHMS[key.alg].sign(key._secret, message))


def verify(keys: Keys, signature: Signature, message: bytes) -> None:
    """Return if the signature over the message is valid by a key we hold; otherwise raise IntegrityError."""
    # (1) The algorithm is one we know.
    algorithm = _ALGORITHMS.get(signature.alg)
    if algorithm is None:
        raise IntegrityError(f"the signature algorithm `{signature.alg}` is unknown")
    # (2) We hold the key it names.
    key = keys.find(signature.key_id)
    # (3) The key is made for this algorithm: the key decides, not the signature.
    if key.alg != signature.alg:
        raise IntegrityError(f"the key `{key.id}` is for {key.alg}, and the signature says {signature.alg}")
    # (4) The signature is over this message.
    if not algorithm.holds(key, signature.value, message):
        raise IntegrityError(f"the signature by key `{signature.key_id or key.id}` is invalid")


def find_key_names(key_id: str | None) -> list[str]:
    """Return the environment variables that may contain a trace key, in lookup order."""
    return [*_named("GERT_TRACE_KEY_", key_id), "GERT_TRACE_SIGNING_KEY"]


def find_approval_key_names(key_id: str | None = None) -> list[str]:
    """Return the environment variables that may contain an approval key, in lookup order."""
    return [*_named("GERT_APPROVAL_KEY_", key_id), "GERT_APPROVAL_VERIFY_KEY", "GERT_APPROVAL_SIGNING_KEY"]


def _named(prefix: str, key_id: str | None) -> list[str]:
    return [prefix + re.sub(r"[^A-Z0-9]", "_", key_id.upper())] if key_id and _KEY_ID.match(key_id) else []


def _checked_id(key_id: str) -> str:
    if not _KEY_ID.match(key_id):
        raise IntegrityError("a key id is 1 to 128 ASCII characters without white space")
    return key_id


def _secret_key(name: str, secret: bytes) -> Key:
    if len(secret) < MIN_SECRET_BYTES:
        raise IntegrityError(
            f"the key `{name}` is too short: expected at least {MIN_SECRET_BYTES} bytes, found {len(secret)}",
            hint='make one with: echo "base64:$(openssl rand -base64 32)"',
        )
    return Key(name, HMAC_SHA256, _secret=secret)


def _private_key(name: str, seed: bytes) -> Key:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    _check_ed25519(name, seed)
    return Key(name, ED25519, Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw(), seed)


def _public_key(name: str, public: bytes) -> Key:
    _check_ed25519(name, public)
    if public[:-1] + bytes([public[-1] & 0x7F]) in _LOW_ORDER:
        # A signature by such a point can be valid for any message, and needs no private key.
        raise IntegrityError(f"the key `{name}` is a point of small order, for which anyone can forge a signature")
    return Key(name, ED25519, public)


def _check_ed25519(name: str, data: bytes) -> None:
    if len(data) != _KEY_BYTES:
        raise IntegrityError(f"the key `{name}` must be {_KEY_BYTES} bytes for ed25519, found {len(data)}")
    if len(set(data)) == 1:
        raise IntegrityError(f"the key `{name}` is a placeholder: every byte is the same")


def _pem_key(name: str, text: str) -> Key:
    body = re.fullmatch(r"-----BEGIN (PUBLIC|PRIVATE) KEY-----(.*)-----END \1 KEY-----", text, re.DOTALL)
    data = _unbase64("".join(body.group(2).split()), f"the key `{name}`") if body else b""
    if data.startswith(_PEM_PUBLIC):
        return _public_key(name, data.removeprefix(_PEM_PUBLIC))
    if data.startswith(_PEM_PRIVATE):
        return _private_key(name, data.removeprefix(_PEM_PRIVATE))
    raise IntegrityError(f"the key `{name}` is not an Ed25519 key in PEM form", hint=_KEY_FORMS)


_KEY_READERS: Mapping[str, Callable[[str, bytes], Key]] = {
    "base64": _secret_key,
    "ed25519": _private_key,
    "ed25519-public": _public_key,
}


def _unbase64(text: str, what: str) -> bytes:
    """Decode base64 in either alphabet, with or without padding, and nothing else."""
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise IntegrityError(f"{what} is not valid base64") from None


@dataclass(frozen=True, slots=True)
class _Algorithm:
    """How one algorithm signs with a secret and checks with a key."""

    sign: Callable[[bytes, bytes], str]
    holds: Callable[[Key, str, bytes], bool]


def keyed_digest(key: bytes, value: object) -> str:
    """Return the HMAC of a value: it shows whether two values are equal, and without the key nothing else."""
    # Not canonical JSON: a secret may contain values that have no canonical form, and no other program computes this.
    text = json.dumps(value, sort_keys=True, default=str)
    return f"{HMAC_SHA256}:{_hmac_sign(key, text.encode())}"


def _hmac_sign(secret: bytes, message: bytes) -> str:
    return hmac.digest(secret, message, "sha256").hex()


def _hmac_holds(key: Key, value: str, message: bytes) -> bool:
    expected = _hmac_sign(key._secret or b"", message)
    return key._secret is not None and hmac.compare_digest(expected.encode(), value.encode("utf-8", "replace"))


def _ed25519_sign(secret: bytes, message: bytes) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return base64.b64encode(Ed25519PrivateKey.from_private_bytes(secret).sign(message)).decode()


def _ed25519_holds(key: Key, value: str, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(value, validate=True)
        # A signature has exactly one encoding: base64 has spare bits that a forger could otherwise vary.
        if key.public is None or base64.b64encode(raw).decode() != value:
            return False
        Ed25519PublicKey.from_public_bytes(key.public).verify(raw, message)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


_ALGORITHMS: Mapping[str, _Algorithm] = {
    HMAC_SHA256: _Algorithm(_hmac_sign, _hmac_holds),
    ED25519: _Algorithm(_ed25519_sign, _ed25519_holds),
}
