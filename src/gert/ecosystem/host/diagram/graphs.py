"""Pictures as graphs in text: Mermaid and Graphviz."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gert.ecosystem.host.diagram.outline import MARKS, Block, Outline

RISK_COLOURS: Final = {"low": "#2e7d32", "medium": "#f9a825", "high": "#e65100", "critical": "#b71c1c"}
RESULT_COLOURS: Final = {"success": "#c8e6c9", "failed": "#ffcdd2", "error": "#ffcdd2", "skipped": "#eeeeee"}
_START: Final = "start"
_PLAIN: Final = " .,:;-_/()✓✗→⚠⛔+=@%!?'…‹›"
_SHAPES: Final = {
    "branch": ('{"', '"}'),
    "parallel": ('[/"', '"/]'),
    "loop": ('[["', '"]]'),
    "end": ('(["', '"])'),
}


class Edge(NamedTuple):
    """A line from a block to another; a jump is dashed."""

    start: str
    end: str
    label: str = ""
    is_jump: bool = False


class Graph:
    """The edges between the blocks of an outline."""

    def __init__(self, outline: Outline) -> None:
        self.blocks: list[Block] = []
        self.edges: list[Edge] = []
        self._names: dict[str, str] = {}
        self._jumps: list[tuple[Block, str]] = []
        self._ends: list[str] = []
        exits = self._list(outline.blocks, [(_START, "")])
        ends = dict.fromkeys([*self._ends, *(each for each, _ in exits)])
        self._list(outline.finally_, [(each, "finally") for each in ends])
        for block, name in self._jumps:
            if name in self._names:
                self.edges.append(Edge(block.id, self._names[name], "retry", is_jump=True))

    def _list(self, blocks: tuple[Block, ...], entries: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Connect a list of blocks; the places where it is left."""
        for block in blocks:
            self.blocks.append(block)
            self._names[block.name] = block.id
            self.edges += (Edge(start, block.id, label) for start, label in entries)
            if block.jumps_to is not None:
                self._jumps.append((block, block.jumps_to))
            if block.kind == "end":
                self._ends.append(block.id)
                entries = []
            elif block.arms:
                entries = [end for arm in block.arms for end in self._list(arm.blocks, [(block.id, arm.label)])]
            else:
                entries = [(block.id, "")]
        return entries


def mermaid(outline: Outline) -> Iterator[str]:
    """A flowchart in Mermaid."""
    graph = Graph(outline)
    yield "flowchart TD"
    yield f'  {_START}(["{_quoted(outline.name)}"])'
    for block in graph.blocks:
        text = "<br/>".join(_quoted(line) for line in label_lines(block))
        before, after = _SHAPES.get(block.kind, ('["', '"]'))
        yield f"  {block.id}{before}{text}{after}"
    for edge in graph.edges:
        arrow = "-.->" if edge.is_jump else "-->"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        yield f"  {edge.start} {arrow}{label} {edge.end}"
    for block in graph.blocks:
        style = [f"stroke:{RISK_COLOURS[block.risk]},stroke-width:2px"] if block.risk else []
        style += [f"fill:{RESULT_COLOURS[block.result]}"] if block.result in RESULT_COLOURS else []
        if style:
            yield f"  style {block.id} {','.join(style)}"


def dot(outline: Outline) -> Iterator[str]:
    """A digraph for Graphviz."""
    graph = Graph(outline)
    yield "digraph runbook {"
    yield '  rankdir=TB; node [shape=box, fontname="sans-serif"]; edge [fontname="sans-serif", fontsize=10];'
    yield f"  {_START} [shape=oval, label={_dot_text(outline.name)}];"
    shapes = {"branch": "diamond", "parallel": "trapezium", "loop": "box3d", "end": "oval"}
    for block in graph.blocks:
        fill = RESULT_COLOURS.get(block.result or "")
        words = [f"label={_dot_text(chr(10).join(label_lines(block)))}", f"shape={shapes.get(block.kind, 'box')}"]
        words += [f'color="{RISK_COLOURS[block.risk]}", penwidth=2'] if block.risk else []
        words += [f'style=filled, fillcolor="{fill}"'] if fill else []
        yield f"  {block.id} [{', '.join(words)}];"
    for edge in graph.edges:
        words = [f"label={_dot_text(edge.label)}"] if edge.label else []
        words += ["style=dashed, constraint=false"] if edge.is_jump else []
        attributes = f" [{', '.join(words)}]" if words else ""
        yield f"  {edge.start} -> {edge.end}{attributes};"
    yield "}"


def label_lines(block: Block) -> list[str]:
    """What stands in a block: its result, title, what it does, approval and risk."""
    mark = f"{MARKS[block.result]} " if block.result in MARKS else ""
    lines = [f"{mark}{block.title}"]
    if block.detail and block.detail != block.title:
        lines.append(block.detail)
    notes = []
    if block.needs_approval:
        notes.append("⚠ approval")
    elif block.verdict == "deny":
        notes.append("⛔ denied")
    if block.risk in ("medium", "high", "critical"):
        notes.append(f"{block.risk} risk")
    return [*lines, ", ".join(notes)] if notes else lines


def _quoted(text: str) -> str:
    """Text inside a Mermaid label: nothing in it ends the label or is markup."""
    return "".join(
        each if each.isalnum() or each in " .,:;-_/()✓✗→⚠⛔+=@%!?'…‹›" else f"#{ord(each)};" for each in text
    )


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
