"""Rules that match no contract (D57): a misspelt tag looks like a rule and is none."""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final

import msgspec

from gert.kernel.foundation.names import listing, misspelling, suggestion
from gert.kernel.foundation.text import one_line
from gert.kernel.governance.contract import UNKNOWN
from gert.kernel.runbook.documents.governance import GovernanceBlock, MatchBlock, RuleBlock
from gert.kernel.runbook.documents.steps import ExtensionStep, ToolStep
from gert.kernel.runbook.documents.tool import Tool
from gert.kernel.runbook.finding import Finding, Severity, note, warning
from gert.kernel.runbook.program import Program, SkillLookup, contract_of_action, skill_named
from gert.kernel.runbook.validate.facts import ContractTags, Governed

PROJECT: Final = "tool or step of this project"
RUNBOOK: Final = "step of this runbook"

VERBS: Final[Mapping[str, str]] = {"effects": "has the effect", "writes": "writes", "reads": "reads"}

WITHOUT_A_STEP: Final = tuple(
    ContractTags(frozenset((effect,))) for effect in (UNKNOWN, "environment", "filesystem", "network")
)
"""What rules can match in every project: contracts without declared effects, inputs and webhooks (DECISIONS 81)."""

# A policy may have a million tags; beyond these, misspellings are not searched for.
MAX_SEARCHED: Final = 1000
MAX_LISTED: Final = 5
MAX_NAME: Final = 60


class Asked(msgspec.Struct, frozen=True):
    """The tags that one matcher of a rule asks for, one of which a contract must have."""

    block: MatchBlock
    name: str
    tags: tuple[str, ...]


class Known:
    """The tags of contracts by matcher, each with the contracts that have it as the bits of a number."""

    def __init__(self, contracts: Iterable[ContractTags]) -> None:
        self.bits: dict[str, dict[str, int]] = {name: {} for name in VERBS}
        for number, contract in enumerate(contracts):
            for name, bits in self.bits.items():
                for tag in getattr(contract, name):
                    bits[tag] = bits.get(tag, 0) | 1 << number
        self.words = {name: sorted(bits) for name, bits in self.bits.items()}

    def has(self, name: str, tag: str) -> bool:
        """Return whether a contract has a tag."""
        return tag.lower() in self.bits[name]

    def is_used(self, name: str, tag: str) -> bool:
        """Return whether a tool or step has a tag."""
        return self.bits[name].get(tag.lower(), 0) >> len(WITHOUT_A_STEP) != 0

    def is_matched(self, asked: Iterable[Asked]) -> bool:
        """Return whether one contract has a tag of every matcher."""
        matching = -1
        for each in asked:
            bits = self.bits[each.name]
            matching &= reduce(or_, (bits.get(tag.lower(), 0) for tag in each.tags))
        return matching != 0


def governed_by(program: Program) -> Governed:
    """Return the contracts of a runbook's steps; what a runner of an extension calls is not known."""
    found = {ContractTags.of(contract) for step in program.steps if (contract := program.contract_of(step)) is not None}
    # A rule is matched against the contract of the tool as well, without what the step adds to it.
    steps = (step for step in program.steps if isinstance(step, ToolStep))
    found |= {ContractTags.of(base) for step in steps if (base := program.base_contract_of(step)) is not None}
    is_known = all(lookup.tool is not None for lookup in program.lookups.values())
    return Governed(frozenset(found), is_known and not any(isinstance(step, ExtensionStep) for step in program.steps))


def tags_of_tool(tool: Tool, skills: Mapping[str, SkillLookup]) -> Iterator[ContractTags]:
    """Yield the tags of each action of a tool."""
    for action in tool.actions.values():
        yield ContractTags.of(contract_of_action(tool, action, skill_named(skills, action)))


def tags_of_rules(governance: GovernanceBlock) -> Iterator[ContractTags]:
    """Yield the tags that rules name."""
    for rule in governance.rules:
        for each in _asked(rule):
            yield ContractTags(**{each.name: frozenset(tag.lower() for tag in each.tags)})


def all_tags(each: Iterable[ContractTags]) -> ContractTags:
    """Return the tags of all contracts or rules together."""
    known = Known(each)
    return ContractTags(**{name: frozenset(words) for name, words in known.words.items()})


def misspelt_tags(tool: Tool, ruled: ContractTags, used: ContractTags | None = None) -> Iterator[Finding]:
    """D57: a tag of a tool is no misspelling of one that a rule names; of those that other contracts have, if known."""
    blocks = (tool.contract, *(action.contract for action in tool.actions.values()))
    for block, name in ((block, name) for block in blocks if block is not None for name in VERBS):
        tags = [tag.lower() for tag in getattr(block, name) or ()]
        named = getattr(ruled, name)
        meant = sorted((named if used is None else named & getattr(used, name)) - set(tags))
        for at, tag in enumerate(tags[:MAX_SEARCHED]):
            guess = misspelling(tag, meant) if tag not in named else None
            if guess is not None:
                message = f"no rule of the project is for `{name}: [{tag}]`"
                yield warning("D57", block.at(name, at), message, f"did you mean `{guess}`, which a rule names?")


def unmatched_rules(governance: GovernanceBlock, governed: Governed, among: str) -> Iterator[Finding]:
    """D57: warn of tags that are almost certainly misspelt, and note rules that match nothing.

    A rule may be for tools that are still to come, and one that denies is best if it matches nothing, so an unused
    word is no mistake by itself.
    """
    known = Known((*WITHOUT_A_STEP, *governed.contracts))
    left = MAX_SEARCHED
    for index, rule in enumerate(governance.rules):
        asked = list(_asked(rule))
        matched = known.is_matched(asked)
        misspelt = False
        for each, at, meant in islice(_unused(asked, known), left):
            left -= 1
            if meant is not None:
                misspelt = True
                said = f"only in part: no {among}" if matched else f"no {among}: none"
                message = f"rule {_name(rule, index)} matches {said} {VERBS[each.name]} `{each.tags[at]}`"
                yield warning("D57", each.block.at(each.name, at), message, f"did you mean `{meant}`?")
        if governed.contracts and not (matched or misspelt):
            found = _unmatched(rule, index, asked, known, among)
            denies = "deny" in (rule.action, rule.default)
            if found.severity is Severity.WARNING or (governed.is_complete and not denies):
                yield found


def _asked(rule: RuleBlock) -> Iterator[Asked]:
    """Yield the matchers of a rule that name tags; an empty list names none."""
    blocks: tuple[MatchBlock | None, ...] = (rule, rule.contract)
    for block in blocks:
        if block is not None:
            yield from (Asked(block, name, tags) for name in VERBS if (tags := getattr(block, name)))


def _unused(asked: Iterable[Asked], known: Known) -> Iterator[tuple[Asked, int, str | None]]:
    """Yield the tags that no contract has, by their index, with the tag that is meant; none if that is listed too."""
    for each in asked:
        listed = {tag.lower() for tag in each.tags}
        for at, tag in enumerate(each.tags):
            if not known.has(each.name, tag):
                meant = misspelling(tag.lower(), known.words[each.name])
                yield each, at, meant if meant not in listed else None


def _unmatched(rule: RuleBlock, index: int, asked: list[Asked], known: Known, among: str) -> Finding:
    message = f"rule {_name(rule, index)} matches no {among}: none"
    for each in asked:
        if not any(known.has(each.name, tag) for tag in each.tags):
            message = f"{message} {VERBS[each.name]} {listing(each.tags, MAX_LISTED)}"
            other = next(((name, tag) for tag in each.tags for name in VERBS if known.is_used(name, tag)), None)
            if other is None:
                hint = suggestion(each.tags[0], known.words[each.name])
                hint = hint or "nothing to do if the rule is for tools that are not here"
                return note("D57", each.block.at(each.name), message, hint)
            # A rule for writers of what is only read so far may be meant.
            report = warning if "effects" in (each.name, other[0]) else note
            return report("D57", each.block.at(each.name), message, f"did you mean `{other[0]}: [{other[1]}]`?")
    both = " and ".join(f"`{each.name}: [{', '.join(each.tags[:MAX_LISTED])}]`" for each in asked)
    return note("D57", rule.path, f"{message} has {both}", "all matchers of a rule must hold: use a rule for each")


def _name(rule: RuleBlock, index: int) -> str:
    return f"`{one_line(rule.name, MAX_NAME)}`" if rule.name else str(index + 1)
