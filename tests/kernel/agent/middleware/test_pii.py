"""What an enforced kernel insists on: personal data, budgets, capabilities."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    BudgetExceededError,
    CapabilityDeniedError,
    CapabilityGuardMiddleware,
    ChatMessage,
    InMemoryStore,
    KernelPolicy,
    MockModelPort,
    ModelCallOptions,
    ModelInput,
    ModelInvocation,
    ModelPermanentError,
    ModelRequest,
    ModelUsage,
    PIIScrubberMiddleware,
    PostgresStore,
    QuotaMiddleware,
    SafetyPolicyConfig,
    SafetyPolicyMiddleware,
    SQLiteStore,
    TenantContext,
    ToolCallMessage,
    ToolDefinition,
    ToolExecutionContext,
    ToolFunctionCall,
    order_middleware,
)
from gert.errors import InputError, UsageError
from gert.kernel.agent.middleware.pii import MAX_TEXT
from gert.kernel.agent.middleware.pii_patterns import find_personal_data, normalize
from gert.kernel.ledger.spending import root_of

T = TypeVar("T")
CARD = "4111 1111 1111 1111"
WIDE_CARD = "\uff14" + "\uff11" * 15
IBAN = "DE89 3704 0044 0532 0130 00"


class Verdict(BaseModel):
    """What the model of these tests says."""

    ok: bool = True


def tenant(budget: float = 1.0, *capabilities: str) -> TenantContext:
    return TenantContext(tenant_id="acme", capabilities=frozenset(capabilities), budget_usd_limit=budget)


def asked(prompt: str = "", *messages: ChatMessage, **more: Any) -> ModelInvocation:
    given: dict[str, Any] = {
        "run_id": "r",
        "tenant": tenant(),
        "model": "m",
        "prompt": prompt,
        "messages": messages,
        "model_options": ModelCallOptions(),
        "allowed_tools": (),
        "tool_capability_by_name": {},
    }
    return ModelInvocation(**(given | more))


def scrubbed(invocation: ModelInvocation) -> ModelInvocation:
    return asyncio.run(PIIScrubberMiddleware().prepare_model(invocation))


class TestFinding:
    @pytest.mark.parametrize(
        ("text", "kind", "found"),
        [
            pytest.param("write to kim@example.com.", "EMAIL", "kim@example.com", id="the full stop ends the sentence"),
            pytest.param("<Kim.Lee+x@mail.example.co.uk>", "EMAIL", "Kim.Lee+x@mail.example.co.uk", id="with a tag"),
            pytest.param("josé@exämple.de", "EMAIL", "josé@exämple.de", id="letters of other alphabets"),
            pytest.param(f"card {CARD}, thanks", "CARD", CARD, id="a card in groups"),
            pytest.param("card 4111-1111-1111-1111", "CARD", "4111-1111-1111-1111", id="a card with dashes"),
            pytest.param("4111111111111111", "CARD", "4111111111111111", id="a card without gaps"),
            pytest.param("3782 822463 10005", "CARD", "3782 822463 10005", id="a card of 15 digits"),
            pytest.param(f"{CARD} 12", "CARD", CARD, id="a number behind a card"),
            pytest.param(f"{IBAN} please", "IBAN", IBAN, id="a word behind an IBAN"),
            pytest.param(f"GB12 {IBAN}", "IBAN", IBAN, id="something like an IBAN before one"),
            pytest.param("es9121000418450200051332", "IBAN", "es9121000418450200051332", id="an IBAN in small letters"),
            pytest.param(
                "ES91 2100 0418 4502 0005 1332 now", "IBAN", "ES91 2100 0418 4502 0005 1332", id="full groups"
            ),
            pytest.param("SSN 123-45-6789", "SSN", "123-45-6789", id="a social security number"),
            pytest.param("call +49 30 901820", "PHONE", "+49 30 901820", id="a phone number abroad"),
            pytest.param("call +1 (415) 555-0100!", "PHONE", "+1 (415) 555-0100", id="with a country code"),
            pytest.param("(415) 555-0100", "PHONE", "(415) 555-0100", id="a phone number at home"),
            pytest.param("415.555.0100", "PHONE", "415.555.0100", id="with dots"),
            pytest.param("\ud800 kim@example.com", "EMAIL", "kim@example.com", id="beside half a character"),
            pytest.param("日本語 kim@example.com", "EMAIL", "kim@example.com", id="behind wide characters"),
            pytest.param("jose\u0301@example.com", "EMAIL", "jose\u0301@example.com", id="an accent of its own"),
            pytest.param("kim\uff20example.com", "EMAIL", "kim\uff20example.com", id="a wide at sign"),
            pytest.param("a@b@example.com", "EMAIL", "b@example.com", id="an address behind half a one"),
            pytest.param("kim@example.com.x", "EMAIL", "kim@example.com", id="a letter behind an address"),
            pytest.param(f"1234 {CARD}", "CARD", CARD, id="a group before a card"),
            pytest.param(f"1234-1234-1234 {CARD}", "CARD", CARD, id="groups before a card"),
            pytest.param(
                "4111\u00a01111\u00a01111\u00a01111", "CARD", "4111\u00a01111\u00a01111\u00a01111", id="hard gaps"
            ),
            pytest.param(
                "4111\u20111111\u20111111\u20111111", "CARD", "4111\u20111111\u20111111\u20111111", id="dashes"
            ),
            pytest.param(WIDE_CARD, "CARD", WIDE_CARD, id="digits of other scripts"),
            pytest.param(IBAN.replace(" ", "-"), "IBAN", IBAN.replace(" ", "-"), id="an IBAN with dashes"),
            pytest.param(f"be12 {'word ' * 10}{IBAN}", "IBAN", IBAN, id="far behind something like an IBAN"),
            pytest.param(
                "call +49 30 901820 2026-11-16", "PHONE", "+49 30 901820 2026", id="numbers behind a phone number"
            ),
            pytest.param("call +49 (0)30 901820", "PHONE", "+49 (0)30 901820", id="with a zero to leave out"),
            pytest.param(
                "+49\u00a030\u00a0901820", "PHONE", "+49\u00a030\u00a0901820", id="a phone number with hard gaps"
            ),
        ],
    )
    def test_personal_data_is_found(self, text: str, kind: str, found: str) -> None:
        assert [(each.kind, text[each.start : each.end]) for each in find_personal_data(text)] == [(kind, found)]

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="nothing"),
            pytest.param("order 1234567890123456", id="a number without check digits"),
            pytest.param("4111 1111 1111 1112", id="a wrong check digit"),
            pytest.param("1700000000000000", id="a time in microseconds"),
            pytest.param("DE88 3704 0044 0532 0130 00", id="wrong check digits"),
            pytest.param("XX89 3704 0044 0532 0130 00", id="no such country"),
            pytest.param("2026-02-28T14:30:00.000000Z", id="a time"),
            pytest.param("550e8400-e29b-41d4-a716-446655440000", id="a UUID"),
            pytest.param("192.168.100.200:8080", id="an address of a machine"),
            pytest.param("user@host", id="no domain"),
            pytest.param("@mention and a@", id="no address"),
            pytest.param(
                "000-12-3456 666-12-3456 912-34-5678 123-00-6789 123-45-0000", id="numbers that are never issued"
            ),
            pytest.param("1+1, +1 and +123", id="too short to call"),
            pytest.param("version 1.2.3-4567", id="a version"),
            pytest.param("[EMAIL_1] [PHONE_2] [CARD_3]", id="placeholders"),
        ],
    )
    def test_other_text_is_left_alone(self, text: str) -> None:
        assert find_personal_data(text) == []

    @pytest.mark.parametrize("gap", [" ", ", ", "\n"])
    @pytest.mark.parametrize(
        "one",
        [
            pytest.param(IBAN, id="IBANs"),
            pytest.param(IBAN.replace(" ", ""), id="IBANs without gaps"),
            pytest.param(CARD, id="cards"),
            pytest.param("4111111111111111", id="cards without gaps"),
            pytest.param("kim@example.com", id="addresses"),
            pytest.param("123-45-6789", id="social security numbers"),
        ],
    )
    def test_each_of_several_is_found(self, one: str, gap: str) -> None:
        text = gap.join([one] * 5)
        assert [text[each.start : each.end] for each in find_personal_data(text)] == [one] * 5

    @given(st.text(alphabet="0123456789+-() .@DEabc[]_", max_size=200))
    def test_scrubbing_twice_is_scrubbing_once(self, text: str) -> None:
        once = scrubbed(asked(text)).prompt
        assert scrubbed(asked(once)).prompt == once

    @given(st.text(max_size=300))
    def test_places_are_in_order_and_apart(self, text: str) -> None:
        found = find_personal_data(text)
        assert all(each.start < each.end for each in found)
        assert all(a.end <= b.start for a, b in pairwise(found))

    @given(st.text(max_size=300))
    def test_each_character_is_spelled_where_it_stood(self, text: str) -> None:
        plain = normalize(text)
        assert len(plain) == len(text)
        assert normalize(plain) == plain

    def test_a_number_above_the_line_belongs_to_no_number_before_it(self) -> None:
        text = "4111111111111111\N{SUPERSCRIPT TWO}"
        assert [each.kind for each in find_personal_data(text)] == ["CARD"]


class TestScrubbing:
    def test_the_same_value_has_the_same_placeholder_everywhere(self) -> None:
        result = scrubbed(
            asked(
                "kim@example.com and lee@example.com",
                ChatMessage(role="system", content="never mail LEE@example.com"),
                ChatMessage(role="tool", content=f'{{"from":"kim@example.com","card":"{CARD}"}}', tool_call_id="1"),
            )
        )
        assert result.prompt == "[EMAIL_1] and [EMAIL_2]"
        assert [message.content for message in result.messages] == [
            "never mail [EMAIL_2]",
            '{"from":"[EMAIL_1]","card":"[CARD_1]"}',
        ]

    def test_the_same_number_written_otherwise_is_the_same(self) -> None:
        assert scrubbed(asked("4111 1111 1111 1111 = 4111111111111111")).prompt == "[CARD_1] = [CARD_1]"

    def test_calls_in_a_conversation_stay_json(self) -> None:
        arguments = '{"to":"kim@example.com","card":4111111111111111,"n":[1,{"x":"lee@example.com"}]}'
        call = ToolCallMessage(id="1", function=ToolFunctionCall(name="pay", arguments=arguments))
        message = ChatMessage(role="assistant", content="", tool_calls=[call])
        [shown] = scrubbed(asked("", message)).messages
        assert shown.tool_calls is not None
        assert json.loads(shown.tool_calls[0].function.arguments) == {
            "to": "[EMAIL_1]",
            "card": "[CARD_1]",
            "n": [1, {"x": "[EMAIL_2]"}],
        }
        assert message.tool_calls == [call]  # what was given is not changed

    def test_items_of_the_responses_api_are_scrubbed(self) -> None:
        item: dict[str, object] = {"role": "user", "content": [{"type": "input_text", "text": "kim@example.com"}]}
        options = ModelCallOptions(responses_input_items=(item,))
        result = scrubbed(asked("", model_options=options)).model_options.responses_input_items
        assert result == ({"role": "user", "content": [{"type": "input_text", "text": "[EMAIL_1]"}]},)

    def test_arguments_that_are_no_json_are_scrubbed_as_text(self) -> None:
        call = ToolCallMessage(id="1", function=ToolFunctionCall(name="f", arguments="kim@example.com {"))
        [shown] = scrubbed(asked("", ChatMessage(role="assistant", content="", tool_calls=[call]))).messages
        assert shown.tool_calls is not None
        assert shown.tool_calls[0].function.arguments == "[EMAIL_1] {"

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param('{"to":"kim@example.com","to":"nobody"}', id="a field twice"),
            pytest.param('{"kim@example.com":1}', id="the name of a field"),
            pytest.param('{"to":"kim\\u0040example.com"}', id="an escaped sign"),
            pytest.param('{"card":4111111111111111.0}', id="a number with a point"),
        ],
    )
    def test_no_way_of_writing_arguments_hides_them(self, arguments: str) -> None:
        call = ToolCallMessage(id="1", function=ToolFunctionCall(name="f", arguments=arguments))
        [shown] = scrubbed(asked("", ChatMessage(role="assistant", content="", tool_calls=[call]))).messages
        assert shown.tool_calls is not None
        left = shown.tool_calls[0].function.arguments
        for text in (left, json.dumps(json.loads(left))):
            assert "kim" not in text
            assert "4111" not in text

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            pytest.param(
                json.dumps({"to": "josé@exämple.de", "n": 1}), '{"n":1,"to":"[EMAIL_1]"}', id="escaped by JSON"
            ),
            pytest.param(r'{"path":"C:\\users"}', r'{"path":"C:\\users"}', id="nothing in it stays as it is"),
            pytest.param(r"\u00e9 kim@example.com", r"\u00e9 [EMAIL_1]", id="no JSON is text"),
        ],
    )
    def test_results_of_tools_are_read_as_a_model_reads_them(self, content: str, shown: str) -> None:
        [message] = scrubbed(asked("", ChatMessage(role="tool", content=content, tool_call_id="1"))).messages
        assert message.content == shown

    def test_escapes_hide_nothing_anywhere(self) -> None:
        hidden = json.dumps({"to": "josé@exämple.de"})
        item: dict[str, object] = {"type": "function_call_output", "call_id": "1", "output": hidden}
        result = scrubbed(asked(hidden, model_options=ModelCallOptions(responses_input_items=(item,))))
        assert result.prompt == '{"to":"[EMAIL_1]"}'
        assert result.model_options.responses_input_items == ({**item, "output": result.prompt},)

    def test_text_in_text_in_text_does_not_go_on_for_ever(self) -> None:
        hidden = json.dumps("josé@exämple.de")
        for _ in range(8):
            hidden = json.dumps("[" * 90 + hidden + "]" * 90)
        assert "mple.de" not in scrubbed(asked(hidden)).prompt

    def test_the_name_of_who_speaks_is_scrubbed(self) -> None:
        [message] = scrubbed(asked("", ChatMessage(role="user", name="kim@example.com", content="hi"))).messages
        assert message.name == "[EMAIL_1]"

    def test_text_that_is_too_long_to_scan_is_refused(self) -> None:
        with pytest.raises(InputError, match="characters"):
            scrubbed(asked("x" * (MAX_TEXT + 1)))

    def test_tools_have_the_real_thing(self) -> None:
        guard = PIIScrubberMiddleware()
        call: dict[str, Any] = {"run_id": "r", "tenant": tenant(), "tool_name": "t"}
        text = '{"to":"kim@example.com"}'
        assert asyncio.run(guard.prepare_tool_request(**call, arguments_json=text)) == text
        assert asyncio.run(guard.prepare_tool_result(**call, result_json=text)) == text


class Seen:
    """A kernel whose model and tool remember what they were given."""

    def __init__(self, store: Any, cost: float = 0.0, **kernel: Any) -> None:
        self.prompts: list[str] = []
        self.sent: list[str] = []
        usage = ModelUsage(prompt_tokens=1, completion_tokens=1, cost_usd=cost)
        kernel.setdefault("middleware", ArtanaKernel.default_middleware_stack())
        kernel.setdefault("policy", KernelPolicy.enforced())
        model_port = MockModelPort(output_factory=self._answer, usage=usage)
        self.kernel = ArtanaKernel(store=store, model_port=model_port, **kernel)

        @self.kernel.tool(side_effect=True, requires_capability="mail")
        async def send(to: str, artana_context: ToolExecutionContext) -> str:
            self.sent.append(to)
            return json.dumps({"sent": to})

    def _answer(self, request: ModelRequest[BaseModel]) -> dict[str, object]:
        self.prompts.append(request.prompt)
        return {"ok": True}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    if request.param == "memory":
        return InMemoryStore
    if request.param == "sqlite":
        return lambda **more: SQLiteStore(tmp_path / "runs.db", **more)
    dsn = request.getfixturevalue("dsn")
    return lambda **more: PostgresStore(dsn, **more)


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work()

    return asyncio.run(main())


class TestEnforced:
    def test_a_model_sees_placeholders_and_a_tool_the_real_thing(self, store: Callable[..., Any]) -> None:
        async def work() -> tuple[Seen, list[str]]:
            seen = Seen(store())
            async with seen.kernel as kernel, kernel.run(tenant=tenant(1, "mail"), run_id="r") as bound:
                for _ in range(2):  # the second time from the record
                    await bound.model("m", "mail kim@example.com", Verdict, step_key="ask")
                    result = await bound.tool("send", {"to": "kim@example.com"}, step_key="send")
                    assert result.result_json == '{"sent": "kim@example.com"}'
                lines = await kernel.ledger.lines("r")
            return seen, [line.decode() for line in lines if b'"model_requested"' in line]

        seen, requested = run(work)
        assert (seen.prompts, seen.sent) == (["mail [EMAIL_1]"], ["kim@example.com"])
        assert "kim@example.com" not in requested[0]

    def test_a_kernel_that_lacks_a_guard_does_not_start(self) -> None:
        without: tuple[dict[str, Any], ...] = ({"pii": False}, {"quota": False}, {"capabilities": False})
        for missing in without:
            with pytest.raises(UsageError, match="requires"):
                Seen(InMemoryStore(), middleware=ArtanaKernel.default_middleware_stack(**missing))
        with pytest.raises(UsageError, match="SafetyPolicyMiddleware"):
            Seen(InMemoryStore(), policy=KernelPolicy.enforced_v2())

    def test_the_stack_is_what_was_asked_for(self) -> None:
        assert [type(each) for each in ArtanaKernel.default_middleware_stack()] == [
            PIIScrubberMiddleware,
            QuotaMiddleware,
            CapabilityGuardMiddleware,
        ]
        assert ArtanaKernel.default_middleware_stack(pii=False, quota=False, capabilities=False) == ()
        last = SafetyPolicyMiddleware(config=SafetyPolicyConfig())
        assert ArtanaKernel.default_middleware_stack(pii=False, quota=False, safety=last)[-1] is last
        shuffled = tuple(reversed(ArtanaKernel.default_middleware_stack()))
        assert order_middleware(shuffled) == tuple(reversed(shuffled))


class TestCapabilities:
    def test_a_tool_is_neither_offered_nor_called_without_its_capability(self, store: Callable[..., Any]) -> None:
        async def work() -> None:
            seen = Seen(store())
            async with seen.kernel as kernel, kernel.run(tenant=tenant(), run_id="r") as bound:
                shown = await kernel.explain_tool_allowlist(tenant=tenant())
                assert shown["final_allowed_tools"] == []
                with pytest.raises(CapabilityDeniedError):
                    await bound.tool("send", {"to": "kim"}, step_key="s")
            assert seen.sent == []

        run(work)

    def test_a_guard_that_knows_no_tools_refuses_them_all(self) -> None:
        async def request() -> None:
            await CapabilityGuardMiddleware().prepare_tool_request(
                run_id="r", tenant=tenant(), tool_name="pay", arguments_json="{}"
            )

        with pytest.raises(UsageError, match="knows no tools"):
            asyncio.run(request())

    def test_the_guard_itself_takes_tools_away_and_refuses_them(self) -> None:
        guard = CapabilityGuardMiddleware()
        tools = tuple(ToolDefinition(name, "", "{}") for name in ("free", "mail", "pay"))
        needed = {"free": None, "mail": "mail", "pay": "pay"}
        guard.bind_capabilities(lambda: needed)
        who = tenant(1, "mail")
        left = asyncio.run(
            guard.prepare_model(asked(tenant=who, allowed_tools=tools, tool_capability_by_name=needed))
        ).allowed_tools
        assert [tool.name for tool in left] == ["free", "mail"]

        async def request(name: str) -> Any:
            return await guard.prepare_tool_request(run_id="r", tenant=who, tool_name=name, arguments_json="{}")

        assert asyncio.run(request("mail")) == "{}"
        with pytest.raises(CapabilityDeniedError, match="may not use `pay`"):
            asyncio.run(request("pay"))


class TestQuota:
    @pytest.mark.parametrize(
        ("run_id", "root"),
        [
            ("r", "r"),
            ("r::fork::abc", "r"),
            ("r::sub_agent::k", "r"),
            ("r::sub_agent::k::fork::h", "r"),
            ("r::fork::h::sub_agent::k::sub_agent::l", "r"),
            ("r::other::x", "r::other::x"),
        ],
    )
    def test_where_a_tree_grew_from(self, run_id: str, root: str) -> None:
        assert root_of(run_id) == root

    def test_the_answer_that_exceeds_the_budget_is_kept_and_the_next_call_refused(
        self, store: Callable[..., Any]
    ) -> None:
        async def work() -> None:
            seen = Seen(store(), cost=0.6)
            async with seen.kernel as kernel, kernel.run(tenant=tenant(1.0), run_id="r") as bound:
                for step in ("a", "b"):
                    assert (await bound.model("m", step, Verdict, step_key=step)).output.ok
                with pytest.raises(BudgetExceededError, match=r"1\.200000 of 1\.000000"):
                    await bound.model("m", "c", Verdict, step_key="c")
                # What is on record costs nothing, whatever is left of the budget.
                assert (await bound.model("m", "b", Verdict, step_key="b")).replayed
                richer = kernel.bind(run_id="r", tenant=tenant(2.0))
                assert (await richer.model("m", "c", Verdict, step_key="c")).output.ok
            assert seen.prompts == ["a", "b", "c"]

        run(work)

    @pytest.mark.parametrize("relative", ["r::sub_agent::k", "r::fork::h", "r::sub_agent::k::sub_agent::l"])
    def test_a_tree_of_runs_shares_its_budget(self, relative: str, store: Callable[..., Any]) -> None:
        async def work() -> None:
            seen = Seen(store(), cost=0.5)
            async with seen.kernel as kernel:
                for run_id in ("r", relative, "r::sub_agent::later"):
                    await kernel.start_run(tenant=tenant(), run_id=run_id)
                await kernel.bind(run_id="r", tenant=tenant()).model("m", "a", Verdict, step_key="a")
                await kernel.bind(run_id=relative, tenant=tenant()).model("m", "a", Verdict, step_key="a")
                for run_id in ("r", relative, "r::sub_agent::later"):
                    with pytest.raises(BudgetExceededError):
                        await kernel.bind(run_id=run_id, tenant=tenant()).model("m", "b", Verdict, step_key="b")

        run(work)

    def test_other_runs_and_other_tenants_have_budgets_of_their_own(self, store: Callable[..., Any]) -> None:
        async def work() -> None:
            seen = Seen(store(), cost=5.0)
            other = TenantContext(tenant_id="other", budget_usd_limit=1)
            async with seen.kernel as kernel:
                for who, run_id in ((tenant(), "r"), (tenant(), "r2"), (other, "r::sub_agent::theirs")):
                    async with kernel.run(tenant=who, run_id=run_id) as bound:
                        await bound.model("m", "a", Verdict, step_key="a")
            assert len(seen.prompts) == 3

        run(work)

    def test_what_another_process_spent_counts(self, tmp_path: Path) -> None:
        async def work() -> None:
            here, there = (Seen(SQLiteStore(tmp_path / "runs.db"), cost=0.4) for _ in range(2))
            async with here.kernel as one, there.kernel as two:
                await one.start_run(tenant=tenant(), run_id="r")
                for step, kernel in enumerate((one, two, one)):
                    await kernel.bind(run_id="r", tenant=tenant()).model("m", "x", Verdict, step_key=f"s{step}")
                with pytest.raises(BudgetExceededError):
                    await two.bind(run_id="r", tenant=tenant()).model("m", "x", Verdict, step_key="s9")

        run(work)

    def test_no_budget_is_no_call(self) -> None:
        async def work() -> None:
            seen = Seen(InMemoryStore())
            async with seen.kernel as kernel, kernel.run(tenant=tenant(0), run_id="r") as bound:
                with pytest.raises(BudgetExceededError):
                    await bound.model("m", "x", Verdict)
            assert seen.prompts == []

        run(work)

    @pytest.mark.parametrize("cost", [-5.0, float("nan"), float("inf")])
    def test_no_answer_gives_money_back(self, cost: float) -> None:
        async def work() -> float:
            seen = Seen(InMemoryStore(), cost=cost)
            async with seen.kernel as kernel, kernel.run(tenant=tenant(), run_id="r") as bound:
                with pytest.raises(ModelPermanentError):
                    await bound.model("m", "x", Verdict)
                return await QuotaMiddleware(kernel.store).spent("r", tenant().tenant_id)

        assert run(work) == 0.0

    @pytest.mark.parametrize("budget", [float("nan"), -1.0])
    def test_a_budget_that_is_none_is_no_budget(self, budget: float) -> None:
        async def work() -> None:
            who = TenantContext.model_construct(tenant_id="acme", capabilities=frozenset(), budget_usd_limit=budget)
            await QuotaMiddleware(InMemoryStore()).before_model(run_id="r", tenant=who)

        with pytest.raises(BudgetExceededError):
            run(work)

    def test_a_quota_without_a_store_says_so(self) -> None:
        async def work() -> None:
            await QuotaMiddleware().before_model(run_id="r", tenant=tenant())

        with pytest.raises(UsageError, match="no store"):
            run(work)

    def test_a_run_that_another_process_begins_from_this_one_counts_at_once(self, tmp_path: Path) -> None:
        async def work() -> None:
            here, there = (Seen(SQLiteStore(tmp_path / "runs.db"), cost=2.0) for _ in range(2))
            async with here.kernel as one, there.kernel as two:
                await one.start_run(tenant=tenant(), run_id="r")
                quota = QuotaMiddleware(one.store)
                assert await quota.spent("r", tenant().tenant_id) == 0.0
                await two.start_run(tenant=tenant(), run_id="r::sub_agent::k")
                await two.bind(run_id="r::sub_agent::k", tenant=tenant()).model("m", "x", Verdict, step_key="s")
                assert await quota.spent("r", tenant().tenant_id) == 2.0

        run(work)

    def test_an_old_tree_is_found_whole_also_after_a_young_one(self) -> None:
        moment = [datetime(2026, 2, 28, tzinfo=UTC)]
        store = InMemoryStore(clock=lambda: moment[0])

        async def work() -> None:
            seen = Seen(store, cost=0.5)
            async with seen.kernel as kernel:
                for run_id in ("old", "old::fork::h", "young"):
                    await kernel.start_run(tenant=tenant(9), run_id=run_id)
                    await kernel.bind(run_id=run_id, tenant=tenant(9)).model("m", "x", Verdict, step_key="s")
                    moment[0] += timedelta(hours=1)
                quota = QuotaMiddleware(store)
                spent = [await quota.spent(run_id, tenant().tenant_id) for run_id in ("young", "old", "young")]
                assert spent == [0.5, 1.0, 0.5]

        run(work)

    def test_a_tree_whose_root_is_elsewhere_is_found_too(self) -> None:
        async def work() -> None:
            seen = Seen(InMemoryStore(), cost=0.5)
            async with seen.kernel as kernel:
                for run_id in ("r::fork::a", "r::sub_agent::b"):
                    await kernel.start_run(tenant=tenant(9), run_id=run_id)
                    await kernel.bind(run_id=run_id, tenant=tenant(9)).model("m", "x", Verdict, step_key="s")
                quota = QuotaMiddleware(kernel.store)
                assert await quota.spent("r::fork::a", tenant().tenant_id) == 1.0

        run(work)


def test_messages_are_scrubbed_as_prompts_are() -> None:
    async def work() -> Seen:
        seen = Seen(InMemoryStore())
        async with seen.kernel as kernel, kernel.run(tenant=tenant(), run_id="r") as bound:
            given = ModelInput.from_messages([ChatMessage(role="user", content=IBAN)], prompt="pay kim@example.com")
            await bound.model("m", given, Verdict, step_key="x")
            line = (await kernel.ledger.lines("r"))[1]
            assert b"DE89" not in line
            assert b"[IBAN_1]" in line
        return seen

    assert run(work).prompts == ["pay [EMAIL_1]"]
