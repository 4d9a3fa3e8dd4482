"""The policies a runbook runs under: its own, and the floor that settings, `GERT_POLICY` and the command line set."""

import os
from collections.abc import Iterable, Iterator

import msgspec

from gert.ecosystem.host.config.policy_files import policy_files
from gert.ecosystem.host.config.settings import POLICY, Settings, settings_for, sound
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.errors import UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.program import Program, policy_file, policy_of

__all__ = ["Floor", "PolicySource", "floor_for", "policies_for", "read_policies", "sound"]


class Floor(msgspec.Struct, frozen=True):
    """The policies of a run, the runbook's own first, and the files the others come from.

    digests, documents: by the name of the policy, and by path
    """

    policies: list[Policy]
    digests: dict[str, str]
    documents: dict[str, Document]


class PolicySource(msgspec.Struct, frozen=True):
    """A policy and the file it was read from."""

    checked: Checked
    policy: Policy


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
        settings = settings_for(
            workspace, os.path.dirname(os.path.abspath(file)), files=workspace.files_of(file, program)
        )
    sources = read_policies(workspace, (*settings.policies, *_demanded(settings), *named))
    digests: dict[str, str] = {}
    for source in sources:
        # Two files may call themselves alike, and both hold.
        name = source.policy.name
        alike = sum(1 for each in digests if each.partition("#")[0] == name)
        digests[f"{name}#{alike + 1}" if alike else name] = source.checked.document.digest
    policies = [source.policy for source in sources]
    documents = {source.checked.file: source.checked.document for source in sources}
    return Floor([policy_of(program.runbook.meta.governance), *policies], digests, documents)


def read_policies(workspace: Workspace, paths: Iterable[str]) -> list[PolicySource]:
    """The policies in files and folders, each file once; one that is not there or not sound is an error."""
    # One file may be named from here and from a setting; by where it really is, it is one.
    files: dict[str, str] = {}
    for path in policy_files(paths):
        # What is no path at all, whoever reads it says.
        files.setdefault(path if "\0" in path else os.path.realpath(path), path)
    checked = [sound(workspace.check(path, kind="policy")) for path in files.values()]
    return [PolicySource(each, policy_file(each.document.model)) for each in checked]


def _demanded(settings: Settings) -> Iterator[str]:
    """What the environment names: relative to where gert was called, whichever folder is looked at."""
    for path in settings.demanded:
        if not path:
            message = f"{POLICY} names nothing" if len(settings.demanded) == 1 else f"an entry of {POLICY} is empty"
            hint = f"policy files and folders, separated by `{os.pathsep}`; unset it to do without"
            raise UsageError(message, hint=hint)
        if not os.path.exists(path):
            raise UsageError(
                f"{POLICY} names `{path}`, and there is nothing", hint=f"paths are relative to `{os.getcwd()}`"
            )
        yield os.path.realpath(path)
