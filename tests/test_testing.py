"""`gert.testing`: models, tools and clocks that do what a test tells them, and complain when they are misused."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gert import testing
from gert.ecosystem.host.agent.kernel import ArtanaKernel
from gert.ecosystem.tools.functions import LocalToolRegistry
from gert.errors import (
    InputError,
    ModelPermanentError,
    ModelTimeoutError,
    ModelTransientError,
    ToolExecutionFailedError,
    ToolTransientError,
)
from gert.kernel.agent.ports.model import ModelRequest, ModelUsage, StreamingModelPort, ToolCall
from gert.kernel.agent.ports.tool import ToolExecutionContext, ToolExecutionResult
from gert.kernel.agent.steps.messages import ChatMessage
from gert.kernel.agent.types.api import ModelInput, StepModelResult
from gert.testing import (
    FailingTool,
    FakeClock,
    FakeIds,
    Reply,
    ScriptedModel,
    ScriptMismatch,
    a_tenant,
    calls,
    fails,
    hangs,
    memory_kernel,
    says,
    times_out,
)

TENANT = a_tenant()
CONTEXT = ToolExecutionContext("run", "acme", "key-1", "run#3", "1.0.0", "1")


class City(BaseModel):
    name: str
    people: int = 0


def request(prompt: str = "Where?", *messages: str) -> ModelRequest[City]:
    said = [ChatMessage(role="user", content=message) for message in messages]
    return ModelRequest("run", "gpt-5", prompt, said, City, ())


def asked(model: ScriptedModel, *requests: ModelRequest[City]) -> list[Any]:
    async def ask(one: ModelRequest[City]) -> Any:
        try:
            return await model.complete(one)
        except Exception as error:
            return error

    async def main() -> list[Any]:
        return [await ask(each) for each in requests or (request(),)]

    return asyncio.run(main())


# The page


@pytest.mark.parametrize("name", [*testing.__all__, "fake_clock", "scripted_model", "agent_kernel", "agent_tenant"])
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(testing, name) is not None
    assert name in dir(testing)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        testing.nonsense  # noqa: B018


def test_the_page_needs_no_pytest() -> None:
    script = (
        "import sys; sys.modules['pytest'] = None\n"
        "from gert.testing import *\n"
        "assert 'gert.ecosystem.host.agent.testing.fixtures' not in sys.modules\n"
        "memory_kernel([])\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, capture_output=True, timeout=60)


def test_importing_the_page_imports_nothing_else() -> None:
    script = "import sys, gert; before = set(sys.modules); import gert.testing; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "{'gert.testing'}"


# The clock


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    assert clock() == clock() == datetime(2026, 1, 1, tzinfo=UTC)
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert clock() == datetime(2026, 1, 1, 0, 1, 1, 500_000, tzinfo=UTC)
    clock.move_to(datetime(2026, 1, 2, tzinfo=UTC))
    assert clock().day == 2
    assert repr(clock) == "FakeClock(2026-01-02T00:00:00+00:00)"


def test_a_clock_may_tick_each_time_it_is_looked_at() -> None:
    clock = FakeClock(tick=1)
    assert clock() + timedelta(seconds=1) == clock()


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(lambda: FakeClock(datetime(2026, 1, 1)), id="a start without a time zone"),
        pytest.param(lambda: FakeClock(tick=-1), id="ticks that go back"),
        pytest.param(lambda: FakeClock().advance(-0.001), id="seconds that go back"),
        pytest.param(lambda: FakeClock().advance(timedelta(days=-1)), id="days that go back"),
        pytest.param(lambda: FakeClock().move_to(datetime(2025, 12, 31, tzinfo=UTC)), id="a moment before"),
        pytest.param(lambda: FakeClock().move_to(datetime(2027, 1, 1)), id="a moment without a time zone"),
    ],
)
def test_a_clock_refuses(misuse: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        misuse()


def test_ids_come_in_a_row() -> None:
    ids = FakeIds("event")
    assert [ids(), ids()] == ["event-000001", "event-000002"]


# The model


def test_a_model_gives_the_answers_of_its_script_in_order() -> None:
    model = ScriptedModel([{"name": "Ulm"}, City(name="Bonn"), says({"name": "Jena"}, cost_usd=0.5, prompt_tokens=3)])
    results = asked(model, request("a"), request("b"), request("c"))
    assert [result.output for result in results] == [City(name="Ulm"), City(name="Bonn"), City(name="Jena")]
    assert results[0].raw_output == '{"name":"Ulm","people":0}'
    assert results[2].usage == ModelUsage(3, 0, 0.5)
    assert [each.prompt for each in model.requests] == ["a", "b", "c"]
    assert (model.calls, model.left) == (3, 0)
    model.assert_used_up()


def test_a_model_asks_for_tools() -> None:
    one, two = calls("look_up", {"b": 1, "a": 2}, "call-1"), calls("pay", '{ "x": 1 }')
    assert (one, two) == (ToolCall("look_up", '{"a":2,"b":1}', "call-1"), ToolCall("pay", '{"x":1}', two.tool_call_id))
    assert two.tool_call_id
    assert two.tool_call_id != calls("pay", '{ "x": 1 }').tool_call_id
    first, second, third = asked(
        ScriptedModel([one, [one, two], says({"name": "Ulm"}, tool_calls=[two])]), request(), request(), request()
    )
    assert (first.tool_calls, first.raw_output) == ((one,), "")
    assert second.tool_calls == (one, two)
    assert (third.tool_calls, third.output) == ((two,), City(name="Ulm"))


def test_a_model_answers_by_a_function() -> None:
    async def later(asked: ModelRequest[Any]) -> dict[str, object]:
        return {"name": asked.prompt.upper()}

    for script in (lambda asked: {"name": asked.prompt.upper()}, later):
        model = ScriptedModel(script)
        assert [result.output.name for result in asked(model, request("ulm"), request("bonn"))] == ["ULM", "BONN"]
        model.assert_used_up()


def test_answers_can_be_added() -> None:
    model = ScriptedModel()
    model.then({"name": "Ulm"}).then(Reply(output={"name": "Bonn"}, response_id="r1"), {"name": "Jena"})
    results = asked(model, request(), request())
    assert results[1].response_id == "r1"
    assert model.left == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(times_out(), ModelTimeoutError, id="no answer in time"),
        pytest.param(fails(ModelTransientError("busy", status=429)), ModelTransientError, id="busy"),
        pytest.param(ModelPermanentError("no"), ModelPermanentError, id="an error in short"),
        pytest.param(Reply(trouble=fails(OSError("x"))), OSError, id="an error in full"),
    ],
)
def test_a_model_fails_as_it_is_told(answer: Any, error: type[Exception]) -> None:
    model = ScriptedModel([answer, {"name": "Ulm"}])
    failure, result = asked(model, request(), request())
    assert type(failure) is error
    assert result.output == City(name="Ulm")
    model.assert_used_up()


@pytest.mark.parametrize(
    ("expect", "asked_for"),
    [
        pytest.param("Where", request("Where?"), id="words of the prompt"),
        pytest.param("there", request("p", "is it", "over there"), id="words of a message"),
        pytest.param(lambda asked: asked.model == "gpt-5", request(), id="a test of the request"),
    ],
)
def test_a_model_is_asked_what_is_expected(expect: Any, asked_for: ModelRequest[City]) -> None:
    model = ScriptedModel([says({"name": "Ulm"}, expect=expect)])
    assert asked(model, asked_for)[0].output.name == "Ulm"
    model.assert_used_up()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param([], "the script has no answer for request 1; found `Where?`", id="too often"),
        pytest.param([says({"name": "x"}, expect="Why")], "expected request 1 to contain `Why`", id="other words"),
        pytest.param(
            [says({"name": "x"}, expect=lambda asked: False)], "is not the one that was expected", id="a test"
        ),
        pytest.param([{"nome": "x"}], "answer 1 is not a `City`", id="with an answer that does not fit"),
        pytest.param([None], "answer 1 is not a `City`", id="without an answer to give"),
    ],
)
def test_a_model_complains_when_it_is_asked(script: list[Any], why: str) -> None:
    model = ScriptedModel(script)
    (complaint,) = asked(model)
    assert isinstance(complaint, ScriptMismatch)
    assert why in str(complaint)
    # Whoever catches every error does not hide it.
    with pytest.raises(ScriptMismatch):
        model.assert_used_up()


def test_a_model_complains_when_it_is_not_asked() -> None:
    with pytest.raises(ScriptMismatch, match="1 answers of the script were not requested"):
        ScriptedModel([{"name": "Ulm"}]).assert_used_up()


@pytest.mark.parametrize("answer", ["text", 3, [], ["text"], [calls("a"), "text"], object()])
def test_what_is_no_answer_is_refused_when_the_script_is_written(answer: Any) -> None:
    with pytest.raises(InputError, match="a scripted model cannot answer with a"):
        ScriptedModel([answer])


def test_a_slow_answer_moves_the_fake_clock() -> None:
    clock = FakeClock()
    model = ScriptedModel([says({"name": "Ulm"}, delay_seconds=3600)], clock=clock)
    asked(model)
    assert clock() == datetime(2026, 1, 1, 1, tzinfo=UTC)


def test_a_slow_answer_is_waited_for() -> None:
    assert asked(ScriptedModel([says({"name": "Ulm"}, delay_seconds=0.001)]))[0].output.name == "Ulm"


def test_a_model_that_hangs_can_be_waited_for_and_cancelled() -> None:
    async def main() -> None:
        model = ScriptedModel([hangs(), {"name": "Ulm"}])
        task = asyncio.create_task(model.complete(request("first")))
        assert (await model.asked()).prompt == "first"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await model.complete(request("second"))).output.name == "Ulm"
        assert (await model.asked(2)).prompt == "second"

    asyncio.run(main())


def test_a_model_tells_its_answer_word_by_word() -> None:
    async def main() -> tuple[list[str], str]:
        told: list[str] = []

        async def slowly(piece: str) -> None:
            told.append(piece)

        model = ScriptedModel([{"name": "a b c"}, {"name": "d e"}, calls("tool")])
        assert isinstance(model, StreamingModelPort)
        await model.complete_streaming(request(), told.append)
        result = await model.complete_streaming(request(), slowly)
        await model.complete_streaming(request(), told.append)
        return told, result.raw_output

    told, raw = asyncio.run(main())
    assert told == ['{"name":"a', " b", ' c","people":0}', '{"name":"d', ' e","people":0}']
    assert "".join(told).endswith(raw)


# The tool


def paying(failures: Any, **settings: Any) -> tuple[FailingTool, LocalToolRegistry]:
    async def pay(amount: int, artana_context: ToolExecutionContext) -> str:
        """Pay."""
        return f"paid {amount}"

    tool, registry = FailingTool(pay, failures), LocalToolRegistry()
    registry.register(tool, side_effect=True, **settings)
    return tool, registry


def paid(registry: LocalToolRegistry, times: int = 1) -> list[ToolExecutionResult]:
    async def main() -> list[ToolExecutionResult]:
        return [await registry.call("pay", '{"amount":1}', context=CONTEXT) for _ in range(times)]

    return asyncio.run(main())


def test_a_failing_tool_is_registered_like_its_function() -> None:
    tool, registry = paying({})
    (told,) = registry.to_all_tool_definitions()
    assert (told.name, told.description) == ("pay", "Pay.")
    assert paid(registry)[0].result_json == '"paid 1"'
    assert tool.calls == [{"amount": 1, "artana_context": CONTEXT}]
    assert tool.effects == 1


def test_a_tool_fails_in_the_calls_it_is_told_to() -> None:
    tool, registry = paying({2: ToolTransientError("busy"), 3: fails(ValueError("late"), after_effect=True)})
    assert [result.outcome for result in paid(registry, 4)] == [
        "success",
        "transient_error",
        "unknown_outcome",
        "success",
    ]
    assert (len(tool.calls), tool.effects) == (4, 3)


@pytest.mark.parametrize(("after_effect", "effects"), [(False, 0), (True, 1)], ids=["before", "after"])
def test_a_tool_hangs_before_or_after_its_effect(after_effect: bool, effects: int) -> None:
    tool, registry = paying(lambda call: hangs(after_effect=after_effect), timeout_seconds=0.01)
    assert paid(registry)[0].outcome == "unknown_outcome"
    assert tool.effects == effects


def test_a_plain_function_fails_too() -> None:
    def count(upto: int) -> int:
        return upto

    tool, registry = FailingTool(count, {1: ToolTransientError("once")}), LocalToolRegistry()
    registry.register(tool, max_attempts=2)
    result = asyncio.run(registry.call("count", '{"upto":3}', context=CONTEXT))
    assert (result.outcome, result.result_json, tool.effects) == ("success", "3", 1)


def test_a_tool_takes_its_process_with_it(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio, pathlib, sys
            from gert.testing import FailingTool, dies

            def effect(path: str) -> None:
                pathlib.Path(path).write_text("done")

            asyncio.run(FailingTool(effect, {1: dies(after_effect=True)})(path=sys.argv[1]))
            print("survived")
            """
        )
    )
    effect = tmp_path / "effect"
    done = subprocess.run(
        [sys.executable, str(script), str(effect)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (137, "")
    assert effect.read_text() == "done"


# The kernel


async def step(kernel: ArtanaKernel, run_id: str, key: str = "a", prompt: str = "Where?") -> StepModelResult[City]:
    return await kernel.step_model(
        run_id=run_id,
        tenant=TENANT,
        model="gpt-5",
        input=ModelInput.from_prompt(prompt),
        output_schema=City,
        step_key=key,
    )


def test_a_kernel_in_memory_has_a_script_a_clock_and_ids() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with memory_kernel([{"name": "Ulm"}], clock=clock) as kernel:
            run = await kernel.start_run(tenant=TENANT)
            assert run.run_id == "run-000001"
            clock.advance(60)
            live = await step(kernel, run.run_id)
            again = await step(kernel, run.run_id)
            assert (live.output, live.replayed) == (City(name="Ulm"), False)
            assert (again.output, again.replayed) == (City(name="Ulm"), True)
            events = await kernel.get_events(run_id=run.run_id)
            assert [event.timestamp.minute for event in events] == [0, 1, 1, 1]

    asyncio.run(main())


def test_a_failure_of_the_script_is_recorded_and_the_step_can_be_tried_again() -> None:
    async def main() -> list[str]:
        model = ScriptedModel([times_out(), fails(ModelTransientError("busy", status=429)), {"name": "Ulm"}])
        async with memory_kernel(model) as kernel:
            await kernel.start_run(tenant=TENANT, run_id="r")
            with pytest.raises(ModelTimeoutError):
                await step(kernel, "r")
            with pytest.raises(ModelTransientError):
                await step(kernel, "r")
            assert (await step(kernel, "r")).output.name == "Ulm"
            model.assert_used_up()
            return [
                event.payload.reason
                for event in await kernel.get_events(run_id="r")
                if event.payload.kind == "model_failed"
            ]

    assert asyncio.run(main()) == ["timeout", "failed"]


def test_a_tool_that_fails_after_its_effect_is_in_doubt() -> None:
    async def main() -> None:
        tool, registry = paying({1: fails(ConnectionError("gone"), after_effect=True)})
        async with memory_kernel(tool_port=registry) as kernel:
            await kernel.start_run(tenant=TENANT, run_id="r")
            for _ in range(2):
                with pytest.raises(ToolExecutionFailedError) as refused:
                    await kernel.step_tool(
                        run_id="r", tenant=TENANT, tool_name="pay", arguments={"amount": 1}, step_key="p"
                    )
                assert refused.value.in_doubt
            assert tool.effects == 1

    asyncio.run(main())


def test_the_fixtures_work_in_a_project_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        'from gert.testing import ScriptedModel\n\npytest_plugins = ["gert.testing"]\n'
    )
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import asyncio
            from pydantic import BaseModel
            from gert.kernel.agent.types.api import ModelInput
            from gert.testing import says

            class City(BaseModel):
                name: str

            def test_a_run(agent_kernel, scripted_model, agent_tenant, fake_clock):
                scripted_model.then(says({"name": "Ulm"}, expect="Where", delay_seconds=60))

                async def main():
                    run = await agent_kernel.start_run(tenant=agent_tenant)
                    return await agent_kernel.step_model(
                        run_id=run.run_id, tenant=agent_tenant, model="m", input=ModelInput.from_prompt("Where?"),
                        output_schema=City, step_key="a",
                    )

                before = fake_clock()
                assert asyncio.run(main()).output.name == "Ulm"
                assert (fake_clock() - before).seconds == 60
                scripted_model.assert_used_up()

            def test_an_unused_kernel_is_closed(agent_kernel):
                pass
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
