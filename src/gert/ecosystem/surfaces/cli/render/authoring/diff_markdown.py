"""Changes as Markdown for a pull request: a line, a table, and the folded details.

Everything from a runbook or a run is rendered as code, with every special character as a numeric reference: so no data
can end a cell, open a tag, mention a person or add a link.
"""

import re
from collections.abc import Iterator
from typing import Final

from gert.ecosystem.host.scenarios.compare_scenarios import Comparison
from gert.ecosystem.surfaces.cli.render.authoring.diff_text import notes, sections, verdict
from gert.ecosystem.surfaces.cli.render.text import clip

_SIGN: Final = re.compile(r"[^A-Za-z0-9 (),→…-]", re.ASCII)


def markdown(found: Comparison) -> str:
    """The whole comment."""
    return "\n".join(_lines(found))


def code(text: str) -> str:
    """Render data as code."""
    return f"<code>{_SIGN.sub(lambda sign: f'&#{ord(sign[0])};', clip(text))}</code>"


def _lines(found: Comparison) -> Iterator[str]:
    since = f" against {code(found.against)}" if found.against is not None else ""
    same = len(found.compared) - found.changed
    said = f"{same} unchanged, {found.changed} changed" if found.compared else "no golden scenarios to compare"
    yield f"**{code(found.runbook)}**{since}: {said}"
    if not found.compared:
        return
    yield ""
    yield "| Scenario | Before | After | |"
    yield "| --- | --- | --- | --- |"
    for each in found.compared:
        before = code(str(each.changes.before)) if each.changes is not None else ""
        after = code(str(each.changes.after)) if each.changes is not None else ""
        mark = "✓" if each.is_same else "⚠"
        yield f"| {code(each.scenario)} | {before} | {after} | {mark} {verdict(each)} |"
    for each in found.compared:
        if each.is_same:
            continue
        yield ""
        yield f"<details><summary>{code(each.scenario)}</summary>"
        for title, lines in sections(each):
            yield ""
            yield f"**{title}**"
            yield ""
            yield from (f"- {code(line)}" for line in lines)
        listed = [f"- {code(note)}" for note in notes(each)]
        if listed:
            yield ""
            yield "**Notes**"
            yield ""
            yield from listed
        yield ""
        yield "</details>"
