"""Clients that come in crowds, say nothing, do not listen, or come when the door is being closed."""

import asyncio
import socket
from pathlib import Path

import pytest
from tests.ecosystem.host.channels.connections import House, serving, visit
from tests.ecosystem.notify.servers import raw
from tests.ecosystem.notify.servers import serving as listening_stranger

from gert.ecosystem.host.channels.channels_for import PageChannel, is_served
from gert.ecosystem.host.channels.connections import Connections, network
from gert.ecosystem.host.channels.page_server import PageServer
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.web_server import Limits, Reply, Request, WebServer
from gert.errors import InputError

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost:%d\r\n\r\n"
BEGINNINGS = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"GET /healthz HT", id="half a line"),
    pytest.param(b"POST /t/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx", id="half a body"),
]


async def crowd(port: int, size: int, said: bytes = b"") -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    found = [await asyncio.open_connection("127.0.0.1", port) for _ in range(size)]
    for _, writer in found:
        writer.write(said)
        await writer.drain()
    await asyncio.sleep(0.05)  # until all are let in
    return found


@pytest.mark.parametrize("said", BEGINNINGS)
def test_idle_connections_do_not_keep_an_approver_out(tmp_path: Path, said: bytes) -> None:
    async def act(house: House) -> None:
        idle = await crowd(house.port, 80, said)
        form = await house.fill()
        assert (await house.send(form)).status == 200
        assert house.now().status == "approved"
        for _, writer in idle:
            writer.close()

    visit(tmp_path, act, limits=Limits(request=60.0, heading=60.0))


def test_who_has_waited_longest_gives_way_and_the_others_stay(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        (first, second) = await crowd(house.port, 2)
        assert (await house.ask("GET", "/healthz")).status == 200
        assert await _rest(first[0]) == b""
        second[1].write(GET % house.port)
        assert b" 200 OK" in await second[0].read()
        first[1].close()
        second[1].close()

    visit(tmp_path, act, limits=Limits(connections=2))


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_a_connection_that_is_being_answered_is_never_closed_for_another() -> None:
    async def run() -> None:
        going, asked = asyncio.Event(), asyncio.Event()

        async def slowly(_: Request) -> Reply:
            asked.set()
            await going.wait()
            return Reply(body=b"done")

        async with WebServer(slowly, Limits(connections=1)).serving("127.0.0.1", 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET % port)
            await asked.wait()
            (late,) = await crowd(port, 1)
            assert await _rest(late[0]) == b""
            going.set()
            assert (await reader.read()).endswith(b"done")
            writer.close()
            late[1].close()

    asyncio.run(run())


def test_the_head_of_a_request_is_not_waited_for_as_long_as_its_body(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        (slow,) = await crowd(house.port, 1, b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: ")
        assert b" 408 " in await slow[0].read()
        slow[1].close()

    visit(tmp_path, act, limits=Limits(heading=0.1, request=600.0))


def test_a_body_has_the_time_of_a_body(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        (slow,) = await crowd(house.port, 1, b"POST /t/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
        await asyncio.sleep(0.3)
        slow[1].write(b"y")
        assert b" 421 " in await slow[0].read()
        slow[1].close()

    visit(tmp_path, act, limits=Limits(heading=0.2, request=600.0))


def test_chunks_that_are_mostly_packing_are_not_read_without_end(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        head = b"POST /t/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"1;" + b"a" * 4000 + b"\r\nx\r\n"
        assert b" 413 " in await house.say(head + chunk * 200 + b"0\r\n\r\n")

    visit(tmp_path, act, limits=Limits(head=8192, body=8192))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("nowhere", "nowhere"),
    ],
)
def test_all_addresses_of_a_network_count_as_one_client(address: str, expected: str) -> None:
    assert network(address) == expected


def test_who_comes_most_often_gives_way_first() -> None:
    async def run() -> None:
        async def stays() -> None:
            await asyncio.Event().wait()

        room = Connections(4)
        one, *many = [asyncio.create_task(stays()) for _ in range(6)]
        assert room.admit(one, "10.0.0.1")
        for task in many:
            assert room.admit(task, "10.0.0.2")
        await asyncio.sleep(0)
        assert [task.cancelled() for task in (one, *many)] == [False, True, True, False, False, False]
        for task in (one, *many):
            task.cancel()

    asyncio.run(run())


# --- who does not listen


def _deaf(port: int) -> socket.socket:
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", port))
    return deaf


def _taken_by_the_system() -> int:
    """How much is sent to somebody who does not listen, before the sender notices."""
    with socket.create_server(("127.0.0.1", 0)) as server, _deaf(server.getsockname()[1]):
        connection, _ = server.accept()
        with connection:
            connection.setblocking(False)
            taken = 0
            while True:
                try:
                    taken += connection.send(b"x" * 10_000_000)
                except BlockingIOError:
                    return taken


@pytest.mark.parametrize("more", [20_000, 8_000_000], ids=["a little left", "much left"])
def test_a_client_that_does_not_read_its_answer_keeps_no_socket(more: int) -> None:
    async def much(_: Request) -> Reply:
        return Reply(body=b"x" * (_taken_by_the_system() + more))

    async def run() -> None:
        server = WebServer(much, Limits(reply=0.2))
        async with server.serving("127.0.0.1", 0) as port:
            with _deaf(port) as deaf:
                deaf.sendall(GET % port)
                transports = await _transports(server)
                async with asyncio.timeout(5):
                    while not all(each.get_write_buffer_size() == 0 and each.is_closing() for each in transports):
                        await asyncio.sleep(0.02)

    asyncio.run(run())


async def _transports(server: WebServer) -> list[asyncio.WriteTransport]:
    async with asyncio.timeout(5):
        while not (found := [each.transport for each in server.connections if each.transport is not None]):
            await asyncio.sleep(0.005)
    return found


def test_a_client_that_connects_while_the_server_ends_is_not_served(tmp_path: Path) -> None:
    async def run() -> None:
        served: list[Request] = []

        async def handle(request: Request) -> Reply:
            served.append(request)
            return Reply()

        before = asyncio.all_tasks()
        async with WebServer(handle).serving("127.0.0.1", 0) as port:
            late = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
            for each in late:
                each.sendall(GET % port)
            while not any("_connected" in repr(task.get_coro()) for task in asyncio.all_tasks()):
                await asyncio.sleep(0)  # until one is accepted, and not begun with
        await asyncio.sleep(0.1)
        assert served == []
        assert asyncio.all_tasks() == before
        for each in late:
            each.close()

    asyncio.run(run())


# --- two who serve the same tickets


def test_when_the_run_that_serves_ends_the_next_run_that_waits_takes_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as house:
            second = PageUrls(house.store.folder, house.urls.listen)
            waiting = PageChannel(second, retry=0.01).listening(house.store)
            await waiting.__aenter__()
        async with asyncio.timeout(10):
            while not await is_served(second):
                await asyncio.sleep(0.01)
        form = await house.fill()
        assert (await house.send(form)).status == 200
        assert house.now().status == "approved"
        await waiting.__aexit__(None, None, None)
        assert not await is_served(second)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


def test_a_process_that_passes_the_question_on_is_not_taken_for_the_server(tmp_path: Path) -> None:
    """Elsewhere the same tickets are served: whoever listens here could have the proof from there."""

    async def act(house: House) -> None:
        def passes_on(connection: socket.socket, server: object) -> None:
            with socket.create_connection(("127.0.0.1", house.port)) as real:
                target = stranger.requests[-1].target
                real.sendall(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{house.port}\r\n\r\n".encode())
                said = b""
                while data := real.recv(4096):
                    said += data
            raw(said)(connection, server)  # type: ignore[arg-type]

        with listening_stranger(passes_on) as stranger:
            assert not await is_served(PageUrls(house.store.folder, Listen("127.0.0.1", stranger.port)))
            assert stranger.requests
        assert await is_served(PageUrls(house.store.folder, house.urls.listen))
        assert await is_served(PageUrls(house.store.folder, Listen("localhost", house.port)))

    visit(tmp_path, act)


def test_a_server_on_every_address_also_serves_this_one(tmp_path: Path) -> None:
    here, everywhere = PageUrls(str(tmp_path), Listen("127.0.0.1", 1)), PageUrls(str(tmp_path), Listen("0.0.0.0", 1))
    assert everywhere.proof("x") in here.proofs("x")
    assert here.proof("x") not in everywhere.proofs("x")
    assert PageUrls(str(tmp_path), Listen("::", 1)).proof("x") not in here.proofs("x")


@pytest.mark.parametrize("host", ["a..b", "-", "x" * 70])
def test_an_invalid_address_is_not_served(tmp_path: Path, host: str) -> None:
    assert not asyncio.run(is_served(PageUrls(str(tmp_path), Listen(host, 80))))


def test_a_site_can_be_served_again(tmp_path: Path) -> None:
    async def act(house: House) -> None:
        site = PageServer(PageUrls(house.store.folder, Listen("127.0.0.1", 0)), house.store)
        for _ in range(2):
            async with site.serving():
                pass

    visit(tmp_path, act)


# --- links


@pytest.mark.parametrize(("host", "base"), [("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")])
def test_a_link_to_everywhere_leads_to_where_we_are(tmp_path: Path, host: str, base: str) -> None:
    urls = PageUrls(str(tmp_path), Listen(host, 1))
    assert urls.base == base
    assert urls.accepts_host(base.removeprefix("http://"))


@pytest.mark.parametrize(
    "base_url", ["https://x:99999", "https://x:port", "https://", "https://[", "https://x/|a>", "https://x y"]
)
def test_an_address_for_links_that_leads_nowhere_is_said_at_once(tmp_path: Path, base_url: str) -> None:
    """Found out with the first visitor, it would be a fault for each of them."""
    with pytest.raises(InputError, match="the `base_url` is invalid"):
        PageUrls(str(tmp_path), Listen("127.0.0.1", 1), base_url)
