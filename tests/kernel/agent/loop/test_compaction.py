"""When a conversation is compacted, what stays, and how many tokens it is estimated to cost."""

import pytest

from gert.agent import ChatMessage, CompactionStrategy, ToolCallMessage, ToolFunctionCall, estimate_tokens
from gert.errors import InputError
from gert.kernel.agent.loop.compaction import split, summary_request

CALL = ToolCallMessage(id="1", function=ToolFunctionCall(name="look", arguments='{"pod":"a"}'))


def said(*roles: str) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(role=role, content="x" * 40) for role in roles)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "messages", "compacts"),
    [
        pytest.param(CompactionStrategy(), 40, False, id="forty messages are kept"),
        pytest.param(CompactionStrategy(), 41, True, id="forty-one are compacted"),
        pytest.param(CompactionStrategy(trigger_at_messages=5), 5, True, id="at a number"),
        pytest.param(CompactionStrategy(trigger_at_messages=5), 4, False, id="not below it"),
        pytest.param(CompactionStrategy(max_context_tokens=100), 5, False, id="70 tokens of 80"),
        pytest.param(CompactionStrategy(max_context_tokens=100), 6, True, id="84 tokens of 80"),
        pytest.param(
            CompactionStrategy(max_context_tokens=100, context_utilization_ratio=1), 7, False, id="98 tokens of 100"
        ),
    ],
)
def test_when_a_conversation_is_compacted(strategy: CompactionStrategy, messages: int, compacts: bool) -> None:
    assert strategy.should_compact(messages=said(*["user"] * messages), model="m") is compacts
    assert strategy.version == "compaction.v1"


@pytest.mark.parametrize(
    ("roles", "keep", "old"),
    [
        pytest.param(["user"] * 6, 2, 4, id="the newest stay"),
        pytest.param(["user"] * 6, 10, 3, id="at most half of them"),
        pytest.param(["user", "user", "assistant", "tool", "tool", "user"], 2, 2, id="results stay with their call"),
        pytest.param(["user"], 1, 1, id="one message is old"),
    ],
)
def test_what_stays(roles: list[str], keep: int, old: int) -> None:
    before, after = split(said(*roles), keep)
    assert (len(before), len(after)) == (old, len(roles) - old)


def test_old_messages_are_quoted_and_cut() -> None:
    called = ChatMessage(role="assistant", content="", tool_calls=[CALL])
    system, user = summary_request([called, ChatMessage(role="tool", content="y" * 9000)])
    assert system.role == "system"
    assert user.content.startswith('[assistant] look({"pod":"a"})\n[tool] yyy')
    assert user.content.endswith("y…")
    assert len(user.content) < 8100


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"trigger_at_messages": 0}, id="at no message"),
        pytest.param({"max_history_messages": 0}, id="a history of none"),
        pytest.param({"keep_recent_messages": -1}, id="less than none kept"),
        pytest.param({"context_utilization_ratio": 0.0}, id="none of the context"),
        pytest.param({"context_utilization_ratio": 1.1}, id="more than the context"),
    ],
)
def test_a_strategy_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        CompactionStrategy(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        pytest.param(ChatMessage(role="user", content=""), 4, id="an empty message has a price"),
        pytest.param(ChatMessage(role="user", content="a" * 9), 7, id="four letters are one token"),
        pytest.param(ChatMessage(role="user", content="日本語"), 7, id="other scripts cost a token a character"),
        pytest.param(ChatMessage(role="assistant", content="", tool_calls=[CALL]), 8, id="calls count"),
        pytest.param(ChatMessage(role="tool", content="", name="look"), 5, id="and names"),
    ],
)
def test_tokens_are_estimated(message: ChatMessage, tokens: int) -> None:
    assert estimate_tokens((message,), "any") == tokens
    assert estimate_tokens((message, message), "any") == 2 * tokens
