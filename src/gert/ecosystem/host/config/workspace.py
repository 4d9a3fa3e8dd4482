"""Loading documents with everything they refer to: projects, tools, the runbook of a scenario."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from gert.ecosystem.host.config.files import (
    DOCUMENT_FOLDERS,
    SCENARIOS,
    UNREAD,
    is_file,
    is_found_below,
    is_there,
    read_document,
    require_read,
    runbook_of,
    yaml_files,
)
from gert.ecosystem.host.config.machine.gc_pause import without_collector
from gert.ecosystem.host.config.machine.platform import facts_for
from gert.ecosystem.host.config.policy_files import policy_files
from gert.ecosystem.host.config.project_root import project_roots
from gert.ecosystem.host.config.providers import Provider, found_providers, providers_in
from gert.ecosystem.host.config.skills import BUNDLED, SKILLS, load_skills, skill_files
from gert.ecosystem.tools.runners import Runners
from gert.errors import GertError, UsageError
from gert.kernel.runbook.document import Document, is_foreign, load
from gert.kernel.runbook.documents.project import CONFIG_FILES, PROJECT_FILE, Config
from gert.kernel.runbook.documents.runbook import API_VERSION as RUNBOOK_VERSION
from gert.kernel.runbook.documents.runbook import Runbook
from gert.kernel.runbook.documents.skill import SKILL_SUFFIX
from gert.kernel.runbook.documents.tool import API_VERSION as TOOL_VERSION
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.program import Program, SkillLookup, ToolLookup, skills_named
from gert.kernel.runbook.tools import Base, places
from gert.kernel.runbook.tree import Tree
from gert.kernel.runbook.validate import validate
from gert.kernel.runbook.validate.domain.environment import SecretNeed, secrets_needed
from gert.kernel.runbook.validate.domain.rule_matches import (
    all_tags,
    governed_by,
    misspelt_tags,
    tags_of_rules,
    tags_of_tool,
)
from gert.kernel.runbook.validate.facts import ContractTags, Governed

MOST_FILES: Final = 2000
"""The most YAML files of a project that are read to compare a policy with them."""

_WITH_CONTRACTS: Final = (RUNBOOK_VERSION.encode(), TOOL_VERSION.encode())


class Checked(msgspec.Struct, frozen=True):
    """A validated file: the document with its findings, and the program of a runbook."""

    file: str
    document: Document
    program: Program | None = None
    secrets: tuple[SecretNeed, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """The findings of validation."""
        return self.document.findings


class Workspace:
    """Loads and validates files, reading each project and tool once.

    stored: documents of a resumed run, by path; they replace files that no longer exist
    within: a real folder; tools outside of it are not found, for a text that a stranger wrote
    skipped: how many YAML files of the folders that were validated are not gert documents
    """

    def __init__(
        self, working: str | None = None, stored: Mapping[str, bytes] | None = None, within: str | None = None
    ) -> None:
        self.working = working or os.getcwd()
        self.skipped = 0
        self._within = within
        self._stored = stored or {}
        self._roots: dict[str, tuple[str, ...]] = {}
        self._configs: dict[str, Checked] = {}
        self._tools: dict[str, Document] = {}
        self._programs: dict[str, Checked] = {}
        self._skills: dict[str | None, dict[str, SkillLookup]] = {}
        self._contracts: dict[str, Governed] = {}

    @without_collector
    def check(
        self,
        file: str,
        *,
        source: bytes | None = None,
        kind: str | None = None,
        runbook: Program | None = None,
        alone: bool = False,
    ) -> Checked:
        """Validate one file; a scenario against `runbook`, or the runbook it belongs to.

        alone: do not compare a policy with the tools and runbooks of its project, which takes reading them all
        """
        if source is None and os.path.basename(file) in UNREAD:
            require_read(os.path.dirname(file))
        source = self._source(file) if source is None else source
        document = load(source, kind=kind, file_name=file)
        folder = os.path.dirname(os.path.abspath(file))
        configs = self.configs(folder)
        providers = self._providers(folder) if configs is not None else {}
        if isinstance(document.model, Config):
            providers = providers_in(os.path.abspath(file), document.model)
        found = found_providers(providers.values(), os.environ)
        facts = facts_for(configs, self._outer_configs(folder), found)
        if facts.supported is not None:
            runners = self.runners(folder, os.environ, self.working)
            facts = msgspec.structs.replace(
                facts, supported=msgspec.structs.replace(facts.supported, extensions=runners)
            )
        if isinstance(document.model, Config):
            named = (*document.model.policies, *document.model.secrets_policies)
            missing = [path for path in named if not os.path.exists(os.path.join(folder, path))]
            refused = dict(self._refused(document.model, folder)) if document.is_sound else {}
            facts = msgspec.structs.replace(facts, absent=frozenset(missing), refused=refused)
        elif document.kind == "policy":
            naming = self._naming_roots(file, folder)
            governed = self._governed(naming[-1]) if naming and not alone else None
            facts = msgspec.structs.replace(facts, is_unapplied=naming == [], governed=governed)
        elif isinstance(document.model, Tool) and not alone:
            facts = msgspec.structs.replace(facts, rules=self._rules_for(document.model, folder))
        program: Program | None = None
        secrets: tuple[SecretNeed, ...] = ()
        if document.kind == "runbook" and document.model is not None:
            program = self._program(document, folder)
            secrets = tuple(secrets_needed(program, facts))
        elif document.kind in {"scenario", "test"}:
            program = runbook or self._runbook_of(file)
        return Checked(file, validate(document, program, facts), program, secrets)

    def runners(self, folder: str, environ: Mapping[str, str], working: str) -> Runners:
        """What finds the runners of extensions, for a runbook in a folder."""
        folders = (folder, self.project_root(folder), working)
        return Runners(folders=tuple(each for each in folders if each is not None), environment=environ)

    def check_all(self, names: Iterable[str]) -> Iterator[Checked]:
        """Validate files and folders; in a folder, skip files that are not gert documents."""
        for name in names:
            if os.path.isdir(name):
                yield from self._folder(name)
            else:
                yield self.check(name)

    def _refused(self, config: Config, folder: str) -> Iterator[tuple[str, str]]:
        """The policies of a project or configuration that would fail every run, and why."""
        for path in config.policies:
            named = os.path.join(folder, path)
            if os.path.exists(named):
                try:
                    checked = [self.check(file, kind="policy", alone=True) for file in policy_files([named])]
                except GertError as problem:
                    yield path, problem.message
                    continue
                wrong = next((each for each in checked if not each.document.is_sound), None)
                if wrong is not None:
                    yield path, f"`{self._shown(wrong.file)}` is not a valid policy"

    def _naming_roots(self, file: str, folder: str) -> list[str] | None:
        """The projects around a policy that name the file or its folder, nearest first; None if there are none."""
        roots = self.project_roots(folder)
        if not roots or any(self.configs(root) is None for root in roots):
            return None
        return [root for root in roots if self._names(root, os.path.realpath(file))]

    def _names(self, root: str, policy: str) -> bool:
        """Whether the project or configuration of a root names a policy, by its real path, or a folder it is in."""
        named = (
            os.path.realpath(os.path.join(os.path.dirname(config), path))
            for config, kind in self.config_files(root)
            for path in self._config(config, kind).document.model.policies
        )
        return any(policy == each or policy.startswith(os.path.join(each, "")) for each in named)

    def _governed(self, root: str) -> Governed | None:
        """The contracts of the tools and runbooks of a project; None for a project that may not be read."""
        if not self._is_open(root):
            return None
        if root not in self._contracts:
            read = [self._contracts_in(file) for file in islice(yaml_files(root), MOST_FILES + 1)]
            found = frozenset().union(*(each.contracts for each in read if each is not None))
            is_complete = len(read) <= MOST_FILES and all(each is not None and each.is_complete for each in read)
            self._contracts[root] = Governed(found, is_complete)
        return self._contracts[root]

    def _rules_for(self, tool: Tool, folder: str) -> tuple[ContractTags, ContractTags] | None:
        """The tags that rules of the projects of a tool name, and those that contracts have; None if there is no need.

        The contracts are read only for a tool that may have a misspelt tag.
        """
        roots = self.project_roots(folder)
        ruled = all_tags(tags for root in roots for tags in self._tags_of_policies(root))
        if not any(True for _ in misspelt_tags(tool, ruled)):
            return None
        governed = self._governed(roots[-1])
        return (ruled, all_tags(governed.contracts)) if governed is not None else None

    def _tags_of_policies(self, root: str) -> Iterator[ContractTags]:
        """The tags of the rules of a project; a policy that is not valid is reported where it is named."""
        for file, kind in self.config_files(root):
            config = self._config(file, kind).document.model
            named = config.policies if config is not None and self._is_open(root) else ()
            for path in (os.path.join(os.path.dirname(file), each) for each in named):
                try:
                    found = [load(self._source(each), kind="policy", file_name=each) for each in policy_files([path])]
                except GertError:
                    continue
                for policy in (each.model for each in found if each.model is not None):
                    yield from tags_of_rules(policy.governance)

    def _contracts_in(self, file: str) -> Governed | None:
        """The contracts of a file that is a tool or a runbook; None if it cannot be read as one."""
        if not self._is_open(file):
            return None
        folder = os.path.dirname(file)
        try:
            source = self._source(file)
            if not any(version in source for version in _WITH_CONTRACTS):
                return Governed(frozenset())
            document = load(source, file_name=file)
            if isinstance(document.model, Tool):
                return Governed(frozenset(tags_of_tool(document.model, self.skills(folder))))
            if isinstance(document.model, Runbook):
                return governed_by(self._program(document, folder))
        except GertError:
            return None
        return Governed(frozenset()) if document.model is not None else None

    def program(self, file: str) -> Checked:
        """A runbook with its tools; validated once and cached."""
        key = os.path.abspath(file)
        if key not in self._programs:
            self._programs[key] = self.check(file, kind="runbook")
        return self._programs[key]

    def files_of(self, file: str, program: Program) -> list[str]:
        """The paths of a runbook and of its tools."""
        found = (lookup.file for lookup in program.lookups.values() if lookup.file is not None)
        return [os.path.join(self.working, each) for each in (file, *found)]

    def _folder(self, folder: str) -> Iterator[Checked]:
        found = False
        for file in yaml_files(folder):
            checked = self._check_found(file)
            if is_foreign(checked.document, file, is_expected=self._is_expected(file)):
                self.skipped += 1
                continue
            found = True
            yield checked
        if not found:
            raise UsageError(f"there are no gert documents in `{folder}`")

    def _is_expected(self, file: str) -> bool:
        """Whether a file is where a project has its documents; beside a scenario there may be other data."""
        path = os.path.abspath(file)
        root = self.project_root(os.path.dirname(path))
        first, *rest = os.path.relpath(path, root).split(os.sep) if root is not None else [""]
        return first in DOCUMENT_FOLDERS and SCENARIOS not in rest

    def _check_found(self, file: str) -> Checked:
        """Validate a file found in a folder; an unreadable file must not stop the others."""
        try:
            return self.check(file)
        except GertError as problem:
            finding = Finding(
                rule="Y02",
                severity=Severity.ERROR,
                path=(),
                message=problem.message,
                hint=problem.hint,
                line=1,
                column=1,
            )
            return Checked(file, Document("unreadable", None, Tree(None, ""), [finding]))

    def configs(self, folder: str) -> list[Config] | None:
        """The project and configuration of a folder, weakest first.

        None if there is neither, or if one of them is invalid.
        """
        checked = [self._config(file, kind) for file, kind in self.config_files(folder)]
        if not checked or any(each.document.model is None for each in checked):
            return None
        return [each.document.model for each in checked]

    def _providers(self, folder: str) -> dict[str, Provider]:
        """The providers that the project and configuration of a folder configure, by name."""
        found: dict[str, Provider] = {}
        for file, kind in self.config_files(folder):
            found |= providers_in(file, self._config(file, kind).document.model)
        return found

    def _outer_configs(self, folder: str) -> Iterator[Config]:
        """The valid configurations of the projects that enclose the project of a folder, nearest first."""
        for root in self.project_roots(folder)[1:]:
            yield from self.configs(root) or ()

    def config_files(self, folder: str) -> Iterator[tuple[str, str]]:
        """The project and configuration files of a folder with their kind, weakest first."""
        root = self.project_root(folder)
        if root is not None:
            yield os.path.join(root, PROJECT_FILE), "project"
        for name in CONFIG_FILES:
            file = os.path.join(root if root is not None else self.working, *name.split("/"))
            if is_there(file):
                yield file, "config"

    def _config(self, file: str, kind: str) -> Checked:
        if file not in self._configs:
            self._configs[file] = Checked(file, load(read_document(file), kind=kind, file_name=file))
        return self._configs[file]

    def project_root(self, folder: str) -> str | None:
        """The nearest folder, this one or above, with a project file."""
        return next(iter(self.project_roots(folder)), None)

    def project_roots(self, path: str) -> tuple[str, ...]:
        """Every folder, this one or above, with a project file, nearest first; for a file, the folders that hold it.

        The folders above each link on the path count as well: a link leads out of no project.
        """
        if path not in self._roots:
            self._roots[path] = project_roots(path)
        return self._roots[path]

    def _program(self, document: Document, folder: str) -> Program:
        runbook: Runbook = document.model
        lookups = {entry: self._find(entry, folder) for entry in dict.fromkeys(runbook.tools)}
        named = skills_named(lookup.tool for lookup in lookups.values() if lookup.tool is not None)
        if not named:
            return Program(runbook, lookups)
        known = self.skills(folder)
        return Program(runbook, lookups, {skill: known[skill] for skill in named if skill in known})

    def skills(self, folder: str) -> dict[str, SkillLookup]:
        """The skills of the project of a folder by id, and the bundled ones; Refused where an id is there twice."""
        root = self.project_root(folder)
        if root not in self._skills:
            self._skills[root] = load_skills(self.skill_files(folder), self._source)
        return self._skills[root]

    def skill_files(self, folder: str) -> list[str]:
        """The files of skills of the project of a folder, and the bundled ones."""
        files = dict.fromkeys(skill_files(self._skill_folders(folder)))
        return [*files, *(path for path in self._stored if path.endswith(SKILL_SUFFIX) and self.is_stored(path))]

    def _skill_folders(self, folder: str) -> Iterator[str]:
        yield os.path.join(self.project_root(folder) or self.working, SKILLS)
        for file, kind in self.config_files(folder):
            model = self._config(file, kind).document.model
            for path in model.skills if model is not None else ():
                yield os.path.join(os.path.dirname(file), path)
        yield BUNDLED

    def _find(self, entry: str, folder: str) -> ToolLookup:
        bases: dict[Base, str | None] = {
            "runbook": folder,
            "project": self.project_root(folder),
            "working": self.working,
        }
        searched: list[str] = []
        for base, below in places(entry):
            root = bases[base]
            file = os.path.normpath(os.path.join(root, below)) if root is not None else None
            if file is None or self._shown(file) in searched:
                continue
            searched.append(self._shown(file))
            if self._is_open(file) and (is_file(file) or self.is_stored(file)):
                return ToolLookup(entry, tuple(searched), self._shown(file), self._tool(file))
        return ToolLookup(entry, tuple(searched))

    def _is_open(self, file: str) -> bool:
        """Whether a file may be read."""
        return self._within is None or is_found_below(self._within, os.path.realpath(file))

    def _tool(self, file: str) -> Document:
        if file not in self._tools:
            document = load(self._source(file), kind="tool", file_name=file)
            self._tools[file] = validate(document)
        return self._tools[file]

    def _runbook_of(self, file: str) -> Program | None:
        """The runbook that a scenario belongs to."""
        runbook = runbook_of(os.path.dirname(os.path.abspath(file)))
        return self.program(runbook).program if runbook is not None else None

    def _source(self, file: str) -> bytes:
        return self._stored[os.path.abspath(file)] if self.is_stored(file) else read_document(file)

    def is_stored(self, file: str) -> bool:
        """Whether a file no longer exists and its bytes are on record; an existing file is read and compared."""
        return os.path.abspath(file) in self._stored and not os.path.lexists(file)

    def _shown(self, file: str) -> str:
        """A path in readable form: relative if that is shorter."""
        relative = os.path.relpath(file, self.working)
        return relative if len(relative) < len(file) and not relative.startswith(os.path.join("..", "..")) else file


def validate_file(file: str) -> Checked:
    """Validate one file with everything it refers to."""
    return Workspace().check(file)
