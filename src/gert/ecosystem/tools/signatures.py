"""Derive the arguments model of a Python function, and its JSON Schema, from the signature."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from gert.errors import InputError
from gert.kernel.agent.ports.tool import ToolExecutionContext
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.text import one_line

CONTEXT: Final = "artana_context"
"""The parameter that the kernel fills in; it is not part of the schema for models."""

_LONGEST: Final = 300

_REFUSED: Final[Mapping[Any, str]] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values",
    inspect.Parameter.VAR_KEYWORD: "takes any number of names",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function.

    model: the pydantic model of its arguments
    fields: the field of the model for each parameter; None if the only parameter is the model itself
    takes_context: whether it takes the context of its call
    """

    model: type[BaseModel]
    fields: Mapping[str, str] | None
    parameter: str | None
    takes_context: bool

    def arguments(self, found: BaseModel, context: ToolExecutionContext) -> dict[str, Any]:
        """Return the keyword arguments of a call."""
        if self.fields is None:
            given: dict[str, Any] = {str(self.parameter): found}
        else:
            given = {parameter: getattr(found, field) for parameter, field in self.fields.items()}
        return {**given, CONTEXT: context} if self.takes_context else given


def signature_of(function: Callable[..., Any], name: str) -> Signature:
    """Read the signature of a function; InputError if it cannot be a tool."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(f"the tool `{name}` is a generator", hint="return one value")
    parameters, hints = _parameters(function, name)
    takes_context = _takes_context(parameters, hints, name)
    taken = {each: parameters[each] for each in parameters if each != CONTEXT}
    for each, parameter in taken.items():
        _check(each, parameter, hints, name)
    if len(taken) == 1 and (model := _only_model(next(iter(taken)), taken, hints)) is not None:
        return Signature(model, None, next(iter(taken)), takes_context)
    return _from_parameters(name, taken, hints, takes_context)


def schema_of(model: type[BaseModel], name: str) -> str:
    """Return the JSON Schema of a tool's arguments, as canonical text."""
    try:
        schema = model.model_json_schema(by_alias=True, schema_generator=_Untitled)
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise InputError(
            f"the tool `{name}` has a parameter without a JSON Schema: {one_line(str(error), _LONGEST)}"
        ) from error
    # Only the title of the whole schema is dropped; a field may be called `title`.
    schema.pop("title", None)
    _check_order(schema, name)
    return canonical_json_dumps(schema)


def description_of(function: Callable[..., Any]) -> str:
    """Return the docstring of a function, also behind `functools.partial` and callable objects."""
    if inspect.isroutine(function):
        return inspect.getdoc(function) or ""
    # Not `getdoc`: for a method without a docstring it returns the one of `object`.
    text = _unwrapped(function)[0].__doc__
    if text is None and not isinstance(function, functools.partial):
        text = function.__doc__
    return inspect.cleandoc(text or "")


class _Untitled(GenerateJsonSchema):
    """Writes no titles: they repeat the names and cost tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _parameters(function: Callable[..., Any], name: str) -> tuple[Mapping[str, inspect.Parameter], dict[str, Any]]:
    inner, bound = _unwrapped(function)
    try:
        signed = inspect.signature(function).parameters
        hints = _hints(inner)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the signature of the tool `{name}` cannot be read: {one_line(str(error), _LONGEST)}"
        ) from error
    except (NameError, AttributeError, SyntaxError) as error:
        raise InputError(
            f"an annotation of the tool `{name}` cannot be read: {one_line(str(error), _LONGEST)}",
            hint="annotate with types that are defined at module level",
        ) from error
    # Parameters that `partial` has bound are not for a model to choose.
    return {each: parameter for each, parameter in signed.items() if each not in bound}, hints


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters; the return type is often imported only for type checkers."""
    annotated = getattr(function, "__annotations__", None) or {}
    taken = SimpleNamespace(
        __annotations__={name: kind for name, kind in annotated.items() if name != "return"},
        __type_params__=getattr(function, "__type_params__", ()),
    )
    return get_type_hints(taken, globalns=getattr(function, "__globals__", {}), include_extras=True)


def _unwrapped(function: Any) -> tuple[Callable[..., Any], set[str]]:
    """Return the function that has the annotations, and its parameters that are already bound."""
    bound: set[str] = set()
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        bound.update(function.keywords)
        function = inspect.unwrap(function.func)
    return function if inspect.isroutine(function) else function.__call__, bound


def _takes_context(parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], name: str) -> bool:
    for each in parameters:
        # Otherwise the schema would ask a model for a context.
        if each != CONTEXT and hints.get(each) is ToolExecutionContext:
            raise InputError(f"the parameter `{each}` of the tool `{name}` must be called `{CONTEXT}`")
    if CONTEXT not in parameters:
        return False
    if hints.get(CONTEXT) is not ToolExecutionContext:
        raise InputError(f"expected `{CONTEXT}` of the tool `{name}` to be annotated as `ToolExecutionContext`")
    if parameters[CONTEXT].kind in _REFUSED:
        raise InputError(f"the parameter `{CONTEXT}` of the tool `{name}` must accept a keyword argument")
    return True


def _check(each: str, parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> None:
    if (why := _REFUSED.get(parameter.kind)) is not None:
        raise InputError(
            f"the parameter `{each}` of the tool `{name}` {why}, but arguments are passed by name",
            hint="declare every parameter by name",
        )
    if each not in hints:
        raise InputError(f"the parameter `{each}` of the tool `{name}` has no annotation")
    if each.startswith("_"):
        raise InputError(f"the parameter `{each}` of the tool `{name}` must not begin with an underscore")


def _only_model(only: str, taken: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel] | None:
    kind = hints[only]
    # A parameter with a default may be left out; the whole model may not.
    if taken[only].default is not inspect.Parameter.empty:
        return None
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        return None
    # Arguments are an object; a list can only be one of them.
    return None if issubclass(kind, RootModel) and not _is_object(kind) else kind


def _is_object(kind: type[BaseModel]) -> bool:
    try:
        return kind.model_json_schema().get("type") == "object"
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        return False


def _from_parameters(
    name: str, taken: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], takes_context: bool
) -> Signature:
    fields: dict[str, str] = {}
    declared: dict[str, Any] = {}
    for each, parameter in taken.items():
        field = _field_name(each, taken)
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[each] = field
        kind = hints[each] if field == each else Annotated[hints[each], Field(alias=each)]
        declared[field] = (kind, default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)
    try:
        model = create_model(f"{name}_arguments", __config__=config, **declared)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError, ValueError) as error:
        raise InputError(
            f"the tool `{name}` has a parameter without a JSON form: {one_line(str(error), _LONGEST)}"
        ) from error
    return Signature(model, fields, None, takes_context)


def _field_name(parameter: str, taken: Mapping[str, inspect.Parameter]) -> str:
    """Return the field name of a parameter: `json` and `copy` are methods of every model."""
    field = parameter
    while hasattr(BaseModel, field) or field.startswith("model_") or (field != parameter and field in taken):
        field = f"given_{field}"
    return field


def _check_order(schema: object, name: str) -> None:
    """Refuse sets: they have no order, so the same call could be written in two ways."""
    left: list[object] = [schema]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            if found.get("type") == "array" and found.get("uniqueItems") is True:
                raise InputError(f"the tool `{name}` takes a set, which has no order", hint="use a list")
            left.extend(found.values())
        elif isinstance(found, list):
            left.extend(found)
