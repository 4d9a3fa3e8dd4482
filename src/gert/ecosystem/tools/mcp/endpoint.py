"""The address of an MCP server with a URL."""

from collections.abc import Mapping

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """The URL of a server and the headers that are sent to it; both may contain secrets.

    is_local: the server is on this machine, so no proxy is used
    """

    url: str
    headers: Mapping[str, str]
    is_local: bool = False

    def __repr__(self) -> str:
        return f"Endpoint({len(self.headers)} headers)"
