"""The pane of steps: draws the tree of a run, follows the run until the cursor is moved, and searches."""

from typing import Final

from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from gert.ecosystem.surfaces.tui.steps import Node, StepTree
from gert.ecosystem.surfaces.tui.text import plain, step_label, utc_now
from gert.kernel.runbook.program import Program

MOST_LABELS: Final = 200
"""Labels that are drawn in one go."""
_BESIDE: Final = 16
"""Steps at once whose growing duration is drawn."""


class StepPane(Tree[str]):
    """The steps of a run; each line has the path of its step as data."""

    def __init__(self) -> None:
        super().__init__(plain("steps"), id="steps")
        self.show_root = False
        self.guide_depth = 2
        self.steps = StepTree()
        self._drawn: dict[str, TreeNode[str]] = {}
        self._stale: dict[str, None] = {}
        self._followed: TreeNode[str] | None = None
        self.wanted = ""
        """The words of the last search."""

    def plan(self, program: Program | None) -> None:
        """Show the steps that the runbook has."""
        self.steps = StepTree(program)
        self.draw()

    def draw(self) -> None:
        """Add new steps and redraw changed ones, a bounded number at a time: keys must not wait."""
        for node in self.steps.added:
            parent = self._drawn.get(node.parent.path) if node.parent is not None and node.parent.path else None
            if parent is not None:
                parent.allow_expand = True
            around = parent or self.root
            self._drawn[node.path] = around.add(step_label(node), data=node.path, expand=True, allow_expand=False)
        self.steps.added.clear()
        now = utc_now()
        self._stale.update(dict.fromkeys(self.steps.changed))
        self.steps.changed.clear()
        # What runs has a duration that grows.
        for path, _ in zip(self.steps.open, range(_BESIDE), strict=False):
            self._stale[path] = None
        for path in list(self._stale)[:MOST_LABELS]:
            del self._stale[path]
            drawn, changed = self._drawn.get(path), self.steps.nodes.get(path)
            label = step_label(changed, now) if changed is not None else None
            if drawn is not None and label is not None and label != drawn.label:
                drawn.set_label(label)
        current = self._drawn.get(self.steps.current)
        if self.cursor_node is None and current is not None and current is not self._followed:
            # Until the cursor is moved, the steps follow the run.
            self._followed = current
            self.call_after_refresh(self.scroll_to_node, current, animate=False)

    @property
    def selected(self) -> Node | None:
        """The step under the cursor; before the cursor is moved, the one that the run is at."""
        cursor = self.cursor_node
        path = cursor.data if cursor is not None and cursor.data is not None else self.steps.current
        return self.steps.nodes.get(path)

    def select(self, node: Node) -> None:
        """Move the cursor to a step."""
        drawn = self._drawn.get(node.path)
        if drawn is not None:
            self.move_cursor(drawn)

    # --- searching

    def go(self, wanted: str) -> bool:
        """Move the cursor to the step of this id or path, or else to the next one that has these words."""
        named = next((node for node in self.steps.walk() if wanted in (node.path, node.name)), None)
        if named is None:
            return self.search(wanted)
        self.wanted = wanted
        self.select(named)
        return True

    def search(self, wanted: str | None = None, by: int = 1) -> bool:
        """Move the cursor to the next or previous step that has these words, or those of the last search."""
        self.wanted = wanted if wanted is not None else self.wanted
        words = self.wanted.casefold()
        if not words:
            return True
        nodes, selected = list(self.steps.walk()), self.selected
        at = next((index for index, node in enumerate(nodes) if node is selected), -1)
        ordered = nodes[at + 1 :] + nodes[: at + 1] if by > 0 else nodes[: max(at, 0)][::-1] + nodes[max(at, 0) :][::-1]
        found = next((node for node in ordered if words in f"{node.path} {node.title}".casefold()), None)
        if found is not None:
            self.select(found)
        return found is not None
