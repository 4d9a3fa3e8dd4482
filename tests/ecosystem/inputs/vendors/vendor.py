"""A vendor's API on this machine: answers by path, in the shape that the vendor documents."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.ecosystem.notify.servers import Server, serving, status

Handler = Callable[[dict[str, list[str]]], Any]
"""Returns a body for the query of a request, or a status and a body."""


class Vendor:
    """What a server was asked for, and how it answers."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def url(self) -> str:
        return self._server.url("")

    @property
    def asked(self) -> list[tuple[str, dict[str, list[str]]]]:
        """The paths and queries of all requests."""
        split = (urlsplit(request.target) for request in self._server.requests)
        return [(url.path, parse_qs(url.query)) for url in split]

    @property
    def headers(self) -> list[dict[str, str]]:
        return [request.headers for request in self._server.requests]


@contextmanager
def vendor(handlers: Mapping[str, Handler], missing: Any) -> Iterator[Vendor]:
    """A vendor with these resources; other paths are a 404 with the body `missing`."""

    def answer(connection: socket.socket, server: Server) -> None:
        url = urlsplit(server.requests[-1].target)
        handler = handlers.get(url.path)
        found = (404, missing) if handler is None else handler(parse_qs(url.query))
        code, body = found if isinstance(found, tuple) else (200, found)
        status(code, "Content-Type: application/json", body=json.dumps(body).encode())(connection, server)

    with serving(answer) as server:
        yield Vendor(server)
