"""The page docs/reference.md, from the models of the documents."""

from collections.abc import Iterator
from typing import Any

from gert.kernel.runbook.document import DOCUMENT_KINDS
from gert.kernel.runbook.documents.steps import STEP_KINDS
from gert.kernel.runbook.kinds import Choice, ListOf, MapOf, Nested
from gert.kernel.runbook.model import Field, Kind, Model
from scripts import tables

HEADER = """# Document reference

Every key of every document. This page is generated from the models in `gert.kernel.runbook.documents` by
`make docs`; `gert schema KIND` prints the same as JSON Schema. **Bold** keys are required. A key that is not
listed is an error, except under `extensions`.
"""


def page() -> str:
    """Give the whole page."""
    return "\n".join([HEADER, *_documents()])


def _documents() -> Iterator[str]:
    done: set[str] = set()
    for name, kind in DOCUMENT_KINDS.items():
        version = f" (`apiVersion: {kind.api_version}`)" if kind.api_version else ""
        files = (
            f" Recognized by its name: {', '.join(f'`{file}`' for file in kind.file_names)}." if kind.file_names else ""
        )
        yield f"## {name.capitalize()}{version}\n\n{_sentence(kind.model)}{files}\n"
        yield table(kind.model)
        yield from _parts(kind.model, done)
        if name == "runbook":
            for step, model in STEP_KINDS.items():
                yield f"### `{step}` step\n\n{_sentence(model)}\n\n{table(model)}"
                yield from _parts(model, done)


def _parts(model: type[Model], done: set[str]) -> Iterator[str]:
    for field in model.fields.values():
        for nested in _models(field.kind):
            if nested.__name__ not in done:
                done.add(nested.__name__)
                yield f"### {_title(nested)}\n\n{_sentence(nested)}\n\n{table(nested)}"
                yield from _parts(nested, done)


def _models(kind: Kind) -> Iterator[type[Model]]:
    if isinstance(kind, Nested):
        yield kind.model
    elif isinstance(kind, ListOf | MapOf):
        yield from _models(kind.item)
    elif isinstance(kind, Choice):
        for each in kind.kinds.values():
            yield from _models(each)


def table(model: type[Model]) -> str:
    """The keys of a document or a part of one."""
    rows = [
        _row(key, field) for key, field in model.fields.items() if not (key == "type" and hasattr(model, "executes"))
    ]
    return tables.table(("Key", "Takes", "Default", "Meaning"), rows)


def _row(key: str, field: Field) -> tuple[str, ...]:
    name = f"**`{key}`**" if field.required else f"`{key}`"
    default = (
        f"`{_json(field.default)}`"
        if isinstance(field.default, str | int | float | bool) and field.default != ""
        else ""
    )
    return name, _takes(field.kind), default, field.doc.replace("|", "&#124;")


def _takes(kind: Kind) -> str:
    if isinstance(kind, Nested):
        return f"[{_title(kind.model).lower()}](#{_title(kind.model).lower().replace(' ', '-')})"
    if isinstance(kind, ListOf):
        return f"list of {_takes(kind.item)}"
    if isinstance(kind, MapOf):
        return f"map of {_takes(kind.item)}"
    if isinstance(kind, Choice):
        return " or ".join(_takes(each) for each in kind.kinds.values())
    name = type(kind).__name__
    schema = kind.schema({})
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    return TAKES.get(name, getattr(kind, "noun", name))


TAKES = {
    "Bool": "`true` or `false`",
    "Int": "whole number",
    "Number": "number",
    "TemplateText": "template",
    "IntOrTemplate": "whole number or template",
    "Data": "anything",
    "Templated": "anything, templates at every depth",
    "StepKind": "step",
}


def _title(model: type[Model]) -> str:
    words = "".join(
        f" {letter.lower()}" if letter.isupper() else letter for letter in model.__name__.removesuffix("Block")
    )
    return words.strip().capitalize()


def _sentence(model: type[Model]) -> str:
    return (model.__doc__ or "").split("\n")[0]


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
