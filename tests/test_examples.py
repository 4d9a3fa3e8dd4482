"""The examples are worth copying: valid, tested to the last arm and outcome, and honest about what a dry run shows."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.scenarios.folders import Folder, load, scenarios_of
from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.runbook.documents.expectations import Expectations
from gert.kernel.runbook.documents.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"
RUNBOOKS = {path.stem: path for path in sorted((EXAMPLES / "runbooks").glob("*.yaml"))}
FIVE = (
    "service-health-diagnostic",
    "multi-endpoint-sweep",
    "kubernetes-pod-restart",
    "dns-http-chain",
    "incident-triage",
)
"""The runbooks of ecosystem-v0 §2."""

FOLDERS = [folder for path in RUNBOOKS.values() for folder in scenarios_of(str(path))]
NAMES = [f"{Path(folder.path).parent.name}/{folder.name}" for folder in FOLDERS]
each_runbook = pytest.mark.parametrize("name", RUNBOOKS)
each_scenario = pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)


def gert(*words: str) -> dict[str, Any]:
    """What `gert … --json` prints."""
    command = [sys.executable, "-m", "gert", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@cache
def suite() -> dict[str, Any]:
    return gert("test", "examples", "--coverage")


@cache
def results() -> dict[str, dict[str, Any]]:
    """The result of every scenario, by runbook and name."""
    return {f"{Path(each['runbook']).stem}/{each['scenario']}": each for each in suite()["tests"]}


def loaded(folder: Folder) -> tuple[Scenario, Expectations]:
    workspace = Workspace()
    assert folder.runbook is not None
    program = workspace.check(folder.runbook).program
    assert program is not None
    found = load(workspace, folder, program)
    assert found.expected is not None, "there is no test.yaml"
    return found.scenario, found.expected


def test_every_document_is_valid_to_the_last_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ecosystem-v0 §2."""
    # A secret that is required and not set is a warning about this machine, not about the document.
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    assert main(["validate", "--strict", "--json", str(EXAMPLES)]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [found for file in files for found in file["findings"] if found["severity"] != "note"] == []
    files = [
        file for file in files if "/runner/" not in file["file"] and "/incident/" not in file["file"]
    ]  # projects of their own, which `make demo-runner` and an agent run
    assert Counter(file["kind"] for file in files) == {
        "project": 1,
        "policy": len(list(EXAMPLES.glob("policies/*.policy.yaml"))),
        "policy-test": 1,
        "runbook": len(RUNBOOKS),
        "tool": len(list(EXAMPLES.glob("tools/*.yaml"))),
        "scenario": len(FOLDERS),
        "test": len(FOLDERS),
    }


@each_scenario
def test_every_scenario_leads_where_its_test_says(folder: Folder) -> None:
    """Ecosystem-v0 §2."""
    name = f"{Path(folder.path).parent.name}/{folder.name}"
    result = results()[name]
    assert (result["verdict"], result.get("differences", [])) == ("passed", [])
    # Among others: answers that are written in vain.
    assert [note for note in result["notes"] if not note.startswith("approved by default, because")] == []


@each_scenario
def test_every_scenario_tells_a_story_and_says_what_it_is_for(folder: Folder) -> None:
    scenario, expected = loaded(folder)
    assert scenario.description
    assert expected.description
    assert expected.tags
    assert expected.expected_status
    assert (expected.expected_code is None) == (expected.expected_status != "completed")
    assert len(scenario.description.splitlines()) == 1


@each_runbook
def test_no_step_arm_or_outcome_is_left_out(name: str) -> None:
    [report] = [each for each in suite()["coverage"] if Path(each["runbook"]).stem == name]
    missed = {part: report[part]["missed"] for part in ("steps", "arms", "outcomes")}
    assert missed == {"steps": [], "arms": [], "outcomes": []}


@pytest.mark.parametrize("name", FIVE)
def test_the_five_have_several_scenarios(name: str) -> None:
    """Ecosystem-v0 §2."""
    assert len(scenarios_of(str(RUNBOOKS[name]))) >= 3


@pytest.mark.parametrize("name", FIVE)
def test_a_dry_run_lists_every_outcome_that_scenarios_reach(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DECISIONS 34; ecosystem-v0 §2."""
    runbook = str(RUNBOOKS[name])
    reached: set[str] = set()
    for folder in scenarios_of(runbook):
        scenario, expected = loaded(folder)
        values = tmp_path / f"{folder.name}.json"
        values.write_text(json.dumps(dict(scenario.inputs)))
        arguments = ["exec", runbook, "--mode", "dry-run", "--json", "--vars-file", str(values)]
        assert main(arguments) == 0
        said = json.loads(capsys.readouterr().out)
        listed = {outcome["code"] for outcome in said["reachable_outcomes"]}
        if expected.expected_code is not None:
            assert expected.expected_code in listed, folder.name
        reached |= listed
    every = {code for folder in scenarios_of(runbook) if (code := loaded(folder)[1].expected_code) is not None}
    assert reached >= every


@pytest.mark.parametrize(
    "event",
    [
        "parallel_fork",
        "for_each_start",
        "repeat_iteration",
        "next_taken",
        "step_retry",
        "visibility_applied",
        "approval_resolved",
        "finally_complete",
    ],
)
def test_what_the_language_can_do_is_shown_and_checked(event: str) -> None:
    checked = {word.split()[0] for folder in FOLDERS for word in loaded(folder)[1].expected_events}
    assert event in checked


@pytest.mark.parametrize("tag", ["approval", "refused", "expired", "manual", "checklist", "attachment", "escalation"])
def test_how_people_take_part_is_shown(tag: str) -> None:
    assert tag in {tag for folder in FOLDERS for tag in loaded(folder)[1].tags}


@each_runbook
def test_the_index_names_every_runbook_and_counts_its_scenarios(name: str) -> None:
    page = README.read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith(f"| [`{name}`](runbooks/{name}.yaml) |")]
    assert f" {len(scenarios_of(str(RUNBOOKS[name])))} |" in row


def test_links_of_the_index_lead_somewhere() -> None:
    page = re.sub(r"^```.*?^```$", "", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page):
        assert (README.parent / target).exists(), target


def _walk() -> Iterator[str]:
    """The commands and the output of the walk, line by line; a command may go on in indented lines."""
    page = README.read_text(encoding="utf-8").partition("## One incident")[2]
    for block in re.findall(r"^```console\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        if block.startswith("$ "):
            yield from re.sub(r"\|\n +", "| ", block).splitlines()


def _plain(line: str) -> str:
    """A line without what differs from run to run: ids, times, dates, ports, the width of a column."""
    # Ids first: one may end as a time does.
    line = re.sub(r"[0-9]{8}-[0-9]{6}-[0-9]{3}-[0-9a-z]{6}", "RUN", line)
    line = re.sub(r"[0-9.]+ ?m?s\b", "TIME", line)
    line = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "DAY", line)
    return " ".join(re.sub(r":[0-9]{4,5}\b", ":PORT", line).split())


def test_the_walk_through_an_incident_can_be_followed(tmp_path: Path) -> None:
    tour, bin_ = tmp_path / "tour", tmp_path / "bin"
    shutil.copytree(EXAMPLES, tour, ignore=shutil.ignore_patterns("runs"))
    bin_.mkdir()
    for name, words in (("gert", "-m gert"), ("python3", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (bin_ / name).chmod(0o755)
    lines = [line.replace("/tmp/gert-tour", str(tour)) for line in _walk()]
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
    walked = subprocess.run(
        ["sh", "-c", f"{script}\nkill $!"],
        cwd=tour,
        env={**environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "clone": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    printed = {_plain(line) for line in walked.stdout.splitlines()}
    # A line that is shortened is not compared.
    shown = [_plain(line) for line in lines if not line.startswith("$ ") and "…" not in line]
    assert [line for line in shown if line not in printed] == [], walked.stdout + walked.stderr
    assert "internal error" not in walked.stderr


@pytest.mark.needs("curl")
def test_curl_says_why_there_is_no_answer(tmp_path: Path) -> None:
    runbook = tmp_path / "look.yaml"
    with socket.socket() as taken:
        # A port that is bound and not listened on refuses.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        look = {"id": "look", "type": "tool", "tool": "curl", "action": "get", "inputs": {"url": url}}
        end = {"type": "end", "outcome": {"category": "no_action", "code": "fine"}}
        tools = [str(EXAMPLES / "tools" / "curl.tool.yaml")]
        book = {"apiVersion": "kernel/v0", "meta": {"name": "look"}, "tools": tools, "steps": [look, end]}
        runbook.write_text(json.dumps(book))
        said = gert("exec", str(runbook), "--state-dir", str(tmp_path))
    assert "connect" in said["failure"]["message"]
