"""Results as text and back: what comes back is what was written, or nothing is written."""

from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, computed_field

from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.steps.outputs import blank_output, checked_output_json, output_json_of, output_of_json
from gert.kernel.agent.types.serde import json_step_serde, pydantic_step_serde


class Aliased(BaseModel):
    ok: bool = Field(alias="isOk")


class TwoNames(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    ok: bool = Field(validation_alias="read", serialization_alias="written")


class OneOfTwo(BaseModel):
    ok: bool = Field(validation_alias=AliasChoices("a", "b"), serialization_alias="b")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.n * 2


class Private(BaseModel):
    n: int = 1
    _note: object = PrivateAttr(default_factory=object)


class Number(BaseModel):
    n: float = 0


class MaybeNumber(BaseModel):
    n: float | None = 0


class Wrong(BaseModel):
    ok: bool = Field(validation_alias="read", serialization_alias="written")


class Text(BaseModel):
    text: str


class More(Text):
    extra: int = 1


GOOD = [
    Aliased.model_validate({"isOk": True}),
    TwoNames.model_validate({"read": True}),
    OneOfTwo.model_validate({"a": True}),
    Computed(n=3),
    Private(),
    Number(n=0.1),
    MaybeNumber(n=None),
    Text(text="☠"),
]
BAD: list[Any] = [
    pytest.param(Number(n=float("inf")), "`n`", id="a number that is none"),
    pytest.param(MaybeNumber(n=float("inf")), "`n` would differ", id="a number that becomes nothing"),
    pytest.param(Wrong.model_validate({"read": True}), "`read`", id="a field that is read by another name"),
    pytest.param(Text(text="\ud800"), "no JSON form", id="half a character"),
    pytest.param(Text.model_construct(), "`text`", id="a field that is missing"),
    pytest.param(Text.model_construct(text=7), "`text`", id="a value of another type"),
]


@pytest.mark.parametrize("value", GOOD, ids=lambda value: type(value).__name__)
def test_it_comes_back(value: BaseModel) -> None:
    serde = pydantic_step_serde(type(value))
    assert serde.load(serde.dump(value)).model_dump() == value.model_dump()
    recorded = checked_output_json(type(value), value)
    assert recorded == output_json_of(value)
    assert output_of_json(type(value), recorded, asked_for_tools=False).model_dump() == value.model_dump()


@pytest.mark.parametrize(("value", "why"), BAD)
def test_what_does_not_come_back_is_not_written(value: BaseModel, why: str) -> None:
    with pytest.raises(InputError, match=why):
        pydantic_step_serde(type(value)).dump(value)
    with pytest.raises(ModelPermanentError, match=why) as caught:
        checked_output_json(type(value), value)
    assert caught.value.category == "invalid_output"


def test_a_blank_output_is_one_where_tools_were_asked_for_and_only_there() -> None:
    blank = blank_output(Text)
    assert checked_output_json(Text, blank, asked_for_tools=True) == "{}"
    with pytest.raises(ModelPermanentError):
        checked_output_json(Text, blank)
    with pytest.raises(ModelPermanentError):
        checked_output_json(Text, Text.model_construct(text=7), asked_for_tools=True)


def test_an_output_of_another_model_is_written_as_what_was_asked_for() -> None:
    assert checked_output_json(Text, More(text="a")) == '{"text":"a"}'
    with pytest.raises(ModelPermanentError, match="`text`"):
        checked_output_json(Text, Number())
    with pytest.raises(ModelPermanentError, match="found a `dict`"):
        checked_output_json(Text, {"text": "a"})  # type: ignore[arg-type]
    with pytest.raises(ModelPermanentError, match="found a `dict`"):
        output_json_of({"text": "a"})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "nonsense", "null", "{}", '{"text":7}', "\ud800"])
def test_a_record_that_does_not_fit_is_said_in_our_words(text: str) -> None:
    with pytest.raises(InputError, match="is not a `Text`"):
        pydantic_step_serde(Text).load(text)


def test_values_are_not_repeated_in_errors() -> None:
    with pytest.raises(InputError) as caught:
        pydantic_step_serde(Text).load('{"text":{"password":"hunter2"}}')
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("value", [None, True, 0, 2**60, "a", [1, {"b": None}], {"b": 1, "a": 2}])
def test_plain_data_comes_back(value: Any) -> None:
    serde = json_step_serde()
    assert serde.load(serde.dump(value)) == value
