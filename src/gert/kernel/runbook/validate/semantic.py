"""The semantic phase: the JSON Schema that `gert schema` exports, applied to the document as written."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import jsonschema_rs

from gert.kernel.foundation.names import did_you_mean
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.finding import Finding, Path, error
from gert.kernel.runbook.kinds import FORMS
from gert.kernel.runbook.model import describe, listing
from gert.kernel.runbook.reader import shorten
from gert.kernel.runbook.schema import schema_of

# Rule, message and hint; or None where another problem of the same place says it better.
Said: TypeAlias = tuple[str, str, str | None]


@cache
def _validator(kind: str) -> Any:
    return jsonschema_rs.Draft202012Validator(schema_of(kind))


def semantic(document: Document) -> Iterator[Finding]:
    """Every place where a value is not of the form its field asks for."""
    for problem in _validator(document.kind).iter_errors(document.tree.root):
        path: Path = tuple(problem.instance_path)
        if problem.kind.name == "propertyNames":
            key = str(problem.kind.error.instance)
            form = FORMS.get(getattr(problem.kind.error.kind, "pattern", ""), "another form")
            message = f"expected {form} as key, found `{shorten(key)}`"
            yield error("J01", (*path, key), message, on_key=True)
        else:
            rule, message, hint = say(problem, document.tree.value_at(path))
            yield error(rule, path, message, hint)


def say(problem: Any, value: Any) -> Said:
    """A schema problem in the user's words."""
    describe_it = MESSAGES.get(problem.kind.name)
    if describe_it is None:
        return "J06", str(problem.message).replace('"', "`"), None
    return describe_it(problem.kind, value)


def _pattern(kind: Any, value: Any) -> Said:
    form = FORMS.get(kind.pattern, f"text that matches `{kind.pattern}`")
    return "J01", f"expected {form}, found {describe(value)}", None


def _type(kind: Any, value: Any) -> Said:
    types = [str(each) for each in kind.types]
    expected = " or ".join(TYPE_NOUNS[each] for each in types if each != "null")
    hint = "put it in quotes" if types == ["string"] and isinstance(value, bool | int | float) else None
    return "J01", f"expected {expected}, found {describe(value)}", hint


def _enum(kind: Any, value: Any) -> Said:
    options = [str(option) for option in kind.options]
    guess = did_you_mean(str(value), options)
    return (
        "J02",
        f"expected one of {listing(options)}, found {describe(value)}",
        f"did you mean `{guess}`?" if guess else None,
    )


def _at_least(kind: Any, value: Any) -> Said:
    return "J03", f"expected {kind.limit} or more, found {describe(value)}", None


def _at_most(kind: Any, value: Any) -> Said:
    return "J03", f"expected {kind.limit} or less, found {describe(value)}", None


def _empty(kind: Any, value: Any) -> Said:
    noun = "a list" if isinstance(value, list) else "a text"
    return "J04", f"expected {noun} that is not empty", None


def _repeated(kind: Any, value: Any) -> Said:
    # Items of these lists are scalars; `1` and `"1"` differ, as they do in the schema.
    seen: set[str] = set()
    for item in value:
        if repr(item) in seen:
            return "J05", f"the list names {describe(item)} twice", None
        seen.add(repr(item))
    return "J05", "the list repeats itself", None


def _any_of(kind: Any, value: Any) -> Said:
    """Of several forms, speak of the one the author chose: the one whose type fits."""
    for problems in kind.context:
        if problems and all(problem.kind.name != "type" for problem in problems):
            return say(problems[0], value)
    return "J06", f"{describe(value)} has none of the forms allowed here", None


TYPE_NOUNS: Final[Mapping[str, str]] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}

MESSAGES: Final[Mapping[str, Callable[[Any, Any], Said]]] = {
    "pattern": _pattern,
    "type": _type,
    "enum": _enum,
    "minimum": _at_least,
    "maximum": _at_most,
    "minItems": _empty,
    "minLength": _empty,
    "uniqueItems": _repeated,
    "anyOf": _any_of,
}
