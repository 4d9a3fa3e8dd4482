"""Output schemas: what a model is held to, what is only said, and what is sent as it is."""

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from gert.ecosystem.models.schemas import output_format


class Inner(BaseModel):
    size: int = Field(default=1, ge=1, le=9, description="How big.")


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Outer(BaseModel):
    name: Annotated[str, Field(max_length=5, pattern="^a")]
    inner: Inner = Field(default_factory=Inner, description="Within.")
    many: list[Inner] = []
    maybe: str | None = None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Node(BaseModel):
    children: list["Node"] = []


class Empty(BaseModel):
    pass


class OpenMap(BaseModel):
    labels: dict[str, str]


class Anything(BaseModel):
    value: Any


class Pair(BaseModel):
    pair: tuple[int, str]


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


def closed(schema: object) -> bool:
    """Every object says what it holds, and requires all of it."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        return all(closed(part) for part in schema.values())
    return all(closed(part) for part in schema) if isinstance(schema, list) else True


@pytest.mark.parametrize("schema", [Outer, Node, Empty, Inner])
def test_a_strict_form_is_closed_at_every_depth(schema: type[BaseModel]) -> None:
    given = output_format(schema)
    assert given.strict
    assert closed(given.schema)
    assert given.schema["type"] == "object"


def test_what_cannot_be_enforced_is_said() -> None:
    schema = output_format(Outer).schema
    assert schema["properties"]["name"] == {
        "type": "string",
        "title": "Name",
        "description": "(maxLength: 5, pattern: ^a)",
    }
    size = schema["$defs"]["Inner"]["properties"]["size"]
    assert size["description"] == "How big. (minimum: 1, maximum: 9)"
    assert not {"minimum", "maximum", "default"} & size.keys()
    assert schema["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert "anyOf" in schema["properties"]["pet"]
    assert "discriminator" not in schema["properties"]["pet"]


class Mixed(Enum):
    ONE, TWO, NONE, HALF = 1, "two", None, 0.5


class Mixes(BaseModel):
    kind: Mixed
    word: Literal["a", None] = Field(description="A word.")


def test_each_value_of_an_enumeration_has_a_type() -> None:
    given = output_format(Mixes)
    assert given.strict
    assert given.schema["$defs"]["Mixed"]["anyOf"] == [
        {"type": "integer", "enum": [1]},
        {"type": "string", "enum": ["two"]},
        {"type": "null"},
        {"type": "number", "enum": [0.5]},
    ]
    assert given.schema["properties"]["word"] == {
        "title": "Word",
        "description": "A word.",
        "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}],
    }


@pytest.mark.parametrize("schema", [OpenMap, Anything, Pair, Extra])
def test_a_schema_without_a_strict_form_is_sent_as_it_is(schema: type[BaseModel]) -> None:
    given = output_format(schema)
    assert not given.strict
    assert given.schema == schema.model_json_schema()


@pytest.mark.parametrize(("schema", "recursive"), [(Node, True), (Outer, False), (Empty, False)])
def test_whether_it_contains_itself(schema: type[BaseModel], recursive: bool) -> None:
    assert output_format(schema).recursive is recursive


@pytest.mark.parametrize(
    "schema", [RootModel[list[int]], RootModel[int], RootModel[Cat | Dog]], ids=["a list", "a number", "a choice"]
)
def test_what_is_no_object_is_wrapped_in_one(schema: type[BaseModel]) -> None:
    given = output_format(schema)
    assert given.wrapped
    assert given.strict
    assert given.schema["required"] == ["value"]
    assert all(character.isalnum() or character in "_-" for character in given.name)
