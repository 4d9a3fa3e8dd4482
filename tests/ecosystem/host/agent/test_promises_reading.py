"""What must hold, 14, and workflows: what a run read, noted and worked out is there when it goes on."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.ecosystem.host.agent.places import TENANT, Answer, Place, ask, call, kinds, of_type

from gert.agent import (
    GertError,
    ReplayConsistencyError,
    RunBlocked,
    RunError,
    ToolExecutionContext,
    WorkflowContext,
    json_step_serde,
    pydantic_step_serde,
)
from gert.errors import InputError


class TestPoint14:
    """What an agent read is part of the ledger, so a run that used its own memory resumes."""

    def test_a_memory_that_has_changed_since_is_read_as_it_was(self, durable: Place) -> None:
        memory = ["nothing yet"]

        async def run(place: Place, fail: bool) -> list[str]:
            async with place.kernel() as kernel, kernel.run(tenant=TENANT, run_id="r") as bound:
                seen = []
                for turn in range(3):

                    async def look() -> str:
                        return memory[0]

                    seen.append(await bound.read("memory", f"memory_{turn}", look))
                    # The question is made of what was read: without the record it would drift.
                    await bound.model("mock", f"turn {turn}: {seen[-1]}", Answer, step_key=f"turn_{turn}")
                    memory[0] = f"turn {turn} done"
                    if fail and turn == 1:
                        return seen
                return seen

        first = asyncio.run(run(durable, fail=True))
        again = asyncio.run(run(durable, fail=False))
        assert first == ["nothing yet", "turn 0 done"]
        assert again == [*first, "turn 1 done"]

    def test_it_is_read_once_and_recorded_whole(self, place: Place) -> None:
        text = "line\n" * 1000 + "é\u0000\U0001f600"

        async def scenario() -> None:
            reads = 0

            async def look() -> str:
                nonlocal reads
                reads += 1
                await asyncio.sleep(0)
                return text

            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")

                async def read(key: str) -> str:
                    return await kernel.read_context(
                        run_id="r", tenant=TENANT, source="notes.md", step_key=key, look=look
                    )

                assert await read("a") == text
                assert await read("a") == text
                assert reads == 1
                found = await asyncio.gather(*(read("b") for _ in range(6)))
                assert set(found) == {text}
                events = await of_type(kernel, "r", "context_read")
                assert [(event.payload.source, event.payload.step_key) for event in events] == [  # type: ignore[union-attr]
                    ("notes.md", "a"),
                    ("notes.md", "b"),
                ]
                assert {event.payload.content for event in events} == {text}  # type: ignore[union-attr]

        asyncio.run(scenario())

    def test_what_could_not_be_read_is_read_again(self, place: Place) -> None:
        async def scenario() -> None:
            async def broken() -> str:
                raise OSError("gone")

            async def look() -> str:
                return "there"

            async with place.kernel() as kernel, kernel.run(tenant=TENANT, run_id="r") as run:
                with pytest.raises(OSError, match="gone"):
                    await run.read("file", "k", broken)
                assert await run.read("file", "k", look) == "there"
                assert await run.read("file", "k", broken) == "there"
                assert await kinds(kernel, "r") == ["run_started", "context_read"]

        asyncio.run(scenario())


class TestNotes:
    """Checkpoints and artifacts are summaries of a documented shape."""

    def test_checkpoints_and_artifacts_are_found_again(self, place: Place) -> None:
        class Deep(BaseModel):
            n: int

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await kernel.checkpoint(run_id="r", tenant=TENANT, name="deployed", payload={"b": 1, "a": 2})
                values: list[Any] = [None, 0, "", [], {"z": 1}, Deep(n=3)]
                for value in values:
                    await kernel.set_artifact(run_id="r", tenant=TENANT, key="plan", value=value)
                    expected = {"n": 3} if isinstance(value, Deep) else value
                    assert await kernel.get_artifact(run_id="r", key="plan") == expected
                await kernel.set_artifact(run_id="r", tenant=TENANT, key="a", value=1, schema_version="2")
                assert await kernel.list_artifacts(run_id="r") == {"a": 1, "plan": {"n": 3}}
                assert await kernel.get_artifact(run_id="r", key="pla") is None
                noted = [event.payload for event in await of_type(kernel, "r", "run_summary")]
                assert [each.summary_type for each in noted[:2]] == ["checkpoint::deployed", "artifact::plan"]  # type: ignore[union-attr]
                assert noted[0].summary_json == '{"a":2,"b":1}'  # type: ignore[union-attr]
                assert noted[1].summary_json == '{"value":null}'  # type: ignore[union-attr]
                assert noted[-1].summary_json == '{"schema_version":"2","value":1}'  # type: ignore[union-attr]
                latest = await kernel.get_latest_run_summary(run_id="r", summary_type="artifact::plan")
                assert latest == await kernel.get_latest_summary(run_id="r", summary_type="artifact::plan")
                assert latest is not None
                assert latest.summary_json == '{"value":{"n":3}}'

        asyncio.run(scenario())

    @pytest.mark.parametrize(
        "note",
        [
            lambda kernel: kernel.checkpoint(run_id="r", tenant=TENANT, name=" ", payload=1),
            lambda kernel: kernel.set_artifact(run_id="r", tenant=TENANT, key="", value=1),
            lambda kernel: kernel.set_artifact(run_id="r", tenant=TENANT, key="a", value=object()),
            lambda kernel: kernel.set_artifact(run_id="r", tenant=TENANT, key="a", value=float("nan")),
            lambda kernel: kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="", summary_json="{}"),
            lambda kernel: kernel.append_run_summary(run_id="r", tenant=TENANT, summary_type="a", summary_json="{"),
        ],
    )
    def test_what_cannot_be_noted_is_refused_and_leaves_no_trace(self, place: Place, note: Any) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                with pytest.raises(GertError):
                    await note(kernel)
                assert await kinds(kernel, "r") == ["run_started"]

        asyncio.run(scenario())


class Order(BaseModel):
    """What a step gives."""

    number: int


class Yes(BaseModel):
    """What a person says."""

    yes: bool


class TestWorkflows:
    """Workflows take their steps once, pause, and go on."""

    def test_a_workflow_pauses_and_continues_with_the_response(self, durable: Place) -> None:
        done: list[str] = []

        async def work(ctx: WorkflowContext) -> str:
            async def order() -> Order:
                done.append("order")
                return Order(number=7)

            async def ship() -> Any:
                done.append("ship")
                return {"shipped": True}

            got = await ctx.step(name="order", action=order, serde=pydantic_step_serde(Order))
            ticket = await ctx.pause("may it be shipped?", context=Yes(yes=False))
            said = await ctx.human_input(ticket)
            await ctx.step(name="ship", action=ship, serde=json_step_serde())
            return f"{got.number} {said}"

        async def run() -> Any:
            async with durable.kernel() as kernel:
                return await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)

        async def resume() -> None:
            async with durable.kernel() as kernel:
                assert (await kernel.get_run_status(run_id="w")).status == "paused"
                await kernel.resume(run_id="w", tenant=TENANT, human_input=Yes(yes=True))

        async def events() -> list[str]:
            async with durable.kernel() as kernel:
                return await kinds(kernel, "w")

        first = asyncio.run(run())
        assert (first.status, first.output) == ("paused", None)
        assert first.pause_ticket.reason == "may it be shipped?"
        again = asyncio.run(run())
        assert again == first
        assert done == ["order"]
        asyncio.run(resume())
        last = asyncio.run(run())
        assert (last.status, last.output, last.pause_ticket) == ("complete", '7 {"yes":true}', None)
        before = asyncio.run(events())
        assert asyncio.run(run()) == last
        assert asyncio.run(events()) == before
        assert done == ["order", "ship"]

    def test_two_pauses_are_two(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> list[str | None]:
            return [await ctx.human_input(await ctx.pause(f"question {n}")) for n in range(2)]

        async def scenario() -> None:
            async with place.kernel() as kernel:
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert found.pause_ticket is not None
                assert found.pause_ticket.reason == "question 0"
                await kernel.resume(run_id="w", tenant=TENANT, human_input=Yes(yes=False))
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert found.pause_ticket is not None
                assert found.pause_ticket.reason == "question 1"
                await kernel.resume(run_id="w", tenant=TENANT)
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert found.output == ['{"yes":false}', None]

        asyncio.run(scenario())

    def test_a_pause_passes_through_careless_hands(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> str:
            try:
                await ctx.pause("wait")
            except Exception:
                return "caught"
            return "passed"

        async def scenario() -> None:
            async with place.kernel() as kernel:
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert (found.status, found.output) == ("paused", None)

        asyncio.run(scenario())

    @pytest.mark.parametrize("fails", [False, True], ids=["alone", "beside a failure"])
    def test_a_pause_in_a_group_of_tasks_is_a_pause(self, place: Place, fails: bool) -> None:
        async def work(ctx: WorkflowContext) -> str:
            async def beside() -> None:
                if fails:
                    raise OSError("failed")

            async with asyncio.TaskGroup() as group:
                group.create_task(beside())
                group.create_task(ctx.pause("wait"))
            return "passed"

        async def scenario() -> None:
            async with place.kernel() as kernel:
                if fails:
                    with pytest.raises(BaseExceptionGroup) as caught:
                        await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                    assert caught.group_contains(OSError)
                    return
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert (found.status, found.output) == ("paused", None)
                assert found.pause_ticket is not None
                await kernel.resume(run_id="w", tenant=TENANT)
                found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert found.output == "passed"

        asyncio.run(scenario())

    def test_a_step_that_crashed_is_taken_again_and_those_before_are_not(self, durable: Place) -> None:
        taken: list[str] = []

        async def work(ctx: WorkflowContext) -> list[Any]:
            async def act(name: str) -> Any:
                taken.append(name)
                if taken.count("b") == 1 and name == "b":
                    raise OSError("crashed")
                return name

            return [
                await ctx.step(name=name, action=lambda name=name: act(name), serde=json_step_serde())  # type: ignore[misc]
                for name in ("a", "b", "c")
            ]

        async def run() -> Any:
            async with durable.kernel() as kernel:
                return await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)

        with pytest.raises(OSError, match="crashed"):
            asyncio.run(run())
        assert asyncio.run(run()).output == ["a", "b", "c"]
        assert taken == ["a", "b", "b", "c"]
        assert asyncio.run(run()).output == ["a", "b", "c"]
        assert taken == ["a", "b", "b", "c"]

    def test_other_steps_than_recorded_are_refused(self, place: Place) -> None:
        def work(*names: str) -> Any:
            async def act() -> Any:
                return 1

            async def flow(ctx: WorkflowContext) -> list[Any]:
                return [await ctx.step(name=name, action=act, serde=json_step_serde()) for name in names]

            return flow

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work("a", "b"))
                with pytest.raises(ReplayConsistencyError, match="step 1 of the workflow was `b`, and is `c` now"):
                    await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work("a", "c"))
                more = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work("a", "b", "c"))
                assert more.output == [1, 1, 1]

        asyncio.run(scenario())

    def test_steps_at_the_same_time_keep_their_places(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> list[Any]:
            async def act(n: int) -> Any:
                await asyncio.sleep((5 - n) * 0.001)
                return n

            return await asyncio.gather(
                *(
                    ctx.step(name=f"s{n}", action=lambda n=n: act(n), serde=json_step_serde())  # type: ignore[misc]
                    for n in range(5)
                )
            )

        async def scenario() -> None:
            async with place.kernel() as kernel:
                for _ in range(2):
                    found = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                    assert found.output == list(range(5))
                assert (await kinds(kernel, "w")).count("workflow_step_requested") == 5

        asyncio.run(scenario())

    def test_a_result_comes_back_as_the_record_has_it(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> Any:
            async def act() -> Any:
                return {"b": (1, 2), "a": 1.0}

            return await ctx.step(name="s", action=act, serde=json_step_serde())

        async def scenario() -> None:
            async with place.kernel() as kernel:
                live = await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                assert live.output == {"a": 1.0, "b": [1, 2]}
                assert await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work) == live

        asyncio.run(scenario())

    def test_a_workflow_and_steps_of_agents_share_a_run(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                    return n

                async def work(ctx: WorkflowContext) -> Any:
                    async def act() -> Any:
                        answer = await ask(kernel, ctx.run_id, "q", "k")
                        made = await call(kernel, ctx.run_id, "charge", {"n": 1}, "c")
                        return [answer.output.text, made.result_json]

                    return await ctx.step(name="both", action=act, serde=json_step_serde())

                found = await kernel.run_workflow(run_id=None, tenant=TENANT, workflow=work)
                assert found.output == ["q!", "1"]
                assert await kernel.store.verify_run_chain(found.run_id)

        asyncio.run(scenario())

    def test_a_blocked_run_takes_no_steps_of_a_workflow(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> Any:
            async def act() -> Any:
                raise AssertionError("taken")

            return await ctx.step(name="s", action=act, serde=json_step_serde())

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="w")
                await kernel.block_run(run_id="w", tenant=TENANT, reason="audit", unblock_key="a")
                with pytest.raises(RunBlocked):
                    await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)

        asyncio.run(scenario())

    def test_a_result_that_cannot_be_recorded_is_an_error(self, place: Place) -> None:
        async def work(ctx: WorkflowContext) -> Any:
            async def act() -> Any:
                return object()

            return await ctx.step(name="s", action=act, serde=json_step_serde())

        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises((InputError, GertError)):
                    await kernel.run_workflow(run_id="w", tenant=TENANT, workflow=work)
                with pytest.raises(RunError):
                    await kernel.start_run(tenant=TENANT, run_id="w")

        asyncio.run(scenario())
