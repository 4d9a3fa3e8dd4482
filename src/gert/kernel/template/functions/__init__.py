"""The functions of the language, one row each."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gert.kernel.foundation.patterns import compile_pattern
from gert.kernel.template.functions import choices, lists, numbers, texts

# How a function treats a missing value: it is expected, it counts as empty, or it is an error.
Takes: TypeAlias = Literal["expects", "accepts", "refuses"]

# Where the result of a function comes from, for `references`.
Gives: TypeAlias = Literal["new", "any argument", "first or second", "element", "part", "at path"]


class Function(Struct, frozen=True):
    """One function: its implementation, its number of arguments, and what the parser knows about it."""

    call: Callable[..., Any]
    least: int
    most: int | None
    takes: Takes = "accepts"
    gives: Gives = "new"
    check: Callable[[str], object] | None = None
    """Checks the first argument at parse time, if it is a literal text."""
    whole: bool = False
    """Whether it returns its arguments unchanged, so that an argument may be a secret."""
    lazy: bool = False
    """Whether it gets one iterator, which evaluates each argument on demand."""


FUNCTIONS: Mapping[str, Function] = {
    # Go's own.
    "and": Function(choices.both, 1, None, "expects", "any argument", lazy=True, whole=True),
    "or": Function(choices.either, 1, None, "expects", "any argument", lazy=True, whole=True),
    "not": Function(choices.negated, 1, 1, "expects", whole=True),
    "eq": Function(choices.equals, 2, None, "expects"),
    "ne": Function(choices.differs, 2, 2, "expects"),
    "lt": Function(choices.before, 2, 2, "refuses"),
    "le": Function(choices.not_after, 2, 2, "refuses"),
    "gt": Function(choices.after, 2, 2, "refuses"),
    "ge": Function(choices.not_before, 2, 2, "refuses"),
    "len": Function(lists.length, 1, 1),
    "index": Function(lists.index, 1, None, gives="at path", whole=True),
    "slice": Function(lists.part, 1, 4, gives="part"),
    "print": Function(texts.printed, 0, None, whole=True),
    "printf": Function(texts.printed_as, 1, None, whole=True),
    "println": Function(texts.printed_line, 0, None, whole=True),
    "urlquery": Function(texts.url_query, 0, None),
    # Choosing.
    "default": Function(choices.default, 2, 2, "expects", "any argument", whole=True),
    "coalesce": Function(choices.coalesce, 1, None, "expects", "any argument", whole=True),
    "ternary": Function(choices.ternary, 3, 3, "expects", "first or second", whole=True),
    # Text.
    "contains": Function(texts.contains, 2, 2),
    "hasPrefix": Function(texts.has_prefix, 2, 2),
    "hasSuffix": Function(texts.has_suffix, 2, 2),
    "upper": Function(texts.upper, 1, 1),
    "lower": Function(texts.lower, 1, 1),
    "trim": Function(texts.trim, 1, 1),
    "replace": Function(texts.replace, 3, 3),
    "split": Function(texts.split, 2, 2),
    "lines": Function(texts.lines, 1, 1),
    "join": Function(texts.join, 2, 2, whole=True),
    "quote": Function(texts.quote, 1, 1),
    "toString": Function(texts.to_string, 1, 1, whole=True),
    "toJson": Function(texts.to_json, 1, 1),
    "fromJson": Function(texts.from_json, 1, 1),
    "regexMatch": Function(texts.regex_match, 2, 2, check=compile_pattern),
    "regexFind": Function(texts.regex_find, 2, 2, check=compile_pattern),
    # Lists and maps.
    "first": Function(lists.first, 1, 1, gives="element", whole=True),
    "last": Function(lists.last, 1, 1, gives="element", whole=True),
    "uniq": Function(lists.uniq, 1, 1, gives="part"),
    "keys": Function(lists.keys, 1, 1),
    "values": Function(lists.values, 1, 1, gives="part", whole=True),
    "pluck": Function(lists.pluck, 2, 2, whole=True),
    "filter": Function(lists.filtered, 3, 3),
    "any": Function(lists.any_is, 3, 3),
    "all": Function(lists.all_are, 3, 3),
    # Numbers.
    "int": Function(numbers.to_int, 1, 1, "refuses"),
    "float": Function(numbers.to_float, 1, 1, "refuses"),
    "add": Function(numbers.add, 2, None, "refuses"),
    "sub": Function(numbers.sub, 2, 2, "refuses"),
    "mul": Function(numbers.mul, 2, None, "refuses"),
    "div": Function(numbers.div, 2, 2, "refuses"),
    "mod": Function(numbers.mod, 2, 2, "refuses"),
    "min": Function(numbers.least, 2, None, "refuses"),
    "max": Function(numbers.greatest, 2, None, "refuses"),
}
