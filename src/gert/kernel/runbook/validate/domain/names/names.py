"""The names that are set at a point of a runbook, with a journal to undo what an arm or a loop added.

Entering a block costs nothing and leaving it costs what the block added, so a runbook of any length is
checked in time linear in its steps.
"""

import msgspec

from gert.kernel.runbook.validate.domain.names.shapes import ANYTHING, Shape


class Binding(msgspec.Struct, frozen=True):
    """The shape of a name; `certain` if it is set on every path to here."""

    shape: Shape
    certain: bool = True


class Names:
    """Bindings by name, with a journal."""

    def __init__(self) -> None:
        self.bound: dict[str, Binding] = {}
        self._journal: list[tuple[str, Binding | None]] = []

    def get(self, name: str) -> Binding | None:
        """Return the binding of a name."""
        return self.bound.get(name)

    def bind(self, name: str, shape: Shape, *, certain: bool = True) -> None:
        """Bind a name; what was certain stays certain."""
        before = self.bound.get(name)
        if before is not None and not certain:
            # It may still have its earlier value.
            shape = shape if shape == before.shape else ANYTHING
            certain = before.certain
        self._journal.append((name, before))
        self.bound[name] = Binding(shape, certain)

    def doubt(self, name: str) -> None:
        """Mark a name as set on some paths only."""
        before = self.bound.get(name)
        if before is not None and before.certain:
            self._journal.append((name, before))
            self.bound[name] = Binding(before.shape, certain=False)

    def mark(self) -> int:
        """Return a mark to undo to."""
        return len(self._journal)

    def since(self, mark: int) -> set[str]:
        """Return the names bound since a mark."""
        return {name for name, _ in self._journal[mark:]}

    def undo(self, mark: int) -> dict[str, Binding]:
        """Undo to a mark; return what was bound since."""
        gone = {name: self.bound[name] for name in self.since(mark) if name in self.bound}
        while len(self._journal) > mark:
            name, before = self._journal.pop()
            if before is None:
                self.bound.pop(name, None)
            else:
                self.bound[name] = before
        return gone
