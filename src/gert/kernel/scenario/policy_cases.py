"""Cases of policy tests: decides about a contract as a run would, and compares it with the expected decision."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.governance.contract import Contract
from gert.kernel.governance.decide import Decision, RuleRef, reference
from gert.kernel.governance.explain import Explanation, explain
from gert.kernel.governance.risk import RiskRow, assess
from gert.kernel.governance.rules import Policy, ends_matching
from gert.kernel.governance.verdict import Verdict
from gert.kernel.runbook.documents.expectations import as_given
from gert.kernel.runbook.documents.policy_test import NO_RULE, ExpectedDecisionBlock, PolicyCaseBlock
from gert.kernel.scenario.coverage import Part
from gert.kernel.scenario.decisions import shown_setting, unmet_settings
from gert.kernel.scenario.expect import Difference

_ASKED: Final = Verdict.REQUIRE_APPROVAL


class CaseDecision(msgspec.Struct, frozen=True):
    """The decision about one contract.

    decision: with the limit on targets applied, as in a run
    breach: the exceeded limit, if it turned the decision into a denial
    """

    risk: RiskRow
    explanation: Explanation
    decision: Decision
    breach: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for the decision, in words."""
        matched = (match.why for match in self.explanation.policies if match.rule is not None)
        return (*((self.breach,) if self.breach else ()), *dict.fromkeys(matched), self.risk.reason)

    @property
    def why(self) -> str:
        """The main reason, in one line."""
        return self.breach or (f"decided by {self.decision.rule}" if self.decision.rule else "no rule matches")


def decide_case(
    contract: Contract,
    policies: Iterable[Policy],
    *,
    within: Contract | None = None,
    targets: int = 1,
    outcome: str | None = None,
) -> CaseDecision:
    """Decide about a contract; `within` is the contract of the tool, without what the step adds.

    outcome: the category of an `end`, instead of a contract
    """
    explanation = explain(contract, policies, within=within, outcome=outcome)
    # A run records the higher of both risks.
    risk = max((assess(each) for each in (contract, within) if each is not None), key=lambda row: row.risk)
    decision = explanation.decision
    breach = decision.limits.too_many_targets(targets)
    if breach is None:
        return CaseDecision(risk, explanation, decision)
    return CaseDecision(risk, explanation, msgspec.structs.replace(decision, verdict=Verdict.DENY), breach)


def case_differences(
    case: PolicyCaseBlock, judged: CaseDecision, policies: Sequence[Policy], groups: Mapping[str, Iterable[str]]
) -> Iterator[Difference]:
    """Yield every difference from the case, the most important first."""
    if case.expect is not None:
        yield from _verdict(case.expect, judged)
        yield from _rule(case.expect, judged, policies)
        yield from _settings(case.expect, judged)
        yield from _reasons(case.expect, judged)
    for person, may in case.may_approve.items():
        objection = _objection(person, case, judged.decision, groups)
        if may != (objection is None):
            yield Difference(
                f"may_approve.{person}", shown_setting(may), shown_setting(not may), objection or judged.why
            )


def _verdict(expect: ExpectedDecisionBlock, judged: CaseDecision) -> Iterator[Difference]:
    yield from _same("decision", expect.decision, judged.decision.verdict.word, judged.why)
    yield from _same("risk", expect.risk, judged.risk.risk.word, judged.risk.reason)


def _settings(expect: ExpectedDecisionBlock, judged: CaseDecision) -> Iterator[Difference]:
    for name, wanted, found in unmet_settings(as_given(expect), judged.decision):
        yield Difference(name, wanted, found, judged.why)


def _reasons(expect: ExpectedDecisionBlock, judged: CaseDecision) -> Iterator[Difference]:
    for words in expect.reasons:
        if not any(words in reason for reason in judged.reasons):
            yield Difference("reasons", f"`{words}`", "no such reason", "; ".join(judged.reasons))


def _rule(expect: ExpectedDecisionBlock, judged: CaseDecision, policies: Sequence[Policy]) -> Iterator[Difference]:
    rules = judged.decision.rules
    found = judged.decision.rule or "none"
    if expect.rule == NO_RULE:
        # A rule may also have that name.
        if rules and not any(ref.name == NO_RULE for ref in rules):
            yield Difference("rule", "none", found)
    elif expect.rule is not None:
        if not any(_is_meant(ref, expect) for ref in rules):
            shown = f"`{expect.rule}`" + (f" of `{expect.policy}`" if expect.policy else "")
            yield Difference("rule", shown, found, _why_not(expect, judged, policies))
    elif expect.policy is not None and all(ref.policy != expect.policy for ref in rules):
        known = [policy.name for policy in policies]
        hint = None if expect.policy in known else _guess("policy", expect.policy, known)
        yield Difference("policy", f"`{expect.policy}`", found, hint)


def _is_meant(ref: RuleRef, expect: ExpectedDecisionBlock) -> bool:
    return expect.rule in {ref.name, str(ref.number)} and expect.policy in {None, ref.policy}


def _why_not(expect: ExpectedDecisionBlock, judged: CaseDecision, policies: Sequence[Policy]) -> str:
    """Return why the expected rule did not decide."""
    meant = [
        ref
        for policy in policies
        for index in range(len(policy.rules))
        if _is_meant(ref := reference(policy, index), expect)
    ]
    if not meant:
        names = [rule.name for policy in policies for rule in policy.rules if rule.name]
        return _guess("rule", expect.rule or "", names)
    for match in judged.explanation.policies:
        for considered in match.considered:
            if considered.rule not in meant:
                continue
            if considered.failed is not None:
                return f"{considered.rule} does not match: its `{considered.failed}` does not hold"
            if considered.goes_on:
                return f"{considered.rule} matches, but only sets `serialize`"
            return f"{considered.rule} matches and says {match.verdict.word}; a stricter verdict won"
    first = next((match.rule for match in judged.explanation.policies if match.policy == meant[0].policy), None)
    return f"{first} matches before it" if first is not None else f"{meant[0]} does not end matching"


def _guess(what: str, name: str, known: Iterable[str]) -> str:
    guess = did_you_mean(name, known)
    return f"there is no such {what}" + (f"; did you mean `{guess}`?" if guess else "")


def _objection(
    person: str, case: PolicyCaseBlock, decision: Decision, groups: Mapping[str, Iterable[str]]
) -> str | None:
    if decision.verdict is not _ASKED:
        return f"the decision is `{decision.verdict.word}`: no approval is requested"
    return decision.objection(person, started_by=case.requested_by, groups=groups)


def _same(name: str, expected: Any, found: Any, hint: str | None) -> Iterator[Difference]:
    if expected is not None and expected != found:
        yield Difference(name, shown_setting(expected), shown_setting(found), hint)


class RuleCoverage:
    """Collects the rules of one policy that any case reaches: those that decided for their policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._reached: set[int] = set()

    def add(self, reached: RuleRef | None) -> None:
        """Count the rule that matched, if one did."""
        if reached is not None:
            self._reached.add(reached.number)

    def report(self) -> Part:
        """Return how many matching rules were reached, and which were not."""
        known = [reference(self._policy, i) for i, rule in enumerate(self._policy.rules) if ends_matching(rule)]
        missed = tuple(_without_policy(ref) for ref in known if ref.number not in self._reached)
        return Part(len(known) - len(missed), missed)


def _without_policy(ref: RuleRef) -> str:
    return str(ref).removeprefix(f"{ref.policy} rule ")
