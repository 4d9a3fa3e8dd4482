"""Decides about one step: the verdict of governance, and the rules that made it.

Within a policy the first matching rule decides; across policies all requirements apply together, so
the strictest verdict wins (kernel-v0 §9). Adding a policy can therefore only tighten.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, Literal

import msgspec

from gert.kernel.foundation.names import listing
from gert.kernel.governance.contract import END_CONTRACT, Contract
from gert.kernel.governance.risk import risk_of
from gert.kernel.governance.rules import (
    DEFAULT_APPROVAL_TIMEOUT,
    NO_GROUPS,
    NO_LIMITS,
    Limits,
    Policy,
    Rule,
    Subject,
    ends_matching,
    first_failing,
    is_about,
    label,
)
from gert.kernel.governance.verdict import Verdict

GROUP: Final = "group:"


class RuleRef(msgspec.Struct, frozen=True, order=True):
    """A rule of a policy, counted from 1."""

    policy: str
    number: int
    label: str
    name: str = ""

    def __str__(self) -> str:
        called = f" `{self.name}`" if self.name else ""
        return f"{self.policy} rule {self.number}{called} ({self.label})"

    @property
    def short(self) -> str:
        """The rule in short: by its name if it has one, otherwise by its matchers."""
        return f"{self.policy} rule {self.number} {f'`{self.name}`' if self.name else f'({self.label})'}"


class Approvers(msgspec.Struct, frozen=True):
    """Who may approve according to one policy: people, its own groups resolved, and groups it does not define.

    Groups are resolved here so that a runbook cannot redefine a group of an external policy.
    """

    listed: frozenset[str]
    people: frozenset[str]
    groups: frozenset[str] = frozenset()

    def admits(self, person: str, groups: Mapping[str, Iterable[str]] = NO_GROUPS) -> bool:
        """Return whether the person is listed, or is in a listed group of the configuration."""
        return person_key(person) in {person_key(each) for each in self.all_people(groups)}

    def all_people(self, groups: Mapping[str, Iterable[str]] = NO_GROUPS) -> frozenset[str]:
        """Return all listed people, with groups resolved."""
        return frozenset(chain(self.people, *(groups.get(group, ()) for group in self.groups)))


def person_key(name: str) -> str:
    """Normalize a person's name for comparison: spellings that differ only in case are one person."""
    from unicodedata import normalize

    # Case folding may undo normalization, so both are repeated: Unicode's compatibility caseless match.
    folded = normalize("NFKD", normalize("NFD", name).casefold()).casefold()
    return normalize("NFKC", folded).strip()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, its requirements, and the rules that made it. Decisions join with `|` and only tighten.

    Every field joins by itself: the verdict and the number of approvers by max, limits and the timeout by
    min, everything else by union. Only `rules` follows the verdict: it names those that made it.
    """

    verdict: Verdict = Verdict.ALLOW
    rules: frozenset[RuleRef] = frozenset()
    min_approvers: int = 0
    approvers: frozenset[Approvers] = frozenset()
    separation_of_duties: bool = False
    notify: frozenset[str] = frozenset()
    rejects_on_timeout: bool = False
    escalations: frozenset[Approvers] = frozenset()
    limits: Limits = NO_LIMITS
    bars_break_glass: bool = False
    violations_deny: bool = False
    require_signed_approvals: bool = False
    timeout: float | None = None
    serialize: bool = False

    def __or__(self, other: "Decision") -> "Decision":
        """Return both decisions joined."""
        verdict = max(self.verdict, other.verdict)
        return Decision(
            verdict=verdict,
            rules=frozenset().union(*(each.rules for each in (self, other) if each.verdict == verdict)),
            min_approvers=max(self.min_approvers, other.min_approvers),
            approvers=self.approvers | other.approvers,
            separation_of_duties=self.separation_of_duties or other.separation_of_duties,
            notify=self.notify | other.notify,
            rejects_on_timeout=self.rejects_on_timeout or other.rejects_on_timeout,
            escalations=self.escalations | other.escalations,
            limits=self.limits | other.limits,
            bars_break_glass=self.bars_break_glass or other.bars_break_glass,
            violations_deny=self.violations_deny or other.violations_deny,
            require_signed_approvals=self.require_signed_approvals or other.require_signed_approvals,
            timeout=min((each.timeout for each in (self, other) if each.timeout is not None), default=None),
            serialize=self.serialize or other.serialize,
        )

    @property
    def rule(self) -> str | None:
        """The rules that made the verdict, as text; `None` if no rule matched."""
        return "; ".join(str(ref) for ref in sorted(self.rules)) or None

    @property
    def break_glass(self) -> bool:
        """Whether an emergency override is allowed: there is something to override and every rule permits it."""
        return self.verdict is not Verdict.ALLOW and not self.bars_break_glass

    @property
    def on_timeout(self) -> Literal["reject", "escalate"]:
        """What happens to an unanswered request; it escalates only if every rule that requires approval does."""
        return "escalate" if self.escalations and not self.rejects_on_timeout else "reject"

    @property
    def approval_timeout(self) -> float:
        """The seconds for which the request stays open."""
        return DEFAULT_APPROVAL_TIMEOUT if self.timeout is None else self.timeout

    def objection(
        self, approver: str, *, started_by: str | None = None, groups: Mapping[str, Iterable[str]] = NO_GROUPS
    ) -> str | None:
        """Return why this person may not approve, or `None` if they may."""
        if self.separation_of_duties and started_by is None:
            return "the run does not record who started it, and that person may not approve it"
        if self.separation_of_duties and person_key(approver) == person_key(started_by or ""):
            return f"`{approver}` started the run and may not approve it"
        for allowed in sorted(self.approvers, key=lambda each: sorted(each.listed)):
            if not allowed.admits(approver, groups):
                return f"`{approver}` is not among the approvers {listing(sorted(allowed.listed))}"
        return None

    def summary(self) -> dict[str, Any]:
        """Return the decision as JSON, without keys that do not apply."""
        said: dict[str, Any] = {"decision": self.verdict.word}
        if self.rules:
            said["rules"] = [str(ref) for ref in sorted(self.rules)]
        if self.verdict is Verdict.REQUIRE_APPROVAL:
            said["min_approvers"] = self.min_approvers
            said["approval_timeout"] = self.approval_timeout
            said["on_timeout"] = self.on_timeout
            if self.require_signed_approvals:
                said["require_signed_approvals"] = True
            if self.approvers:
                said["approvers"] = sorted(sorted(each.listed) for each in self.approvers)
            if self.on_timeout == "escalate":
                said["escalate_to"] = sorted(sorted(each.listed) for each in self.escalations)
        for name in ("separation_of_duties", "break_glass", "violations_deny", "serialize"):
            if getattr(self, name):
                said[name] = True
        if self.notify:
            said["notify"] = sorted(self.notify)
        for name in ("max_targets", "max_per_hour"):
            if getattr(self.limits, name) is not None:
                said[name] = getattr(self.limits, name)
        return said


ALLOWED: Final = Decision()
"""The decision if no rule matches: the least strict one, the identity of `|`."""


def decide(
    contract: Contract,
    policies: Iterable[Policy],
    *,
    within: Contract | None = None,
    outcome: str | None = None,
    crossing: str | None = None,
) -> Decision:
    """Return the decision of all policies about a contract; allow, without a rule, if none matches.

    `within` is the contract of the tool behind a step that adds to it. Rules match any of their tags and the
    first match decides, so a step could reach a more permissive rule by adding tags; both contracts are checked.
    `outcome` is the category of an `end`, and `crossing` an effect without a step: only rules that name them apply.
    """
    policies = tuple(policies)
    decision = ALLOWED
    for judged in (contract,) if within is None or within == contract else (contract, within):
        subject = Subject(judged, risk_of(judged), outcome, crossing)
        for policy in policies:
            decision |= _decide_policy(policy, subject)
    return decision


def decide_crossing(effect: str, policies: Iterable[Policy]) -> Decision:
    """Return the decision about data that enters or leaves without a step (DECISIONS 81)."""
    return decide(Contract(effects=frozenset((effect,)), idempotent=True), policies, crossing=effect)


def crossing_refusal(effect: str, policies: Iterable[Policy]) -> str | None:
    """Return why data may not enter or leave without a step; without a run there can be no approval."""
    decision = decide_crossing(effect, policies)
    if decision.verdict is Verdict.ALLOW:
        return None
    if decision.verdict is Verdict.DENY:
        return f"the effect `{effect}` is denied by {decision.rule}"
    return (
        f"the effect `{effect}` needs an approval by {decision.rule}, and without a step no approval can be requested"
    )


def decide_outcome(category: str, policies: Iterable[Policy]) -> Decision:
    """Return the decision about ending a run with an outcome of a category (DECISIONS 79)."""
    return decide(END_CONTRACT, policies, outcome=category)


def reference(policy: Policy, index: int) -> RuleRef:
    """Return the reference to a rule of a policy, for decisions and events."""
    rule = policy.rules[index]
    return RuleRef(policy.name, index + 1, label(rule), rule.name or "")


def _decide_policy(policy: Policy, subject: Subject) -> Decision:
    # The policy's own requirements apply whichever of its rules matches, and whichever verdict wins.
    floor = Decision(
        violations_deny=policy.violations_deny,
        require_signed_approvals=policy.require_signed_approvals,
        separation_of_duties=policy.separation_of_duties,
        timeout=policy.approval_timeout,
    )
    for index, rule in enumerate(policy.rules):
        if is_about(rule, subject) and first_failing(rule, subject) is None:
            if ends_matching(rule):
                return floor | _decision_of(rule, policy, index)
            floor |= Decision(serialize=True)
    return floor


def _decision_of(rule: Rule, policy: Policy, index: int) -> Decision:
    """Return the decision of one matching rule. Its approval settings count only if it requires approval."""
    verdict = Verdict.ALLOW if rule.verdict is None else rule.verdict
    said = Decision(
        verdict=verdict,
        rules=frozenset((reference(policy, index),)),
        notify=rule.notify,
        limits=rule.limits,
        serialize=rule.serialize,
        # An exceeded limit denies, so without `break_glass` it forbids an override like any denial.
        bars_break_glass=(verdict is not Verdict.ALLOW or rule.limits != NO_LIMITS) and not rule.break_glass,
    )
    if verdict is not Verdict.REQUIRE_APPROVAL:
        return said
    return said | Decision(
        min_approvers=1 if rule.min_approvers is None else max(1, rule.min_approvers),
        approvers=_restriction(rule.approvers, policy),
        separation_of_duties=rule.separation_of_duties,
        rejects_on_timeout=rule.on_timeout != "escalate",
        escalations=_restriction(rule.escalate_to, policy),
    )


def _restriction(listed: frozenset[str], policy: Policy) -> frozenset[Approvers]:
    if not listed:
        return frozenset()
    people: set[str] = set()
    groups: set[str] = set()
    for entry in listed:
        if not entry.startswith(GROUP):
            people.add(entry)
        elif (members := policy.groups.get(entry.removeprefix(GROUP))) is not None:
            people.update(members)
        else:
            groups.add(entry.removeprefix(GROUP))
    return frozenset((Approvers(listed, frozenset(people), frozenset(groups)),))
