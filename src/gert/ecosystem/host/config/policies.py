"""The policies of a run: the runbook's own, and the floor from settings, `GERT_POLICY` and the command line."""

import os
from collections.abc import Iterable, Iterator

import msgspec

from gert.ecosystem.host.config.policy_files import policy_files
from gert.ecosystem.host.config.settings import POLICY, Settings, require_sound, settings_for
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.errors import UsageError
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.program import Program, policy_file, policy_of

__all__ = ["Floor", "PolicySource", "floor_for", "read_policies", "require_sound"]


class Floor(msgspec.Struct, frozen=True):
    """The policies of a run, the runbook's own first, and the files of the others.

    digests: by the name of the policy
    documents: by path
    """

    policies: list[Policy]
    digests: dict[str, str]
    documents: dict[str, Document]


class PolicySource(msgspec.Struct, frozen=True):
    """A policy and its file."""

    checked: Checked
    policy: Policy


def floor_for(
    workspace: Workspace,
    file: str,
    program: Program,
    named: Iterable[str] = (),
    settings: Settings | None = None,
) -> Floor:
    """The floor of a runbook; without `settings`, with the settings of the runbook's folder."""
    if settings is None:
        settings = settings_for(
            workspace, os.path.dirname(os.path.abspath(file)), files=workspace.files_of(file, program)
        )
    sources = floor_sources(workspace, settings, named)
    digests: dict[str, str] = {}
    for source in sources:
        # Two files may have the same name; both apply.
        name = source.policy.name
        alike = sum(1 for each in digests if each.partition("#")[0] == name)
        digests[f"{name}#{alike + 1}" if alike else name] = source.checked.document.digest
    policies = [source.policy for source in sources]
    documents = {source.checked.file: source.checked.document for source in sources}
    return Floor([policy_of(program.runbook.meta.governance), *policies], digests, documents)


def floor_sources(workspace: Workspace, settings: Settings, named: Iterable[str] = ()) -> list[PolicySource]:
    """The policies of settings and of GERT_POLICY, and those in `named`."""
    return read_policies(workspace, (*_named(workspace, settings), *_demanded(settings), *named))


def read_policies(workspace: Workspace, paths: Iterable[str]) -> list[PolicySource]:
    """Read the policies in files and folders, each file once; a missing or invalid file is an error."""
    # The command line and a setting may name the same file; its real path identifies it.
    files: dict[str, str] = {}
    for path in policy_files(paths):
        # An invalid path is reported when the file is read.
        files.setdefault(path if "\0" in path else os.path.realpath(path), path)
    checked = [require_sound(workspace.check(path, kind="policy", alone=True)) for path in files.values()]
    return [PolicySource(each, policy_file(each.document.model)) for each in checked]


def _named(workspace: Workspace, settings: Settings) -> Iterator[str]:
    """The policies that files of the project name; where there is none, the error says which line names it."""
    for path in settings.policies:
        place = settings.policy_places[path]
        if not (os.path.lexists(path) or workspace.is_stored(path)):
            raise UsageError(f"{place}: there is no policy at `{path}`", hint="create it, or correct the path")
        try:
            yield from policy_files([path])
        except UsageError as problem:
            raise UsageError(f"{place}: {problem.message}", hint=problem.hint) from None


def _demanded(settings: Settings) -> Iterator[str]:
    """The policies of GERT_POLICY, relative to the working directory."""
    for path in settings.demanded:
        if not path:
            message = f"{POLICY} is empty" if len(settings.demanded) == 1 else f"an entry of {POLICY} is empty"
            hint = f"set it to policy files and folders, separated by `{os.pathsep}`, or unset it"
            raise UsageError(message, hint=hint)
        if not os.path.exists(path):
            raise UsageError(
                f"{POLICY} names `{path}`, which does not exist", hint=f"paths are relative to `{os.getcwd()}`"
            )
        yield os.path.realpath(path)
