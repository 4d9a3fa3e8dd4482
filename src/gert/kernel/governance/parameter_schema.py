"""The JSON Schema of a parameter, for callers that are models or clients."""

from typing import Any, Final

from gert.kernel.foundation.text import one_line
from gert.kernel.governance.parameter import Parameter

_LONGEST: Final = 300

JSON_TYPES: Final[dict[str, Any]] = {
    "string": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list": {"type": "array"},
    "object": {"type": "object"},
    "any": {},
}


def parameter_schema(parameter: Parameter) -> dict[str, Any]:
    """The JSON Schema of a declared input."""
    said: dict[str, Any] = dict(JSON_TYPES[parameter.type])
    if parameter.description:
        said["description"] = one_line(parameter.description, _LONGEST)
    if parameter.enum is not None:
        said["enum"] = list(parameter.enum)
    if parameter.pattern is not None and parameter.type == "string":
        said["pattern"] = parameter.pattern
    for name, word in (("min", "minimum"), ("max", "maximum")):
        value = getattr(parameter, name)
        if value is not None and parameter.type in ("int", "float"):
            said[word] = value
    if parameter.has_default and not parameter.secret:
        said["default"] = parameter.default
    if parameter.secret:
        said["description"] = f"{said.get('description', '')} (secret: set it in the server's environment)".strip()
    return said
