"""Who is visiting: room for so many at once, and who gives it up when others come."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

_NETWORK_BITS: Final = 64


class Stage(IntEnum):
    """How far a visit has come, in the order in which visitors give way."""

    WAITING = 0  # nothing was asked yet, or everything is said
    TOLD = 1  # the answer is on its way
    ANSWERED = 2  # what was asked is being done; this is never broken off for somebody else


class Visit:
    """One visitor, and whom to tell that they have to leave."""

    def __init__(self, task: "asyncio.Task[None]", origin: str, transport: asyncio.WriteTransport | None) -> None:
        self.task = task
        self.origin = origin
        self.transport = transport
        self.stage = Stage.WAITING


class Visitors:
    """Those who are there, in the order in which they came.

    Where there is no more room, the one who has waited longest gives way, of those who come from where most come from:
    a crowd that asks for nothing keeps nobody out but itself.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._visits: dict[asyncio.Task[None], Visit] = {}

    def __iter__(self) -> Iterator[Visit]:
        return iter(tuple(self._visits.values()))

    def admits(
        self, task: "asyncio.Task[None]", origin: str, transport: asyncio.WriteTransport | None = None
    ) -> Visit | None:
        """Let somebody in, if need be in place of somebody else; none where all are being answered."""
        if len(self._visits) >= self._room:
            leaving = self._next_to_leave()
            if leaving is None:
                return None
            del self._visits[leaving.task]
            leaving.task.cancel()
        visit = self._visits[task] = Visit(task, origin, transport)
        return visit

    def leaves(self, visit: Visit) -> None:
        """Somebody has left."""
        self._visits.pop(visit.task, None)

    def _next_to_leave(self) -> Visit | None:
        come = Counter(visit.origin for visit in self)
        movable = [visit for visit in self if visit.stage < Stage.ANSWERED]
        return min(movable, key=lambda visit: (visit.stage, -come[visit.origin]), default=None)


def network(address: str) -> str:
    """Where an address is from; in IPv6, one visitor has a whole network of them."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _NETWORK_BITS), strict=False).network_address)
