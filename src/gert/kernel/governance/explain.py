"""Explanations: how each policy came to its verdict, rule by rule, for people who ask why."""

from collections.abc import Iterable, Iterator

import msgspec

from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import Decision, RuleRef, decide, reference
from gert.kernel.governance.risk import Risk, assess
from gert.kernel.governance.rules import Policy, first_failing, takes_part, written
from gert.kernel.governance.verdict import Verdict

__all__ = ["Considered", "Explanation", "PolicyMatch", "explain"]


class Considered(msgspec.Struct, frozen=True):
    """A rule that was looked at; `failed` is the matcher that did not hold, or `None` when it matched."""

    rule: RuleRef
    failed: str | None = None


class PolicyMatch(msgspec.Struct, frozen=True):
    """What one policy says: the rule that matched, if any, and those passed over before it."""

    policy: str
    verdict: Verdict
    considered: tuple[Considered, ...]
    of_tool: bool = False
    """Whether it is about the contract of the tool behind a step that adds to it."""

    @property
    def rule(self) -> RuleRef | None:
        """The rule that matched."""
        last = self.considered[-1:]
        return last[0].rule if last and last[0].failed is None else None

    @property
    def why(self) -> str:
        """The match in one line."""
        return "no rule matches" if self.rule is None else f"{self.rule} says {self.verdict.word}"


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that led to it."""

    risk: Risk
    reason: str
    policies: tuple[PolicyMatch, ...]
    decision: Decision


def explain(contract: Contract, policies: Iterable[Policy], *, within: Contract | None = None) -> Explanation:
    """Decide, and say for every policy which rule matched and why the ones before it did not."""
    policies = tuple(policies)
    row = assess(contract)
    matches = [_match(policy, contract, row.risk) for policy in policies]
    if within is not None and within != contract:
        # The tool's own contract is judged as well; what it meets is shown after.
        of_tool = (_match(policy, within, assess(within).risk) for policy in policies)
        matches += [msgspec.structs.replace(each, of_tool=True) for each in of_tool]
    return Explanation(row.risk, row.reason, tuple(matches), decide(contract, policies, within=within))


def _match(policy: Policy, contract: Contract, risk: Risk) -> PolicyMatch:
    considered = tuple(_considered(policy, contract, risk))
    matched = bool(considered) and considered[-1].failed is None
    verdict = policy.rules[considered[-1].rule.number - 1].verdict if matched else None
    return PolicyMatch(policy.name, Verdict.ALLOW if verdict is None else verdict, considered)


def _considered(policy: Policy, contract: Contract, risk: Risk) -> Iterator[Considered]:
    for index, rule in enumerate(policy.rules):
        if not takes_part(rule):
            continue
        failing = first_failing(rule, contract, risk)
        yield Considered(reference(policy, index), None if failing is None else written(failing))
        if failing is None:
            return
