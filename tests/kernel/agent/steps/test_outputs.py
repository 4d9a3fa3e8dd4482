"""What a model's output is when it only asked for tools: the same live and from the record."""

import pytest
from pydantic import BaseModel, ValidationError

from gert.kernel.agent.steps.outputs import blank_output, output_json_of, output_of_json


class AllDefaults(BaseModel):
    note: str = "nothing yet"
    tags: list[str] = []


class Required(BaseModel):
    healthy: bool
    note: str = "nothing yet"


class Nothing(BaseModel):
    pass


@pytest.mark.parametrize("schema", [AllDefaults, Required, Nothing])
def test_a_blank_output_is_read_back_as_it_was_recorded(schema: type[BaseModel]) -> None:
    output = blank_output(schema)
    assert isinstance(output, schema)
    assert output_of_json(schema, output_json_of(output), asked_for_tools=True) == output


def test_a_blank_output_has_no_field_it_was_not_given() -> None:
    assert blank_output(AllDefaults) == AllDefaults()
    assert "healthy" not in blank_output(Required).__dict__


def test_an_output_is_read_back_as_it_was_recorded() -> None:
    output = Required(healthy=True)
    for asked_for_tools in (False, True):
        assert output_of_json(Required, output_json_of(output), asked_for_tools=asked_for_tools) == output


@pytest.mark.parametrize("recorded", ["{}", '{"healthy":"perhaps"}', "", "null", "nonsense"])
def test_a_record_that_does_not_fit_is_an_error_unless_tools_were_asked_for(recorded: str) -> None:
    with pytest.raises(ValidationError):
        output_of_json(Required, recorded, asked_for_tools=False)
    assert output_of_json(Required, recorded, asked_for_tools=True) == blank_output(Required)
