"""What a model's output is when it has only asked for tools, live and from the record alike."""

from pydantic import BaseModel, ValidationError

from gert.kernel.agent.ports.model import OutputT


def blank_output(output_schema: type[OutputT]) -> OutputT:
    """An instance that holds the schema's defaults alone; a required field is not there at all."""
    try:
        return output_schema()
    except ValidationError:
        return output_schema.model_construct()


def output_json_of(output: BaseModel) -> str:
    """An output as it is recorded; a blank one too."""
    return output.model_dump_json()


def output_of_json(output_schema: type[OutputT], output_json: str, *, asked_for_tools: bool) -> OutputT:
    """The output a record holds, equal to the one that was recorded.

    Raises what pydantic raises where the record does not fit the schema and no tools were asked for.
    """
    try:
        return output_schema.model_validate_json(output_json)
    except ValidationError:
        if not asked_for_tools:
            raise
        return blank_output(output_schema)
