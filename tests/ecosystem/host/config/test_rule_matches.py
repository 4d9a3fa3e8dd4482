"""D57: a rule of a policy is compared with the tools and runbooks of the projects that name the policy."""

import os
from pathlib import Path

import pytest
from tests.quickly import quickly

from gert.ecosystem.host.config import workspace as workspaces
from gert.ecosystem.host.config.policies import read_policies
from gert.ecosystem.host.config.workspace import Workspace
from gert.kernel.runbook.finding import Finding, Severity

TOOL = """apiVersion: tool/v0
meta: {name: %s, transport: stdio, binary: x}
contract: {effects: [filesystem], writes: [%s]}
actions: {run: {argv: [x]}}
"""
RUNBOOK = """apiVersion: kernel/v0
meta: {name: book}
tools: [%s]
steps:
  - {type: manual, id: look, instructions: look, contract: {effects: [], reads: [dashboards], writes: []}}
  - %s
  - {type: end, outcome: {category: resolved, code: ok}}
"""
UNDECLARED = "{effects: [unknown], action: require-approval}"


class Place:
    """A project in a folder, with a policy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("gert-project.yaml", "name: p\npolicies: [policies]\n")
        self.write("tools/cache.tool.yaml", TOOL % ("cache", "cache"))

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def rules(self, *rules: str, at: str = "policies/a.yaml") -> list[Finding]:
        head = "apiVersion: policy/v0\nmeta: {name: a}\ngovernance:\n  rules:\n"
        file = self.write(at, head + "".join(f"    - {rule}\n" for rule in (UNDECLARED, *rules)))
        return [each for each in Workspace(str(self.root)).check(str(file)).findings if each.rule == "D57"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "p")


def test_a_misspelt_tag_of_a_policy_is_a_warning_at_its_line_and_names_the_rule(place: Place) -> None:
    [found] = place.rules("{name: ask first, writes: [caches], action: require-approval}")
    assert (found.severity, found.line, found.hint) == (Severity.WARNING, 6, "did you mean `cache`?")
    assert found.message == "rule `ask first` matches no tool or step of this project: none writes `caches`"


def test_a_word_that_is_not_used_here_is_a_note(place: Place) -> None:
    [found] = place.rules("{writes: [billing], action: require-approval}")
    assert (found.severity, found.line) == (Severity.NOTE, 6)
    assert found.message == "rule 2 matches no tool or step of this project: none writes `billing`"


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("{writes: [cache], action: require-approval}", id="a tool"),
        pytest.param("{reads: [dashboards], action: require-approval}", id="a step"),
        pytest.param("{writes: [reports], action: require-approval}", id="what a step adds to its tool"),
        pytest.param("{writes: [cache], effects: [filesystem], action: allow}", id="several matchers"),
        pytest.param("{writes: [far], action: require-approval}", id="a tool outside that a runbook uses"),
        pytest.param("{effects: [network], action: require-approval}", id="webhooks, which need no step"),
        pytest.param("{writes: [billing], action: deny}", id="nothing, and it denies"),
        pytest.param("{risk: low, deterministic: true, action: require-approval}", id="no tags at all"),
        pytest.param("{outcome: [escalated], action: require-approval}", id="outcomes"),
    ],
)
def test_nothing_is_said_of_a_rule_that_matches(place: Place, rule: str) -> None:
    place.write("../outside/far.tool.yaml", TOOL % ("far", "far"))
    step = "{type: tool, id: a, tool: cache, contract: {writes: [reports]}}\n  - {type: tool, id: b, tool: far}"
    place.write("runbooks/book.yaml", RUNBOOK % ("cache, ../../outside/far.tool.yaml", step))
    assert place.rules(rule) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("tools/broken.tool.yaml", "apiVersion: tool/v0\nmeta: [", id="a tool that does not parse"),
        pytest.param("tools/wrong.tool.yaml", "apiVersion: tool/v0\nmeta: {}\n", id="a tool that is invalid"),
        pytest.param(
            "runbooks/book.yaml",
            RUNBOOK % ("gone", "{type: tool, id: a, tool: gone}"),
            id="a runbook whose tool is missing",
        ),
        pytest.param(
            "runbooks/book.yaml",
            RUNBOOK % ("", "{type: extension, id: a, extension: agent, contract: {effects: [network], writes: []}}"),
            id="an extension, whose runner calls tools by itself",
        ),
    ],
)
def test_while_not_all_tools_are_known_only_misspellings_are_reported(place: Place, name: str, text: str) -> None:
    place.write(name, text)
    found = place.rules("{writes: [billing], action: allow}", "{writes: [cahce], action: allow}")
    assert [(each.severity, each.hint) for each in found] == [(Severity.WARNING, "did you mean `cache`?")]


def test_a_project_with_too_many_files_is_not_known_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = "{writes: [billing], action: allow}"
    assert len(place.rules(rule)) == 1
    monkeypatch.setattr(workspaces, "MOST_FILES", 1)
    assert place.rules(rule) == []


def test_a_policy_that_the_project_does_not_name_is_not_compared(place: Place) -> None:
    assert place.rules("{writes: [caches], action: allow}", at="shared/a.yaml") == []


def test_a_policy_is_compared_with_all_projects_below_the_outermost_that_names_it(place: Place) -> None:
    place.write("inner/gert-project.yaml", "name: inner\n")
    place.write("inner/tools/queue.tool.yaml", TOOL % ("queue", "queue"))
    assert place.rules("{writes: [queue], action: allow}") == []


def test_a_text_of_a_stranger_is_compared_with_nothing_outside_the_served_folder(place: Place) -> None:
    text = f"apiVersion: policy/v0\nmeta: {{name: a}}\ngovernance: {{rules: [{UNDECLARED}, "
    text += "{writes: [caches], action: allow}]}\n"
    folder = place.write("policies/a.yaml", text).parent
    root = os.path.realpath(place.root)

    def found(within: str) -> list[str]:
        checked = Workspace(within, within=within).check(str(folder / "a.yaml"), source=text.encode())
        return [each.rule for each in checked.findings]

    assert "D57" in found(root)
    assert "D57" not in found(os.path.realpath(folder))


def test_a_run_does_not_read_the_tools_of_the_project_to_read_its_policies(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.rules("{writes: [caches], action: allow}")
    monkeypatch.setattr(workspaces, "yaml_files", lambda _: pytest.fail("the project was searched"))
    [source] = read_policies(Workspace(str(place.root)), [str(place.root / "policies")])
    assert "D57" not in {each.rule for each in source.checked.findings}


def test_a_long_policy_in_a_large_project_is_compared_in_time(place: Place) -> None:
    for number in range(50):
        place.write(f"tools/t{number}.tool.yaml", TOOL % (f"t{number}", ", ".join(f"w{number}x{n}" for n in range(50))))
    rules = [f"{{writes: [w{number}y, z{number}], action: deny}}" for number in range(3_000)]
    many = ", ".join(f"u{number}x" for number in range(20_000))
    with quickly():
        assert place.rules(*rules) == []
    with quickly():
        [found] = place.rules(f"{{writes: [{many}], action: allow}}")
    assert len(found.message) < 200


class TestTagsOfTools:
    """D57 from the side of the tool: its tag is one letter off from one that a rule names and another contract has."""

    @staticmethod
    def found(place: Place, *writes: str, rule: str = "{writes: [logs], action: require-approval}") -> list[Finding]:
        place.write("tools/archive.tool.yaml", TOOL % ("archive", "logs"))
        place.rules(rule)
        file = place.write("tools/clean.tool.yaml", TOOL % ("clean", ", ".join(writes)))
        return [each for each in Workspace(str(place.root)).check(str(file)).findings if each.rule == "D57"]

    def test_a_misspelt_tag_of_a_tool_is_a_warning_at_its_place(self, place: Place) -> None:
        [found] = self.found(place, "files", "log")
        assert (found.severity, found.where) == (Severity.WARNING, "contract.writes[1]")
        assert found.message == "no rule of the project is for `writes: [log]`"
        assert found.hint == "did you mean `logs`, which a rule names?"

    def test_a_misspelt_tag_of_an_action_is_found_too(self, place: Place) -> None:
        self.found(place, "files")
        text = TOOL.replace("argv: [x]", "argv: [x], contract: {writes: [log]}")
        file = place.write("tools/clean.tool.yaml", text % ("clean", "logs"))
        [found] = [each for each in Workspace(str(place.root)).check(str(file)).findings if each.rule == "D57"]
        assert found.where == "actions.run.contract.writes[0]"

    @pytest.mark.parametrize(
        ("writes", "rule"),
        [
            pytest.param(["logs"], "{writes: [logs], action: deny}", id="the tag itself"),
            pytest.param(["log", "logs"], "{writes: [logs], action: deny}", id="both tags in one contract"),
            pytest.param(["log"], "{writes: [logs, log], action: deny}", id="both tags in rules"),
            pytest.param(["blobs"], "{writes: [logs], action: deny}", id="another word"),
            pytest.param(["log"], "{reads: [logs], action: allow}", id="a rule for another kind of tag"),
            pytest.param(["cold"], "{writes: [colds], action: allow}", id="told at the rule"),
        ],
    )
    def test_other_tags_are_not_reported(self, place: Place, writes: list[str], rule: str) -> None:
        assert self.found(place, *writes, rule=rule) == []

    def test_a_broken_policy_is_reported_where_it_is(self, place: Place) -> None:
        self.found(place, "files")
        place.write("policies/b.yaml", "governance: [")
        place.write("policies/note.bin", "x")
        assert self.found(place, "log") == []


def test_an_effect_that_is_what_tools_write_is_a_warning(place: Place) -> None:
    for action in ("require-approval", "deny"):
        [found] = place.rules(f"{{effects: [cache], action: {action}}}")
        assert (found.severity, found.hint) == (Severity.WARNING, "did you mean `writes: [cache]`?")


def test_a_rule_for_writers_of_what_is_only_read_is_a_note(place: Place) -> None:
    place.write("runbooks/book.yaml", RUNBOOK % ("cache", "{type: tool, tool: cache, id: c}"))
    [found] = place.rules("{writes: [dashboards], action: require-approval}")
    assert found.severity is Severity.NOTE
    assert place.rules("{writes: [dashboards], action: deny}") == []
