"""Explains a decision: which rule of each policy matched, and why earlier rules did not."""

from collections.abc import Iterable, Iterator

import msgspec

from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import Decision, RuleRef, decide, reference
from gert.kernel.governance.risk import Risk, assess
from gert.kernel.governance.rules import Policy, Subject, condition_text, ends_matching, first_failing, is_about
from gert.kernel.governance.verdict import Verdict


class Considered(msgspec.Struct, frozen=True):
    """A rule that was evaluated; `failed` is the matcher that did not hold, or `None` if it matched.

    goes_on: it matched and only sets `serialize`, so the rules after it were evaluated as well
    """

    rule: RuleRef
    failed: str | None = None
    goes_on: bool = False


class PolicyMatch(msgspec.Struct, frozen=True):
    """The result of one policy: the rule that matched, if any, and the rules evaluated before it."""

    policy: str
    verdict: Verdict
    considered: tuple[Considered, ...]
    of_tool: bool = False
    """Whether it is about the contract of the tool, without what the step adds."""

    @property
    def rule(self) -> RuleRef | None:
        """The rule that matched."""
        last = self.considered[-1:]
        return last[0].rule if last and last[0].failed is None and not last[0].goes_on else None

    @property
    def why(self) -> str:
        """Describe the match in one line."""
        return "no rule matches" if self.rule is None else f"{self.rule} says {self.verdict.word}"


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that led to it."""

    risk: Risk
    reason: str
    policies: tuple[PolicyMatch, ...]
    decision: Decision


def explain(
    contract: Contract, policies: Iterable[Policy], *, within: Contract | None = None, outcome: str | None = None
) -> Explanation:
    """Decide, and explain for every policy which rule matched and why earlier ones did not."""
    policies = tuple(policies)
    row = assess(contract)
    matches = [_match(policy, Subject(contract, row.risk, outcome)) for policy in policies]
    if within is not None and within != contract:
        # The tool's own contract is also checked; its matches are shown after.
        of_tool = (_match(policy, Subject(within, assess(within).risk)) for policy in policies)
        matches += [msgspec.structs.replace(each, of_tool=True) for each in of_tool]
    decision = decide(contract, policies, within=within, outcome=outcome)
    return Explanation(row.risk, row.reason, tuple(matches), decision)


def _match(policy: Policy, subject: Subject) -> PolicyMatch:
    considered = tuple(_considered(policy, subject))
    match = PolicyMatch(policy.name, Verdict.ALLOW, considered)
    verdict = policy.rules[match.rule.number - 1].verdict if match.rule is not None else None
    return match if verdict is None else msgspec.structs.replace(match, verdict=verdict)


def _considered(policy: Policy, subject: Subject) -> Iterator[Considered]:
    for index, rule in enumerate(policy.rules):
        if not is_about(rule, subject):
            continue
        failing = first_failing(rule, subject)
        goes_on = failing is None and not ends_matching(rule)
        yield Considered(reference(policy, index), None if failing is None else condition_text(failing), goes_on)
        if failing is None and not goes_on:
            return
