"""Artifacts and checkpoints keep what tool results keep, and refuse what those refuse."""

import asyncio
import dataclasses
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Model

from gert.agent import ArtanaKernel, GertError, InMemoryStore


@dataclasses.dataclass
class Point:
    x: int


class Colour(Enum):
    RED = "red"


class Named(BaseModel):
    at: date


KEPT = [
    pytest.param({"b": [1, 2.5, None, True]}, id="plain data"),
    pytest.param("text", id="text"),
    pytest.param('{"a": 1}', id="JSON text"),
    pytest.param(2**70, id="a large integer"),
    pytest.param(datetime(2026, 1, 2, tzinfo=UTC), id="a moment"),
    pytest.param({"at": date(2026, 1, 2)}, id="a day in a mapping"),
    pytest.param(Point(1), id="a dataclass"),
    pytest.param([Named(at=date(2026, 1, 2))], id="models in a list"),
    pytest.param(Decimal("1.5"), id="a decimal"),
    pytest.param(UUID(int=1), id="a uuid"),
    pytest.param({1, 2}, id="a set"),
    pytest.param(b"bytes", id="bytes"),
    pytest.param(Colour.RED, id="an enum"),
    pytest.param(Path("a/b"), id="a path"),
    pytest.param({1: "a"}, id="keys that are numbers"),
]


@pytest.mark.parametrize("value", KEPT)
def test_an_artifact_is_kept_as_a_tool_result_is(value: Any) -> None:
    async def scenario() -> None:
        from gert.agent import canonical_json_dumps

        async with ArtanaKernel(store=InMemoryStore(), model_port=Model()) as kernel:

            @kernel.tool()
            async def look() -> Any:
                return value

            async with kernel.run(tenant=TENANT, run_id="r") as run:
                await run.set_artifact("k", value)
                await run.checkpoint("c", value)
                found = await run.get_artifact("k")
                result = (await run.tool("look", {})).result_json
            assert isinstance(value, str) or canonical_json_dumps(found) == result.replace(", ", ",").replace(": ", ":")
            assert not isinstance(value, str) or found == value

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="NaN"),
        pytest.param({"a": [math.inf]}, id="infinity"),
        pytest.param("\ud800", id="half a character"),
        pytest.param({1: 1, "1": 2}, id="two keys that are written alike"),
        pytest.param(object(), id="an object"),
        pytest.param(lambda: 1, id="a function"),
    ],
)
@pytest.mark.parametrize("way", ["set_artifact", "checkpoint"])
def test_what_json_cannot_hold_is_refused(way: str, value: Any) -> None:
    async def scenario() -> None:
        async with ArtanaKernel(store=InMemoryStore(), model_port=Model()) as kernel:
            await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(ValueError, match=r"JSON|half") as caught:
                await getattr(kernel.bind(run_id="r", tenant=TENANT), way)("k", value)
            assert isinstance(caught.value, GertError)
            assert len(await kernel.get_events(run_id="r")) == 1

    asyncio.run(scenario())
