"""The bundled skills against a vendor that speaks the documented shapes: what is sent, and what is taken."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import CANARY, Bench
from tests.ecosystem.runners.trials import Trial, words
from tests.ecosystem.runners.vendors import Asked, Vendor, vendor

from gert.ecosystem.host.config.skills import BUNDLED, skill_files
from gert.ecosystem.host.runner.project import fitted_inputs

BEARER = {"authorization": f"Bearer {CANARY}"}
CASES = [
    pytest.param(
        "S.vendor.openai.chat.v0.1.0",
        {"model": "gpt-5", "prompt": "ping", "system": "be brief", "max_tokens": 5},
        ("POST", "/v1/chat/completions", BEARER),
        {
            "model": "gpt-5",
            "max_completion_tokens": 5,
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ping"}],
        },
        {"reply": "pong", "finish_reason": "stop", "total_tokens": 10},
        id="openai.chat",
    ),
    pytest.param(
        "S.vendor.anthropic.messages.v0.1.0",
        {"model": "claude-sonnet-4-5", "prompt": "ping", "system": "be brief", "max_tokens": 5},
        ("POST", "/v1/messages", {"x-api-key": CANARY, "anthropic-version": "2023-06-01"}),
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 5,
            "system": "be brief",
            "messages": [{"role": "user", "content": "ping"}],
        },
        {"reply": "pong", "stop_reason": "end_turn", "output_tokens": 1},
        id="anthropic.messages",
    ),
    pytest.param(
        "S.vendor.slack.post.v0.1.0",
        {"channel": "C123", "text": "deployed: web-1 ✓"},
        ("POST", "/api/chat.postMessage", BEARER),
        {"channel": "C123", "text": "deployed: web-1 ✓"},
        {"ts": "1503435956.000247", "channel_id": "C123"},
        id="slack.post",
    ),
    pytest.param(
        "S.vendor.github.issue.comment.v0.1.0",
        {"owner": "o", "repo": "r", "number": 1, "body": "see {{ run }}"},
        (
            "POST",
            "/repos/o/r/issues/1/comments",
            {**BEARER, "accept": "application/vnd.github+json", "user-agent": "gert"},
        ),
        {"body": "see {{ run }}"},
        {"comment_id": 4711, "url": "https://github.com/o/r/issues/1#issuecomment-4711"},
        id="github.issue.comment",
    ),
    pytest.param(
        "S.vendor.pagerduty.event.v0.1.0",
        {"summary": "disk full", "source": "web-1", "severity": "critical"},
        ("POST", "/v2/enqueue", {}),
        {
            "routing_key": CANARY,
            "event_action": "trigger",
            "payload": {"summary": "disk full", "source": "web-1", "severity": "critical"},
        },
        {"status": "success", "alert_key": "k1"},
        id="pagerduty.event",
    ),
]


def called(tmp_path: Path, served: Vendor, skill: str, inputs: dict[str, Any]) -> tuple[Trial, str]:
    made = Bench(tmp_path / "project", served.port)
    blank = Trial(made)
    trial = Trial(made, skill=skill, inputs=fitted_inputs(blank.project.skill(skill).document.model, inputs))
    return trial, words(asyncio.run(trial.runs()))


@pytest.mark.parametrize(("skill", "inputs", "head", "body", "outputs"), CASES)
def test_a_bundled_skill_speaks_its_vendors_language(
    tmp_path: Path, skill: str, inputs: dict[str, Any], head: Any, body: Any, outputs: dict[str, Any]
) -> None:
    with vendor() as served:
        trial, said = called(tmp_path, served, skill, inputs)
    assert said == "0 None None"
    (asked,) = served.asked
    method, path, headers = head
    assert (asked.method, asked.path) == (method, path)
    assert headers.items() <= asked.headers.items()
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.json == body
    assert trial.artifact("record")["outputs"] == outputs


# How each vendor says no, as documented.
ERRORS = [
    pytest.param(
        "openai.chat", 401, {"error": {"message": "Incorrect API key", "type": "invalid_request_error"}}, id="openai"
    ),
    pytest.param("anthropic.messages", 529, {"type": "error", "error": {"type": "overloaded_error"}}, id="anthropic"),
    pytest.param("slack.post", 200, {"ok": False, "error": "channel_not_found"}, id="slack says no with 200"),
    pytest.param("github.issue.comment", 404, {"message": "Not Found"}, id="github"),
    pytest.param("pagerduty.event", 400, {"status": "invalid event", "errors": ["x"]}, id="pagerduty"),
]


@pytest.mark.parametrize(("name", "status", "document"), ERRORS)
def test_a_vendor_that_says_no_is_believed(tmp_path: Path, name: str, status: int, document: Any) -> None:
    import json

    skill = f"S.vendor.{name}.v0.1.0"
    inputs: Any = next(case.values[1] for case in CASES if case.values[0] == skill)

    def refuse(asked: Asked, handler: Any) -> Any:
        return status, {"content-type": "application/json"}, json.dumps(document).encode()

    with vendor() as served:
        served.answer = refuse
        _, said = called(tmp_path, served, skill, inputs)
    assert said == f"23 vendor/status the vendor answered with status {status}"


def test_every_bundled_skill_is_tested() -> None:
    names = {Path(file).name.removesuffix(".skill.yaml") for file in skill_files([BUNDLED])}
    assert {f"S.vendor.{name}.v0.1.0" for name in names} == {case.values[0] for case in CASES}
