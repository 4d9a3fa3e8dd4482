"""Drawing a runbook from its file, or a run from its record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.diagram.graphs import dot, mermaid
from gert.ecosystem.host.diagram.outline import Outline, outline_of
from gert.ecosystem.host.diagram.svg import svg
from gert.ecosystem.host.diagram.way import way_of
from gert.ecosystem.host.policy.explain_runbook import explain_file, explained_steps
from gert.ecosystem.host.runs.listing import Runs
from gert.errors import UsageError
from gert.kernel.events.envelope import decode

FORMATS: Final[Mapping[str, Callable[[Outline], Iterator[str]]]] = {"mermaid": mermaid, "dot": dot, "svg": svg}


def runbook_outline(file: str, policies: Iterable[str] = ()) -> Outline:
    """The outline of a sound runbook under its policies."""
    found = explain_file(file, None, tuple(policies))
    return outline_of(found.program, found.steps)


def run_outline(runs: Runs, run_id: str) -> Outline:
    """The outline of a run: the runbook as it was recorded, with the way the run took."""
    entry = runs.entry(run_id)
    start = entry.started_with
    if start is None:
        raise UsageError(f"run `{run_id}` does not say which runbook it ran", hint="name the runbook instead")
    stored = runs.reader.ask(lambda ledger: ledger.documents(list(start.documents.values())))
    documents = {path: stored[digest] for path, digest in start.documents.items() if digest in stored}
    program = Workspace(stored=documents).program(start.file).program
    if program is None:
        raise UsageError(f"the runbook of run `{run_id}` cannot be read any more")
    way = way_of((decode(line) for line in runs.lines(entry)), program)
    return msgspec.structs.replace(outline_of(program, explained_steps(program, []), way), of_run=run_id)


def draw(outline: Outline, form: str) -> str:
    """The picture in a format."""
    return "\n".join(FORMATS[form](outline)) + "\n"
