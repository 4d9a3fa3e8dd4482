"""A tool with `transport: runner` as a tool of an agent: plan, verdict, ticket, authorization, runner, record."""

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.ecosystem.host.agent.places import in_loop
from tests.ecosystem.host.agent.test_tool_packs import record, step
from tests.ecosystem.runners.bench import CANARY, KEYS, PING, Bench, bench, holds_canary
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor

from gert.agent import (
    ApprovalRequiredError,
    ArtanaKernel,
    GertError,
    MockModelPort,
    PolicyViolationError,
    SQLiteStore,
    tool_pack,
)
from gert.ecosystem.approvals.request_text import compact
from gert.ecosystem.approvals.tickets import Tickets, TicketView
from gert.ecosystem.host.channels.ticket_summary import facts
from gert.ecosystem.host.config.ledger_location import open_ledger
from gert.errors import Refused, UsageError
from gert.kernel.events.envelope import decode, format_timestamp
from gert.kernel.foundation.canonical import digest_value
from gert.kernel.governance.approval import Response


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bench, Vendor]]:
    with bench(tmp_path / "project") as (made, served):
        made.runner_tool()
        monkeypatch.chdir(made.root)
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SOME_TOKEN", CANARY)
        monkeypatch.setenv("GERT_STATE_DIR", str(made.root))
        yield made, served


def policy(made: Bench, **rule: Any) -> str:
    rules = [{"writes": ["vendor"], **rule}, {"default": "allow"}]
    document = {"apiVersion": "policy/v0", "meta": {"name": "ops"}, "governance": {"rules": rules}}
    made.write("ops.policy.yaml", document)
    return str(made.root / "ops.policy.yaml")


def kernel_of(made: Bench, *policies: str) -> ArtanaKernel:
    pack = tool_pack(str(made.root / "tools/ping.tool.yaml"), policies=policies)
    store = SQLiteStore(str(made.root.parent / "agent.db"))
    return ArtanaKernel(store=store, model_port=MockModelPort(output={}), packs=[pack])


def records(made: Bench) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(made.root.glob("_state/runs/*/*/record.json"))]


@in_loop
async def test_a_call_is_one_plan_that_one_runner_executes(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    async with kernel_of(made) as kernel:
        assert (await step(kernel, "ping_go", word="hi"))["path"] == "/ping/hi"
        assert (await step(kernel, "ping_go", word="hi"))["path"] == "/ping/hi", (
            "a step that is taken again is replayed"
        )
        kept = await record(kernel)
    (asked,) = served.asked
    assert CANARY in asked.headers["authorization"]
    (found,) = records(made)
    assert found["exit_code"] == 0
    assert CANARY not in kept
    assert holds_canary(made.root.parent, but=[made.secret]) == []
    async with open_ledger(str(made.root.parent / "agent.db"), {}, read_only=True) as ledger:
        events = [decode(line).payload for line in await ledger.lines(found["plan_id"])]
    assert [each.type for each in events] == ["plan_created", "plan_authorized", "runner_started", "runner_recorded"]
    assert msgspec.to_builtins(events[0])["parent_run_id"] == "r"


@in_loop
async def test_a_call_is_not_made_again_on_another_day_even_if_the_ledger_is_lost(
    place: tuple[Bench, Vendor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, served = place
    async with kernel_of(made) as kernel:
        await step(kernel, "ping_go", word="hi")
    (plan,) = (made.root / "_state/plans").glob("*.plan.json")
    day = json.loads(plan.read_text())["artifacts"]["record"].split("/")[2]
    os.rename(made.root.parent / "agent.db", made.root.parent / "lost.db")

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz).replace(year=2099)

    monkeypatch.setattr("gert.ecosystem.host.agent.skill_calls.datetime", Later)
    async with kernel_of(made) as kernel:
        with pytest.raises(GertError, match=rf"`_state/runs/{day}/.* is there already"):
            await step(kernel, "ping_go", word="hi")
    assert len(served.asked) == 1
    assert [each["request_artifact"].split("/")[2] for each in records(made)] == [day]


async def asked(kernel: ArtanaKernel) -> TicketView:
    """The ticket of a call that needs approval."""
    with pytest.raises(ApprovalRequiredError):
        await step(kernel, "ping_go", word="hi")
    [view] = await Tickets(kernel.ledger).all("pending")
    return view


async def approve(kernel: ArtanaKernel, ticket: TicketView) -> None:
    tickets = Tickets(kernel.ledger)
    now = format_timestamp(await tickets.time())
    await tickets.answer(ticket.id, Response(approver="bob", approved=True, timestamp=now))


@in_loop
async def test_the_effects_of_the_skill_are_judged_and_a_ticket_is_asked_for(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    asks = policy(made, action="require-approval", min_approvers=1, approvers=["bob"])
    async with kernel_of(made, asks) as kernel:
        ticket = await asked(kernel)
        assert served.asked == []
        await approve(kernel, ticket)
        assert (await step(kernel, "ping_go", word="hi"))["path"] == "/ping/hi"
    assert len(served.asked) == 1
    (file,) = (made.root / "_state/plans").glob("*.auth.json")
    assert json.loads(file.read_text())["grant"]["verdict"] == "approved"


@in_loop
async def test_an_approver_sees_the_plan_of_the_call_and_approves_exactly_that(place: tuple[Bench, Vendor]) -> None:
    made, _ = place
    asks = policy(made, action="require-approval", min_approvers=1, approvers=["bob"])
    async with kernel_of(made, asks) as kernel:
        view = await asked(kernel)
        ledger = ("--db", made.root.parent / "agent.db")
        shown = made.gert("approvals", "show", view.id, *ledger).ended(0).out
        document = made.gert("approvals", "show", view.id, *ledger, "--json").ended(0).said
        page = dict(facts(view))
        prompt = "\n".join(line.text for line in compact(view.ticket.request))
        await approve(kernel, view)
        await step(kernel, "ping_go", word="hi")
    for text in (shown, prompt, json.dumps(page)):
        assert f"{PING} (runner)" in text
        assert "https: POST GET vendor.test" in text
        assert f"{made.ref} (test:more test:ping)" in text
        assert "900 s, one execution" in text
        assert digest_value(document["plan"]) in text
        assert CANARY not in text
    assert "effects:" in shown
    assert document["contract"]["writes"] == ["vendor"]
    (file,) = (made.root / "_state/plans").glob("*.plan.json")
    executed = json.loads(file.read_text())
    assert executed.pop("plan_id")
    assert executed.pop("artifacts")
    assert executed == document["plan"], "what was executed is what was shown, with an id and a date"


@in_loop
async def test_a_call_that_no_runner_could_execute_opens_no_ticket(
    place: tuple[Bench, Vendor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, served = place

    def refuses(*_: Any, **__: Any) -> None:
        raise Refused("plan/form", "no plan can be made")

    async with kernel_of(made, policy(made, action="require-approval")) as kernel:
        monkeypatch.setattr("gert.ecosystem.host.agent.skill_calls.plan_call", refuses)
        with pytest.raises(PolicyViolationError, match=r"no plan can be made \(plan/form\)"):
            await step(kernel, "ping_go", word="hi")
        assert await Tickets(kernel.ledger).all("pending") == []
    assert served.asked == []


@in_loop
async def test_an_approval_does_not_hold_for_a_skill_that_changed(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    asks = policy(made, action="require-approval", min_approvers=1, approvers=["bob"])
    async with kernel_of(made, asks) as kernel:
        await approve(kernel, await asked(kernel))
    made.skill(timeout="9s")
    async with kernel_of(made, asks) as kernel:
        with pytest.raises(GertError):
            await step(kernel, "ping_go", word="hi")
    assert served.asked == []


@in_loop
async def test_a_skill_whose_effects_are_denied_is_not_called(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    async with kernel_of(made, policy(made, action="deny")) as kernel:
        with pytest.raises(PolicyViolationError, match="denied by"):
            await step(kernel, "ping_go", word="hi")
    assert served.asked == []


@in_loop
async def test_a_vendor_that_says_no_is_an_error_of_the_tool(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    served.answer = lambda asked, handler: (403, {}, asked.headers["authorization"].encode())
    async with kernel_of(made) as kernel:
        with pytest.raises(GertError, match="status 403"):
            await step(kernel, "ping_go", word="hi")
        assert CANARY not in await record(kernel)


@in_loop
async def test_a_runner_that_ended_without_a_record_is_an_unknown_outcome(place: tuple[Bench, Vendor]) -> None:
    made, served = place

    def no_folder(asked: Asked, handler: Handler) -> tuple[int, dict[str, str], bytes]:
        (made.root / "_state/runs").rename(made.root / "gone")
        (made.root / "_state/runs").write_text("no folder")
        return 200, {}, b"{}"

    served.answer = no_folder
    async with kernel_of(made) as kernel:
        with pytest.raises(GertError, match="unknown"):
            await step(kernel, "ping_go", word="hi")
        with pytest.raises(GertError):
            await step(kernel, "ping_go", word="hi")
    assert len(served.asked) == 1, "it is not called a second time"


@pytest.mark.parametrize(
    ("change", "problem", "said"),
    [
        pytest.param({"secret_ref": "env://SOME_TOKEN"}, Refused, "clean", id="a secret in the environment"),
        pytest.param({"secret_ref": "kv://prod/x/y"}, Refused, "no secrets policy", id="a secret no policy allows"),
        pytest.param({"runner": "other"}, Refused, "no runner `other`", id="a runner that is not registered"),
    ],
)
def test_what_could_not_be_called_is_refused_when_the_pack_is_read(
    place: tuple[Bench, Vendor], change: dict[str, Any], problem: type[Exception], said: str
) -> None:
    made, _ = place
    made.runner_tool(**change)
    with pytest.raises(problem, match=said):
        tool_pack(str(made.root / "tools/ping.tool.yaml"))


def test_without_a_key_to_authorize_plans_the_pack_is_refused(
    place: tuple[Bench, Vendor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GERT_PLAN_SIGNING_KEY")
    with pytest.raises(UsageError, match="no key to authorize plans"):
        tool_pack(str(place[0].root / "tools/ping.tool.yaml"))


def test_a_changed_skill_is_another_version_of_the_tool(place: tuple[Bench, Vendor]) -> None:
    made, _ = place

    def version() -> str:
        pack = tool_pack(str(made.root / "tools/ping.tool.yaml"))
        return pack._version(pack._tool.actions["go"])

    before = version()
    assert version() == before
    made.skill(timeout="9s")
    assert version() != before
