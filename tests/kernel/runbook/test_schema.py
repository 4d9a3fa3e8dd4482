"""The exported JSON Schema: valid itself, the one the semantic phase uses, and no laxer than the decoder."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from gert.kernel.runbook.document import DOCUMENT_KINDS, load
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of
from gert.kernel.runbook.validate.catalogue import RULES

ROOT = Path(__file__).resolve().parents[3]
# `models` holds what offline models answer, which is no document of gert.
EXAMPLES = sorted(file for file in (ROOT / "examples").rglob("*.yaml") if file.parent.name != "models")
BROKEN = sorted((ROOT / "conformance" / "validate" / "bad").rglob("*.yaml"))

# What an editor's schema can see. Templates, number ranges and names are gert's own business.
SEEN_BY_SCHEMA = {"S01", "S02", "S03", "S04", "S05"}


@pytest.mark.parametrize("kind", SCHEMA_NAMES)
def test_every_schema_is_a_valid_schema(kind: str) -> None:
    jsonschema_rs.meta.validate(schema_of(kind))


@pytest.mark.parametrize("kind", SCHEMA_NAMES)
def test_every_property_is_described(kind: str) -> None:
    def undescribed(schema: Any, where: str) -> list[str]:
        found = []
        for name, value in (schema.get("properties") or {}).items():
            if "description" not in value and "const" not in value:
                found.append(f"{where}.{name}")
        return found

    schema = schema_of(kind)
    missing = undescribed(schema, kind)
    for name, definition in schema.get("$defs", {}).items():
        missing += undescribed(definition, name)
    assert missing == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.name)
def test_bundled_documents_satisfy_the_exported_schema(file: Path) -> None:
    document = load(file.read_bytes(), file_name=str(file))
    assert document.findings == []
    jsonschema_rs.Draft202012Validator(schema_of(document.kind)).validate(document.tree.root)


@pytest.mark.parametrize("file", BROKEN, ids=lambda f: f.stem)
def test_an_editor_sees_what_the_structural_phase_sees(file: Path) -> None:
    document = load(file.read_bytes(), file_name=str(file))
    structural = [f for f in document.findings if f.rule in SEEN_BY_SCHEMA]
    # An empty value is `null` to a schema, and text fields take the word `null`.
    if not structural or any("found nothing" in f.message for f in structural):
        return
    validator = jsonschema_rs.Draft202012Validator(schema_of(document.kind))
    assert not validator.is_valid(document.tree.root)


def test_every_rule_of_the_catalogue_has_words() -> None:
    for rule in RULES.values():
        assert rule.title[0].islower() or rule.title[0] == "`"
        assert rule.help.endswith(".")


def test_every_kind_of_document_has_a_schema() -> None:
    assert set(SCHEMA_NAMES) == set(DOCUMENT_KINDS)
