"""An MCP server of the previous revision over HTTP, without the SDK, that answers as a test wants."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

Message = dict[str, Any]
TOOL = {"name": "do", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


class Reply:
    """An HTTP response; without `end`, the connection stays open."""

    def __init__(self, body: Any = b"", status: str = "200 OK", *, end: bool = True, **headers: str) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if "content_type" in headers else {"content_type": "application/json"}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in {**kind, **headers}.items()]
        length = [f"content-length: {len(self.body)}"] if end else []
        self.head = "\r\n".join([f"HTTP/1.1 {status}", *lines, *length, "", ""]).encode()
        self.end = end


Answer = Callable[[Message], Reply | None]
"""Answers a call of a tool; None drops the connection."""


class HttpServer:
    """What it was asked, and how it answers calls."""

    def __init__(self, answer: Answer) -> None:
        self.url = ""
        self.answer = answer
        self.headers: list[dict[str, str]] = []
        self.calls: list[Message] = []
        self.sessions = 0
        self.forgotten: set[str] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.headers.append(headers)
                reply = self.reply(first.split(" ")[0], headers, json.loads(body) if body else {})
                if reply is None:
                    break
                writer.write(reply.head + reply.body)
                await writer.drain()
                if not reply.end:
                    await asyncio.sleep(60)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def reply(self, verb: str, headers: dict[str, str], message: Message) -> Reply | None:
        method, number = message.get("method"), message.get("id")
        if verb != "POST":
            return Reply(status="405 Method Not Allowed")
        if number is None:
            return Reply(status="202 Accepted")
        if headers.get("mcp-session-id") in self.forgotten:
            return Reply(status="404 Not Found")
        if method == "initialize":
            self.sessions += 1
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            }
            return Reply(answered(message, result), mcp_session_id=f"s{self.sessions}")
        if method == "tools/list":
            return Reply(answered(message, {"tools": [TOOL]}))
        if method == "tools/call":
            self.calls.append(message)
            return self.answer(message)
        return Reply({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown method"}})


def answered(message: Message, result: Any) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def fine(message: Message) -> Reply:
    return Reply(answered(message, {"content": [{"type": "text", "text": "fine"}]}))


@asynccontextmanager
async def http_server(answer: Answer = fine, context: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    """Serve on a free port of this machine."""
    found = HttpServer(answer)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    found.url = f"http{'s' if context else ''}://127.0.0.1:{port}/mcp"
    try:
        yield found
    finally:
        server.close()
