"""What an agent remembers of a run: the store that holds it, and one in memory."""

from abc import ABC, abstractmethod

from gert.kernel.foundation.arguments import checks_arguments


class MemoryStore(ABC):
    """Keeps one text for each run. An agent changes it with its memory tools, and sees it in its context."""

    @abstractmethod
    async def load(self, run_id: str) -> str:
        """Return the memory of a run; empty text if it has none."""

    @abstractmethod
    async def append(self, run_id: str, text: str) -> None:
        """Add a line to the memory of a run."""

    @abstractmethod
    async def replace(self, run_id: str, content: str) -> None:
        """Replace the memory of a run."""

    @abstractmethod
    async def search(self, run_id: str, query: str, *, max_results: int = 5) -> str:
        """Return the lines of the memory of a run that match a query best."""

    @abstractmethod
    async def close(self) -> None:
        """Release the resources of the store."""


@checks_arguments
class InMemoryMemoryStore(MemoryStore):
    """Memory that ends with the process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def load(self, run_id: str) -> str:
        """Return the memory of a run; empty text if it has none."""
        return self._texts.get(run_id, "")

    async def append(self, run_id: str, text: str) -> None:
        """Add a line to the memory of a run."""
        self._texts[run_id] = appended(self._texts.get(run_id, ""), text)

    async def replace(self, run_id: str, content: str) -> None:
        """Replace the memory of a run."""
        self._texts[run_id] = content

    async def search(self, run_id: str, query: str, *, max_results: int = 5) -> str:
        """Return the lines of the memory of a run that match a query best."""
        return best_lines(self._texts.get(run_id, ""), query, max_results)

    async def close(self) -> None:
        """Release the resources of the store."""


def appended(content: str, text: str) -> str:
    """Return a memory with one more line."""
    return f"{content}\n{text}" if content else text


def best_lines(content: str, query: str, max_results: int) -> str:
    """Return the lines that share most words with a query, the best first; of equal lines the later one."""
    words = set(query.casefold().split())
    scored = [(sum(word in line.casefold() for word in words), at, line) for at, line in enumerate(content.split("\n"))]
    found = sorted((each for each in scored if each[0]), reverse=True)
    return "\n".join(line for _, _, line in found[: max(0, max_results)])
