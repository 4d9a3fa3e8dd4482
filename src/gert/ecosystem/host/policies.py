"""The policies a runbook runs under: its own, and the floor that settings, `GERT_POLICY` and the command line set."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gert.ecosystem.host.documents import Checked, Workspace
from gert.ecosystem.host.files import YAML_SUFFIXES, read_document
from gert.ecosystem.host.settings import POLICY, Settings, settings_for, sound
from gert.errors import DocumentError, UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.document import detect
from gert.kernel.runbook.documents.policy_test import FILE_SUFFIXES
from gert.kernel.runbook.program import Program, policy_file, policy_of
from gert.kernel.runbook.reader import read

__all__ = ["Floor", "PolicySource", "floor_for", "policies_for", "read_policies", "sound"]


class Floor(msgspec.Struct, frozen=True):
    """The policies of a run, the runbook's own first, and the digests of the files the others come from, by name."""

    policies: list[Policy]
    digests: dict[str, str]


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
    return Floor([policy_of(program.runbook.meta.governance), *policies], digests)


def read_policies(workspace: Workspace, paths: Iterable[str]) -> list[PolicySource]:
    """The policies in files and folders, each file once; one that is not there or not sound is an error."""
    # One file may be named from here and from a setting; by where it really is, it is one.
    files: dict[str, str] = {}
    for path in _files(paths):
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


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = [file for file in _below(path, set()) if not _is_test(file)]
        if not found:
            # An empty floor would let everything through without a word.
            raise UsageError(f"there are no policies in `{path}`")
        yield from found


def _below(folder: str, seen: set[str]) -> Iterator[str]:
    """Every file in a folder of policies, hidden ones and those behind links included, in a stable order.

    What cannot be read or is not understood may have been meant as a policy, so it is an error. A folder that was
    read before, which a link leads back to, adds nothing.
    """
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise DocumentError(f"the policies in `{folder}` cannot be read: {why}", hint=_FLOOR) from None
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and name != ".git":
            yield from _below(path, seen)
        elif name.lower().endswith(YAML_SUFFIXES):
            yield path
        elif not (name in _NO_POLICIES or name.lower().endswith(_TEXTS)):
            raise DocumentError(f"`{path}` is in a folder of policies and is not one", hint=_FLOOR)


_FLOOR: Final = "every file in a folder of policies is one, or a test of one: move or rename it, so that none is missed"
_TEXTS: Final = (".md", ".txt")
_NO_POLICIES: Final = frozenset({".git", ".gitignore", ".gitattributes", ".gitkeep", ".DS_Store"})
"""What version control and file managers leave in a folder."""


def _is_test(file: str) -> bool:
    """Whether a file is a test that lies beside its policy, by its name *and* by what it says.

    By one alone, a policy would be lost that is called wrongly, or whose first line was changed.
    """
    return file.endswith(FILE_SUFFIXES) and detect(read(read_document(file)).tree.root) == "policy-test"
