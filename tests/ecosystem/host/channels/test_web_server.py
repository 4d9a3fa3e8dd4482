"""The server: what it does not read, whom it does not wait for, and whom it does not answer to."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import yes
from tests.ecosystem.host.channels.connections import House, parsed, serving, visit

from gert.ecosystem.host.channels.page_server import PageServer
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls, parse_listen
from gert.ecosystem.host.channels.web_server import Limits
from gert.errors import UsageError

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost:%d\r\n"


def test_the_server_answers_a_health_check(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        got = await house.ask("GET", "/healthz")
        assert got.status == 200
        assert json.loads(got.body) == {"status": "ok", "serves": house.urls.links.mark}
        assert got.header("content-security-policy").startswith("default-src 'none'")

    visit(tmp_path, act)


PATHS = [
    "/", "/t", "/t/", "/t/..", "/t/../healthz", "/t/%2e%2e", "/t/a/b", "/t/.hidden", "/t/con", "/t/a%00", "//healthz",
    "/healthz/", "/healthz/x", "/slack", "/slack/other", "/callback", "/callback/..%2f", "/favicon.ico",
    "/t/" + "a" * 200, "/T/x", "/t/-x", "/t/x;y", "/.git/config", "/t/x/../../../../etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_served_is_not_there(tmp_path: Path, path: str) -> None:
    async def act(house: House) -> None:
        got = await house.ask("GET", path)
        assert got.status == 404
        assert not any(name == "location" for name, _ in got.headers)

    visit(tmp_path, act)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("127.0.0.1:{port}", 200, id="the address"),
        pytest.param("localhost:{port}", 200, id="this machine"),
        pytest.param("LOCALHOST:{port}", 200, id="in capitals"),
        pytest.param("[::1]:{port}", 200, id="this machine, in IPv6"),
        pytest.param("approvals.example.com", 200, id="the public name"),
        pytest.param("approvals.example.com:443", 200, id="the public name with its port"),
        pytest.param("approvals.example.com:80", 421, id="the public name with another port"),
        pytest.param("evil.example", 421, id="a name that was led here"),
        pytest.param("evil.example:{port}", 421, id="a name that was led here, with the port"),
        pytest.param("127.0.0.1", 421, id="no port"),
        pytest.param("127.0.0.1:1", 421, id="another port"),
        pytest.param("localhost:{port}.evil.example", 421, id="a name that begins like ours"),
        pytest.param("127.0.0.1:{port}@evil.example", 421, id="a user who looks like us"),
        pytest.param("", 421, id="nothing"),
        pytest.param("a" * 300, 421, id="a very long name"),
    ],
)
def test_only_our_names_are_answered_to(tmp_path: Path, host: str, status: int) -> None:
    async def act(house: House) -> int:
        forwarded = {"Host": host.format(port=house.port), "X-Forwarded-Host": "localhost"}
        return (await house.ask("GET", "/healthz", headers=forwarded)).status

    assert visit(tmp_path, act, base_url="https://approvals.example.com/") == status


RAW: list[Any] = [
    pytest.param(b"\r\n\r\n", 400, id="empty lines"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, id="a TLS greeting"),
    pytest.param(b"GET /healthz\r\n\r\n", 400, id="no version"),
    pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", 400, id="no host"),
    pytest.param(b"GET /healthz HTTP/1.0\r\n\r\n", 421, id="no host, as long ago"),
    pytest.param(b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two hosts"),
    pytest.param(b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, id="a proxy's request"),
    pytest.param(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, id="a star"),
    pytest.param(b"CONNECT evil:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, id="a tunnel"),
    pytest.param(b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, id="a path that is no text"),
    pytest.param(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 24_000 + b"\r\n\r\n", 431,
                 id="a long header"),
    pytest.param(b"GET /" + b"a" * 24_000, 431, id="a path without end"),
    pytest.param(b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400, id="a space before the colon"),
    pytest.param(b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, id="a folded first header"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413, id="a large body"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, id="a negative length"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400,
                 id="two lengths"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx", 400,
                 id="chunks that are none"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                 + b"ffff\r\n" + b"x" * 65535 + b"\r\nffff\r\n" + b"x" * 65535, 413, id="chunks without end"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501,
                 id="a strange coding"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status"), RAW)
def test_what_is_no_request_is_refused(tmp_path: Path, data: bytes, status: int) -> None:
    async def act(house: House) -> None:
        assert parsed(await house.say(data)).status == status
        assert (await house.ask("GET", "/healthz")).status == 200
        assert not house.now().responses

    visit(tmp_path, act)


def test_two_requests_in_one_are_one(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        one = GET % house.port + b"\r\n"
        answer = await house.say(one + one)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"Connection: close" in answer

    visit(tmp_path, act)


def test_a_client_that_sends_slowly_does_not_hold_up_others(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(3)]
        for _, writer in slow:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: ")
        assert (await house.ask("GET", "/healthz")).status == 200
        for reader, writer in slow:
            assert b" 408 " in await reader.read()
            writer.close()

    visit(tmp_path, act, limits=Limits(request=0.2))


def test_a_client_that_is_being_answered_when_the_server_ends_still_gets_the_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as house:
            form = await house.fill()
            told = asyncio.Event()
            answer = house.store.answer

            async def answered(*values: Any, **options: Any) -> Any:
                result = await answer(*values, **options)
                told.set()
                return result

            house.store.answer = answered  # type: ignore[method-assign]
            sending = asyncio.create_task(house.send(form))
            idle = await asyncio.open_connection("127.0.0.1", house.port)
            await told.wait()
        got = await sending
        assert "Your approval was received" in got.text
        assert await idle[0].read() == b""
        idle[1].close()

    asyncio.run(run())


def test_a_fault_is_shown_to_no_client_and_never_approves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(house: House) -> None:
        form = await house.fill()

        def broken(*_: object) -> None:
            raise RuntimeError("s3cret")

        monkeypatch.setattr(house.store, "answer", broken)
        got = await house.send(form)
        assert got.status == 500
        assert "s3cret" not in got.text

    visit(tmp_path, act)


def test_an_address_that_is_taken_is_said_to_be_so(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        second = PageUrls(house.store.folder, Listen("127.0.0.1", house.port))
        with pytest.raises(UsageError, match="cannot listen at"):
            async with PageServer(second, house.store).serving():
                pass

    visit(tmp_path, act)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8765", Listen("127.0.0.1", 8765)),
        ("localhost:0", Listen("localhost", 0)),
        ("[::1]:80", Listen("::1", 80)),
        ("0.0.0.0:8765", Listen("0.0.0.0", 8765)),
    ],
)
def test_addresses_to_listen_at(text: str, expected: Listen) -> None:
    assert parse_listen(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "8765", ":8765", "127.0.0.1", "127.0.0.1:", "a:b", "x:65536", "::1:80", "a b:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address to listen at"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("host", "is_us"),
    [("10.0.0.7:8765", True), ("[fe80::1]:8765", True), ("localhost:8765", True), ("evil.example:8765", False),
     ("10.0.0.7:80", False), ("10.0.0.7", False)],
)  # fmt: skip
def test_listening_everywhere_any_address_means_us_but_no_name(tmp_path: Path, host: str, is_us: bool) -> None:
    assert PageUrls(str(tmp_path), Listen("0.0.0.0", 8765)).accepts_host(host) == is_us


# --- the secret behind the links


def test_links_outlive_the_process_and_the_secret_is_its_owners(tmp_path: Path) -> None:
    folder = tmp_path / "approvals"
    first, second = PageUrls(str(folder)), PageUrls(str(folder))
    assert first.links.token("run-1") == second.links.token("run-1")
    assert first.links.token("run-1") != first.links.token("run-2")
    assert PageUrls(str(tmp_path / "other")).links.token("run-1") != first.links.token("run-1")
    assert (folder / "page.key").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_secret_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    from gert.errors import TraceError

    PageUrls(str(tmp_path)).links.token("x")
    (tmp_path / "page.key").chmod(0o644)
    with pytest.raises(TraceError, match="other users can read"):
        PageUrls(str(tmp_path)).links.token("x")


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33], ids=["empty", "short", "long"])
def test_a_secret_that_is_none_is_not_used(tmp_path: Path, content: bytes) -> None:
    from gert.errors import TraceError

    (tmp_path / "page.key").write_bytes(content)
    (tmp_path / "page.key").chmod(0o600)
    with pytest.raises(TraceError, match="is not a key"):
        PageUrls(str(tmp_path)).links.token("x")


def test_a_secret_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    from gert.errors import TraceError

    (tmp_path / "elsewhere").write_bytes(b"x" * 32)
    (tmp_path / "page.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TraceError, match="cannot be used"):
        PageUrls(str(tmp_path)).links.token("x")


def test_many_who_need_the_secret_first_make_one(tmp_path: Path) -> None:
    async def act() -> set[str]:
        fronts = [PageUrls(str(tmp_path / "a")) for _ in range(20)]
        return set(await asyncio.gather(*(asyncio.to_thread(urls.links.token, "x") for urls in fronts)))

    assert len(asyncio.run(act())) == 1


def test_an_answer_elsewhere_shows_on_the_page(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        await house.store.answer(house.file.id, yes("eve", reason="fine"))
        assert "<strong>eve</strong> approved" in (await house.look()).text

    visit(tmp_path, act)
