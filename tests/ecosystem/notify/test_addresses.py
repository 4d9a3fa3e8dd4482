"""Where a notice may go, and what of its address may be shown."""

import pytest

from gert.ecosystem.notify.addresses import expand, secret_references, shown, url_problem
from gert.errors import InputError

ENVIRON = {
    "HOOK": "s3cret/path",
    "HOST": "h.example.com",
    "EMPTY": "",
    "BLANK": " \n",
    "LINE": "abc\n",
    "REF": "${HOOK}",
}

ONLY_HTTPS = "the URL must be https, or http on this machine"
UNREADABLE = "the URL cannot be read"
ODD = "the URL contains an invalid character"
NO_HOST = "the URL has no host"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        pytest.param("https://hooks.example.com/a/b?c=d", None, id="https"),
        pytest.param("https://user:word@example.com/", None, id="https with a user"),
        pytest.param("https://10.0.0.1:8443/x", None, id="https to an address"),
        pytest.param("http://localhost/x", None, id="http to localhost"),
        pytest.param("http://LOCALHOST:80/x", None, id="http to localhost in capitals"),
        pytest.param("http://127.0.0.1:9000/x", None, id="http to a loopback address"),
        pytest.param("http://127.8.8.8/x", None, id="http to another loopback address"),
        pytest.param("http://[::1]:9000/x", None, id="http to the IPv6 loopback address"),
        pytest.param("http://user@localhost/x", None, id="http with a user on this machine"),
        pytest.param("http://example.com/", ONLY_HTTPS, id="http to elsewhere"),
        pytest.param("http://localhost.example.com/", ONLY_HTTPS, id="a name that begins like this machine"),
        pytest.param("http://example.localhost/", ONLY_HTTPS, id="a name that ends like this machine"),
        pytest.param("http://127.0.0.1.example.com/", ONLY_HTTPS, id="a name that begins like an address"),
        pytest.param("http://127.0.0.1@example.com/", ONLY_HTTPS, id="a user called like an address"),
        pytest.param("http://localhost:80@example.com/", ONLY_HTTPS, id="a user and word like host and port"),
        pytest.param("http://localhost%40example.com/", ONLY_HTTPS, id="an encoded at sign"),
        pytest.param("http://0.0.0.0/", ONLY_HTTPS, id="any address"),
        pytest.param("http://10.0.0.1/", ONLY_HTTPS, id="a private address"),
        pytest.param("http://169.254.169.254/latest", ONLY_HTTPS, id="the metadata address"),
        pytest.param("http://2130706433/", ONLY_HTTPS, id="an address as a number"),
        pytest.param("http://127.1/", ONLY_HTTPS, id="an address in short"),
        pytest.param("http://0x7f.0.0.1/", ONLY_HTTPS, id="an address in hex"),
        pytest.param("http://[::ffff:10.0.0.1]/", ONLY_HTTPS, id="an IPv4 address in IPv6"),
        pytest.param("http://[2001:db8::1]/", ONLY_HTTPS, id="an IPv6 address elsewhere"),
        pytest.param("http://[fe80::1%25lo]/", ONLY_HTTPS, id="an IPv6 address with a zone"),
        pytest.param("ftp://example.com/", ONLY_HTTPS, id="another scheme"),
        pytest.param("file:///etc/passwd", NO_HOST, id="a file"),
        pytest.param("//example.com/x", ONLY_HTTPS, id="no scheme"),
        pytest.param("example.com", NO_HOST, id="no scheme and no slashes"),
        pytest.param("", NO_HOST, id="nothing"),
        pytest.param("https://", NO_HOST, id="no host"),
        pytest.param("https:///path", NO_HOST, id="a path alone"),
        pytest.param("https:example.com", NO_HOST, id="no slashes"),
        pytest.param("https://example.com:0/", NO_HOST, id="port 0"),
        pytest.param("https://example.com:99999/", NO_HOST, id="a port that is none"),
        pytest.param("https://example.com:x/", UNREADABLE, id="a port in letters"),
        pytest.param("https://[::1/", UNREADABLE, id="half an IPv6 address"),
        pytest.param(" https://example.com/", ODD, id="a space before"),
        pytest.param("https://exa mple.com/", ODD, id="a space within"),
        pytest.param("https://example.com/\r\nX-Evil: 1", ODD, id="a line break"),
        pytest.param("https://example.com/\0", ODD, id="a null byte"),
        pytest.param("https://example.com/\x7f", ODD, id="a control character"),
        pytest.param("http://127.0.0.1\\@example.com/", ODD, id="a backslash"),
        pytest.param("http://ⓛocalhost/", ODD, id="letters in circles"),
        pytest.param("http://localhost。example.com/", ODD, id="another full stop"),
        pytest.param("https://example.com/${HOOK}", ODD, id="a reference that was not filled in"),
        pytest.param("https://example.com/" + "a" * 5000, "the URL is too long", id="too long"),
    ],
)
def test_where_a_notice_may_go(url: str, why: str | None) -> None:
    assert url_problem(url) == why


@pytest.mark.parametrize(
    ("text", "expected", "secrets"),
    [
        pytest.param("https://a/b", "https://a/b", (), id="without a reference"),
        pytest.param("https://a/${HOOK}", "https://a/s3cret/path", ("s3cret/path",), id="with one"),
        pytest.param("${HOST}${HOST}", "h.example.comh.example.com", ("h.example.com",) * 2, id="with two in a row"),
        pytest.param("a/${LINE}/b", "a/abc/b", ("abc",), id="the end of a line is no part of a value"),
        pytest.param("${REF}", "${HOOK}", ("${HOOK}",), id="a value is not filled in again"),
        pytest.param("a$b/$HOOK", "a$b/$HOOK", (), id="a dollar sign alone is itself"),
        pytest.param("", "", (), id="nothing"),
    ],
)
def test_references_are_filled_in_from_the_environment(text: str, expected: str, secrets: tuple[str, ...]) -> None:
    expanded = expand(text, ENVIRON)
    assert (expanded.text, expanded.secrets) == (expected, secrets)
    assert "s3cret" not in repr(expanded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a/${NOPE}", "the environment variable `NOPE` is not set", id="not set"),
        pytest.param("a/${EMPTY}", "the environment variable `EMPTY` is not set", id="empty"),
        pytest.param("a/${BLANK}", "the environment variable `BLANK` is not set", id="blank"),
        pytest.param("a/${}", "`${` does not begin a reference", id="without a name"),
        pytest.param("a/${A-B}", "`${` does not begin a reference", id="with a name that is none"),
        pytest.param("a/${HOOK", "`${` does not begin a reference", id="without an end"),
        pytest.param("a/${GERT_TRACE_SIGNING_KEY}", "the variable `GERT_TRACE_SIGNING_KEY` is gert's own", id="ours"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text, {**ENVIRON, "GERT_TRACE_SIGNING_KEY": "canary-key"})
    assert caught.value.message.startswith(message)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("https://a.example/b/${C}", "https://a.example/b/${C}", id="a reference stays"),
        pytest.param("https://u:p@a.example/b", "https://a.example/b", id="without the user"),
        pytest.param("https://u:${P}@a.example/b", "https://a.example/b", id="without a user by reference"),
        pytest.param("https://u@v@a.example/b", "https://a.example/b", id="without a user with an at sign"),
        pytest.param("https://a.example/b?token=x#y", "https://a.example/b", id="without query and fragment"),
        pytest.param("https://a.example?token=x", "https://a.example", id="without a query and no path"),
        pytest.param("https://a.example#u@b", "https://a.example", id="without a fragment and no path"),
        pytest.param("${HOOK}", "${HOOK}", id="a reference alone"),
        pytest.param("${HOOK}?x=y", "${HOOK}", id="a reference and a query"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_is_shown_of_an_address(url: str, expected: str) -> None:
    assert shown(url) == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("${HOOK}", ["HOOK"], id="all of it"),
        pytest.param("${BASE}/services/${TOKEN}", ["BASE", "TOKEN"], id="no scheme"),
        pytest.param("https://hooks.example.com/${TOKEN}?key=${KEY}#${PART}", ["TOKEN", "KEY", "PART"], id="behind it"),
        pytest.param("https://${HOST}:${PORT}/${TOKEN}", ["TOKEN"], id="a host is no secret"),
        pytest.param("https://${USER}:${PASSWORD}@${HOST}/", ["USER", "PASSWORD"], id="who may enter is"),
        pytest.param("https://${SAME}@${SAME}/", ["SAME"], id="one that is both is"),
        pytest.param("https://${SAME}/${SAME}", ["SAME"], id="wherever it is"),
        pytest.param("https://example.com/", [], id="none"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_variables_that_are_kept_secret(text: str, found: list[str]) -> None:
    assert secret_references(text) == found
