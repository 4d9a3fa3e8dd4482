"""The kinds of value that a document's fields may take."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gert.errors import TemplateSyntaxError
from gert.kernel.foundation.duration import DURATION_PATTERN, is_too_long
from gert.kernel.foundation.names import TAG
from gert.kernel.foundation.text import is_plain, shorten
from gert.kernel.runbook.finding import Finding, Path, Severity, error
from gert.kernel.runbook.model import Decoder, Kind, Model, Schema
from gert.kernel.runbook.tree import Map, Seq
from gert.kernel.template import compile_value, parse

IDENTIFIER: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
NAME: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
STEP_ID: Final = "^[A-Za-z_][A-Za-z0-9_-]{0,127}$"
ENVIRONMENT_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]{0,255}$"

# Beyond these a number changes its value in JSON (RFC 8785, I-JSON).
MAX_INT: Final = 2**53 - 1


def literal(doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path, noun: str = "text") -> str:
    """Return the source text of any scalar: `1.10` stays `1.10`, `200` is `200`."""
    if type(value) is str:
        return value
    text = node.texts.get(key)
    if not text:
        doc.wrong((*path, key), noun, value)
        return ""
    return text


class Text(Kind):
    """Any scalar, as its source text."""

    def __init__(self, noun: str = "text", **extra: Any) -> None:
        self.noun = noun
        self.extra = extra

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> str:
        """Take the literal text."""
        return value if type(value) is str else literal(doc, node, key, value, path, self.noun)

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return a schema that accepts any scalar, as gert does."""
        return {"type": ["string", "number", "boolean", "null"], **self.extra}


# Patterns in words, because a message with a raw pattern is hard to understand.
FORMS: Final[dict[str, str]] = {}


class Word(Text):
    """A string of a fixed form: a name, a duration, one of some words. The form is checked by the schema."""

    def __init__(self, noun: str = "text", **extra: Any) -> None:
        super().__init__(noun, **extra)
        if "pattern" in extra:
            FORMS[extra["pattern"]] = noun

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of a string with its pattern or enumeration."""
        return {"type": "string", **self.extra}


class NameWord(Word):
    """A name, which may look like a number: `name: 2024` is the text `2024`."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> str:
        """Take the literal text; the schema checks the form of strings only, so others are checked here."""
        text = super().decode(doc, node, key, value, path)
        if type(value) is not str and text and not re.search(self.extra["pattern"], text):
            doc.report(error("J01", (*path, key), f"expected {self.noun}, found `{shorten(text)}`"))
        return text

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of a scalar; strings must have the form."""
        return {"type": ["string", "number", "boolean"], **self.extra}


class PersonText(Text):
    """The name of a person or group: any script, without invisible characters."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> str:
        """Take the literal text; J01 if it has invisible characters."""
        text = super().decode(doc, node, key, value, path)
        if text and not is_plain(text):
            doc.report(error("J01", (*path, key), f"expected {self.noun} without invisible characters"))
        return text


class DurationWord(Word):
    """A duration. The schema checks its form; its maximum is checked here."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> str:
        """Take the literal text; J03 if it exceeds the maximum."""
        text = super().decode(doc, node, key, value, path)
        if is_too_long(text):
            doc.report(error("J03", (*path, key), f"`{shorten(text)}` is longer than a hundred years"))
        return text


class LimitWord(DurationWord):
    """A time limit, which must be greater than zero."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> str:
        """Take the literal text; J03 if it is zero."""
        text = super().decode(doc, node, key, value, path)
        if text and text[0] == "0" and not any(digit in text for digit in "123456789"):
            doc.report(error("J03", (*path, key), f"the duration must be greater than zero, found `{shorten(text)}`"))
        return text


def words(*choices: str, noun: str = "one of the words") -> Word:
    """Return a kind that takes one of a few words."""
    return Word(noun, enum=list(choices))


TEXT: Final = Text()
NONEMPTY: Final = Text(minLength=1)
IDENTIFIER_WORD: Final = Word("a name of letters, digits and `_`", pattern=IDENTIFIER)
NAME_WORD: Final = NameWord("a name of letters, digits, `_`, `.` and `-`", pattern=NAME)
STEP_ID_WORD: Final = Word("a step id of letters, digits, `_` and `-`", pattern=STEP_ID)
DURATION: Final = DurationWord("a duration such as `30s`", pattern=DURATION_PATTERN, examples=["30s", "5m", "1h30m"])
TIMEOUT: Final = LimitWord("a duration such as `30s`", pattern=DURATION_PATTERN, examples=["30s", "5m", "1h30m"])


class Bool(Kind):
    """`true` or `false`."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> bool:
        """Take a boolean; `yes` and `on` are text in YAML 1.2."""
        if type(value) is bool:
            return value
        old = isinstance(value, str) and value.lower() in {
            "yes",
            "no",
            "on",
            "off",
            "y",
            "n",
            "true",
            "false",
        }
        doc.wrong((*path, key), "`true` or `false`", value, "use `true` or `false`, unquoted" if old else None)
        return False

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of a boolean."""
        return {"type": "boolean"}


def integral(value: Any) -> Any:
    """Convert a number such as `3.0` to an integer, as a schema does; return anything else unchanged."""
    return int(value) if type(value) is float and value.is_integer() else value


class Int(Kind):
    """A whole number; its range is checked by the schema."""

    def __init__(self, **extra: Any) -> None:
        self.extra = extra

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> int:
        """Take an integer, however it is written."""
        value = integral(value)
        if type(value) is int:
            check_numbers(doc, value, (*path, key))
            return value
        doc.wrong((*path, key), "a whole number", value)
        return 0

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of an integer within its range."""
        return {"type": "integer", **self.extra}


class Number(Kind):
    """Any finite number."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> float:
        """Take a number."""
        if type(value) in {int, float}:
            check_numbers(doc, value, (*path, key))
            return value  # type: ignore[no-any-return]
        doc.wrong((*path, key), "a number", value)
        return 0

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of a number."""
        return {"type": "number"}


class TemplateText(Text):
    """Text with `{{ }}`, parsed once, when the document is decoded."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Parse the literal text as a template."""
        text = value if type(value) is str else literal(doc, node, key, value, path, self.noun)
        try:
            return parse(text)
        except TemplateSyntaxError as problem:
            report_template(doc, (*path, key), problem)
            return parse("")


class IntOrTemplate(Kind):
    """A whole number, or a template that renders to one."""

    def __init__(self, **extra: Any) -> None:
        self.extra = extra

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Take an integer or parse a template."""
        value = integral(value)
        if type(value) is int:
            check_numbers(doc, value, (*path, key))
            return value
        if isinstance(value, str) and "{{" in value:
            return TEMPLATE.decode(doc, node, key, value, path)
        doc.wrong((*path, key), "a whole number or a template", value)
        return 0

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of an integer within its range, or text with a template."""
        return {"anyOf": [{"type": "integer", **self.extra}, {"type": "string", "pattern": r"\{\{"}]}


class Data(Kind):
    """Any value, unchanged."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Keep the value; only numbers that JSON would change are refused."""
        if type(value) is not str:
            check_numbers(doc, value, (*path, key))
        return value

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Anything."""
        return {}


class Templated(Kind):
    """Any value, with templates at every depth."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Compile every text that contains a template."""
        if type(value) is str:
            if "{{" not in value:
                return value
        else:
            check_numbers(doc, value, (*path, key))
        return compile_value(value, lambda below, problem: report_template(doc, (*path, key, *below), problem))

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Anything."""
        return {}


class ListOf(Kind):
    """A list whose items are all of one kind."""

    def __init__(self, item: Kind, **extra: Any) -> None:
        self.item = item
        self.extra = extra

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> tuple[Any, ...]:
        """Decode each item."""
        here = (*path, key)
        if type(value) is not Seq:
            doc.wrong(here, "a list", value)
            return ()
        decode = self.item.decode
        return tuple([decode(doc, value, index, item, here) for index, item in enumerate(value)])

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of an array."""
        return {"type": "array", "items": self.item.schema(defs), **self.extra}


class MapOf(Kind):
    """A map with keys of the author's choosing, whose values are all of one kind."""

    def __init__(self, item: Kind, *, keys: str | None = None) -> None:
        self.item = item
        self.extra: Schema = {"propertyNames": {"pattern": keys}} if keys else {}

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> dict[str, Any]:
        """Decode each value."""
        here = (*path, key)
        if type(value) is not Map:
            doc.wrong(here, "a map", value)
            return {}
        decode = self.item.decode
        return {name: decode(doc, value, name, item, here) for name, item in value.items()}

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of an object with free keys."""
        return {"type": "object", "additionalProperties": self.item.schema(defs) or True, **self.extra}


class Nested(Kind):
    """A map that is itself a model; a function returns the model if it is not yet defined."""

    def __init__(self, model: "type[Model] | Callable[[], type[Model]]") -> None:
        self._model = model

    @property
    def model(self) -> type[Model]:
        """The model, looked up when first needed."""
        if not isinstance(self._model, type):
            self._model = self._model()
        return self._model

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode the model."""
        return self.model.decode(doc, value, (*path, key))

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return a reference to the model."""
        return self.model.schema(defs)


class Choice(Kind):
    """A value that may be written as text, as a list or as a map."""

    def __init__(self, noun: str, kinds: Mapping[type, Kind]) -> None:
        self.noun = noun
        self.kinds = kinds

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode by the form it is written in; scalars of any type count as text."""
        kind = self.kinds.get(type(value))
        if kind is None and type(value) not in {Map, Seq} and value is not None:
            kind = self.kinds.get(str)
        if kind is None:
            doc.wrong((*path, key), self.noun, value)
            return None
        return kind.decode(doc, node, key, value, path)

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of any of the forms."""
        return {"anyOf": [kind.schema(defs) or _FORMS_OF[form] for form, kind in self.kinds.items()]}


# The JSON Schema type of each form, for kinds that take any value.
_FORMS_OF: Final[Mapping[type, Schema]] = {Map: {"type": "object"}, Seq: {"type": "array"}}


TEMPLATE: Final = TemplateText()
NONEMPTY_TEMPLATE: Final = TemplateText(minLength=1)
CONDITION: Final = TemplateText("a condition", minLength=1)
BOOL: Final = Bool()
DATA: Final = Data()
TEMPLATED: Final = Templated()
TEXTS: Final = ListOf(NONEMPTY)
TAGS: Final = ListOf(NameWord("a tag of ASCII characters without white space", pattern=TAG), uniqueItems=True)
EXTENSIONS: Final = MapOf(DATA)


def report_template(doc: Decoder, path: Path, problem: TemplateSyntaxError) -> None:
    """S06: a template does not parse."""
    doc.report(
        Finding(
            rule="S06",
            severity=Severity.ERROR,
            path=path,
            message=f"the template does not parse: {problem.message}",
            hint=problem.hint,
            offset=problem.offset,
        )
    )


def check_numbers(doc: Decoder, value: Any, path: Path) -> None:
    """S07: report a number that JSON would not keep exactly, at any depth."""
    if type(value) is Map:
        for key, item in value.items():
            if type(item) is not str:
                check_numbers(doc, item, (*path, key))
    elif type(value) is Seq:
        for index, item in enumerate(value):
            if type(item) is not str:
                check_numbers(doc, item, (*path, index))
    elif type(value) is int and not -MAX_INT <= value <= MAX_INT:
        doc.report(error("S07", path, "the number is too large to be stored exactly", "put it in quotes"))
    elif type(value) is float and not math.isfinite(value):
        doc.report(error("S07", path, "the number is not finite", "put it in quotes if you mean the word"))
