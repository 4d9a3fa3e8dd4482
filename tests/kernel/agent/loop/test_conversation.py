"""The messages of a conversation: ids that are unique, results that are bounded, texts of answers."""

import json

import pytest
from pydantic import BaseModel

from gert.agent import ToolCall
from gert.kernel.agent.loop.conversation import answer_text, answering, error_json, with_ids


class Output(BaseModel):
    text: str = "nothing"


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        pytest.param(["a", "b"], ["a", "b"], id="a model's ids are kept"),
        pytest.param([None, ""], ["call_3_1", "call_3_2"], id="missing ids are made"),
        pytest.param(["a", "a"], ["a", "call_3_2"], id="an id is used once"),
    ],
)
def test_each_call_has_an_id_of_its_own(given: list[str | None], ids: list[str]) -> None:
    made = with_ids([ToolCall("look", "{}", each) for each in given], 3)
    assert [call.tool_call_id for call in made] == ids


@pytest.mark.parametrize(
    ("calls", "shown"),
    [
        pytest.param(1, 64_000, id="one result may be long"),
        pytest.param(4, 64_000, id="so may four"),
        pytest.param(64, 4_000, id="many share what a turn may show"),
    ],
)
def test_what_the_model_sees_of_results_is_bounded(calls: int, shown: int) -> None:
    messages = answering([ToolCall("look", "{}", str(n)) for n in range(calls)], ["x" * 100_000] * calls)
    assert {message.content.count("x") for message in messages} == {shown}
    assert all(message.content.endswith("(cut: 100000 characters)") for message in messages)


def test_an_answer_that_only_calls_tools_has_no_text() -> None:
    assert answer_text(Output()) == ""
    assert answer_text(Output(text="up")) == '{"text":"up"}'
    assert json.loads(error_json("no\n")) == {"error": "no\n"}
