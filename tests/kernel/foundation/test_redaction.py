import base64
import html
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, permutations
from time import process_time
from types import MappingProxyType
from typing import Any, NamedTuple
from unicodedata import normalize
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gert.kernel.foundation.redaction import PLACEHOLDER, Redactor, credentials_of, parts_of
from gert.kernel.foundation.spellings import MIN_LENGTH

SECRET = 'pa"ss/wörd+1'
REDACTOR = Redactor([SECRET])
BYTES = SECRET.encode()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(SECRET, id="as it is"),
        pytest.param(json.dumps(SECRET)[1:-1], id="in JSON, as ASCII"),
        pytest.param(json.dumps(SECRET, ensure_ascii=False)[1:-1], id="in JSON, as UTF-8"),
        pytest.param(json.dumps(SECRET)[1:-1].replace("/", "\\/"), id="in JSON, with the slash escaped"),
        pytest.param(json.dumps(json.dumps(SECRET))[3:-3], id="in JSON inside JSON"),
        pytest.param(json.dumps(SECRET)[1:-1].replace("\\u00f6", "\\u00F6"), id="in JSON, hex in capitals"),
        pytest.param(quote(SECRET), id="in a URL path"),
        pytest.param(quote(SECRET, safe=""), id="in a URL, all escaped"),
        pytest.param(quote_plus(SECRET), id="in a form"),
        pytest.param(
            quote(SECRET, safe="").replace("%2B", "%2b").replace("%C3%B6", "%c3%b6").replace("%2F", "%2f"),
            id="in a URL, hex in small letters",
        ),
        pytest.param(base64.b64encode(BYTES).decode(), id="in base64"),
        pytest.param(base64.b64encode(BYTES).decode().rstrip("="), id="in base64 without padding"),
        pytest.param(base64.urlsafe_b64encode(BYTES).decode(), id="in base64 for URLs"),
        pytest.param(BYTES.hex(), id="in hex"),
        pytest.param(BYTES.hex().upper(), id="in hex, in capitals"),
    ],
)
def test_forms_of_a_secret_are_masked_whole(form: str) -> None:
    assert REDACTOR.text(f"before {form} after") == (f"before {PLACEHOLDER} after", 1)


ODD = """p@ss'w"ord<&>$x!#\\y"""
LONG = "ghp_" + "Ab3dEf6hIj9lMn2pQr5tUv8xYz1" * 4


def wrapped(text: str, width: int, line_break: str = "\n") -> str:
    return line_break.join(text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.parametrize(
    ("secret", "form"),
    [
        pytest.param(ODD, html.escape(ODD), id="in HTML"),
        pytest.param(ODD, html.escape(ODD).replace("&#x27;", "&#039;"), id="in HTML, as PHP writes it"),
        pytest.param(ODD, html.escape(ODD).replace("&#x27;", "&apos;"), id="in XML"),
        pytest.param(ODD, "".join(c if c.isalnum() else f"&#{ord(c)};" for c in ODD), id="in HTML, by number"),
        pytest.param(
            ODD, "".join(c if c.isalnum() else f"&#x{ord(c):X};" for c in ODD), id="in HTML, by number in hex"
        ),
        pytest.param(ODD, shlex.quote(ODD)[1:-1], id="in a shell, as Python quotes it"),
        pytest.param(ODD, ODD.replace("'", "'\\''"), id="in a shell, as `set -x` shows it"),
        pytest.param(
            ODD, "".join(c if c.isalnum() else f"\\{c}" for c in ODD), id="in a shell, as `printf %q` writes it"
        ),
        pytest.param(ODD, repr(ODD)[1:-1], id="as Python shows it"),
        pytest.param(ODD, ODD.replace("'", "''"), id="in SQL"),
        pytest.param(ODD, ODD.replace('"', '""'), id="in CSV"),
        pytest.param(ODD, "\x1b[1m".join(ODD), id="with a colour between its characters"),
        pytest.param(
            ODD, f"{ODD[:4]}\x1b[01;31m\x1b[K{ODD[4:8]}\x1b[m\x1b[K{ODD[8:]}", id="as `grep --color` shows it"
        ),
        pytest.param(ODD, f"{ODD[:1]}\x1b(B\x1b[m{ODD[1:]}", id="after `tput sgr0`"),
        pytest.param("secret-one", "secre\x1b[0mt\x1b[38;5;208m-\x1b[mone", id="in several colours"),
        pytest.param(LONG, "\x1b[32m".join(LONG.encode().hex()), id="in hex, coloured"),
        pytest.param("pässwörd", ascii("pässwörd")[1:-1], id="as Python shows it in ASCII"),
        pytest.param("pässwörd", repr("pässwörd".encode())[2:-1], id="as Python shows its bytes"),
        pytest.param("pässwörd", "p\\303\\244ssw\\303\\266rd", id="in octal, as git shows it"),
        pytest.param("pässwörd", normalize("NFD", "pässwörd"), id="decomposed"),
        pytest.param(normalize("NFD", "pässwörd"), "pässwörd", id="composed"),
        pytest.param("pässwörd", "pässwörd".encode("latin-1").decode("utf-8", "replace"), id="in Latin-1"),
        pytest.param("key-\udcff\udcfe-12", "key-\ufffd\ufffd-12", id="bytes that are no text"),
        pytest.param("key-\udcff\udcfe-12", b"key-\xff\xfe-12".hex(), id="bytes that are no text, in hex"),
        pytest.param(LONG, wrapped(base64.b64encode(LONG.encode()).decode(), 76), id="in base64, wrapped"),
        pytest.param(
            LONG, wrapped(base64.b64encode(LONG.encode()).decode(), 64, "\r\n"), id="in base64, as mail has it"
        ),
        pytest.param(
            LONG, wrapped(base64.b64encode(LONG.encode()).decode(), 76, "\\n"), id="in base64, wrapped, in JSON"
        ),
        pytest.param(LONG, wrapped(LONG.encode().hex(), 60), id="in hex, wrapped as by `xxd -p`"),
        pytest.param(LONG, LONG.encode().hex(":"), id="in hex, with colons"),
        pytest.param(LONG, LONG.encode().hex(" ").upper(), id="in hex, with spaces"),
        pytest.param(LONG, LONG.encode("utf-16-le").decode()[:-1], id="in UTF-16, read as UTF-8"),
    ],
)
def test_what_tools_make_of_a_secret_is_masked_wherever_it_is_cut(secret: str, form: str) -> None:
    redactor = Redactor([secret])
    expected = f"before {PLACEHOLDER} after"
    assert redactor.text(f"before {form} after") == (expected, 1)
    stream = redactor.stream()
    assert "".join(map(stream.feed, f"before {form} after")) + stream.close() == expected
    for cut in range(len(form) + 1):
        stream = redactor.stream()
        assert stream.feed(f"before {form[:cut]}") + stream.feed(f"{form[cut:]} after") + stream.close() == expected
    assert redactor.text(expected) == (expected, 0)


PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    + wrapped("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw+gg/Sj" * 5, 64)
    + "\n-----END PRIVATE KEY-----\n"
)
BODY = "".join(PEM.splitlines()[1:-1])


def each(pattern: str, text: str) -> str:
    """Every character by its number."""
    return "".join(pattern % ord(char) for char in text)


ESCAPED = [
    pytest.param(lambda text: each("\\u%04x", text), id="by its code"),
    pytest.param(lambda text: each("\\u%04X", text), id="by its code, in capitals"),
    pytest.param(lambda text: each("\\\\u%04x", text), id="by its code, in JSON inside JSON"),
    pytest.param(lambda text: each("\\u{%x}", text), id="by its code in braces"),
    pytest.param(lambda text: each("\\u{%06X}", text), id="by its code in braces, padded"),
    pytest.param(lambda text: each("\\U%08x", text), id="by its long code"),
    pytest.param(lambda text: each("%%u%04x", text), id="as JavaScript once did"),
    pytest.param(lambda text: each("&#%d;", text), id="by number"),
    pytest.param(lambda text: each("&#%07d;", text), id="by number, padded"),
    pytest.param(lambda text: each("&#%d", text), id="by number, without a semicolon"),
    pytest.param(lambda text: each("&#x%x;", text), id="by number in hex"),
    pytest.param(lambda text: each("&#X%06X;", text), id="by number in hex, padded, in capitals"),
    pytest.param(lambda text: each("&amp;#%d;", text), id="by number, in HTML inside HTML"),
    pytest.param(lambda text: "".join(f"%{octet:02x}" for octet in text.encode()), id="percent"),
    pytest.param(lambda text: "".join(f"%25{octet:02X}" for octet in text.encode()), id="percent, twice"),
    pytest.param(lambda text: "".join(f"\\x{octet:02x}" for octet in text.encode()), id="bytes in hex"),
    pytest.param(lambda text: "".join(f"\\{octet:03o}" for octet in text.encode()), id="bytes in octal"),
]


@pytest.mark.parametrize("secret", [LONG, "pässwörd-Ÿ", "naïve &amp; %41 \\n", "密码密码密码"])
@pytest.mark.parametrize("escape", ESCAPED)
def test_where_even_letters_are_escaped_nothing_is_left(secret: str, escape: Callable[[str], str]) -> None:
    is_masked_wherever_it_is_cut(Redactor([secret]), escape(secret))


def is_masked_wherever_it_is_cut(redactor: Redactor, form: str) -> None:
    expected = f"before {PLACEHOLDER} after"
    assert redactor.text(f"before {form} after") == (expected, 1)
    for size in (1, 7, 16, 61):
        stream = redactor.stream()
        chunks = [f"before {form} after"[at : at + size] for at in range(0, len(form) + 13, size)]
        assert "".join(map(stream.feed, chunks)) + stream.close() == expected


@pytest.mark.parametrize("secret", ["pässwörd", "密码密码密码", "öäüß", "naïve😀text", "plain-ascii"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize("errors", ["replace", "surrogateescape"])
def test_utf_16_is_masked(secret: str, encoding: str, errors: str) -> None:
    data = "x=".encode(encoding) + secret.encode(encoding) + "\n".encode(encoding)
    if errors == "replace":
        masked = Redactor([secret]).text(data.decode("utf-8", errors))
        left = masked.value
    else:
        masked = Redactor([secret]).value(data)
        left = masked.value.decode("utf-8", "replace")
    assert masked.masked == 1
    # Byte order marks, zeros and bytes that are no text say nothing of the secret.
    assert set(left.replace(PLACEHOLDER, "")) <= set("x=\n\0\ufffd")


@pytest.mark.parametrize("secret", [PEM, PEM.replace("\n", "\\n")], ids=["with lines", "with escaped line breaks"])
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(BODY, id="in one line"),
        pytest.param(wrapped(BODY, 76), id="wrapped at 76"),
        pytest.param(wrapped(BODY, 40, "\r\n"), id="wrapped at 40, as Windows does"),
        pytest.param(wrapped(BODY, 60, "\\n"), id="with escaped line breaks"),
        pytest.param(wrapped(BODY, 60, "\\\\r\\\\n"), id="with line breaks escaped twice"),
        pytest.param(wrapped(BODY, 64, " "), id="with spaces"),
        pytest.param(wrapped(BODY, 50, '",\n    "'), id="as a list of texts"),
        pytest.param(wrapped(BODY, 50, '\\n" +\n    "'), id="as texts that are added"),
        pytest.param(wrapped(BODY, 70, "\n      "), id="indented"),
        pytest.param(wrapped(BODY.replace("/", "\\/"), 72, "\\n"), id="in JSON, with the slash escaped"),
        pytest.param(quote(wrapped(BODY, 76), safe=""), id="in a URL"),
    ],
)
def test_a_key_is_masked_however_it_is_wrapped(secret: str, form: str) -> None:
    is_masked_wherever_it_is_cut(Redactor([secret]), form)


@pytest.mark.parametrize("secret", ["a" * 40, "ab" * 100 + "!", "%25" * 20])
def test_a_secret_that_repeats_itself_takes_time_linear_in_the_text(secret: str) -> None:
    redactor = Redactor([secret])
    text = secret[:-1] * (40_000 // len(secret) + 1)

    def seconds(size: int) -> float:
        since = process_time()
        redactor.text(text[:size])
        return process_time() - since

    seconds(4_000)
    # Four times the text would take sixteen times as long, if the time were quadratic.
    assert min(seconds(32_000) for _ in range(2)) < 9 * max(seconds(8_000), 0.01)


@pytest.mark.parametrize(
    ("secret", "text", "masked"),
    [
        pytest.param("p@ss(w0rd)!/x", "GET /?k=p%40ss(w0rd)!%2Fx", f"GET /?k={PLACEHOLDER}", id="encodeURIComponent"),
        pytest.param("p@ss/w=rd+1", "https://u:p%40ss%2Fw=rd+1@h", f"https://u:{PLACEHOLDER}@h", id="Go's userinfo"),
        pytest.param("tok~en/12", "k=tok%7Een%2F12", f"k={PLACEHOLDER}", id="a form as the web writes it"),
        pytest.param("a b/c~d", "k=a+b%2Fc~d", f"k={PLACEHOLDER}", id="a space as a plus, the rest as it is"),
        pytest.param("a b/c~d", "k=a%20b/c%7ed&", f"k={PLACEHOLDER}&", id="a space encoded, the slash not"),
        pytest.param("wörd/1", "w%C3%b6rd%2f1", PLACEHOLDER, id="hex of either case in one text"),
        pytest.param("p@ss/x", "u=p%2540ss%252Fx", f"u={PLACEHOLDER}", id="a URL inside a URL"),
        pytest.param("100%25ab", "100%25ab 100%2525ab", f"{PLACEHOLDER} {PLACEHOLDER}", id="a secret with `%25` in it"),
        pytest.param('<a>"b/c', r"<a\u003e\"b\/c", PLACEHOLDER, id="JSON that escapes some of it"),
        pytest.param('<a>"b/c', r"\u003Ca\u003E\u0022b\u002fc", PLACEHOLDER, id="JSON that escapes all of it"),
        pytest.param("p@ss/x&y", r"p%40ss%2Fx\u0026y", PLACEHOLDER, id="a URL inside JSON"),
        pytest.param(r"a\\b\c", r"a\\b\c a\\\\b\\c", f"{PLACEHOLDER} {PLACEHOLDER}", id="runs of backslashes"),
        pytest.param("ab/[", "ab%2F%5B", PLACEHOLDER, id="a bracket at the end, encoded"),
    ],
)
def test_each_character_may_be_encoded_or_not(secret: str, text: str, masked: str) -> None:
    redactor = Redactor([secret])
    stream = redactor.stream()
    assert redactor.text(text).value == masked
    assert "".join(map(stream.feed, text)) + stream.close() == masked
    assert redactor.text(masked) == (masked, 0)


@pytest.mark.parametrize("secret", [r"\/" * 30, "%" * 60, "%25" * 20, r"\"" * 30, "\\" * 60, "/" * 60])
@pytest.mark.parametrize("escape", [r"\\/", "%25", r"\\\"", "\\", r"\/"])
def test_no_secret_takes_exponential_time(secret: str, escape: str) -> None:
    # Were it exponential, this would not come back.
    assert Redactor([secret]).text(escape * 59 + "x").value.endswith("x")


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_wherever_it_starts_in_base64(before: int, after: int, encode: Any) -> None:
    encoded = encode(b"u" * before + BYTES + b"v" * after).decode()
    masked = REDACTOR.text(encoded)
    assert masked.masked == 1
    assert len(masked.value) - len(PLACEHOLDER) <= len(encode(b"u" * before)) + len(encode(b"v" * after)) + 3


@pytest.mark.parametrize("secret", ["sk-canary-4f1d0c7b", "pässwörd-für-alle", "two words \\ and more"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_bytes_that_are_cut_off_hold_no_part_of_a_secret(secret: str, encoding: str) -> None:
    redactor = Redactor([secret])
    before, data = b"before: ", f"before: {secret} after".encode(encoding)
    for at in range(len(before), len(data) + 1):
        left = redactor.cut(data[:at]).decode(encoding)
        assert left in ("before: ", "before: [REDACTED]", *(f"before: [REDACTED]{' after'[:n]}" for n in range(7))), at
    assert redactor.cut(b"nothing of it, no s") in (b"nothing of it, no s", b"nothing of it, no ")


def test_basic_authorization_is_masked() -> None:
    header = base64.b64encode(b"admin:" + BYTES).decode()
    assert base64.b64decode(header)[-4:].decode() not in REDACTOR.text(f"Authorization: Basic {header}").value


def test_the_longest_secret_wins() -> None:
    assert Redactor(["token", "token-long"]).text("token-long token") == (f"{PLACEHOLDER} {PLACEHOLDER}", 2)


def test_secrets_that_overlap_are_masked_together() -> None:
    assert Redactor(["abcd", "cdef"]).text("xabcdefx") == (f"x{PLACEHOLDER}x", 1)


def test_nested_values_and_keys_are_masked() -> None:
    value = {"a": ["x-hunter22", ("hunter22", 7, None, True)], "hunter22": {"b": 1.5}}
    assert Redactor(["hunter22"]).value(value) == (
        {"a": [f"x-{PLACEHOLDER}", (PLACEHOLDER, 7, None, True)], PLACEHOLDER: {"b": 1.5}},
        3,
    )


def test_keys_that_are_masked_alike_both_stay() -> None:
    masked = Redactor(["hunter22", "swordfish"]).value({"hunter22": 1, "swordfish": 2}).value
    assert masked == {PLACEHOLDER: 1, f"{PLACEHOLDER}#2": 2}


@pytest.mark.parametrize("keys", list(permutations(["hunter22", PLACEHOLDER, "swordfish", f"{PLACEHOLDER}#2"])))
def test_a_key_that_is_the_placeholder_stays_too(keys: tuple[str, ...]) -> None:
    masked = Redactor(["hunter22", "swordfish"]).value({key: key for key in keys}).value
    assert len(masked) == 4
    assert masked[PLACEHOLDER] == PLACEHOLDER
    assert masked[f"{PLACEHOLDER}#2"] == f"{PLACEHOLDER}#2"


def test_many_keys_that_are_masked_alike_take_little_time() -> None:
    redactor = Redactor(["hunter22"])
    value = {f"{'hunter22' * (number % 90 + 1)}{' ' * (number // 90)}": number for number in range(9000)}
    assert len(redactor.value(value).value) == 9000


def test_a_short_secret_is_masked_only_as_a_whole_value() -> None:
    redactor = Redactor(["abc"])
    assert redactor.value({"pin": "abc", "text": "abcd"}) == ({"pin": PLACEHOLDER, "text": "abcd"}, 1)
    assert redactor.text("abc") == ("abc", 0)


def test_a_number_is_masked_only_as_a_whole() -> None:
    assert Redactor(["4321"]).value([4321, 43210, "x4321"]) == ([PLACEHOLDER, 43210, f"x{PLACEHOLDER}"], 2)
    assert Redactor(["4321"]).value([10**5000]).masked == 0


@pytest.mark.parametrize("number", [12345678, 12345678.0, -12345678])
@pytest.mark.parametrize("secret", ["12345678", "12345678\n", "-12345678", "12345678.0"])
def test_a_secret_that_is_a_number_is_masked_however_it_is_written(secret: str, number: float) -> None:
    masked = Redactor([secret]).value({"pin": number, number: 123456789})
    assert masked == ({"pin": PLACEHOLDER, PLACEHOLDER: 123456789}, 2)


def test_a_number_that_is_no_secret_stays() -> None:
    value = [True, 0, 1.5, float("inf"), 10**5000, "nan"]
    assert Redactor(["1e999", "9" * 5000, "inf", "1" * 20]).value(value) == (value, 0)


@pytest.mark.parametrize(("secret", "value"), [("abc\n", "abc"), ("abc", "abc\n"), ("abc", " abc"), ("abc", "abc")])
def test_space_around_a_whole_value_does_not_count(secret: str, value: str) -> None:
    assert Redactor([secret]).value({value: [value]}) == ({PLACEHOLDER: [PLACEHOLDER]}, 2)


class Pair(NamedTuple):
    left: str
    right: str


@dataclass
class Box:
    inside: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"is hunter22.", (f"is {PLACEHOLDER}.".encode(), 1), id="bytes"),
        pytest.param(b"abc\n", (PLACEHOLDER.encode(), 1), id="bytes that are a short secret"),
        pytest.param("wörter22".encode(), (PLACEHOLDER.encode(), 1), id="bytes in UTF-8"),
        pytest.param("wörter22".encode("latin-1"), (PLACEHOLDER.encode(), 1), id="bytes in Latin-1"),
        pytest.param(b"\xff\x00ok", (b"\xff\x00ok", 0), id="bytes without a secret stay"),
        pytest.param(Pair("hunter22", "b"), ((PLACEHOLDER, "b"), 1), id="a named tuple"),
        pytest.param(MappingProxyType({"a": "hunter22"}), ({"a": PLACEHOLDER}, 1), id="a map of another kind"),
        pytest.param({"hunter22"}, (PLACEHOLDER, 1), id="a set"),
        pytest.param(bytearray(b"hunter22"), (PLACEHOLDER, 1), id="bytes that can change"),
        pytest.param(Decimal(12345678), (PLACEHOLDER, 1), id="a number of another kind"),
        pytest.param(Box("hunter22"), (PLACEHOLDER, 1), id="an object"),
        pytest.param({("hunter22", 1): 2}, ({(PLACEHOLDER, 1): 2}, 1), id="a key of several parts"),
        pytest.param({b"hunter22": 2}, ({PLACEHOLDER.encode(): 2}, 1), id="a key of bytes"),
    ],
)
def test_no_kind_of_value_is_let_through(value: object, expected: object) -> None:
    assert Redactor(["hunter22", "abc", "wörter22", "12345678"]).value(value) == expected


def test_every_long_line_of_a_secret_is_masked_alone() -> None:
    redactor = Redactor(["-----BEGIN KEY-----\nMIIBVwIBADANBg\nend\n"])
    assert redactor.text("log: MIIBVwIBADANBg, the end") == (f"log: {PLACEHOLDER}, the end", 1)


def test_space_around_a_secret_does_not_hide_it() -> None:
    assert Redactor(["hunter22\n"]).text("is hunter22.") == (f"is {PLACEHOLDER}.", 1)


def test_what_is_too_deep_is_not_let_through() -> None:
    value: Any = "hunter22"
    for _ in range(300):
        value = [value]
    assert "hunter22" not in repr(Redactor(["hunter22"]).value(value).value)


def test_without_secrets_nothing_changes() -> None:
    value = {"a": [1]}
    assert Redactor(["", "  "]).value(value).value is value
    assert not Redactor([])
    assert Redactor([]).text("text") == ("text", 0)


def test_more_secrets_can_be_added() -> None:
    redactor = Redactor(["hunter22"]).also(["swordfish"])
    assert redactor.text("hunter22 swordfish").masked == 2


def test_a_redactor_does_not_show_its_secrets() -> None:
    assert "ss/w" not in repr(REDACTOR)


@pytest.mark.parametrize(
    "secret", ["ends with [", "] starts", "a [REDACTED] inside", "[[[[abcd", "xyzw[REDACTED", "D]abcd"]
)
def test_secrets_that_look_like_the_placeholder(secret: str) -> None:
    redactor = Redactor([secret, "hunter22"])
    once = redactor.text(f"{secret}hunter22{secret}").value
    assert secret not in once.replace(PLACEHOLDER, "\0")
    assert redactor.text(once).value == once


def test_many_secrets_in_a_long_text_take_little_time() -> None:
    redactor = Redactor([f"secret-number-{number:04d}-{number * 7919}" for number in range(100)])
    text = "an ordinary line of output with nothing to hide in it, secret-number-0\n" * 3000
    assert redactor.text(text).masked == 0
    assert redactor.text("a" * 200_000).masked == 0
    assert Redactor(["a" * 40]).text("a" * 20_000).masked > 0


# Property tests: an alphabet where overlaps, escapes and pieces of the placeholder are likely.
ALPHABET = 'ab"\\/ +%é\n[]RD😀'
secret_texts = st.text(ALPHABET, min_size=MIN_LENGTH, max_size=8).filter(lambda text: bool(text.strip()))
plain_secrets = st.text('ab"\\/ +%é\n😀', min_size=MIN_LENGTH, max_size=8).filter(
    lambda text: len(text.strip()) >= MIN_LENGTH
)
texts = st.text(ALPHABET, max_size=30)


def spellings(char: str) -> list[str]:
    units = char.encode("utf-16-be").hex()
    escaped = "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    encoded = quote(char, safe="")
    octets = char.encode()
    return [
        *(char, encoded, encoded.lower(), json.dumps(char)[1:-1], escaped, escaped.upper().replace("U", "u")),
        *("".join(f"%{octet:02X}" for octet in octets), "".join(f"\\x{octet:02x}" for octet in octets)),
        *("".join(f"\\{octet:03o}" for octet in octets), f"\\u{{{ord(char):x}}}"),
        *(f"&#{ord(char)};", f"&#x{ord(char):04X};", f"&#{ord(char):05d};"),
    ]


@given(st.lists(plain_secrets, min_size=1, max_size=3), st.data())
def test_no_form_of_a_secret_survives(secrets: list[str], data: st.DataObject) -> None:
    secret = data.draw(st.sampled_from(secrets))
    raw = secret.encode()
    before, after = data.draw(st.binary(max_size=4)), data.draw(st.binary(max_size=4))
    forms = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret),
        quote_plus(secret),
        quote(secret, safe=""),
        "".join(data.draw(st.sampled_from(spellings(char))) for char in secret),
        raw.hex(),
        raw.hex().upper(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    redactor = Redactor(secrets)
    text = data.draw(texts) + "".join(form + data.draw(texts) for form in forms)
    masked = redactor.text(text).value
    for form in forms:
        assert form not in masked.replace(PLACEHOLDER, "\0")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + raw + after).decode()
        assert redactor.text(encoded).masked >= 1


@given(st.lists(secret_texts, max_size=3), texts)
def test_redacting_twice_equals_redacting_once(secrets: list[str], text: str) -> None:
    redactor = Redactor(secrets)
    once = redactor.text(text).value
    assert redactor.text(once) == (once, 0)


@given(
    st.lists(secret_texts, max_size=3),
    st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)),
)
def test_redacting_a_value_twice_equals_redacting_it_once(secrets: list[str], value: object) -> None:
    redactor = Redactor(secrets)
    once = redactor.value(value).value
    assert redactor.value(once).value == once


@given(st.lists(secret_texts, min_size=1, max_size=3), texts, st.lists(st.integers(0, 30), max_size=5), st.data())
@example(["abab"], "abababab", [1, 3, 5], None)
def test_where_a_stream_is_cut_does_not_matter(
    secrets: list[str], text: str, cuts: list[int], data: st.DataObject | None
) -> None:
    if data is not None:
        text += data.draw(st.sampled_from(secrets)) + data.draw(texts) + data.draw(st.sampled_from(secrets))
    redactor = Redactor(secrets)
    stream = redactor.stream()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    given_out = "".join(stream.feed(text[at:to]) for at, to in pairwise(places)) + stream.close()
    assert (given_out, stream.count) == redactor.text(text)


def test_a_stream_holds_back_only_what_could_be_a_secret() -> None:
    stream = Redactor(["hunter22"]).stream()
    assert stream.feed("ready> ") == "ready> "
    assert stream.feed("hunt") == ""
    assert stream.feed("ing") == "hunting"
    assert stream.feed("hunter2") == ""
    assert stream.feed("2!") == f"{PLACEHOLDER}!"
    assert stream.close() == ""


def test_a_stream_of_one_endless_secret_stays_small() -> None:
    stream = Redactor(["aaaa"]).stream()
    assert "".join(stream.feed("a" * 10) for _ in range(1000)) + stream.close() == PLACEHOLDER
    assert stream.count == 1


@given(st.lists(secret_texts, min_size=1, max_size=3), texts)
def test_text_without_secrets_is_left_alone(secrets: list[str], text: str) -> None:
    redactor = Redactor(secrets)
    masked = redactor.text(text)
    assume(masked.masked == 0)
    assert masked.value == text


@pytest.mark.parametrize(
    ("secret", "found"),
    [
        pytest.param("plain", [], id="no document"),
        pytest.param('{"private_key":"a\\nb","project_id":"acme"}', ["a\nb"], id="a key beside a name"),
        pytest.param(' {"password":"pw-1"}', ["pw-1"], id="space before it"),
        pytest.param(
            '{"key_id":"k1","token_uri":"https://h","token_type":"bearer"}', [], id="names that say otherwise"
        ),
        pytest.param(
            '[{"a":{"Client_Secret":["x1","x2"],"region":"eu"}}]', ["x1", "x2"], id="deep inside, and several"
        ),
        pytest.param('{"pem":"-----BEGIN KEY-----"}', ["-----BEGIN KEY-----"], id="a key under another name"),
        pytest.param('{"pin_token":12345}', ["12345"], id="a number"),
        pytest.param('{"broken', [], id="no JSON"),
        pytest.param('{"a":' * 300 + "1" + "}" * 300, [], id="nested deeper than is searched"),
    ],
)
def test_of_a_document_in_a_variable_the_credentials_are_secret(secret: str, found: list[str]) -> None:
    assert credentials_of(secret) == [secret, *found]


def test_of_a_document_that_is_a_secret_input_everything_is() -> None:
    assert parts_of(' {"password":"pw-1","region":"eu"}') == [' {"password":"pw-1","region":"eu"}', "pw-1", "eu"]


def test_another_secret_that_may_begin_at_the_end_does_not_hold_back_a_complete_one() -> None:
    # In base64 the second secret may begin with `2`, and the newline may be a gap in it.
    stream = Redactor(["hunter2-hunter2", "6915869fe576e7b6fa22282137f0e76e"]).stream()
    assert stream.feed("got hunter2-hunter2\n").startswith("got [REDACTED]")
