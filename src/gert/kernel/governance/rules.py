"""Rules and policies: what an organization or a runbook requires of contracts (kernel-v0 §9).

Within a policy the first rule whose matchers all hold decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from gert.kernel.governance.contract import Contract, Tags, fold_tags
from gert.kernel.governance.risk import Risk
from gert.kernel.governance.verdict import Verdict

DEFAULT_APPROVAL_TIMEOUT: Final = 30 * 60.0
"""The seconds for which an approval request stays open, unless a policy sets another time."""

NO_GROUPS: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class ContractMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Matchers on a contract. A list of tags matches any of them; an empty list matches contracts without any."""

    effects: Tags | None = None
    writes: Tags | None = None
    reads: Tags | None = None
    deterministic: bool | None = None
    idempotent: bool | None = None

    def __post_init__(self) -> None:
        fold_tags(self)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit breaker: above a limit the verdict is deny. `None` is no limit."""

    max_targets: int | None = None
    max_per_hour: int | None = None

    def __or__(self, other: "Limits") -> "Limits":
        """Join two limits: the lower of each."""
        return Limits(
            max_targets=_lower(self.max_targets, other.max_targets),
            max_per_hour=_lower(self.max_per_hour, other.max_per_hour),
        )

    def too_many_targets(self, items: int, executed: int = 0) -> str | None:
        """Return why so many items of loops, or executions of one step, are above the limit; None if they are not."""
        found = max(items, executed)
        if self.max_targets is None or found <= self.max_targets:
            return None
        loops = " items of the loops around it, also those that `when` may skip" if items >= executed else ""
        return f"expected at most {self.max_targets} targets, found {found}{loops}"


NO_LIMITS: Final = Limits()


class Rule(ContractMatch, frozen=True, kw_only=True):
    """One rule: matchers, all of which must hold, a verdict, and its settings.

    The fields have the names that authors write. `default` is the verdict of a rule without matchers. A rule with
    `outcome` applies to `end` steps, and no other rule does.
    """

    name: str | None = None
    risk: frozenset[Risk] | None = None
    outcome: frozenset[str] | None = None
    contract: ContractMatch | None = None
    default: Verdict | None = None
    action: Verdict | None = None
    contract_violations: Literal["deny"] | None = None
    min_approvers: int | None = None
    approvers: frozenset[str] = frozenset()
    separation_of_duties: bool = False
    notify: frozenset[str] = frozenset()
    on_timeout: Literal["reject", "escalate"] | None = None
    escalate_to: frozenset[str] = frozenset()
    limits: Limits = NO_LIMITS
    break_glass: bool = False
    serialize: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the rule; `None` if it only sets `contract_violations` or `serialize`."""
        return self.default if self.action is None else self.action


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in order, and settings for every approval they require. Times are in seconds."""

    name: str
    rules: tuple[Rule, ...] = ()
    approval_timeout: float | None = None
    require_signed_approvals: bool = False
    separation_of_duties: bool = False
    groups: Mapping[str, frozenset[str]] = NO_GROUPS

    @property
    def violations_deny(self) -> bool:
        """Whether a rule turns contract violations into errors for every step."""
        return any(rule.contract_violations == "deny" for rule in self.rules)


class Shadow(msgspec.Struct, frozen=True):
    """A rule that can never match first, and the earlier rule that always matches before it (counted from 0)."""

    rule: int
    by: int
    message: str


class Subject(msgspec.Struct, frozen=True):
    """What rules are matched against.

    outcome: the category of an `end`
    crossing: the effect of data that enters or leaves without a step; only rules that name it apply (DECISIONS 81)
    """

    contract: Contract
    risk: Risk
    outcome: str | None = None
    crossing: str | None = None


Condition: TypeAlias = tuple[str, Tags | bool | frozenset[Risk]]
"""One matcher: its property and the required value."""

TAG_MATCHERS: Final = ("effects", "writes", "reads")
FLAG_MATCHERS: Final = ("deterministic", "idempotent")
ALL_RISKS: Final = frozenset(Risk)


def ends_matching(rule: Rule) -> bool:
    """Return whether the rule ends matching; a rule with only `contract_violations` or `serialize` does not."""
    return rule.verdict is not None


def is_about(rule: Rule, subject: Subject) -> bool:
    """Return whether the rule applies to this kind of subject."""
    if not (ends_matching(rule) or rule.serialize) or (rule.outcome is None) is not (subject.outcome is None):
        return False
    matchers = (each.effects for each in (rule, rule.contract) if each is not None)
    return subject.crossing is None or any(subject.crossing in (effects or ()) for effects in matchers)


def is_unconditional(rule: Rule) -> bool:
    """Return whether the rule matches every contract."""
    return ends_matching(rule) and all(asked == ALL_RISKS for _, asked in conditions(rule))


def conditions(rule: Rule) -> Iterator[Condition]:
    """Yield every matcher of the rule, including those inside `contract:`."""
    if rule.outcome is not None:
        yield "outcome", rule.outcome
    if rule.risk is not None:
        yield "risk", rule.risk
    for matchers in (rule, rule.contract):
        for name in (*TAG_MATCHERS, *FLAG_MATCHERS) if matchers is not None else ():
            asked = getattr(matchers, name)
            if asked is not None:
                yield name, asked


def first_failing(rule: Rule, subject: Subject) -> Condition | None:
    """Return the first matcher that does not hold, or `None` if the rule matches."""
    return next((at for at in conditions(rule) if not _holds(at, subject)), None)


def label(rule: Rule) -> str:
    """Return the rule's matchers as text, such as `risk: critical`."""
    if rule.contract_violations is not None:
        return f"contract_violations: {rule.contract_violations}"
    matchers = ", ".join(condition_text(at) for at in conditions(rule))
    return matchers or ("default" if rule.default is not None else "any step")


def condition_text(condition: Condition) -> str:
    """Return a matcher as text, as in a policy file."""
    name, asked = condition
    if isinstance(asked, bool):
        return f"{name}: {str(asked).lower()}"
    words = [str(item.word if isinstance(item, Risk) else item) for item in sorted(asked)]
    return f"{name}: {words[0]}" if name == "risk" and len(words) == 1 else f"{name}: [{', '.join(words)}]"


def shadowed(rules: Sequence[Rule]) -> Iterator[Shadow]:
    """Yield the rules that never match first, because an earlier one matches whenever they do.

    Rules are compared in pairs: several rules that together cover a later one are not reported.
    """
    for later, rule in enumerate(rules):
        for earlier in range(later) if ends_matching(rule) or rule.serialize else ():
            if ends_matching(rules[earlier]) and _covers(rules[earlier], rule):
                why = f"never reached: rule {earlier + 1} ({label(rules[earlier])}) matches first"
                yield Shadow(later, earlier, why)
                break


def _holds(condition: Condition, subject: Subject) -> bool:
    name, asked = condition
    contract = subject.contract
    if isinstance(asked, bool):
        return getattr(contract, name) is asked
    if name in ("risk", "outcome"):
        return getattr(subject, name) in asked
    # An empty list matches only a contract that certainly has none: an unknown effect may be any, and may write.
    if name == "effects":
        return not asked.isdisjoint(contract.effect_tags) if asked else not contract.has_effects
    if name == "writes" and not asked:
        return not contract.may_write
    present: Tags = getattr(contract, name)
    return not asked.isdisjoint(present) if asked else not present


def _covers(earlier: Rule, later: Rule) -> bool:
    """Return whether `earlier` matches whenever `later` does."""
    if (earlier.outcome is None) is not (later.outcome is None):
        return False
    narrower = list(conditions(later))
    return all(
        any(_implies(given, asked) for given in narrower) or asked[1] == ALL_RISKS for asked in conditions(earlier)
    )


def _implies(given: Condition, asked: Condition) -> bool:
    (name, has), (other, wants) = given, asked
    if name != other:
        return False
    if isinstance(has, bool) or isinstance(wants, bool) or not has or not wants:
        return has == wants
    return has <= wants


def _lower(one: int | None, other: int | None) -> int | None:
    given = [limit for limit in (one, other) if limit is not None]
    return min(given, default=None)
