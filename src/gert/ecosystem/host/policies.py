"""The policies a runbook runs under: its own, and the floor that settings and the command line set."""

import os
from collections.abc import Iterable, Iterator

import msgspec

from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.files import yaml_files
from gert.ecosystem.host.settings import Settings, settings_for, sound
from gert.errors import UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.program import Program, policy_file, policy_of

__all__ = ["Floor", "floor_for", "policies_for", "sound"]


class Floor(msgspec.Struct, frozen=True):
    """The policies of a run, the runbook's own first, and the digests of the files the others come from, by name."""

    policies: list[Policy]
    digests: dict[str, str]


def policies_for(workspace: Workspace, file: str, program: Program, named: Iterable[str] = ()) -> list[Policy]:
    """The runbook's own policy, those of its project, and those named; the strictest decides."""
    return floor_for(workspace, file, program, named).policies


def floor_for(
    workspace: Workspace,
    file: str,
    program: Program,
    named: Iterable[str] = (),
    settings: Settings | None = None,
) -> Floor:
    """The policies, and what was read; without settings, those that hold for the runbook's folder."""
    if settings is None:
        settings = settings_for(workspace, os.path.dirname(os.path.abspath(file)))
    floor = settings.policies
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
