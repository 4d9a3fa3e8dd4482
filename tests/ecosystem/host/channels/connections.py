"""A served site, and visitors who say exactly what they want to its port."""

import asyncio
import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from tests.ecosystem.approvals.asking import Clock, Store, opened, tickets

from gert.ecosystem.approvals.tickets import TicketView
from gert.ecosystem.host.channels.page_server import PageServer
from gert.ecosystem.host.channels.page_urls import Listen, PageUrls
from gert.ecosystem.host.channels.slack_inbox import SlackInbox
from gert.ecosystem.host.channels.web_server import Limits

PATIENCE = 30.0
T = TypeVar("T")


@dataclass
class Got:
    """An answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        (only,) = [value for key, value in self.headers if key == name.lower()]
        return only


@dataclass
class House:
    """A site that is served, and one open ticket."""

    urls: PageUrls
    store: Store
    file: TicketView
    clock: Clock
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        assert self.urls.listen is not None
        return self.urls.listen.port

    @property
    def link(self) -> str:
        return self.urls.links.token(self.file.id)

    @property
    def path(self) -> str:
        return f"/t/{self.file.id}"

    def now(self) -> TicketView:
        return self.store.now(self.file.id)

    async def say(self, data: bytes) -> bytes:
        """Send bytes, and read until the other side hangs up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(data)
                await writer.drain()
                return await reader.read()
        except (ConnectionResetError, BrokenPipeError):
            return b""
        finally:
            writer.close()

    async def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Got:
        said = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), **(headers or {})}
        if self.cookies and "Cookie" not in said:
            said["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        return parsed(await self.say(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body))

    async def look(self, link: str | None = None) -> Got:
        """Open the page, as a browser does that keeps cookies."""
        got = await self.ask("GET", f"{self.path}?k={self.link if link is None else link}")
        for name, value in got.headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return got

    async def fill(self, **fields: str | None) -> dict[str, str]:
        """The form of the page, filled in."""
        page = await self.look()
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))
        filled = {**hidden, "approver": "bob", "reason": "", "verdict": "approve", **fields}
        return {name: html.unescape(value) for name, value in filled.items() if value is not None}

    async def send(self, fields: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Got:
        said = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return await self.ask("POST", self.path, urlencode(fields).encode(), said)


def parsed(data: bytes) -> Got:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    status = int(first.split(" ")[1]) if first else 0
    return Got(status, [(name.lower(), value) for name, _, value in pairs], body)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    slack: Callable[[PageUrls], SlackInbox] | None = None,
    limits: Limits | None = None,
    base_url: str | None = None,
    **request: Any,
) -> AsyncIterator[House]:
    clock = Clock()
    store = tickets(folder, clock)
    file = opened(store, **request)
    urls = PageUrls(store.folder, Listen("127.0.0.1", 0), base_url)
    async with PageServer(urls, store, slack(urls) if slack is not None else None).serving(limits):
        yield House(urls, store, file, clock)


def visit(folder: Path, act: Callable[[House], Awaitable[T]], **more: Any) -> T:
    """Serve, and let somebody act."""

    async def run() -> T:
        async with serving(folder, **more) as house, asyncio.timeout(PATIENCE):
            return await act(house)

    return asyncio.run(run())
