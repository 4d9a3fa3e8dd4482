"""The policies a runbook runs under: its own, and the floor that the project and the command line set."""

import os
from collections.abc import Iterable, Iterator

import msgspec

from gert.ecosystem.host.documents import Checked, Workspace
from gert.ecosystem.host.files import yaml_files
from gert.errors import DocumentError, UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.program import Program, policy_file, policy_of


class Floor(msgspec.Struct, frozen=True):
    """The policies of a run, the runbook's own first, and the digests of the files the others come from, by name."""

    policies: list[Policy]
    digests: dict[str, str]


def policies_for(workspace: Workspace, file: str, program: Program, named: Iterable[str] = ()) -> list[Policy]:
    """The runbook's own policy, those of its project, and those named; the strictest decides."""
    return floor_for(workspace, file, program, named).policies


def floor_for(workspace: Workspace, file: str, program: Program, named: Iterable[str] = ()) -> Floor:
    """The policies, and what was read."""
    folder = os.path.dirname(os.path.abspath(file))
    checked = workspace.project_file(folder)
    if checked is not None:
        # A project that cannot be read might have set a floor: nothing runs on a guess.
        sound(checked)
    project, root = workspace.project(folder), workspace.project_root(folder)
    floor = [os.path.join(root, path) for path in project.policies] if project is not None and root is not None else []
    files = dict.fromkeys(os.path.normpath(path) for path in _files((*floor, *named)))
    documents = [sound(workspace.check(path, kind="policy")).document for path in files]
    policies = [policy_file(document.model) for document in documents]
    digests: dict[str, str] = {}
    for policy, document in zip(policies, documents, strict=True):
        # Two files may call themselves alike, and both hold.
        alike = sum(1 for name in digests if name.partition("#")[0] == policy.name)
        digests[f"{policy.name}#{alike + 1}" if alike else policy.name] = document.digest
    return Floor([policy_of(program.runbook.meta.governance), *policies], digests)


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


def sound(checked: Checked) -> Checked:
    """A document that may be acted on; its first error where it may not."""
    for finding in checked.findings:
        if finding.severity is Severity.ERROR:
            where = f"{checked.file}:{finding.line}:{finding.column}"
            raise DocumentError(f"{where}: {finding.message}", hint=f"`gert validate {checked.file}` shows everything")
    return checked
