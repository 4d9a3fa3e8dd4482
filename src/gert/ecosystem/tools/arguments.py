"""Arguments of a tool: from what was given to what fits, and to the one text they are recorded as."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from gert.errors import CanonicalError, InputError
from gert.kernel.agent.ports.tool import RegisteredTool
from gert.kernel.foundation.canonical_v1 import canonicalize_json_object
from gert.kernel.foundation.credentials import stranger_line
from gert.kernel.foundation.text import one_line

_MOST_OBJECTIONS: Final = 5
_LONGEST: Final = 300
_LONGEST_NAME: Final = 100


def canonical_arguments(tool: RegisteredTool, arguments: BaseModel | Mapping[str, object] | str) -> str:
    """Give the canonical JSON of arguments that fit a tool, with its defaults filled in, or refuse them."""
    found = fitting(tool, _as_text(tool, arguments))
    written = _written(tool, found)
    # Some values change on their way through JSON, as a masked secret does: the tool would get another.
    if fitting(tool, written) != found:
        raise InputError(f"arguments of the tool `{tool.name}` are not the same once they are written as JSON")
    return written


def _as_text(tool: RegisteredTool, arguments: BaseModel | Mapping[str, object] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        if isinstance(arguments, BaseModel):
            _check_numbers(arguments)
            # The tool's own model is read by its aliases; any other has the names of the parameters. What a model
            # computes from its fields is not given to anybody.
            return arguments.model_dump_json(by_alias=isinstance(arguments, tool.arguments_model), round_trip=True)
        if isinstance(arguments, Mapping):
            return to_json(dict(arguments), inf_nan_mode="constants").decode()
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` have no JSON form: {one_line(str(error), _LONGEST)}"
        ) from error
    raise InputError(f"expected arguments of the tool `{tool.name}` to be a model, a mapping or JSON text")


def _check_numbers(arguments: BaseModel) -> None:
    """Refuse what is no number: a model writes it as null, and the tool would be called with nothing instead."""
    left: list[object] = [arguments.model_dump(round_trip=True, warnings=False)]
    while left:
        found = left.pop()
        if isinstance(found, float) and not isfinite(found):
            raise ValueError(f"`{found}` is not a JSON number")
        if isinstance(found, dict):
            left.extend(found.values())
        elif isinstance(found, list | tuple | set | frozenset):
            left.extend(found)


def fitting(tool: RegisteredTool, text: str) -> BaseModel:
    """Read arguments as the tool takes them, or say what does not fit."""
    try:
        return tool.arguments_model.model_validate_json(canonicalize_json_object(text))
    except CanonicalError as error:
        raise InputError(f"arguments of the tool `{tool.name}`: {error.message}") from error
    except ValidationError as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` do not fit: {_objections(error)}",
            hint="see its arguments schema",
        ) from error
    except Exception as error:
        # A validator of the user's own model.
        why = stranger_line(f"{type(error).__name__}: {error}", _LONGEST)
        raise InputError(f"arguments of the tool `{tool.name}` could not be checked: {why}") from error


def _written(tool: RegisteredTool, found: BaseModel) -> str:
    try:
        return canonicalize_json_object(found.model_dump_json(by_alias=True, round_trip=True))
    except (CanonicalError, PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"arguments of the tool `{tool.name}` have no JSON form: {one_line(str(error), _LONGEST)}"
        ) from error


def _objections(error: ValidationError) -> str:
    """What does not fit, in one line; what was given is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    more = f"; and {len(found) - _MOST_OBJECTIONS} more" if len(found) > _MOST_OBJECTIONS else ""
    # Names and words are cut: both may be a model's, or a validator's that repeats them.
    told = (
        f"`{one_line('.'.join(map(str, each['loc'])), _LONGEST_NAME)}`: "
        f"{each['msg'][:1].lower()}{stranger_line(each['msg'][1:], _LONGEST)}"
        for each in found[:_MOST_OBJECTIONS]
    )
    return "; ".join(told) + more
