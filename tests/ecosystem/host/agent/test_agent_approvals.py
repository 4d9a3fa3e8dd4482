"""Approvals of tool calls: ordinary tickets, by the rules, keys and commands of runbooks; and critics."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ecosystem.approvals.asking import ANN_KEY, BOB_KEY
from tests.ecosystem.host.agent.places import TENANT, Model, Place, in_loop, kinds, of_type
from tests.ecosystem.host.agent.policies import Mailer

from gert.agent import (
    AgentApprovals,
    ApprovalRequiredError,
    ArtanaKernel,
    GertError,
    PolicyViolationError,
    TenantContext,
)
from gert.ecosystem.approvals.signatures import sign_response
from gert.ecosystem.approvals.tickets import Tickets
from gert.ecosystem.ledger.verify_run import verify_run
from gert.errors import InputError
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.foundation.signature import parse_key
from gert.kernel.governance.approval import Response

ANN_PUBLIC = {"GERT_APPROVAL_KEY_ANN": ANN_KEY.public_text or "", "GERT_APPROVAL_OWNER_ANN": "ann"}
KEYS = {
    "ann": ANN_KEY,
    "bob": BOB_KEY,
    **{
        name: parse_key("ed25519:" + b64encode(name.encode().ljust(32, b".")).decode(), name)
        for name in ("carol", "dan")
    },
}
PUBLIC = {
    **{f"GERT_APPROVAL_KEY_{name.upper()}": key.public_text or "" for name, key in KEYS.items()},
    **{f"GERT_APPROVAL_OWNER_{name.upper()}": name for name in KEYS},
}
GATE: dict[str, Any] = {"approval": {"mode": "human"}}
MANY = 5


def gate(**more: Any) -> dict[str, Any]:
    """A policy that asks people."""
    return {"approval": {"mode": "human", **more}}


def people(environ: Mapping[str, str] | None = None, actor: str = "carol", **groups: list[str]) -> AgentApprovals:
    """The people of these tests, each with a key; Carol runs the agent."""
    return AgentApprovals(actor=actor, environ=PUBLIC if environ is None else environ, groups=groups)


async def asked(mailer: Mailer, step_key: str = "one", **arguments: Any) -> ApprovalRequiredError:
    """Take the step, which needs an approval."""
    with pytest.raises(ApprovalRequiredError) as caught:
        await mailer.send(step_key, **arguments)
    return caught.value


async def answer(
    mailer: Mailer, by: str = "bob", *, approved: bool = True, signed: bool = False, late: float = 0
) -> None:
    """Post a response to the open ticket, as `gert approve` does."""
    tickets = Tickets(mailer.kernel.ledger)
    [view] = await tickets.all("pending")
    response = Response(approver=by, approved=True, timestamp=format_timestamp(await tickets.time()), reason="seen")
    if signed or mailer.place.kind == "postgres":  # a shared ledger counts no other response
        await post(mailer, sign_response(response, view.ticket, KEYS[by]))
    else:
        assert (await tickets.answer(view.id, response)).objection is None


async def post(mailer: Mailer, response: Response) -> None:
    """Put any response into the inbox, whatever a surface would say about it."""
    from gert.ecosystem.approvals.responses import encode_response

    [row] = await mailer.kernel.ledger.tickets("pending")
    await mailer.kernel.ledger.post("r", "approval", encode_response(response), row.ticket_id)


@in_loop
async def test_a_call_waits_for_a_ticket_and_is_made_once_people_approve(shared: Place) -> None:
    environ = ANN_PUBLIC if shared.kind == "postgres" else {}
    async with Mailer(shared, approvals=people(environ), **GATE) as mailer:
        await mailer.begin()
        error = await asked(mailer)
        assert (error.tool_name, error.mode, len(error.approval_key)) == ("send", "human", 64)
        assert json.loads(error.arguments_json or "")["to"] == "ann@example.com"
        status = await mailer.kernel.get_run_status(run_id="r")
        assert (status.status, status.blocked_on) == ("active", f"approval:{error.approval_key}")
        [pending] = await mailer.kernel.list_pending_approvals(tenant=TENANT)
        assert (pending.run_id, pending.tool_name, pending.requested_by) == ("r", "send", "carol")
        assert (await asked(mailer)).approval_key == error.approval_key
        assert len(await of_type(mailer.kernel, "r", "approval_submitted")) == 1
        await answer(mailer, "ann", signed=shared.kind == "postgres")
        await mailer.send()
        assert len(mailer.sent) == 1
        assert await mailer.rules() == [*[("deny", "approval:human")] * 2, ("allow", "pipeline")]
        assert await kinds(mailer.kernel, "r") == [
            "run_started", "run_summary", "approval_submitted", "run_summary",
            "approval_response", "approval_resolved", "run_summary", "run_summary", "tool_requested", "tool_completed",
        ]  # fmt: skip
        assert await mailer.kernel.list_pending_approvals(tenant=TENANT) == ()
        assert (await verify_run(mailer.kernel.ledger, "r")).holds


@pytest.mark.parametrize(
    ("policy", "by", "approved", "expected"),
    [
        pytest.param(GATE, ["bob"], True, None, id="one approval is enough"),
        pytest.param(GATE, ["bob"], False, "approval_rejected", id="a rejection denies the call"),
        pytest.param(gate(min_approvers=2), ["bob"], True, "wait", id="one of two"),
        pytest.param(gate(min_approvers=2), ["bob", "dan"], True, None, id="two of two"),
        pytest.param(gate(min_approvers=2), ["bob", "Bob"], True, "wait", id="one person in two spellings"),
        pytest.param(gate(approvers=("ann", "bob")), ["bob"], True, None, id="a listed approver"),
        pytest.param(gate(approvers=("ann",)), ["bob"], True, "wait", id="a person who is not listed"),
        pytest.param(gate(approvers=("group:oncall",)), ["dan"], True, None, id="a member of a group"),
        pytest.param(gate(approvers=("group:unknown",)), ["dan"], True, "wait", id="a group without members"),
        pytest.param(gate(separation_of_duties=True), ["carol"], True, "wait", id="the person who runs the agent"),
        pytest.param(gate(separation_of_duties=True), ["bob"], True, None, id="another person"),
    ],
)
@in_loop
async def test_which_approvals_count(place: Place, policy: Any, by: list[str], approved: bool, expected: Any) -> None:
    async with Mailer(place, approvals=people(oncall=["dan"]), **policy) as mailer:
        await mailer.begin()
        await asked(mailer)
        for each in by:
            response = Response(approver=each, approved=approved, timestamp=format_timestamp(datetime.now(UTC)))
            if place.kind == "postgres":
                [view] = await Tickets(mailer.kernel.ledger).all("pending")
                response = sign_response(response, view.ticket, KEYS[each.lower()])
            await post(mailer, response)
        if expected is None:
            await mailer.send()
        elif expected == "wait":
            await asked(mailer)
        else:
            with pytest.raises(PolicyViolationError) as caught:
                await mailer.send()
            assert caught.value.code == expected
        assert len(mailer.sent) == (expected is None)
        for step in ("again", "and again"):
            if expected == "approval_rejected":
                with pytest.raises(PolicyViolationError):
                    await mailer.send(step)
            else:
                await asked(mailer, step)


@pytest.mark.parametrize(
    ("response", "objection"),
    [
        pytest.param({"ticket_id": "r-000000000000"}, "is for the ticket", id="of another ticket"),
        pytest.param({"request_hash": "sha256:0"}, "is for another request", id="for another request"),
        pytest.param({"approver": "bob\u200b"}, "", id="a name with something invisible"),
        pytest.param({"approver": ""}, "plainly", id="without a name"),
        pytest.param({"timestamp": "2020-01-01T00:00:00.000000Z"}, "older than the request", id="made before"),
        pytest.param({"timestamp": "2099-01-01T00:00:00.000000Z"}, "from the future", id="made in advance"),
        pytest.param({"timestamp": "yesterday"}, "timestamp", id="without a time"),
        pytest.param({"signature": "AAAA", "key_id": "ann", "signature_alg": "ed25519"}, "signature", id="forged"),
    ],
)
@in_loop
async def test_a_response_that_does_not_count_is_recorded_and_opens_nothing(
    place: Place, response: dict[str, Any], objection: str
) -> None:
    async with Mailer(place, approvals=people(ANN_PUBLIC), **GATE) as mailer:
        await mailer.begin()
        await asked(mailer)
        now = format_timestamp(datetime.now(UTC))
        await post(mailer, Response(**{"approver": "bob", "approved": True, "timestamp": now, **response}))
        await asked(mailer)
        [refused] = await of_type(mailer.kernel, "r", "approval_refused")
        assert objection in str(refused.payload.objection)  # type: ignore[union-attr]
        assert mailer.sent == []


@pytest.mark.parametrize(
    ("signed", "required", "counts"),
    [(True, True, True), (False, True, False), (True, False, True), (False, False, None)],
    ids=["signed as required", "unsigned though required", "signed", "unsigned"],
)
@in_loop
async def test_signatures_are_required_by_policy_and_by_a_shared_ledger(
    shared: Place, signed: bool, required: bool, counts: bool | None
) -> None:
    counts = shared.kind == "sqlite" if counts is None else counts
    async with Mailer(shared, approvals=people(ANN_PUBLIC), **gate(require_signed_approvals=required)) as mailer:
        await mailer.begin()
        await asked(mailer)
        [row] = await mailer.kernel.ledger.tickets("pending")
        view = await Tickets(mailer.kernel.ledger).get(row.ticket_id)
        response = Response(approver="ann", approved=True, timestamp=format_timestamp(datetime.now(UTC)))
        await post(mailer, sign_response(response, view.ticket, ANN_KEY) if signed else response)
        if counts:
            await mailer.send()
        else:
            await asked(mailer)
        assert len(mailer.sent) == counts


@in_loop
async def test_signed_approvals_without_a_key_to_verify_them_are_denied_at_once(place: Place) -> None:
    async with Mailer(place, approvals=people({}), **gate(require_signed_approvals=True)) as mailer:
        await mailer.begin()
        with pytest.raises(PolicyViolationError) as caught:
            await mailer.send()
        assert caught.value.code == "approval_unverifiable"


async def approve(mailer: Mailer, key: str, **more: Any) -> int:
    """Approve over the API."""
    settings: dict[str, Any] = {"mode": "human", "reason": "looks right", **more}
    return await mailer.kernel.approve_tool_call(run_id="r", tenant=TENANT, approval_key=key, **settings)


@in_loop
async def test_the_api_answers_the_ticket_by_the_same_rules(place: Place) -> None:
    policy = gate(min_approvers=2, separation_of_duties=True)
    async with Mailer(place, approvals=people(), **policy) as mailer:
        await mailer.begin()
        key = (await asked(mailer)).approval_key
        with pytest.raises(PolicyViolationError, match="started the run"):
            await approve(mailer, key)  # as Carol, who runs the agent
        await approve(mailer, key, by="ann")
        with pytest.raises(PolicyViolationError, match="already responded"):
            await approve(mailer, key, by="ANN")
        await asked(mailer)
        seq = await approve(mailer, key, by="bob")
        await mailer.send()
        [record] = [e for e in await of_type(mailer.kernel, "r", "run_summary") if e.seq == seq]
        summary = json.loads(record.payload.summary_json)  # type: ignore[union-attr]
        assert (summary["approved"], summary["by"], summary["approvers"]) == (True, "bob", ["ann", "bob"])


@in_loop
async def test_an_approval_given_in_advance_is_judged_when_a_call_asks(place: Place) -> None:
    async with Mailer(place, approvals=people(), **gate(approvers=("ann",))) as mailer:
        await mailer.begin("other")
        with pytest.raises(ApprovalRequiredError) as caught:
            await mailer.send(run_id="other")
        key = caught.value.approval_key
        await mailer.begin()
        await approve(mailer, key, by="bob")
        await asked(mailer)
        [ticket] = [each for each in await mailer.kernel.ledger.tickets("pending") if each.run_id == "r"]
        await approve(mailer, key, by="ann")
        await mailer.send()
        assert ticket.ticket_id


@in_loop
async def test_a_rejection_over_the_api_denies_until_a_person_approves(place: Place) -> None:
    async with Mailer(place, approvals=people(), **GATE) as mailer:
        await mailer.begin()
        key = (await asked(mailer)).approval_key
        await approve(mailer, key, by="bob", approved=False)
        with pytest.raises(PolicyViolationError, match="`bob` rejected it"):
            await mailer.send()
        await approve(mailer, key, by="ann")
        await mailer.send()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        pytest.param({"mode": "human", "reason": 5}, "reason", id="a reason that is not text"),
        pytest.param({"mode": "Human", "reason": "x"}, "human | critic", id="an unknown mode"),
    ],
)
@in_loop
async def test_a_wrong_approval_is_a_value_error(place: Place, settings: Any, error: str) -> None:
    async with Mailer(place, **GATE) as mailer:
        await mailer.begin()
        with pytest.raises(ValueError, match=error.replace("|", r"\|")):
            await mailer.kernel.approve_tool_call(run_id="r", tenant=TENANT, approval_key="k", **settings)


@in_loop
async def test_an_approval_is_used_once_however_many_calls_wait_for_it(shared: Place) -> None:
    environ = ANN_PUBLIC
    mailers = [Mailer(shared, approvals=people(environ), **GATE) for _ in range(MANY)]
    await mailers[0].begin()
    await asked(mailers[0])
    await answer(mailers[0], "ann", signed=True)
    answers = await asyncio.gather(*(m.send(f"s{n}") for n, m in enumerate(mailers)), return_exceptions=True)
    assert sum(isinstance(each, ApprovalRequiredError) for each in answers) == MANY - 1, answers
    assert sum(len(mailer.sent) for mailer in mailers) == 1
    assert (await mailers[0].rules()).count(("allow", "pipeline")) == 1
    for mailer in mailers:
        await mailer.kernel.close()


@in_loop
async def test_a_reusable_approval_covers_equal_calls_until_it_expires(place: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    place.clock = lambda: moment[0]
    async with Mailer(place, approvals=people(), **gate(reusable=True, approval_ttl_seconds=60)) as mailer:
        await mailer.begin()
        await asked(mailer)
        await answer(mailer)
        for step in ("one", "two", "three"):
            await mailer.send(step)
        await asked(mailer, "another", to="bob@example.com")
        moment[0] += timedelta(seconds=61)
        await asked(mailer, "four")
        assert len(mailer.sent) == 3


@in_loop
async def test_a_call_that_did_not_happen_gives_its_approval_back(place: Place) -> None:
    async with Mailer(place, approvals=people(), fails=1, **GATE) as mailer:
        await mailer.begin()
        await asked(mailer)
        await answer(mailer)
        with pytest.raises(GertError, match="not now"):
            await mailer.send()
        await mailer.send()
        await asked(mailer, "two")
        assert len(mailer.sent) == 1


@in_loop
async def test_a_ticket_that_expires_is_asked_again(place: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    place.clock = lambda: moment[0]
    async with Mailer(place, approvals=people(), **gate(timeout_seconds=60)) as mailer:
        await mailer.begin()
        await asked(mailer)
        moment[0] += timedelta(seconds=61)
        await asked(mailer)
        statuses = [row.status for row in await mailer.kernel.ledger.tickets(run_id="r")]
        assert statuses == ["expired", "pending"]


@pytest.mark.parametrize("change", ["the tool", "the policy"])
@in_loop
async def test_an_approval_of_something_else_does_not_count(shared: Place, change: str) -> None:
    async with Mailer(shared, approvals=people(), **GATE) as mailer:
        await mailer.begin()
        await asked(mailer)
        await answer(mailer)
    policy = gate(approvers=("bob",)) if change == "the policy" else {"version": "2.0.0", **GATE}
    async with Mailer(shared, approvals=people(), **policy) as mailer:
        await asked(mailer)
        found = await kinds(mailer.kernel, "r")
        assert found.count("approval_outdated") == 1
        assert found.count("approval_submitted") == 2
        assert mailer.sent == []


@in_loop
async def test_a_run_that_waits_for_people_does_not_end(place: Place) -> None:
    async with Mailer(place, approvals=people(), **GATE) as mailer:
        with pytest.raises(ApprovalRequiredError):
            async with mailer.kernel.run(tenant=TENANT, run_id="r") as run:
                await run.tool("send", {}, step_key="one")
        assert "run_ended" not in await kinds(mailer.kernel, "r")
        async with mailer.kernel.run(tenant=TENANT, run_id="r"):
            pass
        assert "run_ended" not in await kinds(mailer.kernel, "r")
        await answer(mailer)
        async with mailer.kernel.run(tenant=TENANT, run_id="r") as run:
            await run.tool("send", {}, step_key="one")
        assert (await kinds(mailer.kernel, "r"))[-1] == "run_ended"


@in_loop
async def test_a_caller_can_wait_for_people(shared: Place) -> None:
    async with Mailer(shared, approvals=people(ANN_PUBLIC), **GATE) as mailer:
        await mailer.begin()
        key = (await asked(mailer)).approval_key
        wait = mailer.kernel.wait_for_approval
        assert await wait(run_id="r", tenant=TENANT, approval_key=key, timeout_seconds=0) == "pending"
        waiting = asyncio.create_task(wait(run_id="r", tenant=TENANT, approval_key=key, timeout_seconds=30))
        await asyncio.sleep(0.01)
        await answer(mailer, "ann", signed=True)
        assert await waiting == "approved"
        assert await wait(run_id="r", tenant=TENANT, approval_key="unknown", timeout_seconds=0) == "none"


@in_loop
async def test_tickets_of_another_tenant_are_not_listed(place: Place) -> None:
    async with Mailer(place, approvals=people(), **GATE) as mailer:
        await mailer.begin()
        await asked(mailer)
        other = TenantContext(tenant_id="other", budget_usd_limit=1)
        assert await mailer.kernel.list_pending_approvals(tenant=other) == ()
        with pytest.raises(GertError, match="another tenant"):
            await mailer.kernel.list_pending_approvals(tenant=other, run_id="r")


@pytest.mark.parametrize("kind", ["policy_decision", "policy::approval::x", "policy::intent_plan"])
@in_loop
async def test_what_decides_about_calls_is_not_recorded_by_hand(place: Place, kind: str) -> None:
    async with Mailer(place, **GATE) as mailer:
        await mailer.begin()
        with pytest.raises(InputError, match="not recorded by hand"):
            await mailer.note(kind, {"approved": True, "mode": "human"})


# --- critics


def critic(*verdicts: bool) -> Model:
    """A model that gives these verdicts."""

    class Critic(Model):
        async def complete(self, request: Any) -> Any:
            from gert.agent import ModelResult, ModelUsage

            self.asked.append(request.messages[-1].content)
            assert [tool.name for tool in request.allowed_tools] == []
            verdict = {"approved": verdicts[len(self.asked) - 1], "reason": "as told"}
            return ModelResult(request.output_schema.model_validate(verdict), ModelUsage(1, 1, 0.0))

    return Critic()


CRITIC: dict[str, Any] = {"approval": {"mode": "critic", "critic_model": "gpt-4o-mini", "approval_ttl_seconds": 60}}


@in_loop
async def test_a_critic_is_asked_once_and_again_when_its_answer_has_expired(place: Place) -> None:
    moment = [datetime(2030, 1, 1, tzinfo=UTC)]
    place.clock = lambda: moment[0]
    model = critic(True, False, True)
    async with Mailer(place, model, **CRITIC) as mailer:
        await mailer.begin()
        await mailer.send("one")
        await mailer.send("two")
        assert (await mailer.send("one")).replayed
        assert len(model.asked) == 1
        moment[0] += timedelta(seconds=61)
        with pytest.raises(PolicyViolationError) as caught:
            await mailer.send("three")
        assert caught.value.code == "critic_denied"
        with pytest.raises(PolicyViolationError):
            await mailer.send("three")
        assert len(model.asked) == 2
        moment[0] += timedelta(seconds=61)
        await mailer.send("three")
        assert await mailer.rules() == [
            *[("allow", "pipeline")] * 2, *[("deny", "approval:critic")] * 2, ("allow", "pipeline"),
        ]  # fmt: skip
        requested = await of_type(mailer.kernel, "r", "model_requested")
        keys = [event.payload.step_key for event in requested]  # type: ignore[union-attr]
        assert [key.rpartition("::")[0] for key in keys[1:]] == [keys[0]] * 2  # type: ignore[union-attr]
        assert str(keys[0]).startswith("critic::send::")


@in_loop
async def test_equal_calls_at_once_ask_a_critic_once(place: Place) -> None:
    model = critic(True)
    async with Mailer(place, model, **CRITIC) as mailer:
        await mailer.begin()
        await asyncio.gather(*(mailer.send(f"s{n}") for n in range(MANY)))
        assert (len(model.asked), len(mailer.sent)) == (1, MANY)


@in_loop
async def test_a_critic_does_not_approve_for_people(place: Place) -> None:
    async with Mailer(place, approvals=people(), **GATE) as mailer:
        await mailer.begin()
        key = (await asked(mailer)).approval_key
        await approve(mailer, key, mode="critic")
        await asked(mailer)
        assert mailer.sent == []


def test_the_kernel_takes_the_people_it_is_given(place: Place) -> None:
    approvals = people()
    kernel: ArtanaKernel = place.kernel(approvals=approvals)
    assert kernel.approvals.port is approvals
