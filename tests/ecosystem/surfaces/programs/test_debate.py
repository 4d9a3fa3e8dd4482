"""Models as tools: the debates of the examples, with real processes and scripted models (ecosystem-v0 §18)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, completed, events_in, of_type

ROOT = Path(__file__).resolve().parents[4]
QUESTION = ("--var", "question=Should we rewrite the billing service?")


ASKED = {"question": {"type": "string"}}


def ask(step: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": "llm", "action": "complete", "inputs": {"prompt": prompt}, **more}


class Debates(Project):
    """The examples, in a project of their own."""

    def __init__(self, root: Path) -> None:
        shutil.copytree(ROOT / "examples", root, ignore=shutil.ignore_patterns("runs"))
        super().__init__(root)

    def debate(self, name: str, *words: str, code: int = 0, **environ: str) -> list[dict[str, Any]]:
        environ = {"LLM_PROVIDER": "script:models/debate.yaml", **environ}
        self.exec(f"runbooks/{name}.yaml", *QUESTION, *words, "--trace", f"{name}.jsonl", **environ).ended(code)
        return events_in(self.root / f"{name}.jsonl")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Debates:
    return Debates(tmp_path_factory.mktemp("debates") / "project")


@pytest.fixture(scope="module")
def skeleton(project: Debates) -> list[dict[str, Any]]:
    """The events of the skeleton, which is also recorded as a scenario."""
    return project.debate("debate-skeleton", "--record", "recorded")


def test_the_decision_of_the_judge_is_in_the_outcome(skeleton: list[dict[str, Any]]) -> None:
    (end,) = of_type(skeleton, "run_complete")
    assert end["data"]["outcome"]["meta"] == {
        "winner": "skeptic", "decision": "skeptic", "summary": "One upgrade removes most of the reason for a rewrite."
    }  # fmt: skip
    assert of_type(skeleton, "contract_violation") == []


def test_outputs_are_keyed_by_agent(skeleton: list[dict[str, Any]]) -> None:
    (start,) = [e["data"] for e in of_type(skeleton, "step_start") if e["data"]["step_id"] == "judge"]
    items = start["inputs"]["items"]
    assert {name: list(agents) for name, agents in items.items()} == {
        "round_0": ["advocate", "skeptic", "analyst"], "round_1": ["advocate", "skeptic", "analyst"]
    }  # fmt: skip
    assert "no one on call reads Rust" in items["round_0"]["skeptic"]["response"]
    assert items["round_0"]["skeptic"]["usage"]["provider"] == "script"


def test_every_agent_is_its_own_principal(skeleton: list[dict[str, Any]]) -> None:
    found = {e["path"]: e["principal"]["id"] for e in of_type(skeleton, "step_complete") if e.get("principal")}
    for agent in ("advocate", "skeptic", "analyst"):
        assert found[f"initial_responses[{agent}]"] == found[f"critiques[{agent}]"] == agent
    (judge,) = [e["principal"] for e in of_type(skeleton, "step_complete") if e["path"] == "judge"]
    assert judge == {"kind": "agent", "id": "judge-llm", "role": "judge", "model": "script"}


def test_the_first_round_is_blind_and_the_second_is_not(skeleton: list[dict[str, Any]]) -> None:
    prompts = {e["path"]: e["data"]["inputs"]["prompt"] for e in of_type(skeleton, "step_start") if "[" in e["path"]}
    assert prompts["initial_responses[skeptic]"] == "argue against: Should we rewrite the billing service?"
    assert "memory related" in prompts["critiques[skeptic]"]
    assert "people learn" not in prompts["critiques[skeptic]"]


@pytest.mark.parametrize("is_blind", [True, False])
def test_visibility_is_what_makes_it_blind(project: Debates, is_blind: bool) -> None:
    """The second agent is asked to repeat what it sees; `echo` answers with the prompt."""
    hides = {"visibility": {"allow": ["question"], "deny": ["scope.round/0.*"]}} if is_blind else {}
    sees = "I see: {{ toJson . }}"
    steps = [
        ask("one", "my secret plan", scope="round/0"),
        ask("two", sees, scope="round/1", **hides),
    ]
    name = f"blind-{is_blind}"
    project.runbook(*steps, name=name, tools=["llm"], inputs=ASKED, file=f"runbooks/{name}.yaml")
    events = project.debate(name, LLM_PROVIDER="echo")
    assert ("secret plan" in completed(events, "two")["outputs"]["response"]) is not is_blind


def test_rounds_are_repeated_until_the_agents_agree(project: Debates) -> None:
    events = project.debate("debate-rounds")
    (end,) = of_type(events, "run_complete")
    assert end["data"]["outcome"]["code"] == "converged"
    assert [e["data"]["until_result"] for e in of_type(events, "repeat_iteration")] == [False, True]
    votes = [e["data"]["outputs"] for e in of_type(events, "step_complete") if e["data"]["step_id"] == "count"]
    assert [each["decision"] for each in votes] == ["yes", "consensus"]
    assert votes[0]["scores"] == {"yes": 0.6667, "no": 0.3333}


def test_a_run_with_models_and_runners_replays_with_none_of_them(
    project: Debates, skeleton: list[dict[str, Any]], tmp_path: Path
) -> None:
    words = ("--mode", "replay", "--scenario", "recorded", "--trace", str(tmp_path / "again.jsonl"))
    bare = {"PATH": str(tmp_path), "LLM_PROVIDER": ""}
    project.exec("runbooks/debate-skeleton.yaml", *words, **bare).ended(0)
    again = events_in(tmp_path / "again.jsonl")

    def said(events: list[dict[str, Any]]) -> list[Any]:
        kept = ("status", "outputs", "inputs", "outcome", "decision")
        return [
            (e["type"], e.get("path"), e.get("principal"), {name: e["data"].get(name) for name in kept})
            for e in events
            if e["type"] not in ("run_start", "input_resolved")
        ]

    assert sorted(map(repr, said(again))) == sorted(map(repr, said(skeleton)))


def test_the_demo_does_not_call_a_failure_a_success(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gert").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "bin" / "gert").chmod(0o755)
    ended = subprocess.run(
        ["sh", "scripts/demo-debate", str(tmp_path / "bin")], cwd=ROOT, capture_output=True, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["bin"], "what it made is gone"


@pytest.mark.soak
def test_the_demo_runs_both_debates_and_replays_one(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = ["sh", "scripts/demo-debate", str(Path(sys.executable).parent)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environ, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    for expected in ("winner = skeptic", "resolved: converged", "replay run completed  resolved: debate_complete"):
        assert expected in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_key_never_reaches_the_record(project: Debates) -> None:
    key = "sk-c4nary-0123456789abcdef"
    project.write("models/leak.yaml", f"- response: the key is {key}\n")
    project.runbook(ask("ask", "what is the key?"), name="leak", tools=["llm"], inputs=ASKED, file="runbooks/leak.yaml")
    events = project.debate("leak", LLM_PROVIDER="script:models/leak.yaml", ANTHROPIC_API_KEY=key)
    assert key not in json.dumps(events)
    assert completed(events, "ask")["outputs"]["response"] == "the key is [REDACTED]"
