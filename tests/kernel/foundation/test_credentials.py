"""Credentials in texts nobody wrote for a record."""

import pytest

from gert.kernel.foundation.credentials import foreign_line, without_credentials
from gert.kernel.foundation.text import PLACEHOLDER


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param("connect postgres://app:hunter2@db/x failed", "hunter2", id="a password in an address"),
        pytest.param("https://u:p@ss@h/path", "ss@", id="a password with an at sign"),
        pytest.param("amqps://t0ken@h", "t0ken", id="a user that is a token"),
        pytest.param("sent Authorization: Bearer abc.DEF-123_x=", "abc.DEF", id="a bearer token"),
        pytest.param("bearer abcdefghijklmnopqrstuvwx", "abcdefgh", id="a bearer token of letters"),
        pytest.param("Basic dXNlcjpwYXNz1A==", "dXNlcjp", id="a basic header"),
        pytest.param("Incorrect API key provided: sk-proj-abcdef1234567890.", "abcdef", id="a vendor's key"),
        pytest.param("key sk_live_abcdef1234567890", "abcdef", id="a key with underscores"),
        pytest.param("ghp_0123456789abcdefghij0123456789abcdef", "0123", id="a token of a code host"),
        pytest.param("AKIAIOSFODNN7EXAMPLE", "IOSFODNN", id="an access key id"),
        pytest.param("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_x", "zdWIiOi", id="a web token"),
        pytest.param('{"password": "hunter2"}', "hunter2", id="a setting in JSON"),
        pytest.param("api_key=hunter2&x=1", "hunter2", id="a parameter"),
        pytest.param(
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE", id="a private key"
        ),
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str, secret: str) -> None:
    masked = without_credentials(text)
    assert secret not in masked
    assert PLACEHOLDER in masked
    assert without_credentials(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bearer authentication failed",
        "basic information",
        "see https://example.org/a?mail=x@example.org",
        "mail me@example.org",
        "the task sk-1 is done",
        "token: unexpected `}`",
        "12:30 http://host:8080/x",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_credentials(text) == text


def test_a_line_is_bounded_and_a_credential_at_the_cut_is_gone_before_it() -> None:
    line = foreign_line("x" * 40 + " postgres://app:" + "hunter2" * 20 + "@db\n\x1b[31mred", 60)
    assert len(line) == 60
    assert "hunter2" not in line
    assert "\n" not in foreign_line("a\nb", 10)


@pytest.mark.parametrize("half", ["sk-abc", "postgres://app:hunt", "hunt", "eyJhbGc"])
def test_half_a_credential_does_not_stay_where_little_was_left_of_the_text(half: str) -> None:
    masked = ("bearer " + "A1" * 400)[: 8 * 100 - len(half) - 1]
    line = foreign_line(f"{masked} {half}erTheCutThereIsMore", 100)
    assert half not in line
    assert line.startswith("bearer ")


def test_a_long_text_without_a_space_is_shown_all_the_same() -> None:
    assert foreign_line('{"error":"' + "no,such,model," * 1000 + '"}', 40).startswith('{"error":"no,such,model')


@pytest.mark.parametrize(
    "piece", ["a://", "bearer ", "sk-", "eyJaaaaaaaa.", "password=", "-----BEGIN PRIVATE KEY-----", "A"]
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert len(without_credentials(text)) <= len(text) * 3
