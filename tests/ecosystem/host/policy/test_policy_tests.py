"""Policy tests on disk: which are found, which policies they are held to, and that nothing broken passes."""

import json
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.config.policies import read_policies
from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.policy.policy_tests import JudgedCase, PolicySuite, find_policy_tests
from gert.errors import DocumentError, GertError, UsageError

ALLOW = [{"default": "allow"}]
DENY = [{"default": "deny"}]
ASK = [{"name": "ask", "writes": ["pods"], "action": "require-approval"}, {"name": "rest", "default": "allow"}]
TOOL = {
    "apiVersion": "tool/v0",
    "meta": {"name": "pods"},
    "contract": {"effects": ["kubernetes"], "idempotent": False},
    "actions": {
        "get": {"argv": ["true"], "contract": {"reads": ["pods"]}},
        "delete": {"argv": ["true"], "contract": {"writes": ["pods"]}},
    },
}
ONE_ACTION = {**TOOL, "actions": {"delete": {"argv": ["true"], "contract": {"writes": ["pods"]}}}}
READ = {"effects": ["kubernetes"]}


class Place:
    """A folder with policies and their tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def write(self, name: str, document: Any) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    def policy(self, name: str, rules: Any, file: str | None = None) -> str:
        document = {"apiVersion": "policy/v0", "meta": {"name": name}, "governance": {"rules": rules}}
        return self.write(file or f"{name}.policy.yaml", document)

    def test(self, *cases: dict[str, Any], file: str = "a.policy-test.yaml", **more: Any) -> str:
        named = [{"name": f"case {number}", **case} for number, case in enumerate(cases, 1)]
        return self.write(file, {"apiVersion": "policy-test/v0", "cases": named, **more})

    def run(self, *named: str, file: str = "a.policy-test.yaml") -> list[JudgedCase]:
        return list(PolicySuite([str(self.root / file)], named).run())

    def verdicts(self, *named: str) -> list[str]:
        return [case.tested.verdict for case in self.run(*named)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "policies")


# --- which policies count


def test_policies_are_named_from_the_file(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place.policy("no", DENY, "deep/no.policy.yaml")
    place.test({"contract": READ, "expect": {"decision": "deny"}}, policies=["deep"])
    assert place.verdicts() == ["passed"]


def test_policies_of_the_call_come_on_top(place: Place) -> None:
    kind, strict = place.policy("kind", ALLOW), place.policy("strict", DENY)
    place.test({"contract": READ, "expect": {"decision": "allow"}}, policies=["kind.policy.yaml"])
    assert place.verdicts() == ["passed"]
    assert place.verdicts(kind) == ["passed"]
    assert place.verdicts(strict) == ["failed"]


def test_neither_the_project_nor_the_environment_has_a_say(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = place.policy("strict", DENY)
    place.write("gert-project.yaml", {"name": "p", "policies": ["strict.policy.yaml"], "groups": {"sre": ["alice"]}})
    monkeypatch.setenv("GERT_POLICY", strict)
    place.policy("kind", ALLOW)
    place.test({"contract": READ, "expect": {"decision": "allow"}}, policies=["kind.policy.yaml"])
    assert place.verdicts() == ["passed"]


def test_a_folder_of_policies_may_hold_their_tests(place: Place) -> None:
    place.policy("kind", ALLOW)
    place.test({"contract": READ, "expect": {"rule": "1", "policy": "kind"}}, policies=["."])
    assert place.verdicts() == ["passed"]
    assert [each.policy.name for each in read_policies(Workspace(), [str(place.root)])] == ["kind"]


@pytest.mark.parametrize(
    ("file", "document"),
    [
        pytest.param("b.policy-test.yaml", "policy/v0", id="a policy that is called a test"),
        pytest.param("b.policy.yaml", "policy-test/v0", id="a test that is called a policy"),
        pytest.param("b.policy-test.yaml", "{", id="a test that cannot be read"),
        pytest.param("b.policy-test.yaml", "[]", id="a test that is a list"),
        pytest.param("b.policy-test.yaml", "policy-test/v1", id="a test of another version"),
    ],
)
def test_nothing_else_in_a_folder_of_policies_is_passed_over(place: Place, file: str, document: str) -> None:
    place.policy("kind", ALLOW)
    if "/" in document:
        written = place.policy("other", DENY, file)
        text = Path(written).read_text().replace("policy/v0", document)
        place.write(file, text)
    else:
        place.write(file, document)
    if document == "policy/v0":
        assert [each.policy.name for each in read_policies(Workspace(), [str(place.root)])] == ["other", "kind"]
    else:
        with pytest.raises(DocumentError):
            read_policies(Workspace(), [str(place.root)])


def test_a_folder_of_tests_is_no_floor(place: Place) -> None:
    place.test({"contract": READ})
    with pytest.raises(UsageError, match="there are no policies"):
        read_policies(Workspace(), [str(place.root)])


# --- cases by tool


@pytest.mark.parametrize(
    ("case", "decision"),
    [
        pytest.param({"action": "get"}, "allow", id="an action"),
        pytest.param({"action": "delete"}, "require-approval", id="another action"),
        pytest.param({"action": "get", "contract": {"writes": ["pods"]}}, "require-approval", id="what a step adds"),
        pytest.param({"tool": "one.tool.yaml"}, "require-approval", id="the only action"),
    ],
)
def test_the_contract_of_a_tool_is_judged(place: Place, case: dict[str, Any], decision: str) -> None:
    place.policy("ask", ASK)
    place.write("pods.tool.yaml", TOOL)
    place.write("one.tool.yaml", ONE_ACTION)
    place.test({"tool": "pods.tool.yaml", **case, "expect": {"decision": decision}}, policies=["ask.policy.yaml"])
    assert place.verdicts() == ["passed"]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        pytest.param({"tool": "gone.tool.yaml"}, "there is no tool", id="a tool that is not there"),
        pytest.param({"tool": "."}, "there is no tool", id="a folder"),
        pytest.param({"tool": "bad.tool.yaml"}, "bad.tool.yaml:1:", id="a tool that is not sound"),
        pytest.param({"tool": "ask.policy.yaml"}, "expected `tool/v0`", id="something else"),
        pytest.param({"tool": "pods.tool.yaml"}, "has several actions", id="an action that is not named"),
        pytest.param({"tool": "pods.tool.yaml", "action": "gte"}, "has no action `gte`", id="no such action"),
        pytest.param(
            {"tool": "pods.tool.yaml", "action": "delete", "contract": {"idempotent": True}},
            "may only go from true to false",
            id="a step that claims to be safer than its tool",
        ),
        pytest.param(
            {"tool": "pods.tool.yaml", "action": "delete", "contract": {"effects": []}},
            "`effects` may only grow",
            id="a step that claims to touch less than its tool",
        ),
    ],
)
def test_a_case_that_cannot_be_judged_is_an_error_and_keeps_no_other_from_it(
    place: Place, case: dict[str, Any], message: str
) -> None:
    place.policy("ask", ASK)
    place.write("pods.tool.yaml", TOOL)
    place.write("bad.tool.yaml", {**TOOL, "actoins": {}})
    other = {"contract": READ, "expect": {"decision": "allow"}}
    place.test({**case, "expect": {"decision": "allow"}}, other, policies=["ask.policy.yaml"])
    broken, fine = place.run()
    assert (broken.tested.verdict, fine.tested.verdict) == ("error", "passed")
    assert message in (broken.tested.message or "")


# --- files that cannot be tested


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param("{", "a.policy-test.yaml:1:", id="no YAML"),
        pytest.param("", "a.policy-test.yaml:1:1", id="nothing"),
        pytest.param({"apiVersion": "policy/v0"}, "expected `policy-test/v0`", id="another document"),
        pytest.param({"cases": []}, "`apiVersion` is missing", id="no version"),
        pytest.param({"apiVersion": "policy-test/v0", "cases": []}, "not empty", id="no cases"),
        pytest.param(
            {"apiVersion": "policy-test/v0", "cases": [{"nmae": "x", "name": "x"}]}, "`nmae`", id="a key that is none"
        ),
    ],
)
def test_a_file_that_is_no_policy_test_is_an_error(place: Place, document: Any, message: str) -> None:
    place.write("a.policy-test.yaml", document)
    (case,) = place.run(place.policy("kind", ALLOW))
    assert case.tested.verdict == "error"
    assert message in (case.tested.message or "")


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        pytest.param([], "names no policies", id="none"),
        pytest.param(["gone.policy.yaml"], "there is no file", id="one that is not there"),
        pytest.param(["empty"], "there are no policies", id="an empty folder"),
        pytest.param(["pods.tool.yaml"], "expected `policy/v0`", id="a tool"),
        pytest.param(["typo.policy.yaml"], "unknown key", id="one with a typo"),
        pytest.param(["a.policy-test.yaml"], "expected `policy/v0`", id="the test itself"),
    ],
)
def test_a_test_without_sound_policies_is_an_error(place: Place, policies: list[str], message: str) -> None:
    (place.root / "empty").mkdir()
    place.write("pods.tool.yaml", TOOL)
    place.policy("typo", [{"defualt": "deny"}])
    place.test({"contract": READ, "expect": {"decision": "allow"}}, policies=policies)
    (case,) = place.run()
    assert case.tested.verdict == "error"
    assert message in (case.tested.message or "")


@pytest.mark.parametrize("named", ["gone.yaml", "empty", "a.policy-test.yaml"])
def test_a_policy_of_the_call_that_cannot_be_read_stops_everything(place: Place, named: str) -> None:
    (place.root / "empty").mkdir()
    file = place.test({"contract": READ})
    with pytest.raises(GertError):
        PolicySuite([file], [str(place.root / named)])


# --- which tests are found


def test_tests_are_found_by_name_and_by_what_they_say_each_once(place: Place) -> None:
    one, other = place.test({"contract": READ}), place.test({"contract": READ}, file="deep/other.yaml")
    broken = place.write("broken.policy-test.yml", "{")
    place.policy("kind", ALLOW)
    place.write("notes.yaml", "see: policy-test/v0")
    place.write(".hidden/c.policy-test.yaml", "{}")
    assert sorted(find_policy_tests([str(place.root), one, f"{place.root}/./a.policy-test.yaml"])) == sorted(
        [one, other, broken]
    )


def test_a_file_that_is_not_there_is_not_passed_over(place: Place) -> None:
    with pytest.raises(UsageError, match="there is no file or folder"):
        find_policy_tests([str(place.root / "gone.policy-test.yaml")])


# --- coverage


def test_coverage_is_of_all_tests_together_and_by_policy(place: Place) -> None:
    place.policy("ask", ASK)
    place.policy("no", DENY)
    both = ["ask.policy.yaml", "no.policy.yaml"]
    one = place.test({"contract": READ}, policies=both)
    other = place.test({"contract": {"effects": [], "writes": ["pods"]}}, file="b.policy-test.yaml", policies=both[:1])
    suite = PolicySuite([one, other])
    list(suite.run())
    assert {each.policy: (each.rules.reached, each.rules.total) for each in suite.coverage()} == {
        "ask": (2, 2),
        "no": (1, 1),
    }


def test_a_rule_that_another_policy_overrules_is_reached(place: Place) -> None:
    place.policy("ask", ASK)
    place.policy("no", DENY)
    file = place.test(
        {"contract": READ, "expect": {"decision": "deny"}}, policies=["ask.policy.yaml", "no.policy.yaml"]
    )
    suite = PolicySuite([file])
    assert [case.tested.verdict for case in suite.run()] == ["passed"]
    assert [each.rules.missed for each in suite.coverage()] == [("1 `ask` (writes: [pods])",), ()]


def test_two_policies_of_one_name_are_covered_apart(place: Place) -> None:
    place.policy("same", ASK, "one.policy.yaml")
    place.policy("same", DENY, "two.policy.yaml")
    file = place.test({"contract": READ}, policies=["one.policy.yaml", "two.policy.yaml"])
    suite = PolicySuite([file])
    list(suite.run())
    assert [each.rules.reached for each in suite.coverage()] == [1, 1]
