"""A base class for ports that are closed at the end of an `async with`."""

from abc import ABC, abstractmethod
from typing import Self


class Closable(ABC):
    """Closes itself when its `async with` block is left."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""
