"""Explaining policies: their decisions about the steps of a runbook, the actions of a tool, or one contract."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gert.ecosystem.host.config.policies import PolicySource, read_policies, require_sound
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.policy.explain_runbook import explain_runbook
from gert.errors import UsageError
from gert.kernel.governance.contract import Contract, resolve
from gert.kernel.governance.explain import Explanation, PolicyMatch, explain
from gert.kernel.governance.rules import Policy
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.policy_test import API_VERSION, PolicyTest
from gert.kernel.runbook.documents.steps import ToolStep
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.model import Decoder
from gert.kernel.runbook.program import declared
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map, Seq, Tree
from gert.kernel.runbook.validate import validate


class Ruling(msgspec.Struct, frozen=True):
    """The decision about one subject, and how each policy matched.

    within: the subject adds to the contract of its tool, so the policies match the tool's contract as well
    """

    subject: str
    contract: Contract
    explanation: Explanation
    within: bool = False

    @property
    def winners(self) -> list[str]:
        """The policies that decided."""
        return sorted({ref.policy for ref in self.explanation.decision.rules})

    @property
    def matches(self) -> tuple[PolicyMatch, ...]:
        """How each policy matches the contract itself."""
        return tuple(match for match in self.explanation.policies if not match.of_tool)

    @property
    def matches_within(self) -> tuple[PolicyMatch, ...]:
        """How each policy matches the contract of the tool, if it differs."""
        return tuple(match for match in self.explanation.policies if match.of_tool)

    def decides(self, match: PolicyMatch) -> bool:
        """Whether the matching rule is one of those that decided."""
        return match.rule in self.explanation.decision.rules

    def as_json(self) -> dict[str, Any]:
        """The ruling as JSON."""
        explanation = self.explanation
        return {
            "subject": self.subject,
            "contract": self.contract.summary(),
            "risk": explanation.risk.word,
            "risk_reason": explanation.reason,
            **explanation.decision.summary(),
            "won_by": self.winners,
            "considered": [self._considered(match) for match in self.matches],
            **(
                {"considered_of_tool": [self._considered(match) for match in self.matches_within]}
                if self.within
                else {}
            ),
        }

    def _considered(self, match: PolicyMatch) -> dict[str, Any]:
        return {
            "policy": match.policy,
            "decision": match.verdict.word,
            "decides": self.decides(match),
            "rules": [{"rule": str(each.rule), "failed": each.failed} for each in match.considered],
        }


def policies_named(names: Iterable[str]) -> list[PolicySource]:
    """The policies in files and folders, with their findings."""
    return read_policies(Workspace(), names)


def rulings_on_runbook(runbook: str, names: Iterable[str]) -> list[Ruling]:
    """The decisions of these policies, the runbook's own and the rest of its floor about each step."""
    program, explained = explain_runbook(runbook, None, names)
    return [
        Ruling(
            f"{each.name} ({each.target or each.step.type})",
            each.contract,
            each.explanation,
            isinstance(each.step, ToolStep) and program.base_contract_of(each.step) != each.contract,
        )
        for each in explained
    ]


def rulings_on_tool(file: str, sources: Iterable[PolicySource]) -> list[Ruling]:
    """The decisions about each action of a tool."""
    tool: Tool = require_sound(Workspace().check(file, kind="tool")).document.model
    policies = _policies(sources)
    return [
        _ruling(f"{tool.meta.name}:{name}", resolve(declared(tool.contract), declared(action.contract)), policies)
        for name, action in tool.actions.items()
    ]


def ruling_on_contract(text: str, sources: Iterable[PolicySource]) -> Ruling:
    """The decision about a contract in YAML."""
    return _ruling("the contract", resolve(_contract(text).declared()), _policies(sources))


def _ruling(subject: str, contract: Contract, policies: list[Policy]) -> Ruling:
    return Ruling(subject, contract, explain(contract, policies))


def _policies(sources: Iterable[PolicySource]) -> list[Policy]:
    return [source.policy for source in sources]


def _contract(text: str) -> ContractBlock:
    """Parse and check a contract as in a policy test; raise the first error with its position."""
    reading = read(text.encode("utf-8", "replace"))
    if reading.findings:
        raise _refused(reading.findings[0])
    around = _around(reading.tree.root)
    decoder = Decoder()
    test = PolicyTest.decode(decoder, around, ())
    document = Document("policy-test", test, Tree(around, ""), decoder.findings)
    for finding in validate(document).findings:
        if finding.severity is Severity.ERROR:
            own = msgspec.structs.replace(finding, path=finding.path[len(_AROUND) :], line=0)
            raise _refused(reading.tree.place(own))
    contract: ContractBlock = document.model.cases[0].contract
    return contract


_AROUND: Final = ("cases", 0, "contract")


def _around(contract: Any) -> Map:
    """A policy test whose only case has this contract."""
    case, cases, test = Map(0), Seq(0), Map(0)
    case.update(name="x", contract=contract)
    cases.append(case)
    test.update(apiVersion=API_VERSION, cases=cases)
    return test


def _refused(finding: Finding) -> UsageError:
    hint = finding.hint or "for example `{effects: [network], writes: []}`"
    return UsageError(f"--contract:{finding.line}:{finding.column}: {finding.message}", hint=hint)
