"""One question to a model: a vendor's, a compatible server's, or one without a network."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.models.vendors import (
    KEY,
    completion,
    http,
    message,
    openai_error,
    output_text,
    response,
    text_block,
)
from tests.ecosystem.notify.servers import serving

from gert.ecosystem.host.llm.judge import judge
from gert.ecosystem.host.llm.provider import Question, Reply, answer, model_label, provider_of
from gert.errors import DocumentError, GertError, InputError, ModelError, UsageError

TEXT = '{"response": "blue"}'
ASK = Question(prompt="Why?", model="claude-4-opus", temperature=0.2, max_tokens=50)


def asked(question: Question, provider: str | None = None, **environ: str) -> Reply:
    return asyncio.run(answer(question, environ, provider_of(environ, provider)))


def test_anthropic_is_asked_for_a_claude_model_with_the_key_of_the_environment() -> None:
    with serving(http(200, message(text_block(TEXT)))) as server:
        reply = asked(ASK, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url(""))
    (sent,) = server.requests
    assert (reply.text, reply.usage["prompt_tokens"], reply.usage["model"]) == ("blue", 20, "claude-4-opus")
    assert (sent.target, sent.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert (sent.said["temperature"], sent.said["max_tokens"]) == (0.2, 50)


def test_openai_is_asked_for_a_gpt_model() -> None:
    with serving(http(200, response(output_text(TEXT)))) as server:
        reply = asked(Question(prompt="Why?", model="gpt-5"), OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url("/v1"))
    assert reply.text == "blue"
    assert "temperature" not in server.requests[0].said


def test_a_url_is_a_compatible_server_and_its_key_is_in_the_variable_that_is_named() -> None:
    with serving(http(404, {}), http(200, completion(TEXT))) as server:
        reply = asked(
            Question(prompt="Why?", model="llama"), LLM_PROVIDER=server.url("/v1"), LLM_API_KEY_ENV="MINE", MINE=KEY,
            OPENAI_API_KEY="sk-not-this-one-0123456789",
        )  # fmt: skip
    assert (reply.text, reply.provider) == ("blue", "openai-compatible")
    assert {sent.headers["authorization"] for sent in server.requests} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("question", "environ", "kind", "words"),
    [
        pytest.param(ASK, {}, ModelError, "no API key for Anthropic", id="no key"),
        pytest.param(ASK, {"LLM_PROVIDER": "robots"}, UsageError, "`robots` is not a provider", id="unknown provider"),
        pytest.param(Question(prompt="x", model="zeus-1"), {}, ModelError, "no adapter", id="unknown model"),
        pytest.param(Question(prompt=" \n"), {"LLM_PROVIDER": "echo"}, InputError, "prompt is empty", id="no prompt"),
        pytest.param(ASK, {"LLM_PROVIDER": "script"}, UsageError, "needs a file", id="a script without a file"),
        pytest.param(ASK, {"LLM_PROVIDER": "script:/nowhere"}, GertError, "/nowhere", id="a script that is not there"),
        pytest.param(ASK, {"LLM_PROVIDER": "http://example.com/v1"}, InputError, "https", id="a key in the clear"),
    ],
)
def test_an_invalid_question_is_an_error(
    question: Question, environ: dict[str, str], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        asked(question, **environ)


def test_a_vendors_message_does_not_repeat_the_key() -> None:
    refusal = http(401, openai_error(f"Incorrect API key provided: {KEY}", code="invalid_api_key"))
    with serving(refusal) as server, pytest.raises(ModelError) as refused:
        asked(Question(prompt="x", model="gpt-5"), OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url("/v1"))
    assert KEY not in str(refused.value)


def test_echo_answers_alike_and_says_who_answered() -> None:
    reply = asked(ASK, "echo")
    assert (reply, reply.text) == (asked(ASK, "echo"), "Why?")
    assert reply.usage == {"provider": "echo", "model": "echo", "prompt_tokens": 1, "completion_tokens": 1}
    assert (model_label("script:x", "m"), model_label("auto", "m")) == ("script", "m")


SCRIPT = """
- when: [one, two]
  response: both
- when: one
  response: only the first
"""


@pytest.mark.parametrize(
    ("script", "prompt", "expected"),
    [
        pytest.param(SCRIPT, "two and one", "both", id="all texts occur"),
        pytest.param(SCRIPT, "one", "only the first", id="the first rule that matches"),
        pytest.param(SCRIPT, "three", InputError, id="no rule"),
        pytest.param("- response: any", "three", "any", id="a rule for everything"),
        pytest.param("a: b", "x", DocumentError, id="no list"),
        pytest.param("[]", "x", DocumentError, id="no rules"),
        pytest.param("- whem: x\n  response: y", "x", DocumentError, id="a misspelt key"),
        pytest.param("- when: 7\n  response: y", "x", DocumentError, id="when is a number"),
        pytest.param("- when: x", "x", DocumentError, id="no response"),
        pytest.param("- [", "x", DocumentError, id="no YAML"),
    ],
)
def test_a_script(tmp_path: Path, script: str, prompt: str, expected: Any) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(script)
    if isinstance(expected, str):
        assert asked(Question(prompt=prompt), f"script:{file}").text == expected
    else:
        with pytest.raises(expected, match=r"script\.yaml"):
            asked(Question(prompt=prompt), f"script:{file}")


# --- the judge


VERDICT = {
    "winner": "Skeptic", "consensus": False, "summary": " Sound. ",
    "scores": [{"candidate": "skeptic", "score": 1.7}, {"candidate": "stranger", "score": 1}],
}  # fmt: skip
ITEMS = {"round_0": {"skeptic": {"response": "no"}, "advocate": {"response": "yes"}}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, {"decision": "skeptic", "winner": "skeptic", "scores": {"skeptic": 1.0}}, id="a winner"),
        pytest.param({"winner": "the cat"}, {"decision": "no_winner", "winner": ""}, id="a winner who is no candidate"),
        pytest.param({"winner": ""}, {"decision": "no_winner", "winner": ""}, id="no winner"),
        pytest.param({"consensus": True}, {"decision": "consensus", "winner": "skeptic"}, id="they agree"),
    ],
)
def test_the_verdict_of_a_model_becomes_outputs(change: dict[str, Any], expected: dict[str, Any]) -> None:
    with serving(http(200, message(text_block(json.dumps({**VERDICT, **change}))))) as server:
        environ = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url(""), "LLM_JUDGE_MODEL": "claude-x"}
        outputs = asyncio.run(judge({"items": ITEMS, "criteria": "brevity"}, environ))
    assert {name: outputs[name] for name in expected} == expected
    sent = server.requests[0].said
    prompt = sent["messages"][0]["content"][0]["text"]
    assert sent["model"] == "claude-x"
    assert all(
        each in prompt for each in ("Criteria: brevity", "Candidates: skeptic, advocate", "## skeptic (round_0)\nno")
    )


def test_a_judge_without_anything_to_judge_or_without_json_fails() -> None:
    with pytest.raises(InputError, match="nothing to judge"):
        asyncio.run(judge({"items": {}}, {}))
    with pytest.raises(InputError, match="did not answer with the requested JSON"):
        asyncio.run(judge({"items": ITEMS}, {"LLM_PROVIDER": "echo"}))
