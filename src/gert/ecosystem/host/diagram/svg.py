"""Pictures as SVG, laid out here: lists go down, arms and lanes stand side by side, loops are framed."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from gert.ecosystem.host.diagram.graphs import FAINT, INK, RESULT_COLOURS, RISK_COLOURS, label_lines
from gert.ecosystem.host.diagram.outline import Block, Outline

_LINE: Final = 16
_CHAR: Final = 7.9
_PAD: Final = 10
_GAP: Final = 26
_APART: Final = 32
_FRAME: Final = 14
_MIN: Final = 90


class _Box(NamedTuple):
    """The space of something: its width, its height, and the x of the line through it."""

    width: float
    height: float
    axis: float


class _Drawing:
    """Collects shapes; sizes are computed first, then everything is placed."""

    def __init__(self, *, is_run: bool) -> None:
        self._is_run = is_run
        self.quiet: list[str] = []
        """Lines below all others."""
        self.shapes: list[str] = []
        self.places: dict[str, tuple[float, float, float]] = {}
        self.names: dict[str, str] = {}
        self.jumps: list[Block] = []
        self._sizes: dict[int, _Box] = {}

    # --- sizes

    def list_size(self, blocks: tuple[Block, ...]) -> _Box:
        """The size of a list of blocks."""
        boxes = [self.size(block) for block in blocks]
        if not boxes:
            return _Box(_MIN / 2, _GAP, _MIN / 4)
        left = max(box.axis for box in boxes)
        right = max(box.width - box.axis for box in boxes)
        return _Box(left + right, sum(box.height for box in boxes) + _GAP * (len(boxes) - 1), left)

    def size(self, block: Block) -> _Box:
        """The size of a block with what is inside it."""
        found = self._sizes.get(id(block))
        if found is None:
            found = self._sizes[id(block)] = self._measure(block)
        return found

    def _measure(self, block: Block) -> _Box:
        width, height = _own(block)
        if not block.arms:
            return _Box(width, height, width / 2)
        inner = [self.list_size(arm.blocks) for arm in block.arms]
        if block.kind == "loop":
            body = inner[0]
            wide = max(width, body.width) + 2 * _FRAME
            return _Box(wide, height + _GAP + body.height + _FRAME, wide / 2)
        wide = max(width, sum(box.width for box in inner) + _APART * (len(inner) - 1))
        return _Box(wide, height + 2 * _GAP + max(box.height for box in inner), wide / 2)

    # --- drawing

    def draw_list(self, blocks: tuple[Block, ...], axis: float, top: float) -> tuple[float, bool]:
        """Draw blocks below each other; where the line leaves, and whether it does."""
        y, is_open = top, True
        for index, block in enumerate(blocks):
            if index:
                if is_open:
                    self.arrow(axis, y, y + _GAP, is_taken=blocks[index - 1].is_left and block.is_reached)
                y += _GAP
            y, is_open = self.draw(block, axis, y)
            is_open = is_open and block.falls_through
        return y, is_open

    def draw(self, block: Block, axis: float, top: float) -> tuple[float, bool]:
        """Draw a block around an axis."""
        width, height = _own(block)
        if block.kind == "loop" and block.arms:
            box = self.size(block)
            self.shapes.append(
                f'<rect x="{axis - box.width / 2:.1f}" y="{top + height / 2:.1f}" width="{box.width:.1f}" '
                f'height="{box.height - height / 2:.1f}" rx="6" class="frame{"" if block.is_reached else " quiet"}"/>'
            )
        self._shape(block, axis - width / 2, top, width, height)
        self.places[block.id] = (axis + width / 2, top + height / 2, axis)
        if block.name:
            self.names[block.name] = block.id
        if block.jumps_to is not None:
            self.jumps.append(block)
        if not block.arms:
            return top + height, block.kind != "end"
        return self._loop(block, axis, top, height) if block.kind == "loop" else self._arms(block, axis, top, height)

    def _loop(self, block: Block, axis: float, top: float, height: float) -> tuple[float, bool]:
        box = self.size(block)
        body = self.list_size(block.arms[0].blocks)
        start = top + height + _GAP
        inside = block.arms[0].blocks
        self.arrow(axis, top + height, start, is_taken=any(each.is_reached for each in inside[:1]))
        line = axis - body.width / 2 + body.axis
        end, is_open = self.draw_list(inside, line, start)
        if is_open:
            self.line(
                f"M{line:.1f} {end:.1f} V{top + box.height:.1f}", is_taken=all(each.is_left for each in inside[-1:])
            )
        return top + box.height, True

    def _arms(self, block: Block, axis: float, top: float, height: float) -> tuple[float, bool]:
        boxes = [self.list_size(arm.blocks) for arm in block.arms]
        total = sum(box.width for box in boxes) + _APART * (len(boxes) - 1)
        bottom = top + self.size(block).height
        x, start, is_open = axis - total / 2, top + height + _GAP, False
        for arm, box in zip(block.arms, boxes, strict=True):
            line = x + box.axis
            middle = top + height + _GAP / 3
            self.line(f"M{axis:.1f} {top + height:.1f} V{middle:.1f} H{line:.1f} V{start:.1f}", is_taken=arm.was_taken)
            self.text(line + 5, start - 4, arm.label, "label" if arm.was_taken else "label faint")
            end, leaves = self.draw_list(arm.blocks, line, start)
            if leaves:
                is_open = True
                is_taken = arm.was_taken and all(each.is_left for each in arm.blocks[-1:])
                self.line(
                    f"M{line:.1f} {end:.1f} V{bottom - _GAP / 2:.1f} H{axis:.1f} V{bottom:.1f}", is_taken=is_taken
                )
            x += box.width + _APART
        return bottom, is_open

    def draw_jumps(self, right: float) -> None:
        """Draw lines to other steps, outside on the right."""
        for number, block in enumerate(self.jumps):
            target = self.places.get(self.names.get(block.jumps_to or "", ""))
            source = self.places[block.id]
            if target is not None:
                x = right + 12 + 8 * number
                way = f"M{source[0]:.1f} {source[1]:.1f} H{x:.1f} V{target[1]:.1f} H{target[0]:.1f}"
                self.line(way, is_taken=not self._is_run or block.has_jumped, kind="jump", has_tip=True)
                self.text(source[0] + 4, source[1] - 4, "retry" if target[1] <= source[1] else "next", "label")

    def _shape(self, block: Block, x: float, y: float, width: float, height: float) -> None:
        fill = RESULT_COLOURS.get(block.result or "", "#ffffff")
        stroke = RISK_COLOURS.get(block.risk, "#607d8b")
        radius = {"end": height / 2, "branch": 2, "parallel": 2}.get(block.kind, 6)
        dashed = ' stroke-dasharray="6 3"' if block.is_manual or block.kind == "parallel" else ""
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="2"{dashed}/>'
        )
        for index, line in enumerate(label_lines(block)):
            kind = f"{'bold' if index == 0 else 'small'}{'' if block.is_reached else ' faint'}"
            self.text(x + width / 2, y + _PAD + _LINE * (index + 0.75), line, kind, middle=True)

    def arrow(self, x: float, top: float, bottom: float, *, is_taken: bool) -> None:
        """Draw a line down with a tip."""
        self.line(f"M{x:.1f} {top:.1f} V{bottom - 2:.1f}", is_taken=is_taken, has_tip=True)

    def line(self, way: str, *, is_taken: bool, kind: str = "line", has_tip: bool = False) -> None:
        """Draw a line: dark where the run went, dashed and faint where it did not."""
        look = "" if not self._is_run else " taken" if is_taken else " quiet"
        tip = f' marker-end="url(#{"tip" if is_taken else "quiet-tip"})"' if has_tip else ""
        shapes = self.quiet if look == " quiet" else self.shapes
        shapes.append(f'<path d="{way}" class="{kind}{look}"{tip}/>')

    def text(self, x: float, y: float, text: str, kind: str, *, middle: bool = False) -> None:
        """Write a line of text."""
        anchor = ' text-anchor="middle"' if middle else ""
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{anchor}>{escape(text)}</text>')


def _own(block: Block) -> tuple[float, float]:
    """The width and height of the block itself."""
    lines = label_lines(block)
    return max(_MIN, max(map(len, lines)) * _CHAR + 2 * _PAD), len(lines) * _LINE + 2 * _PAD - 4


_STYLE: Final = (
    f"<style>text{{fill:{INK}}}.bold{{font-size:13px;font-weight:600}}.small{{font-size:12px}}.label{{font-size:11px;"
    f"fill:#546e7a}}.title{{font-size:15px;font-weight:700}}.faint{{fill:{FAINT}}}"
    "path{fill:none;stroke:#607d8b;stroke-width:1.5}.jump{stroke-dasharray:5 3}"
    f".taken{{stroke:{INK};stroke-width:2.2;stroke-dasharray:none}}.quiet{{stroke:#b0bec5;stroke-dasharray:3 4}}"
    ".frame{fill:none;stroke:#90a4ae;stroke-dasharray:3 3}.frame.quiet{stroke:#cfd8dc}</style>"
)


def _tip(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" orient="auto" '
        f'markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8 z" style="fill:{colour};stroke:none"/></marker>'
    )


def svg(outline: Outline) -> Iterator[str]:
    """A picture that a browser shows; it loads nothing and has no script."""
    is_run = outline.of_run is not None
    drawing = _Drawing(is_run=is_run)
    main, after = drawing.list_size(outline.blocks), drawing.list_size(outline.finally_)
    axis = 20 + max(main.axis, after.axis if outline.finally_ else 0)
    title = f"{outline.name}, run {outline.of_run}" if is_run else outline.name
    drawing.text(20, 24, title, "title")
    if is_run:
        drawing.text(20, 42, "dark: the path it took; dashed: not taken", "label")
    end, _ = drawing.draw_list(outline.blocks, axis, 62 if is_run else 44)
    if outline.finally_:
        drawing.text(20, end + 24, "finally", "label")
        end, _ = drawing.draw_list(outline.finally_, axis, end + 34)
    right = axis + max(main.width - main.axis, after.width - after.axis)
    drawing.draw_jumps(right)
    width = max(right + 30 + 8 * len(drawing.jumps), len(title) * 9 + 40)
    size = f'width="{width:.0f}" height="{end + 20:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    yield _STYLE
    yield f"<defs>{_tip('tip', INK if is_run else '#607d8b')}{_tip('quiet-tip', '#b0bec5')}</defs>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield from (*drawing.quiet, *drawing.shapes)
    yield "</svg>"
