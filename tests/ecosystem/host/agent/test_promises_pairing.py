"""What must hold, 1 and 2: a request and its end belong together, and what is numbered is numbered once."""

import asyncio
from collections import Counter
from hashlib import sha256
from itertools import pairwise

import pytest
from tests.ecosystem.host.agent.places import (
    SIZE,
    TENANT,
    Answer,
    Model,
    Place,
    ask,
    call,
    ends,
    kinds,
    of_type,
    requests,
)

from gert.agent import (
    ModelCompletedPayload,
    ModelInput,
    ModelRequestedPayload,
    RunError,
    TenantContext,
    ToolExecutionContext,
    ToolRequestedPayload,
    resolve_tool_resolutions,
)

MANY = 24 * SIZE


class TestPoint1:
    """A request and its completion are paired by event id, never by position."""

    def test_answers_that_come_in_another_order_find_their_questions(self, place: Place) -> None:
        async def scenario() -> None:
            gates = {f"q{n}": asyncio.Event() for n in range(4)}

            async def wait(request: object) -> str:
                content = request.messages[-1].content  # type: ignore[attr-defined]
                await gates[content].wait()
                return f"answer to {content}"

            model = Model(*[wait] * 4)
            async with place.kernel(model) as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                steps = [asyncio.create_task(ask(kernel, "r", f"q{n}", f"k{n}")) for n in range(4)]
                while len(model.asked) < 4:
                    await asyncio.sleep(0)
                for n in (2, 0, 3, 1):
                    gates[f"q{n}"].set()
                    await steps[n]
                assert [(await step).output.text for step in steps] == [f"answer to q{n}" for n in range(4)]
                again = [await ask(kernel, "r", f"q{n}", f"k{n}") for n in range(4)]
                assert [each.output.text for each in again] == [f"answer to q{n}" for n in range(4)]
                assert all(each.replayed for each in again)
                asked = {
                    event.seq: event.payload.prompt
                    for event in await of_type(kernel, "r", "model_requested")
                    if isinstance(event.payload, ModelRequestedPayload)
                }
                for event in await of_type(kernel, "r", "model_completed"):
                    assert isinstance(event.payload, ModelCompletedPayload)
                    assert f"answer to {asked[event.payload.request_seq or 0]}" in event.payload.output_json

        asyncio.run(scenario())

    @pytest.mark.parametrize("keyed", [True, False], ids=["by step key", "by what is asked"])
    def test_a_storm_of_steps_in_one_run_mixes_nothing_up(self, place: Place, keyed: bool) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def double(n: int, artana_context: ToolExecutionContext) -> int:
                    await asyncio.sleep((n % 5) * 0.001)
                    return 2 * n

                await kernel.start_run(tenant=TENANT, run_id="r")

                async def both(n: int) -> tuple[str, str]:
                    key = f"k{n}" if keyed else None
                    made, said = await asyncio.gather(
                        call(kernel, "r", "double", {"n": n}, key), ask(kernel, "r", f"q{n}", key)
                    )
                    return made.result_json, said.output.text

                expected = [(str(2 * n), f"q{n}!") for n in range(MANY)]
                assert await asyncio.gather(*(both(n) for n in range(MANY))) == expected
                before = await kernel.get_events(run_id="r")
                assert await asyncio.gather(*(both(n) for n in range(MANY))) == expected
                assert await kernel.get_events(run_id="r") == before
            if place.kind == "memory":
                return
            async with place.kernel() as later:
                later.tool(side_effect=True)(double)
                assert (await call(later, "r", "double", {"n": 3}, "k3" if keyed else None)).result_json == "6"
                assert (await ask(later, "r", "q3", "k3" if keyed else None)).output.text == "q3!"
                pairs = resolve_tool_resolutions(await later.get_events(run_id="r"))
                assert Counter(pair.outcome for pair in pairs) == {"success": MANY}

        asyncio.run(scenario())

    def test_the_same_step_at_the_same_time_is_taken_once(self, place: Place) -> None:
        async def scenario() -> None:
            model = Model()
            made = Counter[int]()
            async with place.kernel(model) as kernel:

                @kernel.tool(side_effect=True)
                async def charge(n: int, artana_context: ToolExecutionContext) -> int:
                    made[n] += 1
                    await asyncio.sleep(0.002)
                    return n

                await kernel.start_run(tenant=TENANT, run_id="r")
                asked = await asyncio.gather(*(ask(kernel, "r", "q", "k") for _ in range(8)))
                called = await asyncio.gather(*(call(kernel, "r", "charge", {"n": 1}, "c") for _ in range(8)))
                assert model.asked == ["q"]
                assert made == {1: 1}
                assert {each.seq for each in asked} == {asked[0].seq}
                assert {each.seq for each in called} == {called[0].seq}
                assert sorted(await kinds(kernel, "r")) == sorted(
                    [
                        "run_started",
                        "model_requested",
                        "model_completed",
                        "run_summary",
                        "tool_requested",
                        "tool_completed",
                    ]
                )

        asyncio.run(scenario())


class TestPoint2:
    """Sequence, previous hash and idempotency key are taken inside the append."""

    def test_many_calls_at_once_have_as_many_keys_each_of_its_own_number(self, place: Place) -> None:
        async def scenario() -> None:
            seen: list[str] = []
            async with place.kernel() as kernel:

                @kernel.tool(side_effect=True)
                async def pay(n: int, artana_context: ToolExecutionContext) -> str:
                    seen.append(artana_context.idempotency_key)
                    return artana_context.request_event_id or ""

                await kernel.start_run(tenant=TENANT, run_id="r")
                await asyncio.gather(*(call(kernel, "r", "pay", {"n": n}, f"k{n}") for n in range(MANY)))
                events = await kernel.get_events(run_id="r")
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                pairs = [(one.event_hash, two.prev_event_hash) for one, two in pairwise(events)]
                assert all(left == right for left, right in pairs)
                asked = [event for event in events if isinstance(event.payload, ToolRequestedPayload)]
                assert [event.payload.idempotency_key for event in asked] == [  # type: ignore[union-attr]
                    sha256(f"r:pay:{event.seq}".encode()).hexdigest() for event in asked
                ]
                assert sorted(seen) == sorted(one.idempotency_key for one in requests(events))
                assert len(set(seen)) == MANY
                assert {one.received_idempotency_key for one in ends(events)} == set(seen)

        asyncio.run(scenario())

    def test_of_many_who_start_a_run_one_does(self, place: Place) -> None:
        async def scenario() -> None:
            kernels = [place.kernel() for _ in range(1 if place.kind in ("memory", "jsonl") else 3)]

            async def start(n: int) -> bool:
                try:
                    await kernels[n % len(kernels)].start_run(tenant=TENANT, run_id="r")
                except RunError:
                    return False
                return True

            assert sum(await asyncio.gather(*(start(n) for n in range(MANY)))) == 1
            assert await kinds(kernels[0], "r") == ["run_started"]
            for kernel in kernels:
                await kernel.close()

        asyncio.run(scenario())

    def test_of_many_who_go_on_with_a_run_all_do(self, place: Place) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:

                async def use(n: int) -> str:
                    async with kernel.run(tenant=TENANT, run_id="r") as run:
                        return str((await run.model("mock", f"q{n}", Answer, step_key=f"k{n}")).output.text)

                assert await asyncio.gather(*(use(n) for n in range(8))) == [f"q{n}!" for n in range(8)]
                assert (await kinds(kernel, "r")).count("run_started") == 1

        asyncio.run(scenario())

    def test_stores_of_several_processes_number_one_run_together(self, shared: Place) -> None:
        async def scenario() -> None:
            kernels = [shared.kernel() for _ in range(3)]
            await kernels[0].start_run(tenant=TENANT, run_id="r")
            await asyncio.gather(
                *(
                    kernels[n % 3].append_run_summary(
                        run_id="r", tenant=TENANT, summary_type=f"t{n}", summary_json="{}"
                    )
                    for n in range(MANY)
                )
            )
            events = await kernels[1].get_events(run_id="r")
            assert [event.seq for event in events] == list(range(1, MANY + 2))
            assert await kernels[2].store.verify_run_chain("r")
            for kernel in kernels:
                await kernel.close()

        asyncio.run(scenario())

    @pytest.mark.parametrize("run_id", ["", "a/b", "../x", "a b", "-x", "x" * 600, "a\nb"])
    def test_what_cannot_name_a_run_is_refused(self, place: Place, run_id: str) -> None:
        async def scenario() -> None:
            async with place.kernel() as kernel:
                with pytest.raises(RunError, match="not a run id"):
                    await kernel.start_run(tenant=TENANT, run_id=run_id)

        asyncio.run(scenario())

    def test_a_run_of_another_tenant_takes_no_steps_and_gives_no_answers(self, place: Place) -> None:
        other = TenantContext(tenant_id="other", budget_usd_limit=1)

        async def scenario() -> None:
            async with place.kernel() as kernel:
                await kernel.start_run(tenant=TENANT, run_id="r")
                await ask(kernel, "r", "q", "k")
                for prompt, key in (("q", "k"), ("new", "n")):
                    with pytest.raises(RunError, match="another tenant"):
                        await kernel.step_model(
                            run_id="r",
                            tenant=other,
                            model="mock",
                            input=ModelInput.from_prompt(prompt),
                            output_schema=Answer,
                            step_key=key,
                        )
                assert len(await kinds(kernel, "r")) == 4

        asyncio.run(scenario())
