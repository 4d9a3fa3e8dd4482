"""Validate the arguments of a tool and convert them to the canonical JSON that is recorded."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from gert.errors import CanonicalError, InputError
from gert.kernel.agent.ports.tool import RegisteredTool
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.credentials import foreign_line
from gert.kernel.foundation.text import one_line

_MAX_PROBLEMS: Final = 5
_LONGEST: Final = 300
_LONGEST_NAME: Final = 100


def canonical_arguments(tool: RegisteredTool, arguments: BaseModel | Mapping[str, object] | str) -> str:
    """Validate arguments and return them as canonical JSON with defaults; InputError if they do not fit."""
    found = validated(tool, _as_text(tool, arguments))
    written = _serialized(tool, found)
    # Some values change in JSON, as a masked secret does: the tool would get another value.
    if _read(tool, written) != found:
        raise InputError(f"arguments of the tool `{tool.name}` change when they are written as JSON")
    return written


def _as_text(tool: RegisteredTool, arguments: BaseModel | Mapping[str, object] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        if isinstance(arguments, BaseModel):
            _check_numbers(arguments)
            # The tool's own model is read by its aliases; any other model has the names of the parameters. Computed
            # fields are left out.
            return arguments.model_dump_json(by_alias=isinstance(arguments, tool.arguments_model), round_trip=True)
        if isinstance(arguments, Mapping):
            return to_json(dict(arguments), inf_nan_mode="constants").decode()
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` have no JSON form: {one_line(str(error), _LONGEST)}"
        ) from error
    raise InputError(f"expected arguments of the tool `{tool.name}` to be a model, a mapping or JSON text")


def _check_numbers(arguments: BaseModel) -> None:
    """Refuse NaN and infinity: pydantic writes them as null, and the tool would get None."""
    left: list[object] = [arguments.model_dump(round_trip=True, warnings=False)]
    while left:
        found = left.pop()
        if isinstance(found, float) and not isfinite(found):
            raise ValueError(f"`{found}` is not a JSON number")
        if isinstance(found, dict):
            left.extend(found.values())
        elif isinstance(found, list | tuple | set | frozenset):
            left.extend(found)


def validated(tool: RegisteredTool, text: str) -> BaseModel:
    """Read arguments as the tool's model; InputError if they do not fit."""
    try:
        plain = canonicalize_json_object(text)
    except CanonicalError as error:
        raise InputError(f"arguments of the tool `{tool.name}`: {error.message}") from error
    return _read(tool, plain)


def _read(tool: RegisteredTool, canonical_text: str) -> BaseModel:
    try:
        return tool.arguments_model.model_validate_json(canonical_text)
    except ValidationError as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` do not fit: {_problems(error)}",
            hint="see its arguments schema",
        ) from error
    except Exception as error:
        # A validator of the caller's own model.
        why = foreign_line(f"{type(error).__name__}: {error}", _LONGEST)
        raise InputError(f"arguments of the tool `{tool.name}` could not be checked: {why}") from error


def _serialized(tool: RegisteredTool, found: BaseModel) -> str:
    try:
        return canonicalize_json_object(found.model_dump_json(by_alias=True, round_trip=True))
    except (CanonicalError, PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` have no JSON form: {one_line(str(error), _LONGEST)}"
        ) from error


def _problems(error: ValidationError) -> str:
    """Describe what does not fit, in one line and without the values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    more = f"; and {len(found) - _MAX_PROBLEMS} more" if len(found) > _MAX_PROBLEMS else ""
    # Names and messages are cut: both may come from a model, or from a validator that repeats its input.
    described = (
        f"`{one_line('.'.join(map(str, each['loc'])), _LONGEST_NAME)}`: "
        f"{each['msg'][:1].lower()}{foreign_line(each['msg'][1:], _LONGEST)}"
        for each in found[:_MAX_PROBLEMS]
    )
    return "; ".join(described) + more
