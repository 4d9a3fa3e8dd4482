"""JSON Schema Draft 2020-12 of every document, for editors and for the semantic phase."""

from functools import cache
from typing import Any, Final

from gert.kernel.runbook.document import DOCUMENT_KINDS
from gert.kernel.runbook.model import Schema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

# The names that `gert schema` takes; `config` is a project file without a name.
SCHEMA_NAMES: Final = tuple(DOCUMENT_KINDS)


@cache
def schema_of(kind: str) -> Schema:
    """Return the schema of a kind of document."""
    document = DOCUMENT_KINDS[kind]
    defs: dict[str, Schema] = {}
    root = document.model.object_schema(defs)
    defs.pop(document.model.__name__, None)
    schema: dict[str, Any] = {
        "$schema": DIALECT,
        "title": document.title,
        **root,
    }
    if defs:
        schema["$defs"] = dict(sorted(defs.items()))
    return schema
