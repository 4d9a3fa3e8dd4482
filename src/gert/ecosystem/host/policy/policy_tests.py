"""Testing policies: decide every case of a policy test and compare the decision with the expected one.

Only the policies that a test names and those of the call apply. Settings and `GERT_POLICY` do not, so a test has the
same result everywhere.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gert.ecosystem.host.config.files import is_file, read_document, yaml_files
from gert.ecosystem.host.config.policies import PolicySource, read_policies, require_sound
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.ecosystem.host.scenarios.suite import Tested
from gert.errors import DocumentError, GertError, UsageError
from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.governance.contract import END_CONTRACT, Contract, resolve
from gert.kernel.governance.rules import Policy
from gert.kernel.governance.tighten import relaxations
from gert.kernel.runbook.document import load
from gert.kernel.runbook.documents.policy_test import API_VERSION, FILE_SUFFIXES, PolicyCaseBlock, PolicyTest
from gert.kernel.runbook.documents.tool import ActionBlock, Tool
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.program import declared
from gert.kernel.scenario.coverage import Part
from gert.kernel.scenario.policy_cases import CaseDecision, RuleCoverage, case_differences, decide_case


class JudgedCase(msgspec.Struct, frozen=True):
    """The result of one case; in `tested`, `runbook` is the file and `scenario` is the case."""

    tested: Tested
    line: int
    judged: CaseDecision | None = None


class CoveredPolicy(msgspec.Struct, frozen=True):
    """The rules of a policy that all cases together reach."""

    policy: str
    file: str
    rules: Part


def find_policy_tests(names: Iterable[str]) -> list[str]:
    """Find the policy tests among files and below folders, each once."""
    found: dict[str, str] = {}
    for name in names:
        if os.path.isdir(name):
            for file in filter(_is_policy_test, yaml_files(name)):
                found.setdefault(os.path.abspath(file), file)
        elif is_file(name):
            found.setdefault(os.path.abspath(name), name)
        else:
            raise UsageError(f"there is no file or folder `{name}`")
    return list(found.values())


class PolicySuite:
    """Policy tests, and policies that apply in addition to those they name."""

    def __init__(self, files: Sequence[str], named: Iterable[str] = ()) -> None:
        self._workspace = Workspace()
        self._files = files
        self._named = read_policies(self._workspace, named)
        self._tools: dict[str, Tool] = {}
        self._coverage: dict[str, tuple[PolicySource, RuleCoverage]] = {}

    def run(self) -> Iterator[JudgedCase]:
        """Test one case after the other; a file that cannot be read is one error in place of its cases."""
        for file in self._files:
            started = time.perf_counter()
            try:
                checked = require_sound(self._workspace.check(file, kind="policy-test"))
                sources = self._sources(file, checked.document.model)
            except GertError as problem:
                yield JudgedCase(_broken(file, os.path.basename(file), problem, started), 1)
                continue
            for case in checked.document.model.cases:
                yield self._case(checked, case, sources)

    def coverage(self) -> list[CoveredPolicy]:
        """The coverage of every policy that was tested."""
        return [
            CoveredPolicy(source.policy.name, source.checked.file, covered.report())
            for source, covered in self._coverage.values()
        ]

    def _sources(self, file: str, test: PolicyTest) -> list[PolicySource]:
        folder = os.path.dirname(file)
        own = read_policies(self._workspace, (os.path.join(folder, path) for path in test.policies))
        # A policy that is named twice applies once.
        sources = {os.path.abspath(each.checked.file): each for each in (*own, *self._named)}
        if not sources:
            hint = "name them under `policies` in the file, or with --policy"
            raise DocumentError(f"`{file}` names no policies to test", hint=hint)
        for key, source in sources.items():
            self._coverage.setdefault(key, (source, RuleCoverage(source.policy)))
        return list(sources.values())

    def _case(self, checked: Checked, case: PolicyCaseBlock, sources: list[PolicySource]) -> JudgedCase:
        started = time.perf_counter()
        line = _line_column(checked, case.path)[0]
        test: PolicyTest = checked.document.model
        policies = [source.policy for source in sources]
        try:
            contract, within = self._contracts(checked, case)
        except GertError as problem:
            return JudgedCase(_broken(checked.file, case.name, problem, started), line)
        judged = decide_case(contract, policies, within=within, targets=case.targets, outcome=case.outcome)
        self._cover(judged, sources)
        differences = list(case_differences(case, judged, policies, test.groups))
        tested = Tested(
            runbook=checked.file,
            scenario=case.name,
            folder=checked.file,
            verdict="failed" if differences else "passed",
            seconds=round(time.perf_counter() - started, 4),
            outcome=_result_text(judged, policies),
            differences=differences,
            notes=[] if case.expect or case.may_approve else ["the case expects nothing, so it cannot fail"],
        )
        return JudgedCase(tested, line, judged)

    def _cover(self, judged: CaseDecision, sources: list[PolicySource]) -> None:
        # A step that adds to its tool is matched by both contracts, so every policy may appear twice.
        for index, match in enumerate(judged.explanation.policies):
            source = sources[index % len(sources)]
            self._coverage[os.path.abspath(source.checked.file)][1].add(match.rule)

    def _contracts(self, checked: Checked, case: PolicyCaseBlock) -> tuple[Contract, Contract | None]:
        """The contract a step would have, and that of its tool."""
        if case.outcome is not None:
            return END_CONTRACT, None
        if case.tool is None:
            return resolve(declared(case.contract)), None
        tool = self._tool(checked, case)
        base = resolve(declared(tool.contract), declared(_action(checked, case, tool).contract))
        step = declared(case.contract)
        for relaxation in relaxations(base, step):
            place = case.at("contract", relaxation.property)
            raise DocumentError(f"{_place(checked, place)}: {relaxation.message}", hint="a step may only tighten")
        return base.tightened(step), base

    def _tool(self, checked: Checked, case: PolicyCaseBlock) -> Tool:
        path = os.path.normpath(os.path.join(os.path.dirname(checked.file), case.tool or ""))
        if path not in self._tools:
            if not is_file(path):
                where = _place(checked, case.at("tool"))
                raise DocumentError(f"{where}: there is no tool `{path}`", hint="paths are relative to the test")
            self._tools[path] = require_sound(self._workspace.check(path, kind="tool")).document.model
        return self._tools[path]


def _action(checked: Checked, case: PolicyCaseBlock, tool: Tool) -> ActionBlock:
    if case.action is None and len(tool.actions) == 1:
        return next(iter(tool.actions.values()))
    known = listing(tool.actions)
    if case.action is None:
        where = _place(checked, case.at("tool"))
        raise DocumentError(f"{where}: the tool `{tool.meta.name}` has several actions", hint=f"name one of {known}")
    if case.action not in tool.actions:
        hint = suggestion(case.action, tool.actions) or f"there are {known}"
        where = _place(checked, case.at("action"))
        raise DocumentError(f"{where}: the tool `{tool.meta.name}` has no action `{case.action}`", hint=hint)
    return tool.actions[case.action]


def _is_policy_test(file: str) -> bool:
    """Whether a file in a folder is a policy test, by its name or by what it says; one that is broken counts, too."""
    if file.endswith(FILE_SUFFIXES):
        return True
    try:
        source = read_document(file)
    except GertError:
        return False
    return API_VERSION.encode() in source and load(source, file_name=file).kind == "policy-test"


def _result_text(judged: CaseDecision, policies: Sequence[Policy]) -> str:
    verdict = judged.decision.verdict.word
    if judged.breach:
        return f"{verdict}: too many targets"
    rules = sorted(judged.decision.rules)
    if not rules:
        return f"{verdict}: no rule matches"
    # Where there is one policy, its name says nothing.
    alone = len(policies) == 1
    return f"{verdict} ({'; '.join(ref.short.removeprefix(f'{ref.policy} ') if alone else ref.short for ref in rules)})"


def _broken(file: str, name: str, problem: GertError, started: float) -> Tested:
    return Tested(
        runbook=file,
        scenario=name,
        folder=file,
        verdict="error",
        message=problem.message,
        hint=problem.hint,
        seconds=round(time.perf_counter() - started, 4),
    )


def _line_column(checked: Checked, path: Path) -> tuple[int, int]:
    tree = checked.document.tree
    return tree.line_column(tree.index_of(path))


def _place(checked: Checked, path: Path) -> str:
    line, column = _line_column(checked, path)
    return f"{checked.file}:{line}:{column}"
