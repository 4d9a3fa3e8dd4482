"""The semantic phase: the JSON Schema that `gert schema` exports, applied to the document as written."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from gert.kernel.foundation.duration import DURATION_PATTERN
from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.finding import Finding, Path, error
from gert.kernel.runbook.kinds import FORMS
from gert.kernel.runbook.model import describe
from gert.kernel.runbook.schema import schema_of
from gert.kernel.runbook.tree import Tree

# Rule, message and hint.
RuleMessage: TypeAlias = tuple[str, str, str | None]


@cache
def _validator(kind: str) -> Any:
    import jsonschema_rs  # slow to import, and many commands validate nothing

    # The engine of patterns that does not backtrack: our schemas need no other.
    return jsonschema_rs.Draft202012Validator(schema_of(kind), pattern_options=jsonschema_rs.RegexOptions())


def semantic(document: Document) -> Iterator[Finding]:
    """Yield a finding for every value that does not have the form of its field."""
    for problem in _validator(document.kind).iter_errors(document.tree.root):
        yield from _findings(problem, document)


def _findings(problem: Any, document: Document) -> Iterator[Finding]:
    tree = document.tree
    path: Path = tuple(problem.instance_path)
    if _is_number_as_text(problem, tree):
        return
    if problem.kind.name == "anyOf" and (chosen := _chosen(problem)) is not None:
        for inner in chosen:
            yield from _findings(inner, document)
    elif problem.kind.name == "propertyNames":
        key = str(problem.kind.error.instance)
        form = FORMS.get(getattr(problem.kind.error.kind, "pattern", ""), "another form")
        yield error("J01", (*path, key), f"expected {form} as key, found `{shorten(key)}`", on_key=True)
    else:
        value = tree.value_at(path)
        is_number = problem.kind.name == "type" and type(value) in (int, float)
        if is_number and (pattern := _pattern_of(problem, document.kind)) is not None:
            rule, message, hint = _misformed(pattern, value)
        else:
            rule, message, hint = describe_problem(problem, value)
        yield error(rule, path, message, hint)


def _is_number_as_text(problem: Any, tree: Tree) -> bool:
    """Return whether a text field contains a number that JSON does not have, such as `1e400`: it is kept as text.

    Elsewhere the structural phase has refused it.
    """
    if problem.kind.name == "anyOf":
        return any(each and all(_is_number_as_text(inner, tree) for inner in each) for each in problem.kind.context)
    if problem.kind.name != "type" or "number" not in map(str, problem.kind.types):
        return False
    value = tree.value_at(tuple(problem.instance_path))
    return isinstance(value, float) and not math.isfinite(value)


def _chosen(problem: Any) -> list[Any] | None:
    """Return the problems of the form that the author chose: the one whose type fits."""
    here = list(problem.instance_path)
    for problems in problem.kind.context:
        if problems and all(each.kind.name != "type" or list(each.instance_path) != here for each in problems):
            return list(problems)
    return None


def describe_problem(problem: Any, value: Any) -> RuleMessage:
    """Describe a schema problem in the user's words."""
    describe_it = MESSAGES.get(problem.kind.name)
    if describe_it is None:
        return "J06", str(problem.message).replace('"', "`"), None
    return describe_it(problem.kind, value)


def _pattern_of(problem: Any, kind: str) -> str | None:
    """Return the pattern of the field that has a value of the wrong type."""
    schema = schema_of(kind)
    for segment in problem.schema_path[:-1]:
        schema = schema[segment]
    return schema.get("pattern")


def _pattern(kind: Any, value: Any) -> RuleMessage:
    return _misformed(kind.pattern, value)


def _misformed(pattern: str, value: Any) -> RuleMessage:
    form = FORMS.get(pattern, f"text that matches `{pattern}`")
    hint = "put it in quotes" if not isinstance(value, str) else None
    if pattern == DURATION_PATTERN:
        # A number without a unit.
        hint = f"write `{value}s` for seconds" if re.search(pattern, f"{value}s") else None
    return "J01", f"expected {form}, found {describe(value)}", hint


def _type(kind: Any, value: Any) -> RuleMessage:
    types = [str(each) for each in kind.types]
    expected = " or ".join(TYPE_NOUNS[each] for each in types if each != "null")
    hint = None
    if types == ["string"] and isinstance(value, bool | int | float):
        hint = "put it in quotes"
    return "J01", f"expected {expected}, found {describe(value)}", hint


def _enum(kind: Any, value: Any) -> RuleMessage:
    options = [str(option) for option in kind.options]
    other = OTHER_NAMES.get(str(value).lower())
    guess = other if other in options else did_you_mean(str(value), options)
    return (
        "J02",
        f"expected one of {listing(options)}, found {describe(value)}",
        f"did you mean `{guess}`?" if guess else None,
    )


def _at_least(kind: Any, value: Any) -> RuleMessage:
    return "J03", f"expected {kind.limit} or more, found {describe(value)}", None


def _at_most(kind: Any, value: Any) -> RuleMessage:
    return "J03", f"expected {kind.limit} or less, found {describe(value)}", None


def _empty(kind: Any, value: Any) -> RuleMessage:
    noun = "a list" if isinstance(value, list) else "a text"
    return "J04", f"expected {noun} that is not empty", None


def _repeated(kind: Any, value: Any) -> RuleMessage:
    # Items of these lists are scalars; `1` and `"1"` differ, as they do in the schema.
    seen: set[str] = set()
    for item in value:
        if repr(item) in seen:
            return "J05", f"the list contains {describe(item)} twice", None
        seen.add(repr(item))
    return "J05", "the list has duplicates", None


def _no_form(kind: Any, value: Any) -> RuleMessage:
    return "J06", f"{describe(value)} has none of the forms allowed here", None


OTHER_NAMES: Final[Mapping[str, str]] = {
    "integer": "int",
    "long": "int",
    "number": "float",
    "double": "float",
    "boolean": "bool",
    "array": "list",
    "map": "object",
    "dict": "object",
    "str": "string",
    "text": "string",
}
"""Types as other languages name them."""

TYPE_NOUNS: Final[Mapping[str, str]] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}

MESSAGES: Final[Mapping[str, Callable[[Any, Any], RuleMessage]]] = {
    "pattern": _pattern,
    "type": _type,
    "enum": _enum,
    "minimum": _at_least,
    "maximum": _at_most,
    "minItems": _empty,
    "minLength": _empty,
    "uniqueItems": _repeated,
    "anyOf": _no_form,
}
