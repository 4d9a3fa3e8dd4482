"""Acceptance gates: tools that a draft must pass before it is the answer."""

from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

from gert.errors import InputError
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps
from gert.kernel.foundation.json_path import follow

CANDIDATE = "candidate"
"""The argument that a gate's tool gets implicitly, if it declares it or the fields of the draft."""

_PASS_FIELDS = ("passed", "pass", "ok", "success")
_PASS_STATUS = ("passed", "success", "ok")
_LONGEST_REASON = 2000


class ToolGate(BaseModel):
    """A tool that checks a draft.

    arguments_json: the arguments; a text that is exactly `{{candidate}}` is replaced by the draft,
        and `{{candidate.a.b}}` by a part of it
    pass_json_path: where the result says whether the draft passed
    pass_if_equals_json: what must be there (default: true)
    """

    model_config = ConfigDict(frozen=True)

    tool: str
    must_pass: bool = True
    arguments_json: str = "{}"
    pass_json_path: str | None = None
    pass_if_equals_json: str | None = None


class AcceptanceSpec(BaseModel):
    """The gates of a run, in order."""

    model_config = ConfigDict(frozen=True)

    gates: tuple[ToolGate, ...] = ()


def check_gate(gate: ToolGate) -> None:
    """Refuse a gate whose JSON cannot be read: InputError."""
    _arguments(gate)
    _expected(gate)


def gate_arguments(gate: ToolGate, candidate: BaseModel, schema_json: str) -> str:
    """Return the arguments of a gate's tool for a draft, as JSON.

    schema_json: the schema of the tool's arguments
    """
    draft = candidate.model_dump(mode="json")
    given = {name: _filled(value, draft) for name, value in _arguments(gate).items()}
    schema = msgspec.json.decode(schema_json)
    declared = schema.get("properties", {})
    if not given and draft and draft.keys() <= declared.keys() and set(schema.get("required", ())) <= draft.keys():
        # The tool takes the draft's own fields.
        given = draft
    elif CANDIDATE in declared and CANDIDATE not in given:
        is_text = declared[CANDIDATE].get("type") == "string"
        given[CANDIDATE] = canonical_json_dumps(draft) if is_text else draft
    return canonical_json_dumps(given)


def gate_passes(gate: ToolGate, result_json: str) -> bool:
    """Whether the result of a gate's tool says that the draft passed; a result that says nothing does not pass."""
    try:
        result = msgspec.json.decode(result_json)
    except (msgspec.MsgspecError, RecursionError):
        return False
    if gate.pass_json_path is not None:
        try:
            return _equal(follow(result, gate.pass_json_path), _expected(gate))
        except LookupError:
            return False
    if gate.pass_if_equals_json is not None:
        return _equal(result, _expected(gate))
    return says_passed(result)


def says_passed(result: object) -> bool:
    """Whether a result without a path says `passed`: true, a true flag, a good status, or the exit code 0."""
    if not isinstance(result, dict):
        return result is True
    # A flag that is false is not outvoted by another word.
    flags = [result[name] for name in _PASS_FIELDS if isinstance(result.get(name), bool)]
    if flags:
        return all(flags)
    if isinstance(status := result.get("status"), str):
        return status.lower() in _PASS_STATUS
    return _equal(result.get("exit_code"), 0)


def gate_reason(gate: ToolGate, result_json: str) -> str:
    """Describe a failed gate to the model."""
    shown = result_json if len(result_json) <= _LONGEST_REASON else f"{result_json[:_LONGEST_REASON]}…"
    return f"`{gate.tool}` did not pass: {shown}"


def _arguments(gate: ToolGate) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(gate.arguments_json)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"`arguments_json` of the gate `{gate.tool}` is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InputError(f"expected `arguments_json` of the gate `{gate.tool}` to be an object")
    return given


def _expected(gate: ToolGate) -> Any:
    if gate.pass_if_equals_json is None:
        return True
    try:
        return msgspec.json.decode(gate.pass_if_equals_json)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"`pass_if_equals_json` of the gate `{gate.tool}` is not JSON: {error}") from None


def _equal(found: object, expected: object) -> bool:
    """Compare JSON values; true is not 1."""
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


def _filled(value: Any, draft: Any) -> Any:
    """Replace references to the draft, at every depth."""
    if isinstance(value, dict):
        return {name: _filled(each, draft) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, draft) for each in value]
    if not isinstance(value, str) or not (value.startswith("{{") and value.endswith("}}")):
        return value
    name, _, path = value[2:-2].strip().removeprefix(".").partition(".")
    if name != CANDIDATE:
        return value
    try:
        return follow(draft, path)
    except LookupError:
        return None
