"""Python functions as tools: what can be one, what it may be called with, and what came of a call."""

import asyncio
import contextvars
import functools
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from gert.ecosystem.tools import call, results
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import InputError, ToolPermanentError, ToolTransientError, ToolUnknownOutcomeError
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult
from gert.kernel.foundation.canonical import sha256_hex

CONTEXT = ToolExecutionContext("run", "acme", "key-1", "run#3", "1.0.0", "1")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    city: str
    zip_code: str = Field(alias="zip")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    amount: Decimal
    places: list[Place] = []


def look_up(name: str, limit: int = 10, exact: bool = False) -> dict[str, object]:
    """Look something up.

    It looks in the book.
    """
    return {"name": name, "limit": limit, "exact": exact}


async def pay(amount: float, artana_context: ToolExecutionContext) -> str:
    """Pay."""
    return f"paid {amount} as {artana_context.idempotency_key}"


def order(given: Order) -> Decimal:
    return given.amount


def registry(*functions: Callable[..., Any], **settings: Any) -> LocalToolRegistry:
    made = LocalToolRegistry()
    for function in functions:
        made.register(function, **settings)
    return made


def called(made: LocalToolRegistry, name: str, **arguments: object) -> ToolExecutionResult:
    return asyncio.run(made.call(name, json.dumps(arguments), context=CONTEXT))


# What a tool is


def test_a_tool_is_described_by_its_function() -> None:
    made = registry(look_up, tool_version="2.1.0", schema_version="3", risk_level="low", sandbox_profile="none")
    tool = made.tool("look_up")
    (told,) = made.to_all_tool_definitions()
    assert told.name == tool.name == "look_up"
    assert told.description == "Look something up.\n\nIt looks in the book."
    assert (told.tool_version, told.schema_version, told.risk_level, told.sandbox_profile) == (
        "2.1.0",
        "3",
        "low",
        "none",
    )
    assert told.arguments_schema_json == (
        '{"additionalProperties":false,"properties":{"exact":{"default":false,"type":"boolean"},'
        '"limit":{"default":10,"type":"integer"},"name":{"type":"string"}},"required":["name"],"type":"object"}'
    )
    assert told.schema_hash == sha256_hex(told.arguments_schema_json.encode()) == tool.schema_hash
    assert made.fingerprint("look_up").schema_hash == told.schema_hash
    assert made.fingerprint("look_up").risk_level == "low"
    assert made.arguments_model("look_up") is tool.arguments_model
    assert not tool.side_effect
    assert not tool.accepts_artana_context


def test_the_context_is_no_part_of_the_schema() -> None:
    made = registry(pay, side_effect=True)
    assert "artana_context" not in made.tool("pay").arguments_schema_json
    with pytest.raises(InputError, match="artana_context"):
        made.validate("pay", {"amount": 1, "artana_context": {}})


def test_a_model_as_the_only_parameter_is_the_schema() -> None:
    made = registry(order)
    assert made.arguments_model("order") is Order
    assert made.validate("order", '{"amount": "1.50", "places": [{"city": "Ulm", "zip": "89"}]}') == (
        '{"amount":"1.50","places":[{"city":"Ulm","zip":"89"}]}'
    )


def test_a_model_beside_other_parameters_is_one_of_them() -> None:
    def two(given: Order, note: str) -> str:
        return f"{given.amount} {note}"

    assert called(registry(two), "two", given={"amount": "1"}, note="x").result_json == '"1 x"'


def test_tools_are_listed_by_name_for_those_who_may_use_them() -> None:
    made = registry(look_up)
    made.register(pay, "pay:money", side_effect=True)
    made.register(order, requires_capability="order")
    assert [tool.name for tool in made.list_for_capabilities(frozenset())] == ["look_up"]
    assert [tool.name for tool in made.to_tool_definitions(frozenset({"pay:money"}))] == ["look_up", "pay"]
    assert [tool.name for tool in made.to_all_tool_definitions()] == ["look_up", "order", "pay"]
    assert made.capability_map() == {"look_up": None, "order": "order", "pay": "pay:money"}
    assert repr(made) == "LocalToolRegistry(look_up, order, pay)"


def test_a_description_of_a_parameter_reaches_the_model() -> None:
    def f(days: Annotated[int, Field(description="how far back", ge=1, le=30)]) -> int:
        return days

    made = registry(f)
    assert '"description":"how far back","maximum":30,"minimum":1' in made.tool("f").arguments_schema_json
    with pytest.raises(InputError, match="`days`: input should be less than or equal to 30"):
        made.validate("f", {"days": 31})


def test_a_parameter_may_be_called_like_a_method_of_models() -> None:
    def f(json: str, copy: int, model_dump: bool, schema: str = "s", given_json: str = "g") -> list[object]:
        return [json, copy, model_dump, schema, given_json]

    made = registry(f)
    schema = json.loads(made.tool("f").arguments_schema_json)
    assert sorted(schema["properties"]) == ["copy", "given_json", "json", "model_dump", "schema"]
    assert made.validate("f", {"json": "a", "copy": 1, "model_dump": True}) == (
        '{"copy":1,"given_json":"g","json":"a","model_dump":true,"schema":"s"}'
    )
    assert called(made, "f", json="a", copy=1, model_dump=True).result_json == '["a",1,true,"s","g"]'


def test_a_method_is_a_tool() -> None:
    class Shelf:
        def __init__(self) -> None:
            self.books = ["a"]

        def count(self, more: int = 0) -> int:
            return len(self.books) + more

    assert called(registry(Shelf().count), "count", more=2).result_json == "3"


def test_a_tool_may_be_called_something_else() -> None:
    made = registry()
    made.register(look_up, name="look-up")
    assert made.tool("look-up").name == "look-up"


def test_what_is_filled_in_when_a_tool_is_registered_is_not_for_a_model_to_choose() -> None:
    made = registry(functools.partial(functools.partial(look_up, limit=3), "book"), name="look_up")
    assert made.validate("look_up", {}) == '{"exact":false}'
    assert json.loads(called(made, "look_up", exact=True).result_json) == {"name": "book", "limit": 3, "exact": True}
    with pytest.raises(InputError, match="`limit`: extra inputs are not permitted"):
        made.validate("look_up", {"limit": 9})


def test_an_object_that_can_be_called_is_a_tool() -> None:
    class Adder:
        """Adds."""

        async def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    made = registry(Adder(), name="add")
    assert made.tool("add").description == "Adds."
    assert called(made, "add", a=2).result_json == "3"


# What is refused as a tool


def nameless(*values: int) -> int:
    return sum(values)


def keyworded(**values: int) -> int:
    return len(values)


def positional(a: int, /) -> int:
    return a


def unannotated(a) -> int:  # type: ignore[no-untyped-def]
    return a  # type: ignore[no-any-return]


def unreadable(a: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821
    return 0


def unholdable(a: threading.Lock) -> int:
    return 0


def sets(a: set[str]) -> int:
    return 0


def sets_inside(a: dict[str, list[frozenset[int]]]) -> int:
    return 0


def underscored(_a: int) -> int:
    return _a


def context_by_another_name(a: int, ctx: ToolExecutionContext) -> int:
    return a


def context_of_another_type(artana_context: dict[str, str]) -> int:
    return 0


def context_unannotated(artana_context) -> int:  # type: ignore[no-untyped-def]
    return 0


def contexts(*artana_context: ToolExecutionContext) -> int:
    return 0


def generated(a: int) -> Iterator[int]:
    yield a


async def generated_async(a: int) -> AsyncIterator[int]:
    yield a


def function_typed(a: Callable[[int], int]) -> int:
    return a(1)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        pytest.param(nameless, "`values` of the tool `nameless` takes any number of values", id="any number of values"),
        pytest.param(keyworded, "takes any number of names", id="any number of names"),
        pytest.param(positional, "is positional only", id="a parameter without a name"),
        pytest.param(unannotated, "`a` of the tool `unannotated` has no annotation", id="a parameter without a type"),
        pytest.param(unreadable, "an annotation of the tool `unreadable` cannot be read", id="an unknown type"),
        pytest.param(unholdable, "has a parameter without a JSON form", id="a type JSON cannot hold"),
        pytest.param(function_typed, "without a JSON Schema", id="a function as a parameter"),
        pytest.param(sets, "takes a set, which has no order", id="a set"),
        pytest.param(sets_inside, "takes a set, which has no order", id="a set deep inside"),
        pytest.param(underscored, "must not begin with an underscore", id="a private parameter"),
        pytest.param(context_by_another_name, "must be called `artana_context`", id="a context by another name"),
        pytest.param(context_of_another_type, "annotated as `ToolExecutionContext`", id="a context of another type"),
        pytest.param(context_unannotated, "annotated as `ToolExecutionContext`", id="a context without a type"),
        pytest.param(contexts, "must accept a keyword argument", id="any number of contexts"),
        pytest.param(generated, "is a generator", id="a generator"),
        pytest.param(generated_async, "is a generator", id="an async generator"),
        pytest.param(lambda: 1, "`<lambda>` cannot be the name of a tool", id="a function without a name"),
        pytest.param(functools.partial(look_up), "a tool needs a name", id="an object without a name"),
        pytest.param("look_up", "expected a function", id="no function"),
        pytest.param(Order, "expected a function", id="a class"),
    ],
)
def test_what_cannot_be_a_tool(function: Any, why: str) -> None:
    made = registry()
    with pytest.raises(InputError, match=why):
        made.register(function)
    assert made.to_all_tool_definitions() == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param(
            {"side_effect": True}, "has side_effect=True and needs the parameter `artana_context", id="no context"
        ),
        pytest.param({"tool_version": "1|2"}, "expected `tool_version`", id="a version that breaks a signature"),
        pytest.param({"schema_version": "1,2"}, "expected `schema_version`", id="a version with a comma"),
        pytest.param({"tool_version": ""}, "expected `tool_version`", id="an empty version"),
        pytest.param({"tool_version": 1}, "expected `tool_version`", id="a version that is a number"),
        pytest.param({"risk_level": "extreme"}, "expected the risk level", id="a risk there is not"),
        pytest.param({"name": "a b"}, "cannot be the name of a tool", id="a name with a space"),
        pytest.param({"name": "x" * 65}, "cannot be the name of a tool", id="a name that is too long"),
        pytest.param({"name": "ünder"}, "cannot be the name of a tool", id="a name vendors refuse"),
        pytest.param({"timeout_seconds": 0}, "greater than zero", id="no time at all"),
        pytest.param({"timeout_seconds": float("inf")}, "greater than zero", id="for ever"),
        pytest.param({"timeout_seconds": float("nan")}, "greater than zero", id="a time that is no number"),
        pytest.param({"timeout_seconds": True}, "greater than zero", id="a time that is a boolean"),
        pytest.param({"max_attempts": 0}, "from 1 to 10", id="no attempt"),
        pytest.param({"max_attempts": 11}, "from 1 to 10", id="too many attempts"),
        pytest.param({"max_attempts": 1.5}, "from 1 to 10", id="half an attempt"),
        pytest.param({"backoff_seconds": -1}, "0 or more", id="a pause below nothing"),
        pytest.param({"reconcile": "look"}, "expected `reconcile`", id="a look that is no function"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        registry(look_up, **settings)


def test_two_tools_are_not_called_the_same() -> None:
    made = registry(look_up)
    with pytest.raises(InputError, match="a tool `look_up` already exists"):
        made.register(look_up)
    with pytest.raises(InputError, match="a tool `look_up` already exists"):
        made.register(order, name="look_up")


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda made: made.validate("look_upp", {}), id="validate"),
        pytest.param(lambda made: made.tool("look_upp"), id="tool"),
        pytest.param(lambda made: made.fingerprint("look_upp"), id="fingerprint"),
        pytest.param(lambda made: made.arguments_model("look_upp"), id="arguments_model"),
    ],
)
def test_an_unregistered_tool_is_refused_by(ask: Callable[[LocalToolRegistry], object]) -> None:
    with pytest.raises(InputError, match="there is no tool `look_upp`") as refused:
        ask(registry(look_up))
    assert refused.value.hint == "did you mean `look_up`?"


# What arguments are


class Ad(BaseModel):
    name: str
    limit: int = 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param('{ "name": "x" }', '{"exact":false,"limit":10,"name":"x"}', id="text, defaults filled in"),
        pytest.param({"name": "x", "limit": 1}, '{"exact":false,"limit":1,"name":"x"}', id="a mapping"),
        pytest.param(Ad(name="ü"), '{"exact":false,"limit":3,"name":"\\u00fc"}', id="a model of the caller"),
        pytest.param(
            {"name": "x", "limit": 2**70}, f'{{"exact":false,"limit":{2**70},"name":"x"}}', id="a big integer"
        ),
    ],
)
def test_arguments_are_written_in_one_way(arguments: Any, text: str) -> None:
    made = registry(look_up)
    assert made.validate("look_up", arguments) == text
    assert made.validate("look_up", text) == text


def many_kinds(
    colour: Colour,
    day: date,
    amount: Decimal,
    ratio: float,
    mode: Literal["a", "b"],
    more: dict[str, Any] | None = None,
) -> list[object]:
    return [colour, day, amount, ratio, mode, more]


def test_values_json_has_no_kind_for_are_taken_from_text() -> None:
    made = registry(many_kinds)
    text = made.validate(
        "many_kinds",
        {"colour": Colour.RED, "day": date(2026, 2, 28), "amount": Decimal("1.10"), "ratio": 1, "mode": "a"},
    )
    assert text == '{"amount":"1.10","colour":"red","day":"2026-02-28","mode":"a","more":null,"ratio":1.0}'
    result = asyncio.run(made.call("many_kinds", text, context=CONTEXT))
    assert result.result_json == '["red","2026-02-28","1.10",1.0,"a",null]'


class Secretive(BaseModel):
    password: SecretStr


class Growing(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def grow(cls, value: int) -> int:
        return value + 1


class Breaking(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def broken(cls, value: int) -> int:
        raise KeyError("what\nnow")


def secretive(given: Secretive) -> int:
    return 0


def growing(given: Growing) -> int:
    return given.number


def breaking(given: Breaking) -> int:
    return given.number


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        pytest.param("look_up", "{}", "`name`: field required", id="an argument left out"),
        pytest.param("look_up", '{"name": 1}', "`name`: input should be a valid string", id="a number for text"),
        pytest.param(
            "look_up", '{"name": "x", "limit": "5"}', "`limit`: input should be a valid int", id="text for a number"
        ),
        pytest.param("look_up", '{"name": "x", "limit": 1.5}', "`limit`", id="half a number"),
        pytest.param("look_up", '{"name": "x", "exact": 1}', "`exact`: input should be a valid bool", id="1 for true"),
        pytest.param(
            "look_up", '{"name": "x", "nope": 1}', "`nope`: extra inputs are not permitted", id="an undeclared name"
        ),
        pytest.param("look_up", '{"name": "x", "name": "y"}', "the key `name` occurs twice", id="an argument twice"),
        pytest.param("look_up", "[]", "expected a JSON object, found a list", id="a list"),
        pytest.param("look_up", "", "the text is not JSON", id="nothing"),
        pytest.param("look_up", "{'name': 'x'}", "the text is not JSON", id="another language"),
        pytest.param("look_up", '{"name": "\\ud800"}', "lone surrogate", id="half a character"),
        pytest.param("look_up", {"name": object()}, "have no JSON form", id="a value that is no data"),
        pytest.param("look_up", {"name": float("nan")}, "not a JSON number", id="not a number"),
        pytest.param("look_up", ["x"], "to be a model, a mapping or JSON text", id="no arguments at all"),
        pytest.param("look_up", None, "to be a model, a mapping or JSON text", id="none"),
        pytest.param(
            "many_kinds", '{"colour":"green"}', "`colour`: input should be 'red' or 'blue'", id="a choice there is not"
        ),
        pytest.param("order", '{"amount": "many"}', "`amount`", id="a model that does not fit"),
        pytest.param(
            "order", '{"amount": "1", "places": [{"city": 1}]}', r"`places.0.city`: .*`places.0.zip`", id="deep inside"
        ),
        pytest.param(
            "secretive", '{"password": "x"}', "change when they are written", id="a secret that would be masked"
        ),
        pytest.param("growing", '{"number": 1}', "change when they are written", id="a number that grows"),
        pytest.param(
            "breaking", '{"number": 1}', r"could not be checked: KeyError: 'what\\nnow'", id="a check that breaks"
        ),
    ],
)
def test_arguments_that_do_not_fit(tool: str, arguments: Any, why: str) -> None:
    made = registry(look_up, many_kinds, order, secretive, growing, breaking)
    with pytest.raises(InputError, match=why) as refused:
        made.validate(tool, arguments)
    assert "\n" not in refused.value.message


def test_many_objections_are_counted() -> None:
    with pytest.raises(InputError, match=r"; and 5 more$"):
        registry(look_up).validate("look_up", {**{f"a{n}": n for n in range(9)}, "limit": 1})


def test_a_default_that_does_not_fit_is_found_when_it_is_used() -> None:
    def f(limit: int = "many") -> int:  # type: ignore[assignment]
        return limit

    with pytest.raises(InputError, match="`limit`"):
        registry(f).validate("f", {})


# What a call comes to


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("hello", '"hello"', id="text"),
        pytest.param('{"a": 1}', '{"a": 1}', id="text that is JSON stays as it is"),
        pytest.param("12", "12", id="text that is a JSON number"),
        pytest.param("NaN", '"NaN"', id="text that only looks like JSON"),
        pytest.param("{'a': 1}", "\"{'a': 1}\"", id="text of another language"),
        pytest.param("", '""', id="empty text"),
        pytest.param({"a": [1, None, True]}, '{"a":[1,null,true]}', id="a mapping"),
        pytest.param([1.5, "x"], '[1.5,"x"]', id="a list"),
        pytest.param(None, "null", id="nothing"),
        pytest.param(False, "false", id="a boolean"),
        pytest.param(2**70, str(2**70), id="a big integer"),
        pytest.param(Ad(name="x"), '{"name":"x","limit":3}', id="a model"),
        pytest.param([Ad(name="x")], '[{"name":"x","limit":3}]', id="models in a list"),
        pytest.param(date(2026, 2, 28), '"2026-02-28"', id="a date"),
    ],
)
def test_what_a_tool_returns_is_json_text(value: object, text: str) -> None:
    async def f() -> object:
        return value

    assert called(registry(f), "f") == ToolExecutionResult("success", text)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param("a\ud800b", "no JSON form", id="text that is none"),
        pytest.param(float("inf"), "`Infinity` is not a JSON number", id="a number JSON has not"),
        pytest.param('{"a":1,"a":2}', "occurs twice", id="a key twice"),
    ],
)
def test_what_json_cannot_hold_is_an_error(value: object, why: str) -> None:
    async def f() -> object:
        return value

    result = called(registry(f), "f")
    assert (result.outcome, result.result_json) == ("permanent_error", "null")
    assert why in (result.error_message or "")


def test_a_tool_that_is_told_of_its_call_has_received_its_key() -> None:
    result = called(registry(pay, side_effect=True), "pay", amount=2)
    assert result == ToolExecutionResult("success", '"paid 2.0 as key-1"', received_idempotency_key="key-1")


def test_a_tool_may_say_itself_what_came_of_it() -> None:
    said = ToolExecutionResult("transient_error", "{}", "key-9", "effect", "request", "later")

    async def f() -> ToolExecutionResult:
        return said

    assert called(registry(f), "f") == said


def said(outcome: Any, result: Any, error: str | None = None) -> ToolExecutionResult:
    return ToolExecutionResult(outcome, result, error_message=error)


@pytest.mark.parametrize(
    ("result", "side_effect", "outcome", "why"),
    [
        pytest.param(
            said("fine", "{}"), True, "unknown_outcome", "unknown outcome `fine`", id="an outcome there is not"
        ),
        pytest.param(
            said("fine", "{}"), False, "permanent_error", "unknown outcome `fine`", id="the same without effects"
        ),
        pytest.param(said("success", object()), True, "success", "no JSON form", id="a result that is none"),
        pytest.param(said("success", object()), False, "permanent_error", "no JSON form", id="the same without"),
        pytest.param(said("unknown_outcome", object()), False, "unknown_outcome", "no JSON form", id="doubt stays"),
        pytest.param(said("permanent_error", "no", "a\nb" * 900), True, "permanent_error", "a b", id="a long message"),
    ],
)
def test_what_a_tool_says_itself_is_held_to_the_same_bounds(
    result: ToolExecutionResult, side_effect: bool, outcome: str, why: str
) -> None:
    async def f(artana_context: ToolExecutionContext) -> ToolExecutionResult:
        return result

    found = called(registry(f, side_effect=side_effect), "f")
    assert found.outcome == outcome
    assert found.error_message is not None
    assert why in found.error_message
    assert len(found.error_message) <= results.MAX_MESSAGE
    json.loads(found.result_json)


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "without", "with_effects", "message"),
    [
        pytest.param(
            ToolTransientError("try later"), "transient_error", "transient_error", "try later", id="transient"
        ),
        pytest.param(ToolPermanentError("never"), "permanent_error", "permanent_error", "never", id="permanent"),
        pytest.param(
            ToolUnknownOutcomeError("who knows"), "unknown_outcome", "unknown_outcome", "who knows", id="unknown"
        ),
        pytest.param(
            ToolTransientError(""), "transient_error", "transient_error", "ToolTransientError", id="without a word"
        ),
        pytest.param(ValueError("bad"), "permanent_error", "unknown_outcome", "ValueError: bad", id="any other"),
        pytest.param(TimeoutError(), "transient_error", "unknown_outcome", "TimeoutError", id="a timeout of its own"),
        pytest.param(
            ConnectionError("x"), "permanent_error", "unknown_outcome", "ConnectionError: x", id="a connection"
        ),
        pytest.param(
            KeyError("a\nb\x1b[31m"), "permanent_error", "unknown_outcome", "KeyError: 'a\\nb\\x1b[31m'", id="a key"
        ),
        pytest.param(
            OSError("a\n\tb\x1b[31m"),
            "permanent_error",
            "unknown_outcome",
            "OSError: a b\N{REPLACEMENT CHARACTER}[31m",
            id="control characters",
        ),
        pytest.param(Broken(), "permanent_error", "unknown_outcome", "Broken", id="an error that cannot be told"),
        pytest.param(
            SystemExit(3),
            "permanent_error",
            "unknown_outcome",
            "RuntimeError: the tool called exit(3)",
            id="the end of the process",
        ),
        pytest.param(
            StopIteration("x"),
            "permanent_error",
            "unknown_outcome",
            "RuntimeError: coroutine raised StopIteration",
            id="the end of an iteration",
        ),
        pytest.param(
            asyncio.CancelledError(),
            "permanent_error",
            "unknown_outcome",
            "CancelledError",
            id="something inside was cancelled",
        ),
        pytest.param(
            ExceptionGroup("two", [ValueError("a"), TypeError("b")]),
            "permanent_error",
            "unknown_outcome",
            "ExceptionGroup: two (2 sub-exceptions)",
            id="several at once",
        ),
        pytest.param(
            ValueError("x" * 10_000),
            "permanent_error",
            "unknown_outcome",
            "ValueError: " + "x" * 487 + "…",
            id="a long message",
        ),
    ],
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_what_a_tool_raises_says_what_came_of_it(
    error: BaseException, without: str, with_effects: str, message: str, plain: bool
) -> None:
    async def f(artana_context: ToolExecutionContext) -> str:
        raise error

    def g(artana_context: ToolExecutionContext) -> str:
        raise error

    function: Callable[..., Any] = g if plain else f
    for side_effect, outcome in ((False, without), (True, with_effects)):
        made = registry(function, side_effect=side_effect, name="f")
        assert called(made, "f") == ToolExecutionResult(outcome, "null", error_message=message)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        pytest.param("look_up", '{"name": 1}', "do not fit: `name`", id="arguments that do not fit"),
        pytest.param("look_up", "nonsense", "not JSON", id="arguments that are no JSON"),
        pytest.param("invented", "{}", "there is no tool `invented`", id="an invented tool"),
        pytest.param("x" * 5000, "{}", "there is no tool", id="an invented tool of great length"),
    ],
)
def test_a_call_that_cannot_be_made_did_not_happen(name: str, arguments: str, why: str) -> None:
    result = asyncio.run(registry(look_up).call(name, arguments, context=CONTEXT))
    assert result.outcome == "permanent_error"
    assert result.error_message is not None
    assert why in result.error_message
    assert len(result.error_message) <= results.MAX_MESSAGE


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [object(), looped(), {"a": threading.Lock()}], ids=["an object", "a loop", "inside"])
def test_a_result_without_a_json_form(value: object) -> None:
    async def f(artana_context: ToolExecutionContext) -> object:
        return value

    lost = called(registry(f), "f")
    assert (lost.outcome, lost.result_json) == ("permanent_error", "null")
    # It happened, and saying otherwise would have it happen twice.
    kept = called(registry(f, side_effect=True), "f")
    assert (kept.outcome, kept.received_idempotency_key) == ("success", "key-1")
    assert "has no JSON form" in json.loads(kept.result_json)["result_not_recorded"]


def test_a_result_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_RESULT_BYTES", 4000)

    async def f(size: int, artana_context: ToolExecutionContext) -> str:
        return "é" * size

    assert called(registry(f), "f", size=1999).outcome == "success"
    lost = called(registry(f), "f", size=2000)
    assert lost == ToolExecutionResult(
        "permanent_error", "null", error_message="the tool returned 4002 bytes, more than the limit of 4000"
    )
    kept = called(registry(f, side_effect=True), "f", size=5000)
    assert kept.outcome == "success"
    assert json.loads(kept.result_json)["bytes"] == 10_002
    assert len(json.loads(kept.result_json)["beginning"]) == 2000


# Threads, time and attempts


CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("CALLER", default="nobody")


def test_a_plain_function_runs_beside_the_loop_and_knows_the_context() -> None:
    def f() -> list[object]:
        return [CALLER.get(), threading.current_thread().name, threading.current_thread().daemon]

    CALLER.set("me")
    assert json.loads(called(registry(f), "f").result_json) == ["me", "gert-tool", True]


def test_a_plain_function_that_gives_something_to_wait_for_is_waited_for() -> None:
    async def later() -> str:
        return "done"

    def f() -> Awaitable[str]:
        return later()

    assert called(registry(f), "f").result_json == '"done"'


@pytest.mark.parametrize(
    ("side_effect", "outcome"), [(False, "transient_error"), (True, "unknown_outcome")], ids=["reads", "writes"]
)
@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
def test_a_tool_that_takes_too_long_and(side_effect: bool, outcome: str, plain: bool) -> None:
    enough = threading.Event()

    async def f(artana_context: ToolExecutionContext) -> None:
        await asyncio.Event().wait()

    def g(artana_context: ToolExecutionContext) -> None:
        enough.wait(60)

    made = registry(g if plain else f, name="f", side_effect=side_effect, timeout_seconds=0.01)
    try:
        result = called(made, "f")
    finally:
        enough.set()
    assert (result.outcome, result.error_message) == (outcome, "TimeoutError: no result within 0.01 s")


def test_a_tool_that_ends_while_it_is_told_to_stop_has_ended() -> None:
    async def f(artana_context: ToolExecutionContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    result = called(registry(f, side_effect=True, timeout_seconds=0.01), "f")
    assert (result.outcome, result.result_json) == ("success", '"done after all"')


def test_a_tool_that_says_what_became_of_it_while_it_is_told_to_stop_is_believed() -> None:
    async def f(artana_context: ToolExecutionContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ToolTransientError("nothing was sent") from None
        return "never"

    result = called(registry(f, side_effect=True, timeout_seconds=0.01), "f")
    assert (result.outcome, result.error_message) == ("transient_error", "nothing was sent")


def test_a_tool_that_fails_while_it_is_told_to_stop_is_in_doubt() -> None:
    async def f(artana_context: ToolExecutionContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    result = called(registry(f, side_effect=True, timeout_seconds=0.01), "f")
    assert (result.outcome, result.error_message) == ("unknown_outcome", "TimeoutError: no result within 0.01 s")


def test_a_tool_that_will_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "GRACE_SECONDS", 0.01)

    async def main() -> ToolExecutionResult:
        enough = asyncio.Event()

        async def f() -> str:
            while not enough.is_set():
                try:
                    await enough.wait()
                except asyncio.CancelledError:
                    continue
            raise ValueError("nobody hears this")

        result = await registry(f, timeout_seconds=0.01).call("f", "{}", context=CONTEXT)
        enough.set()
        await asyncio.sleep(0)
        return result

    assert asyncio.run(main()).outcome == "transient_error"


@pytest.mark.parametrize("timeout", [None, 60.0], ids=["without a timeout", "with a timeout"])
@pytest.mark.parametrize("side_effect", [False, True], ids=["reads", "writes"])
def test_cancelling_a_call_passes_through(timeout: float | None, side_effect: bool) -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        begun = asyncio.Event()

        async def f(artana_context: ToolExecutionContext) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        made = registry(f, side_effect=side_effect, timeout_seconds=timeout, max_attempts=3)
        task = asyncio.create_task(made.call("f", "{}", context=CONTEXT))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    assert asyncio.run(main()) == ["cancelled"]


def test_cancelling_does_not_wait_for_a_plain_function() -> None:
    enough = threading.Event()

    async def main() -> None:
        begun = threading.Event()

        def f() -> None:
            begun.set()
            enough.wait(60)

        task = asyncio.create_task(registry(f).call("f", "{}", context=CONTEXT))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
    finally:
        enough.set()


@pytest.mark.parametrize(
    ("errors", "side_effect", "calls", "outcome"),
    [
        pytest.param([], True, 1, "success", id="nothing went wrong"),
        pytest.param([ToolTransientError("a")], False, 2, "success", id="once, and then it went well"),
        pytest.param([ToolTransientError("a")], True, 2, "success", id="it says that nothing happened"),
        pytest.param([ToolTransientError("a")] * 9, True, 3, "transient_error", id="too often"),
        pytest.param([TimeoutError()], False, 2, "success", id="too late, and without effects"),
        pytest.param([TimeoutError()], True, 1, "unknown_outcome", id="too late, and it may have happened"),
        pytest.param(
            [ToolTransientError("a"), ValueError()], True, 2, "unknown_outcome", id="then it may have happened"
        ),
        pytest.param([ToolPermanentError("a")], False, 1, "permanent_error", id="it never will"),
        pytest.param([ToolUnknownOutcomeError("a")], False, 1, "unknown_outcome", id="an unknown outcome"),
        pytest.param([ValueError("a")], False, 1, "permanent_error", id="a mistake in the tool"),
    ],
)
def test_a_call_is_made_again_only_if_it_did_not_happen(
    errors: list[Exception], side_effect: bool, calls: int, outcome: str
) -> None:
    left, keys = list(errors), []

    async def f(artana_context: ToolExecutionContext) -> str:
        keys.append(artana_context.idempotency_key)
        if left:
            raise left.pop(0)
        return "ok"

    result = called(registry(f, side_effect=side_effect, max_attempts=3), "f")
    assert (result.outcome, keys) == (outcome, ["key-1"] * calls)


def test_the_pause_between_attempts_doubles_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def f() -> None:
        raise ToolTransientError("again")

    monkeypatch.setattr(asyncio, "sleep", pause)
    called(registry(f, max_attempts=6, backoff_seconds=10), "f")
    assert pauses == [10, 20, 40, 60, 60]


def test_every_attempt_gets_the_arguments_that_were_given() -> None:
    seen: list[list[int]] = []

    async def f(numbers: list[int]) -> None:
        seen.append(list(numbers))
        numbers.clear()
        raise ToolTransientError("again")

    called(registry(f, max_attempts=2), "f", numbers=[1, 2])
    assert seen == [[1, 2], [1, 2]]


def test_calls_run_side_by_side() -> None:
    async def main() -> list[ToolExecutionResult]:
        both = asyncio.Barrier(2)

        async def f() -> str:
            await both.wait()
            return "met"

        made = registry(f)
        return list(await asyncio.gather(*(made.call("f", "{}", context=CONTEXT) for _ in range(2))))

    assert [result.result_json for result in asyncio.run(main())] == ['"met"'] * 2


# Looking whether a call happened


def looked(reconcile: Any, arguments_json: str = '{"amount":1.0}', **settings: Any) -> ToolExecutionResult | None:
    made = registry(pay, side_effect=True, reconcile=reconcile, **settings)
    return asyncio.run(made.reconcile("pay", arguments_json, context=CONTEXT))


def test_a_tool_is_asked_whether_a_call_happened() -> None:
    async def look(context: ToolExecutionContext, arguments: dict[str, Any]) -> ToolExecutionResult:
        return ToolExecutionResult("success", json.dumps([context.idempotency_key, arguments]))

    result = looked(look)
    assert result == ToolExecutionResult("success", '["key-1", {"amount": 1.0}]')


async def cannot_tell(context: ToolExecutionContext, arguments: dict[str, Any]) -> None:
    return None


async def breaks(context: ToolExecutionContext, arguments: dict[str, Any]) -> None:
    raise ConnectionError("down")


async def says_yes(context: ToolExecutionContext, arguments: dict[str, Any]) -> bool:
    return True


async def hangs(context: ToolExecutionContext, arguments: dict[str, Any]) -> None:
    await asyncio.Event().wait()


def test_an_outcome_is_unknown_without_an_answer_of_the_reconciler() -> None:
    assert looked(None) is None
    assert looked(cannot_tell) is None


@pytest.mark.parametrize(
    ("reconcile", "why"),
    [
        pytest.param(breaks, "the reconciler failed: ConnectionError: down", id="the look fails"),
        pytest.param(
            says_yes, "expected a ToolExecutionResult or None, found a bool", id="the look says something else"
        ),
        pytest.param(lambda context, arguments: None, "TypeError", id="the look cannot be waited for"),
        pytest.param(hangs, "TimeoutError", id="the look takes too long"),
    ],
)
def test_a_look_that_fails_is_irrelevant_about_the_call(reconcile: Any, why: str) -> None:
    result = looked(reconcile, timeout_seconds=0.05)
    assert result is not None
    assert result.outcome == "unknown_outcome"
    assert why in str(result.error_message)
