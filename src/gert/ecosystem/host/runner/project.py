"""What a project says about runners: its skills, registered runners and secrets policies."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from gert.ecosystem.host.config.files import read_document
from gert.ecosystem.host.config.keys.key_files import with_key_files
from gert.ecosystem.host.config.ledger_location import Database, ledger_name, ledger_of
from gert.ecosystem.host.config.policies import floor_sources, require_sound
from gert.ecosystem.host.config.settings import Settings, settings_for
from gert.ecosystem.host.config.state_dir import state_dir
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.errors import InputError, Refused
from gert.kernel.engine.inputs import fit
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.governance.contract import resolve
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.runner import RunnerBlock
from gert.kernel.runbook.documents.skill import SecretsPolicy, Skill
from gert.kernel.runbook.program import SkillLookup
from gert.kernel.runbook.validate import validate
from gert.kernel.runner.registry import allow_secret


class RunnerProject:
    """The project of a folder, for everything that plans, authorizes or executes.

    database: the ledger in which plans are spent (default: that of the state directory)
    config: a file of settings beside those of the project
    """

    def __init__(
        self,
        folder: str | None = None,
        *,
        environ: Mapping[str, str],
        state: str | None = None,
        database: Database | None = None,
        config: str | None = None,
        workspace: Workspace | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.folder = os.path.abspath(folder or os.getcwd())
        self.environ = with_key_files(environ)
        self.config = os.path.abspath(config) if config is not None else None
        self.workspace = workspace or Workspace()
        self.settings = settings or settings_for(self.workspace, self.folder, config, environ)
        self.root = self.workspace.project_root(self.folder) or self.folder
        self.state = state_dir(state, self.workspace.project_root(self.folder), environ)
        named = ledger_of(self.state) if database is None else database
        self.root_run: str | None = None
        """The root of the run that executes plans, where a run started it."""
        self.database: Database = os.path.abspath(named) if isinstance(named, str) else named

    @property
    def ledger(self) -> str:
        """The name of the ledger in which plans are spent: the same for every role that uses a database."""
        return re.sub(r"(?<=://)[^@/]*@", "", ledger_name(self.database))

    @property
    def runners(self) -> Mapping[str, RunnerBlock]:
        """Registered runners by id."""
        return self.settings.runners

    @cached_property
    def skills(self) -> dict[str, SkillLookup]:
        """All skills by id."""
        return self.workspace.skills(self.folder)

    @cached_property
    def secrets_policies(self) -> tuple[tuple[SecretsPolicy, ...], ...]:
        """Sets of secrets policies; each set must allow a secret."""
        return tuple(tuple(map(_secrets_policy, files)) for files in self.settings.secrets_policies)

    def skill(self, skill_id: str) -> SkillLookup:
        """A valid skill; Refused where there is none."""
        lookup = self.skills.get(skill_id)
        if lookup is None:
            hint = suggestion(skill_id, self.skills) or "`gert skill list` shows the skills there are"
            raise Refused("skill/absent", f"there is no skill `{skill_id}`", hint=hint)
        if lookup.skill is None:
            raise Refused("skill/valid", f"the skill `{skill_id}` is not valid", hint=f"gert validate {lookup.file}")
        return lookup

    def allow_secret(self, skill: Skill, reference: str | None, scope: Sequence[str]) -> None:
        """Refuse a secret that a secrets policy of this or an enclosing project does not allow."""
        if reference is not None:
            for policies in self.secrets_policies:
                allow_secret(policies, skill.id, reference, scope)

    def policies(self) -> Sequence[Policy]:
        """The governance policies that apply to everything in this project."""
        return [source.policy for source in floor_sources(self.workspace, self.settings)]


def fitted_inputs(skill: Skill, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a skill in their declared types, with defaults; InputError where one is missing or does not fit."""
    declared = resolve(skill.contract.declared()).inputs
    unknown = sorted(given.keys() - declared.keys())
    if unknown:
        listed = listing(declared)
        raise InputError(f"the skill `{skill.id}` has no input `{unknown[0]}`", hint=f"its inputs are {listed}")
    found: dict[str, Any] = {}
    for name, parameter in declared.items():
        if name in given:
            try:
                found[name] = fit(given[name], parameter)
            except InputError as problem:
                raise InputError(f"the input `{name}`: {problem.message}", hint=problem.hint) from None
        elif parameter.has_default:
            found[name] = parameter.default
        elif parameter.required:
            raise InputError(f"no value for the required input `{name}` of `{skill.id}`")
    return found


def _secrets_policy(file: str) -> SecretsPolicy:
    document = validate(load(read_document(file), kind="secrets-policy", file_name=file))
    model: SecretsPolicy = require_sound(Checked(file, document)).document.model
    return model
