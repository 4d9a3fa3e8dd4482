"""Tools nobody foresaw: results that are made later, arguments that change on their way, and odd ways of asking."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from math import inf, nan
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, Json, RootModel, computed_field, field_validator

from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import InputError
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult

if TYPE_CHECKING:
    from decimal import Decimal as Money

CONTEXT = ToolExecutionContext("run", "acme", "key-1", "run#3", "1.0.0", "1")


def registered(function: Callable[..., Any], **settings: Any) -> LocalToolRegistry:
    made = LocalToolRegistry()
    made.register(function, name="tool", **settings)
    return made


def called(made: LocalToolRegistry, **arguments: object) -> ToolExecutionResult:
    return asyncio.run(made.call("tool", json.dumps(arguments), context=CONTEXT))


# Results that are made while they are looked at


class Effects(list[str]):
    """What tools did."""

    def plain(self, count: int, artana_context: ToolExecutionContext) -> Any:
        def parts() -> Iterator[int]:
            self.append("begun")
            yield from range(count)

        return parts()

    def lazy(self, count: int, artana_context: ToolExecutionContext) -> Any:
        return map(self.append, ["begun"] * count)

    async def endless(self, count: int, artana_context: ToolExecutionContext) -> Any:
        async def parts() -> AsyncIterator[int]:
            self.append("begun")
            while True:
                yield count

        return parts()


@pytest.mark.parametrize("name", ["plain", "lazy", "endless"])
@pytest.mark.parametrize(
    ("side_effect", "outcome"), [(True, "unknown_outcome"), (False, "permanent_error")], ids=["changing", "looking"]
)
def test_a_result_that_is_yet_to_be_made_is_no_success(name: str, side_effect: bool, outcome: str) -> None:
    effects = Effects()
    found = called(registered(getattr(effects, name), side_effect=side_effect), count=3)
    assert found.outcome == outcome
    assert "one value" in (found.error_message or "")
    assert effects == [], "what is left to do is not done behind the time limit of the call"


# Arguments


class Sized(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Holding(BaseModel):
    held: Json[list[int]]


def sized(given: Sized) -> int:
    return given.area


def holding(given: Holding) -> int:
    return sum(given.held)


def wide(width: int = 1) -> int:
    return width


@pytest.mark.parametrize(
    ("function", "given", "written", "result"),
    [
        pytest.param(sized, '{"width":3}', '{"width":3}', "9", id="what a model computes is not given"),
        pytest.param(sized, Sized(width=3), '{"width":3}', "9", id="nor where it is given as a model"),
        pytest.param(wide, Sized(width=3), '{"width":3}', "3", id="nor where the function takes the fields"),
        pytest.param(holding, '{"held":"[1,2]"}', '{"held":"[1,2]"}', "3", id="JSON in JSON stays text"),
        pytest.param(
            holding,
            Holding.model_validate({"held": "[1,2]"}),
            '{"held":"[1,2]"}',
            "3",
            id="JSON in a model becomes text",
        ),
    ],
)
def test_arguments_are_written_as_they_are_read(
    function: Callable[..., Any], given: Any, written: str, result: str
) -> None:
    made = registered(function)
    assert made.validate("tool", given) == written
    assert called(made, **json.loads(written)).result_json == result


class Point(BaseModel):
    x: float | None = None
    more: dict[str, list[float]] = {}


def plot(x: float | None = None, more: dict[str, list[float]] | None = None) -> str:
    return repr((x, more))


def plot_point(point: Point) -> str:
    return repr(point)


@pytest.mark.parametrize("function", [plot, plot_point])
@pytest.mark.parametrize("given", [Point(x=nan), Point(x=-inf), Point(more={"a": [1.0, nan]})])
def test_what_is_no_number_is_not_called_with_as_nothing(function: Callable[..., Any], given: Point) -> None:
    with pytest.raises(InputError, match="no JSON form"):
        registered(function).validate("tool", given)


def test_an_undeclared_name_is_not_repeated_at_length() -> None:
    with pytest.raises(InputError, match="extra inputs") as refused:
        registered(wide).validate("tool", {"k" * 100_000: 1, "width": 2})
    assert len(refused.value.message) < 2000


def copying(copy: Annotated[int, Field(le=9)] = Field(5, ge=1, description="how many")) -> int:
    return copy


def test_a_default_may_be_a_field_whatever_its_parameter_is_called() -> None:
    made = registered(copying)
    assert made.validate("tool", {}) == '{"copy":5}'
    assert json.loads(made.tool("tool").arguments_schema_json)["properties"]["copy"]["description"] == "how many"
    assert called(made, copy=7).result_json == "7"
    for wrong in (0, 10):
        with pytest.raises(InputError, match="do not fit"):
            made.validate("tool", {"copy": wrong})


def pay(cents: int) -> "Money":
    return cents  # type: ignore[return-value]


class Payer:
    def __call__(self, cents: "int") -> "Money":
        return cents  # type: ignore[return-value]


@pytest.mark.parametrize("function", [pay, functools.partial(pay), Payer(), Payer().__call__])
def test_what_a_function_returns_need_not_be_there_when_it_is_registered(function: Callable[..., Any]) -> None:
    assert called(registered(function), cents=7).result_json == "7"


class Several(RootModel[list[int]]):
    pass


class Named(RootModel[dict[str, int]]):
    pass


def total(numbers: Several) -> int:
    return sum(numbers.root)


def total_named(numbers: Named) -> int:
    return sum(numbers.root.values())


def test_a_model_that_is_no_object_is_one_argument() -> None:
    made = registered(total)
    assert json.loads(made.tool("tool").arguments_schema_json)["type"] == "object"
    assert made.validate("tool", {"numbers": [1, 2]}) == '{"numbers":[1,2]}'
    assert called(made, numbers=[1, 2]).result_json == "3"
    assert called(registered(total_named), one=1, two=2).result_json == "3"


class Careless(BaseModel):
    token: str

    @field_validator("token")
    @classmethod
    def known(cls, token: str) -> str:
        if token.startswith("sk"):
            raise ValueError(f"unknown key {token}")
        raise LookupError(f"no session for Bearer {token}")


def open_session(given: Careless) -> str:
    return given.token


@pytest.mark.parametrize("token", ["sk-abcdefghijklmnop", "abcdef0123456789"])
def test_a_validator_that_repeats_a_credential_is_not_repeated(token: str) -> None:
    with pytest.raises(InputError) as refused:
        registered(open_session).validate("tool", {"token": token})
    assert token not in refused.value.message


# What a model is told


def look(name: str, limit: int = 10) -> str:
    """Look something up."""
    return name[:limit]


class Looker:
    """Whoever looks things up."""

    def __call__(self, name: str) -> str:
        """Look something up."""
        return name


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(functools.partial(look, limit=3), id="partly filled in"),
        pytest.param(functools.partial(functools.partial(look, limit=3)), id="twice"),
        pytest.param(Looker(), id="an object that can be called"),
    ],
)
def test_a_tool_is_described_by_what_is_called(function: Callable[..., Any]) -> None:
    assert registered(function).tool("tool").description == "Look something up."


# How a call can end


def interrupt(count: int) -> None:
    raise KeyboardInterrupt


def test_a_function_on_a_thread_does_not_end_the_loop() -> None:
    found = called(registered(interrupt), count=1)
    assert found.outcome == "permanent_error"
    assert "KeyboardInterrupt" in (found.error_message or "")
