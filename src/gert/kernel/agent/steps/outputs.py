"""Model outputs as JSON and back, including the blank output of an answer that only calls tools."""

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
    """Refuse an output class that no answer can be read as, before a model is called: InputError.

    It must be instantiable and have a JSON Schema.
    """
    name = output_schema.__name__
    if isabstract(output_schema):
        raise InputError(f"the output schema `{name}` is abstract", hint="use a class that can be instantiated")
    try:
        output_schema.model_rebuild()
        msgspec.json.encode(output_schema.model_json_schema())
    except Exception as error:
        # Pydantic's own errors, or any exception the class raises while it describes its fields.
        why = printable(" ".join(str(error).split("\n", 1)[0].split()))[:_LONGEST]
        raise InputError(
            f"the output schema `{name}` has no JSON Schema: {why}", hint="use field types that JSON supports"
        ) from error


def blank_output(output_schema: type[OutputT]) -> OutputT:
    """Return an instance with only the schema's defaults; required fields are missing."""
    try:
        return output_schema()
    except ValidationError:
        return output_schema.model_construct()


def output_json_of(output: BaseModel) -> str:
    """Return an output as it is recorded; a blank output is allowed.

    Raises ModelPermanentError if reading its JSON does not restore it.
    """
    return checked_output_json(type(output), output, asked_for_tools=True)


def checked_output_json(output_schema: type[BaseModel], output: BaseModel, *, asked_for_tools: bool = False) -> str:
    """Return an output as it is recorded; ModelPermanentError if reading it as `output_schema` does not restore it.

    asked_for_tools: the answer holds tool calls, so a blank output is allowed
    """
    try:
        return model_json(output_schema, output)
    except InputError as error:
        if asked_for_tools and isinstance(output, output_schema) and _is_blank(output):
            return output.model_dump_json(by_alias=True, round_trip=True)
        raise ModelPermanentError(
            f"the model's output cannot be recorded: {error.message}", category="invalid_output"
        ) from error


def _is_blank(output: object) -> bool:
    """Whether no field was set and a required field is missing."""
    if not isinstance(output, BaseModel):
        return False  # a port may return any object
    fields = type(output).model_fields.items()
    missing = any(field.is_required() and name not in output.__dict__ for name, field in fields)
    return missing and not output.model_fields_set


def output_of_json(output_schema: type[OutputT], output_json: str, *, asked_for_tools: bool) -> OutputT:
    """Read a recorded output.

    Raises pydantic's ValidationError if it does not fit the schema and the answer called no tools.
    """
    try:
        return output_schema.model_validate_json(output_json)
    except ValidationError:
        if not asked_for_tools:
            raise
        return blank_output(output_schema)
