"""The arguments of a tool that has a contract or is a runbook: a pydantic model of its declared inputs."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from gert.errors import InputError
from gert.kernel.engine.inputs import fit
from gert.kernel.foundation.secret_refs import without_marks
from gert.kernel.governance.parameter import Parameter
from gert.kernel.governance.parameter_schema import parameter_schema

_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list[Any],
    "object": dict[str, Any],
    "any": Any,
}


def input_model(name: str, inputs: Mapping[str, Parameter]) -> type[BaseModel]:
    """Return the model of the inputs that a caller may give; a secret is none of them, as a model must not see it."""
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True)
    fields: dict[str, Any] = {
        f"input_{each}": _field(each, parameter) for each, parameter in inputs.items() if not parameter.secret
    }
    return create_model(f"{name}_arguments", __config__=config, **fields)


def given_inputs(arguments: BaseModel) -> dict[str, Any]:
    """Return the inputs that were given or have a default, by name."""
    given = {name: value for name, value in arguments.model_dump(by_alias=True).items() if value is not None}
    cleaned: dict[str, Any] = without_marks(given)
    return cleaned


def _field(name: str, parameter: Parameter) -> tuple[Any, Any]:
    def check(value: Any) -> Any:
        if value is None and not parameter.must_be_given:
            return None
        try:
            return fit(value, parameter)
        except InputError as problem:
            raise ValueError(problem.message) from None

    kind: Any = _TYPES[parameter.type]
    kind = kind if parameter.must_be_given or kind is Any else kind | None
    typed: Any = Annotated[kind, AfterValidator(check), WithJsonSchema(parameter_schema(parameter))]
    default = ... if parameter.must_be_given else parameter.default if parameter.has_default else None
    return typed, Field(default, alias=name)
