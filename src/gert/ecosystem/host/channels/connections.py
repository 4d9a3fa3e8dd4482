"""The open connections of the server: a limited number, and which one is closed when another needs its place."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

_NETWORK_BITS: Final = 64


class Phase(IntEnum):
    """The phase of a connection; those in an earlier phase are closed first."""

    IDLE = 0  # no request was read yet, or the reply is sent
    REPLYING = 1  # the reply is being sent
    HANDLING = 2  # the request is being handled; it is never closed for another connection


class Connection:
    """One connection, and the task that serves it."""

    def __init__(self, task: "asyncio.Task[None]", origin: str, transport: asyncio.WriteTransport | None) -> None:
        self.task = task
        self.origin = origin
        self.transport = transport
        self.phase = Phase.IDLE


class Connections:
    """The open connections, in the order in which they were accepted.

    Where the limit is reached, the oldest idle connection of the network with the most connections is closed: many idle
    connections from one place keep out only others from there.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[asyncio.Task[None], Connection] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open.values()))

    def admit(
        self, task: "asyncio.Task[None]", origin: str, transport: asyncio.WriteTransport | None = None
    ) -> Connection | None:
        """Add a connection, and close another if the limit is reached; None where all are being handled."""
        if len(self._open) >= self._limit:
            closed = self._next_to_close()
            if closed is None:
                return None
            del self._open[closed.task]
            closed.task.cancel()
        connection = self._open[task] = Connection(task, origin, transport)
        return connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection.task, None)

    def _next_to_close(self) -> Connection | None:
        counts = Counter(each.origin for each in self)
        closable = [each for each in self if each.phase < Phase.HANDLING]
        return min(closable, key=lambda each: (each.phase, -counts[each.origin]), default=None)


def network(address: str) -> str:
    """The network of an address: in IPv6, one client has a whole network of addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _NETWORK_BITS), strict=False).network_address)
