"""The policies a runbook runs under: its own, and the floor that the project and the command line set."""

import os
from collections.abc import Iterable, Iterator

from gert.ecosystem.host.documents import Checked, Workspace
from gert.ecosystem.host.files import yaml_files
from gert.errors import DocumentError, UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.program import Program, policy_file, policy_of


def policies_for(workspace: Workspace, file: str, program: Program, named: Iterable[str] = ()) -> list[Policy]:
    """The runbook's own policy, those of its project, and those named; the strictest decides."""
    folder = os.path.dirname(os.path.abspath(file))
    project, root = workspace.project(folder), workspace.project_root(folder)
    floor = [os.path.join(root, path) for path in project.policies] if project is not None and root is not None else []
    files = dict.fromkeys(os.path.normpath(path) for path in _files((*floor, *named)))
    return [policy_of(program.runbook.meta.governance), *(_policy(workspace, path) for path in files)]


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = list(yaml_files(path))
        if not found:
            # An empty floor would let everything through without a word.
            raise UsageError(f"there are no policies in `{path}`")
        yield from found


def _policy(workspace: Workspace, file: str) -> Policy:
    return policy_file(sound(workspace.check(file, kind="policy")).document.model)


def sound(checked: Checked) -> Checked:
    """A document that may be acted on; its first error where it may not."""
    for finding in checked.findings:
        if finding.severity is Severity.ERROR:
            where = f"{checked.file}:{finding.line}:{finding.column}"
            raise DocumentError(f"{where}: {finding.message}", hint=f"`gert validate {checked.file}` shows everything")
    return checked
