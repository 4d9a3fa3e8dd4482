"""Models of documents, whose fields declare their kind, default and description once.

A field's kind decodes the value and its source text, reports what does not fit at its position, and
writes its own part of the JSON Schema. So the reader, the schema that editors use and the reference in the
docs cannot disagree. `docs/decisions/0003-documents-are-decoded-by-kinds.md` has the reasons.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, dataclass_transform

from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.finding import Finding, Path, error
from gert.kernel.runbook.tree import Map, Seq

Schema = dict[str, Any]


class Decoder:
    """Collects the findings of one document while it is decoded."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def report(self, finding: Finding) -> None:
        """Add a finding."""
        self.findings.append(finding)

    def wrong(self, path: Path, expected: str, value: Any, hint: str | None = None) -> None:
        """S01: a value is not of the kind its field takes."""
        self.report(error("S01", path, f"expected {expected}, found {describe(value)}", hint))


class Kind(ABC):
    """The kind of a field: how to decode its value, and its JSON Schema."""

    @abstractmethod
    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode `value`, which is under `key` in `node`; `path` is the path of `node`."""

    @abstractmethod
    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return this kind in JSON Schema; models it refers to are added to `defs`."""


class Field:
    """One key of a model."""

    def __init__(self, kind: Kind, doc: str, key: str | None, default: Any, *, required: bool) -> None:
        self.kind = kind
        self.doc = doc
        self.key = key or ""
        self.default = default
        self.required = required
        self.name = ""


def required(kind: Kind, doc: str, *, key: str | None = None) -> Any:
    """Declare a required key."""
    return Field(kind, doc, key, None, required=True)


def optional(kind: Kind, doc: str, *, default: Any = None, key: str | None = None) -> Any:
    """Declare an optional key."""
    return Field(kind, doc, key, default, required=False)


@dataclass_transform(kw_only_default=True, field_specifiers=(required, optional))
class Model:
    """A map with known keys; `path` is its path in the document."""

    fields: ClassVar[Mapping[str, Field]] = MappingProxyType({})
    _defaults: ClassVar[dict[str, Any]] = {}
    _required: ClassVar[frozenset[str]] = frozenset()

    path: ClassVar[Path] = ()

    def __init_subclass__(cls) -> None:
        """Collect the fields of the class body, after those of its bases."""
        fields: dict[str, Field] = dict(cls.fields)
        for name, field in list(vars(cls).items()):
            if isinstance(field, Field):
                field.name = name
                field.key = field.key or name
                fields[field.key] = field
                delattr(cls, name)
        cls.fields = fields
        cls._defaults = {field.name: field.default for field in fields.values()}
        cls._required = frozenset(key for key, field in fields.items() if field.required)

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self._defaults.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        self.__dict__.update(self._defaults)
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        """Compare the values, not the paths."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._defaults)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        said = (f"{k}={getattr(self, k)!r}" for k, default in self._defaults.items() if getattr(self, k) != default)
        return f"{type(self).__name__}({', '.join(said)})"

    def at(self, *segments: str | int) -> Path:
        """Return the path of something inside this model."""
        return self.path + segments

    @classmethod
    def decode(cls, doc: Decoder, value: Any, path: Path) -> Self | None:
        """Decode a map into this model, reporting every key that does not fit."""
        if type(value) is not Map:
            doc.wrong(path, cls.noun(), value)
            return None
        fields = cls.fields
        values = cls._defaults.copy()
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                cls.report_unknown(doc, key, path)
            else:
                values[field.name] = field.kind.decode(doc, value, key, item, path)
        if not cls._required <= value.keys():
            for key in fields:
                if key in cls._required and key not in value:
                    doc.report(error("S03", path, f"`{key}` is missing", f"{key}: {fields[key].doc}"))
        values["path"] = path
        model = cls.__new__(cls)
        model.__dict__ = values
        return model

    @classmethod
    def report_unknown(cls, doc: Decoder, key: str, path: Path) -> None:
        """S02: report an unknown key, so that a misspelt key cannot silently disable a safeguard."""
        hint = suggestion(key, cls.fields) or f"known keys: {listing(cls.fields)}"
        doc.report(error("S02", (*path, key), f"unknown key `{shorten(key)}`", hint, on_key=True))

    @classmethod
    def noun(cls) -> str:
        """Return the noun for a map of this kind in messages."""
        return "a map"

    @classmethod
    def schema(cls, defs: dict[str, Schema]) -> Schema:
        """Return this model in JSON Schema, as a reference into `defs`."""
        name = cls.__name__
        if name not in defs:
            defs[name] = {}  # present before its fields are visited: models may contain themselves
            defs[name] = cls.object_schema(defs)
        return {"$ref": f"#/$defs/{name}"}

    @classmethod
    def object_schema(cls, defs: dict[str, Schema]) -> Schema:
        """Return the schema of the object that this model describes."""
        properties = {}
        for key, field in cls.fields.items():
            about: Schema = {"description": field.doc} if field.doc else {}
            if isinstance(field.default, str | int | float | bool):
                about["default"] = field.default
            properties[key] = {**about, **field.kind.schema(defs)}
        schema: Schema = {
            "type": "object",
            "description": (cls.__doc__ or "").split("\n")[0],
            "properties": properties,
            "additionalProperties": False,
        }
        if cls._required:
            schema["required"] = [key for key in cls.fields if key in cls._required]
        return schema


NOUNS: Final[Mapping[type, str]] = {Map: "a map", Seq: "a list", dict: "a map", list: "a list"}


def describe(value: Any) -> str:
    """Describe a value that does not fit, for a message."""
    if value is None:
        return "nothing"
    if (noun := NOUNS.get(type(value))) is not None:
        return noun
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"the text `{shorten(value, 40)}`" if value else "an empty text"
    return f"the number `{shorten(str(value), 40)}`"
