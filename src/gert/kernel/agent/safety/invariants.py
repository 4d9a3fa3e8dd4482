"""Deterministic invariants of tool calls: one function for each type, and a table of them."""

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gert.kernel.agent.safety.config import InvariantRule
from gert.kernel.agent.safety.lint import lint_problem, syntax_problem
from gert.kernel.foundation.json_path import Absent, follow

_MISSING: Final = object()
_MAX_ADDRESSES: Final = 1000


class Facts(NamedTuple):
    """What an invariant is decided from.

    verified: what the newest record about each recipient says
    """

    arguments: Any
    verified: Mapping[str, bool] = MappingProxyType({})

    def at(self, path: str | None) -> Any:
        """Return the argument at a path, or a mark that there is none."""
        try:
            return follow(self.arguments, path or "")
        except Absent:
            return _MISSING


def violation_of(rule: InvariantRule, facts: Facts) -> str | None:
    """Return how a call violates a rule; None if it holds."""
    return _CHECKS[rule.type](rule, facts)


def recipients_of(rule: InvariantRule, arguments: Any) -> list[str]:
    """Return the recipients a rule is about, as far as they are text."""
    value = Facts(arguments).at(rule.recipient_arg_path)
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, str)]


def _is_true(rule: InvariantRule, facts: Facts) -> str | None:
    # Text that says `true`, or a 1, is not a confirmation.
    return None if facts.at(rule.field) is True else f"expected `{rule.field}` to be true"


def _domains(rule: InvariantRule, facts: Facts) -> str | None:
    value = facts.at(rule.field)
    addresses = value if isinstance(value, list) else [value]
    if value is _MISSING or not addresses or len(addresses) > _MAX_ADDRESSES:
        return f"expected an email address in `{rule.field}`"
    allowed = {domain.casefold() for domain in rule.allowed_domains}
    for address in addresses:
        domain = domain_of(address)
        if domain is None:
            return f"expected `{rule.field}` to be an email address"
        if domain not in allowed:
            return f"the domain `{domain}` of `{rule.field}` is not allowed"
    return None


def domain_of(address: Any) -> str | None:
    """Return the domain of a plain email address; None if it is anything else.

    A name around the address, a second one beside it or a quoted part could be read differently by the tool.
    """
    if not isinstance(address, str) or not address.isascii() or not address.isprintable():
        return None
    local, at, domain = address.rpartition("@")
    if not (local and at and domain) or set(address) & set(' ,;:<>()[]\\"') or "@" in local:
        return None
    labels = domain.split(".")
    is_name = all(label and label.strip("-") == label and label.replace("-", "").isalnum() for label in labels)
    return domain.casefold() if is_name else None


def _verified(rule: InvariantRule, facts: Facts) -> str | None:
    value = facts.at(rule.recipient_arg_path)
    recipients = value if isinstance(value, list) else [value]
    if not recipients or not all(isinstance(each, str) and each for each in recipients):
        return f"expected a recipient in `{rule.recipient_arg_path}`"
    for recipient in recipients:
        if not facts.verified.get(recipient, False):
            return f"the recipient in `{rule.recipient_arg_path}` is not verified"
    return None


def _compares(rule: InvariantRule, facts: Facts) -> str | None:
    value, other = facts.at(rule.json_path), msgspec.json.decode(rule.value_json or "null")
    word = rule.operator or "eq"
    if value is _MISSING:
        return f"expected `{rule.json_path}`, found nothing there"
    try:
        holds = _COMPARISONS[word](value, other)
    except (TypeError, RecursionError):
        holds = False
    return None if holds else f"expected `{rule.json_path}` {word} {rule.value_json}"


def _parses(rule: InvariantRule, facts: Facts) -> str | None:
    return _of_source(rule, facts, syntax_problem)


def _lints(rule: InvariantRule, facts: Facts) -> str | None:
    return _of_source(rule, facts, lint_problem)


def _of_source(rule: InvariantRule, facts: Facts, check: Callable[[str], str | None]) -> str | None:
    source = facts.at(rule.field)
    if not isinstance(source, str):
        return f"expected Python source in `{rule.field}`"
    problem = check(source)
    return None if problem is None else f"`{rule.field}` is not valid: {problem}"


def _equal(value: Any, other: Any) -> bool:
    """Compare as JSON does: `true` is not 1, inside lists and objects, too."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_equal(value[key], other[key]) for key in value)
    return bool(value == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare numbers with numbers and text with text; anything else has no order."""

    def ordered(value: Any, other: Any) -> bool:
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (value, other))
        texts = isinstance(value, str) and isinstance(other, str)
        return (numbers or texts) and compare(value, other)

    return ordered


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": _equal,
    "ne": lambda value, other: not _equal(value, other),
    "gt": _ordered(operator.gt),
    "gte": _ordered(operator.ge),
    "lt": _ordered(operator.lt),
    "lte": _ordered(operator.le),
    "in": lambda value, others: any(_equal(value, each) for each in others),
    "not_in": lambda value, others: not any(_equal(value, each) for each in others),
}

_CHECKS: Final[Mapping[str, Callable[[InvariantRule, Facts], str | None]]] = {
    "required_arg_true": _is_true,
    "email_domain_allowlist": _domains,
    "recipient_must_be_verified": _verified,
    "custom_json_rule": _compares,
    "ast_validation_passed": _parses,
    "linter_passed": _lints,
}
