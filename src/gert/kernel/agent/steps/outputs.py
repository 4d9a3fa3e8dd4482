"""What a model's output is when it has only asked for tools, live and from the record alike."""

from functools import lru_cache
from inspect import isabstract

import msgspec
from pydantic import BaseModel, ValidationError

from gert.errors import InputError, ModelPermanentError
from gert.kernel.agent.ports.model import OutputT
from gert.kernel.agent.types.serde import model_json
from gert.kernel.foundation.text import printable

_LONGEST = 200


@lru_cache(maxsize=256)
def check_output_schema(output_schema: type[BaseModel]) -> None:
    """Refuse a class no model's answer can be read as, before a model is asked and paid: InputError.

    It must be possible to make instances of it, and to tell a model its JSON Schema.
    """
    name = output_schema.__name__
    if isabstract(output_schema):
        raise InputError(f"the output schema `{name}` is abstract", hint="use a class that can be instantiated")
    try:
        output_schema.model_rebuild()
        msgspec.json.encode(output_schema.model_json_schema())
    except Exception as error:
        # Pydantic's own errors, or whatever the class itself raises when it describes its fields.
        why = printable(" ".join(str(error).split("\n", 1)[0].split()))[:_LONGEST]
        raise InputError(
            f"the output schema `{name}` has no JSON Schema: {why}", hint="use field types that JSON can hold"
        ) from error


def blank_output(output_schema: type[OutputT]) -> OutputT:
    """An instance that holds the schema's defaults alone; a required field is not there at all."""
    try:
        return output_schema()
    except ValidationError:
        return output_schema.model_construct()


def output_json_of(output: BaseModel) -> str:
    """An output as it is recorded; a blank one too.

    Raises ModelPermanentError where its own JSON does not give it back.
    """
    return checked_output_json(type(output), output, asked_for_tools=True)


def checked_output_json(output_schema: type[BaseModel], output: BaseModel, *, asked_for_tools: bool = False) -> str:
    """An output as it is recorded, if reading it as `output_schema` gives it back; ModelPermanentError otherwise.

    asked_for_tools: the answer holds tool calls, so that a blank output is one
    """
    try:
        return model_json(output_schema, output)
    except InputError as error:
        if asked_for_tools and isinstance(output, output_schema) and _is_blank(output):
            return output.model_dump_json(by_alias=True, round_trip=True)
        raise ModelPermanentError(
            f"the model's output cannot be kept: {error.message}", category="invalid_output"
        ) from error


def _is_blank(output: object) -> bool:
    """Whether nothing was said: nothing was set, and what is required is not there."""
    if not isinstance(output, BaseModel):
        return False  # a port may give anything
    fields = type(output).model_fields.items()
    missing = any(field.is_required() and name not in output.__dict__ for name, field in fields)
    return missing and not output.model_fields_set


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
