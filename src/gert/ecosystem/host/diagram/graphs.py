"""Pictures as graphs in text: Mermaid and Graphviz. Loops, groups and lanes are boxes around their steps."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gert.ecosystem.host.diagram.outline import MARKS, Arm, Block, Outline

RISK_COLOURS: Final = {"low": "#2e7d32", "medium": "#f9a825", "high": "#e65100", "critical": "#b71c1c"}
RESULT_COLOURS: Final = {"success": "#c8e6c9", "failed": "#ffcdd2", "error": "#ffcdd2", "skipped": "#eeeeee"}
INK: Final = "#263238"
FAINT: Final = "#90a4ae"
_START: Final = "start"
_FINALLY: Final = "finally"
_SHAPES: Final = {"branch": ('{"', '"}'), "loop": ('[["', '"]]'), "parallel": ('[["', '"]]'), "end": ('(["', '"])')}
_DOT_SHAPES: Final = {"branch": "diamond", "loop": "box3d", "parallel": "box3d", "end": "oval"}


class Edge(NamedTuple):
    """A line from a block to another; `is_taken` tells whether the run went there."""

    start: str
    end: str
    label: str = ""
    is_jump: bool = False
    is_taken: bool = True


class _Exit(NamedTuple):
    """A place where a list of blocks is left."""

    start: str
    label: str = ""
    is_taken: bool = True


class Graph:
    """The edges between the blocks of an outline; a box is entered and left as a whole."""

    def __init__(self, outline: Outline) -> None:
        self.blocks: list[Block] = []
        self.edges: list[Edge] = []
        self._ends: list[_Exit] = []
        self._failed: list[_Exit] = []
        self.joins: set[str] = set()
        exits = self._list(outline.blocks, [_Exit(_START)])
        ends = [*self._ends, *(each._replace(label="finally") for each in exits)]
        if outline.of_run is not None and not any(each.is_taken for each in ends):
            ends += self._failed
        if outline.finally_:
            self._joined(self._list(outline.finally_, list(dict.fromkeys(ends))), _FINALLY)
        order = {block.name: at for at, block in enumerate(self.blocks) if block.name}
        for at, block in enumerate(self.blocks):
            target = order.get(block.jumps_to or "")
            if target is not None:
                label = "retry" if target <= at else "next"
                self.edges.append(
                    Edge(block.id, self.blocks[target].id, label, is_jump=True, is_taken=block.has_jumped)
                )

    def _list(self, blocks: tuple[Block, ...], exits: list[_Exit]) -> list[_Exit]:
        """Connect a list of blocks; the places where it is left."""
        for block in blocks:
            self.blocks.append(block)
            self.edges += (
                Edge(start, block.id, label, is_taken=taken and block.is_reached) for start, label, taken in exits
            )
            exits = [_Exit(block.id, is_taken=block.is_left)]
            if block.kind == "end":
                self._ends.append(_Exit(block.id, "finally", block.is_reached))
                exits = []
            elif block.is_box:
                for name, arm in lanes(block):
                    self._joined(self._list(arm.blocks, []), name)
            elif block.kind == "branch":
                ways = [(arm, _Exit(block.id, arm.label, arm.was_taken)) for arm in block.arms]
                exits = [left for arm, way in ways for left in self._list(arm.blocks, [way])]
            elif block.is_reached and not block.is_left:
                self._failed.append(_Exit(block.id, "finally"))
            if not block.falls_through:
                exits = []
        return exits

    def _joined(self, exits: list[_Exit], name: str) -> None:
        """Let arms without steps lead somewhere: where nothing follows, to the end of what is around them."""
        if any(each.label for each in exits):
            self.joins.add(name)
            self.edges += (Edge(start, f"{name}_end", label, is_taken=is_taken) for start, label, is_taken in exits)


def lanes(block: Block) -> Iterator[tuple[str, Arm]]:
    """The lanes of a box, with ids; the steps of a loop are one lane without a label."""
    return ((f"{block.id}_{at}", arm) for at, arm in enumerate(block.arms, 1))


def mermaid(outline: Outline) -> Iterator[str]:
    """A flowchart in Mermaid."""
    graph = Graph(outline)
    is_run = outline.of_run is not None
    yield "flowchart TD"
    name = f'(["{_quoted(outline.name)}"])'
    # Mermaid looks for cycles from the last box on; where lines lead back, that has to be the start.
    is_boxed = any(edge.is_jump for edge in graph.edges) and any(block.is_box for block in graph.blocks)
    if not is_boxed:
        yield f"  {_START}{name}"
    yield from _mermaid_blocks((*outline.blocks, *outline.finally_), graph, "  ", _FINALLY)
    if is_boxed:
        yield from (f'  subgraph {_START}[" "]', f"    {_START}_name{name}", "  end")
        yield f"  style {_START} fill:none,stroke:none"
    for edge in graph.edges:
        # In a run a dotted line was not taken; in a runbook it is a jump.
        arrow = "-->" if edge.is_taken and (is_run or not edge.is_jump) else "-.->"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        yield f"  {edge.start} {arrow}{label} {edge.end}"
    if is_run and (faint := [str(at) for at, edge in enumerate(graph.edges) if not edge.is_taken]):
        yield f"  linkStyle {','.join(faint)} stroke:{FAINT},color:{FAINT}"
    yield from _mermaid_classes(graph)


def _mermaid_blocks(blocks: tuple[Block, ...], graph: Graph, indent: str, lane: str = "") -> Iterator[str]:
    for block in blocks:
        lines = [_quoted(line) for line in label_lines(block)]
        if not block.is_box:
            before, after = _SHAPES.get(block.kind, ('["', '"]'))
            yield f"{indent}{block.id}{before}{'<br/>'.join(lines)}{after}"
            for arm in block.arms:
                yield from _mermaid_blocks(arm.blocks, graph, indent)
            continue
        # Mermaid keeps room for one line.
        yield from (f'{indent}subgraph {block.id}["{", ".join(lines)}"]', f"{indent}  direction TB")
        # Mermaid puts the last box first.
        for name, arm in reversed(list(lanes(block))):
            if not arm.label:
                yield from _mermaid_blocks(arm.blocks, graph, f"{indent}  ", name)
                continue
            yield from (f'{indent}  subgraph {name}["{_quoted(arm.label)}"]', f"{indent}    direction TB")
            yield from _mermaid_blocks(arm.blocks, graph, f"{indent}    ", name)
            yield f"{indent}  end"
        yield f"{indent}end"
    if lane in graph.joins:
        yield f'{indent}{lane}_end(("done"))'


def _mermaid_classes(graph: Graph) -> Iterator[str]:
    """Colours: the border is the risk, the inside what a run made of it."""
    boxes = [block.id for block in graph.blocks if block.is_box]
    boxes += [name for block in graph.blocks if block.is_box for name, arm in lanes(block) if arm.label and arm.blocks]
    nodes = [block for block in graph.blocks if not block.is_box]
    looks = {"box": ("fill:none,stroke:#90a4ae,stroke-dasharray:3 3", boxes)}
    for risk, colour in RISK_COLOURS.items():
        looks[f"{risk}Risk"] = (f"stroke:{colour},stroke-width:2px", [each.id for each in nodes if each.risk == risk])
    for result, colour in RESULT_COLOURS.items():
        looks[result] = (f"fill:{colour},color:{INK}", [each.id for each in nodes if each.result == result])
    unreached = [each.id for each in graph.blocks if not each.is_reached]
    looks["notReached"] = (f"fill:none,color:{FAINT},stroke-dasharray:4 3", unreached)
    for name, (style, ids) in looks.items():
        if ids:
            yield f"  classDef {name} {style}"
            yield f"  class {','.join(ids)} {name}"


def dot(outline: Outline) -> Iterator[str]:
    """A digraph for Graphviz."""
    graph = Graph(outline)
    is_run = outline.of_run is not None
    boxes = {block.id: block for block in graph.blocks if block.is_box}
    yield "digraph runbook {"
    yield (
        '  compound=true; rankdir=TB; node [shape=box, fontname="sans-serif"]; '
        'edge [fontname="sans-serif", fontsize=10]; graph [fontname="sans-serif", fontsize=12];'
    )
    yield f"  {_START} [shape=oval, label={_dot_text(outline.name)}];"
    yield from _dot_blocks((*outline.blocks, *outline.finally_), graph, "  ", _FINALLY)
    for edge in graph.edges:
        words = [f"label={_dot_text(edge.label)}"] if edge.label else []
        if is_run and not edge.is_taken:
            words.append(f'style=dotted, color="{FAINT}", fontcolor="{FAINT}"')
        elif edge.is_jump and not is_run:
            words.append("style=dashed")
        words += ["constraint=false"] if edge.is_jump else []
        yield from _dot_edge(edge, words, boxes, graph)
    yield "}"


def _dot_edge(edge: Edge, words: list[str], boxes: dict[str, Block], graph: Graph) -> Iterator[str]:
    """An edge that ends at the borders of boxes.

    Graphviz connects nodes only. Invisible edges from and to the other lanes keep them above and below.
    """
    starts = list(_last_nodes(boxes[edge.start], graph)) if edge.start in boxes else [edge.start]
    ends = list(_first_nodes(boxes[edge.end])) if edge.end in boxes else [edge.end]
    start, end = starts[len(starts) // 2], ends[len(ends) // 2]
    if edge.start != edge.end:
        words += [f"ltail=cluster_{edge.start}"] if edge.start in boxes else []
        words += [f"lhead=cluster_{edge.end}"] if edge.end in boxes else []
    attributes = f" [{', '.join(words)}]" if words else ""
    yield f"  {start} -> {end}{attributes};"
    if not edge.is_jump:
        pairs = dict.fromkeys([*((each, end) for each in starts), *((start, each) for each in ends)])
        yield from (f"  {one} -> {other} [style=invis];" for one, other in pairs if (one, other) != (start, end))


def _first_nodes(block: Block) -> Iterator[str]:
    if not block.is_box:
        yield block.id
        return
    for arm in block.arms:
        yield from _first_nodes(arm.blocks[0])


def _last_nodes(block: Block, graph: Graph) -> Iterator[str]:
    if not block.arms:
        yield block.id
    for name, arm in lanes(block):
        if name in graph.joins:
            yield f"{name}_end"
        elif arm.blocks:
            yield from _last_nodes(arm.blocks[-1], graph)
        else:
            yield block.id


def _dot_blocks(blocks: tuple[Block, ...], graph: Graph, indent: str, lane: str = "") -> Iterator[str]:
    for block in blocks:
        label = f"label={_dot_text(chr(10).join(label_lines(block)))}"
        ink = f'fontcolor="{FAINT}"'
        if not block.is_box:
            fill = RESULT_COLOURS.get(block.result or "")
            words = [label, f"shape={_DOT_SHAPES.get(block.kind, 'box')}"]
            words += [f'color="{RISK_COLOURS[block.risk]}", penwidth=2'] if block.risk else []
            words += [f'style=filled, fillcolor="{fill}"'] if fill else []
            words += [f"style=dashed, {ink}"] if not block.is_reached else []
            yield f"{indent}{block.id} [{', '.join(words)}];"
            for arm in block.arms:
                yield from _dot_blocks(arm.blocks, graph, indent)
            continue
        yield f"{indent}subgraph cluster_{block.id} {{"
        yield f'{indent}  {label}; style=dashed; color="{FAINT}";{"" if block.is_reached else f" {ink};"}'
        for name, arm in lanes(block):
            if not arm.label:
                yield from _dot_blocks(arm.blocks, graph, f"{indent}  ", name)
                continue
            yield from (f"{indent}  subgraph cluster_{name} {{", f"{indent}    label={_dot_text(arm.label)};")
            yield from _dot_blocks(arm.blocks, graph, f"{indent}    ", name)
            yield f"{indent}  }}"
        yield f"{indent}}}"
    if lane in graph.joins:
        yield f'{indent}{lane}_end [label="done", shape=oval, fontsize=10];'


def label_lines(block: Block) -> list[str]:
    """What stands in a block: its result, title, what it does, counts, approval and risk."""
    mark = f"{MARKS[block.result]} " if block.result in MARKS else ""
    lines = [f"{mark}{block.title}"]
    if block.detail and block.detail != block.title:
        lines.append(block.detail)
    if block.count:
        lines.append(block.count)
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
