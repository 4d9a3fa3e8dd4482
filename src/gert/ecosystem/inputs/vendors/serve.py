"""What the providers of vendors share: the `resolve` call, their settings, and fields of records by path."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from gert.ecosystem.rpc import serve_stdio
from gert.errors import GertError, InputError, RpcFault
from gert.kernel.foundation.json_path import Absent, follow

INVALID_PARAMS: Final = -32602
NOT_RESOLVED: Final = -32001

T = TypeVar("T")


class Field(msgspec.Struct, frozen=True):
    """One binding: the input, the record that its path begins with, and the rest of the path."""

    input: str
    record: str
    path: str


class Resolved(msgspec.Struct, frozen=True):
    """Values and failures by input; an input in neither has no value."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    failures: dict[str, str] = msgspec.field(default_factory=dict)


Fetch = Callable[[Mapping[str, Any], list[Field]], Awaitable[Resolved]]


def serve(fetch: Fetch) -> None:
    """Answer `resolve` calls until gert closes the connection."""

    async def resolve(params: Any) -> dict[str, Any]:
        config, fields = read_call(params)
        found = await fetch(config, fields)
        if found.failures:
            first = next(iter(found.failures.values()))
            more = f" (and {len(found.failures) - 1} more)" if len(found.failures) > 1 else ""
            raise RpcFault(f"{first}{more}", code=NOT_RESOLVED, data={"inputs": found.failures})
        return found.values

    asyncio.run(serve_stdio({"resolve": resolve}))


def settings_as(kind: type[T], config: Mapping[str, Any]) -> T:
    """The settings of a provider; InputError says which key is wrong."""
    try:
        return msgspec.convert(dict(config), kind)
    except msgspec.ValidationError as problem:
        raise InputError(f"the provider's `config` is not valid: {problem}".rstrip(".").replace("$.", "")) from None


def variable(name: str, what: str) -> str:
    """The value of an environment variable; the error names only the variable."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise InputError(f"the environment variable `{name}` with {what} is not set")
    return value


async def by_record(fields: list[Field], fetch: Callable[[str, list[Field]], Awaitable[Resolved]]) -> Resolved:
    """Fetch each record once; what fails for one fails its inputs only."""
    records: dict[str, list[Field]] = {}
    for each in fields:
        records.setdefault(each.record, []).append(each)
    values: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for record, wanted in records.items():
        try:
            found = await fetch(record, wanted)
        except GertError as problem:
            failures |= {each.input: problem.message for each in wanted}
        else:
            values |= found.values
            failures |= found.failures
    return Resolved(values, failures)


def pick(record: Any, fields: list[Field]) -> Resolved:
    """The fields of a record that are there and not empty."""
    values: dict[str, Any] = {}
    for each in fields:
        try:
            value = follow(record, each.path) if each.path else record
        except Absent:
            continue
        if value is not None:
            values[each.input] = value
    return Resolved(values)


def read_call(params: Any) -> tuple[Mapping[str, Any], list[Field]]:
    """The settings and the fields of a `resolve` call."""
    try:
        call = msgspec.convert(params, _Params)
    except msgspec.ValidationError as problem:
        raise RpcFault(f"the call is not valid: {problem}", code=INVALID_PARAMS) from None
    fields = []
    for each in call.bindings:
        # `alerts[0].summary`: the record is `alerts`, and its path begins with the index.
        record, mark, rest = each.path.partition("[")
        name, dot, path = record.partition(".")
        fields.append(Field(each.input, name, f"{path}{mark}{rest}" if dot else f"{mark}{rest}"))
    return call.config, fields


class _Binding(msgspec.Struct):
    input: str
    path: str


class _Params(msgspec.Struct):
    bindings: list[_Binding]
    config: dict[str, Any] = msgspec.field(default_factory=dict)
