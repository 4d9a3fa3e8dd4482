"""Serialize results to text and back: those of workflow steps, and any pydantic model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from gert.errors import CanonicalError, InputError
from gert.kernel.foundation.arguments import checked
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, loads
from gert.kernel.foundation.names import listing
from gert.kernel.foundation.text import printable

StepT = TypeVar("StepT")
WorkflowModelT = TypeVar("WorkflowModelT", bound=BaseModel)

_MOST_PLACES = 3
_LONGEST = 200


# Without slots: a generic, frozen dataclass with slots cannot be created as `StepSerde[X](…)`.
@dataclass(frozen=True)
class StepSerde(Generic[StepT]):
    """How the result of a workflow step is written to the ledger, and read back when the step is replayed."""

    dump: Callable[[StepT], str]
    load: Callable[[str], StepT]


def json_step_serde() -> StepSerde[JsonValue]:
    """Return the serde of steps that return plain data."""
    return StepSerde(dump=canonical_json_dumps, load=loads)


@checked
def pydantic_step_serde(model: type[WorkflowModelT]) -> StepSerde[WorkflowModelT]:
    """Return the serde of steps that return a pydantic model; InputError if JSON does not restore an instance."""

    def load(text: str) -> WorkflowModelT:
        try:
            return model.model_validate_json(text)
        except (ValidationError, UnicodeEncodeError, RecursionError) as error:
            raise InputError(f"the result is not a `{model.__name__}`: {_problem(error)}") from error

    return StepSerde(dump=lambda value: model_json(model, value), load=load)


def model_json(model: type[BaseModel], value: BaseModel) -> str:
    """Return JSON that restores an instance when it is read as `model`; InputError if there is none.

    Private attributes and fields excluded from dumps are left out. An instance of another model is first read as
    `model`.
    """
    if not isinstance(value, BaseModel):
        raise InputError(f"expected a `{model.__name__}`, found a `{type(value).__name__}`")
    if type(value) is not model:
        value = _read(model, _dumped(value, by_alias=True))
    try:
        return _round_trip(model, value, by_alias=True)
    except InputError:
        # Fields may be read by one name and written by another; some models accept both.
        try:
            return _round_trip(model, value, by_alias=False)
        except InputError:
            pass
        raise


def plain_model(value: BaseModel) -> object:
    """Return an instance as plain data; InputError if it has no JSON form."""
    try:
        return value.model_dump(mode="json", warnings=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a `{type(value).__name__}` has no JSON form: {_problem(error)}") from error


def plain_value(value: object) -> object:
    """Return a value of any type as plain data; InputError if it has no JSON form.

    Tool results, artifacts and checkpoints are recorded this way: models, dataclasses, dates, sets and bytes among
    them. NaN, infinity, lone surrogates and two keys with the same text have no JSON form.
    """
    if isinstance(value, BaseModel):
        return plain_model(value)
    try:
        return loads(to_json(value, by_alias=False, inf_nan_mode="constants").decode())
    except CanonicalError as error:
        raise InputError(f"a `{type(value).__name__}` has no JSON form: {error.message}") from error
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a `{type(value).__name__}` has no JSON form: {_problem(error)}") from error


def _round_trip(model: type[BaseModel], value: BaseModel, *, by_alias: bool) -> str:
    text = _dumped(value, by_alias=by_alias)
    again = _read(model, text)
    # Nearly all are equal field by field; otherwise the dumped values decide.
    if again.__dict__ == value.__dict__ and again.__pydantic_extra__ == value.__pydantic_extra__:
        return text
    then, now = (each.model_dump(round_trip=True, warnings=False) for each in (again, value))
    if then != now:
        names = listing(name for name in now if name not in then or then[name] != now[name])
        raise InputError(f"JSON does not restore a `{model.__name__}`: {_cut(names)} would differ")
    return text


def _dumped(value: BaseModel, *, by_alias: bool) -> str:
    try:
        return value.model_dump_json(by_alias=by_alias, round_trip=True, warnings=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a `{type(value).__name__}` has no JSON form: {_problem(error)}") from error


def _read(model: type[BaseModel], text: str) -> BaseModel:
    try:
        return model.model_validate_json(text)
    except (ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"JSON does not restore a `{model.__name__}`: {_problem(error)}") from error


def _problem(error: Exception) -> str:
    """Describe what does not fit, without the values, which may be secret."""
    if not isinstance(error, ValidationError):
        return _cut(str(error))
    problems = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_PLACES]
    described = (f"`{'.'.join(map(str, each['loc']))}` {each['msg']}".removeprefix("`` ") for each in problems)
    return _cut("; ".join(described))


def _cut(text: str) -> str:
    return printable(" ".join(text[:_LONGEST].split()))
