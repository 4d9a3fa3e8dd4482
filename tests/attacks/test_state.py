"""Attempts to read what `visibility` hides, to write where another lane writes, and to smuggle items into a loop."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project

SECRET = "k3y-of-the-vault"
ONE_OUTPUT = "a stored output is one thing under all of its names (DECISIONS 66)"
ONE_WRITER = "two lanes never write one scope path (DECISIONS 67)"
OWN_PLACES = "a template may not produce a scope that belongs to gert (DECISIONS 67)"
NO_SPLIT = "`over` never splits text from an answer (DECISIONS 63)"

Steps = Sequence[Mapping[str, Any]]

VAULT = {"id": "vault", "type": "tool", "tool": "vault"}
SAFE = {**VAULT, "scope": "safe"}
EXPORTED = {**SAFE, "export": ["key"]}
EACH = {**VAULT, "id": "each", "for_each": {"as": "n", "over": ["a", "b"], "key": "{{ .n }}"}}
EACH_SAFE = {**EACH, "scope": "safe"}
GROUP = {"id": "hosts", "type": "group", "for_each": {"as": "h", "over": ["a"]}, "steps": [VAULT]}
REPEAT = {"id": "loop", "type": "repeat", "repeat": {"max": 1}, "steps": [VAULT]}
ALL = "{{ toJson . }}"
HIDES = "which its `visibility` hides"
OTHER = '"step":{"other":{"said":"other"}}'


def spied(project: Project, steps: Steps, template: str, visibility: Mapping[str, Any], **spy: Any) -> str:
    """Run a step that notes what a template gives under a visibility; it must not come upon the secret."""
    project.tool("vault", ["echo", SECRET], extract={"key": {"from": "stdout"}})
    word = {} if "inputs_from" in spy else {"inputs": {"word": f"seen <{template}>"}}
    step = {"id": "spy", "type": "tool", "tool": "note", "visibility": visibility, **word, **spy}
    book = project.runbook(*steps, step, tools=["vault", "note"])
    ran = project.gert("exec", book)
    assert SECRET not in "\n".join(project.noted())
    for run in project.runs():
        started = [each for each in run.events() if each["type"] == "step_start" and each["data"]["step_id"] == "spy"]
        assert SECRET not in str(started)
    return f"{ran.out}{ran.err}{project.noted()}"


def spy(what: str, steps: Steps, template: str, reason: str, **visibility: Any) -> Attack:
    return Attack(
        what, why=ONE_OUTPUT, attempt=lambda project: spied(project, steps, template, visibility), reason=reason
    )


def lane(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"steps": list(steps)}


def note(step_id: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "type": "tool", "tool": "note", "inputs": {"word": step_id}, **more}


def writes(*steps: Mapping[str, Any], **meta: Any) -> Any:
    """Run steps that write where they may not: the run ends in an error, and says why."""

    def attempt(project: Project) -> str:
        after = {"id": "after", "type": "tool", "tool": "note", "inputs": {"word": "after"}}
        ran = project.gert("exec", project.runbook(*steps, after, constants={"a": "one", "b": "one"}, **meta))
        assert ran.code == 3, f"{ran.out}{ran.err}"
        assert "after" not in project.noted()
        return ran.out + ran.err

    return attempt


def split_names(extract: Mapping[str, Any]) -> Any:
    """A file name with a comma is two items for whatever deletes files."""

    def attempt(project: Project) -> str:
        project.tool("names", ["echo", "important, not this.txt"], extract={"files": {"from": "stdout", **extract}})
        loop = {"as": "file", "over": "{{ .files }}"}
        book = project.runbook(
            {"id": "names", "type": "tool", "tool": "names"},
            {"id": "remove", "type": "tool", "tool": "note", "for_each": loop, "inputs": {"word": "rm {{ .file }}"}},
            tools=["names", "note"],
        )
        ran = project.gert("exec", book)
        assert "rm important" not in project.noted()
        assert "rm not this.txt" not in project.noted()
        return f"{ran.out}{ran.err}{project.noted()}"

    return attempt


FORK = {"id": "fork", "type": "parallel"}

ATTACKS = [
    spy("a denied record is read by its global name", [VAULT], "{{ .key }}", HIDES, deny=["vault.key"]),
    spy("a denied global name is read by its record", [VAULT], "{{ .vault.key }}", HIDES, deny=["key"]),
    spy("a denied scope is read by its record", [SAFE], "{{ .vault.key }}", HIDES, deny=["scope.safe.*"]),
    spy("an export is read although its scope is denied", [EXPORTED], "{{ .key }}", HIDES, deny=["scope.safe"]),
    spy("records are walked by `range`", [VAULT], "{{ range .step }}{{ .key }}{{ end }}", "seen <>", deny=["key"]),
    spy(
        "scopes are walked by `range`",
        [SAFE],
        "{{ range $path, $values := .scope }}{{ $path }}{{ toJson $values }}{{ end }}",
        "seen <>",
        deny=["vault.*"],
    ),
    spy("all of the state is written as JSON", [VAULT], ALL, "seen <{", deny=["**.vault.key"]),
    spy("all of it, with the scope denied", [EXPORTED], ALL, "seen <{", deny=["scope.**"]),
    spy("all of it, with only something else allowed", [VAULT, note("other")], ALL, OTHER, allow=["other.said"]),
    spy(
        "a computed key leads to a denied record",
        [VAULT],
        '{{ index . (lower "VAULT") "key" }}',
        "seen <>",
        deny=["key"],
    ),
    spy("a result of a loop is read by its index", [EACH], "{{ toJson .each }}", "seen <", deny=["step.each.*.key"]),
    spy("a result of a loop is read in its scope", [EACH_SAFE], ALL, "seen <{", deny=["each.*.key"]),
    spy("a scope of a loop is read as its result", [EACH_SAFE], "{{ toJson .each }}", "seen <", deny=["scope.safe.**"]),
    spy("a step in a group is read in the result of the group", [GROUP], ALL, "seen <{", deny=["vault.key"]),
    spy("a result of a group is read by the names inside it", [GROUP], ALL, "seen <{", deny=["hosts.0.key"]),
    spy("an iteration is read in its archive", [REPEAT], ALL, "seen <{", deny=["vault"]),
    spy(
        "an archive is denied and the export read",
        [{**REPEAT, "steps": [{**VAULT, "export": ["key"]}]}],
        ALL,
        "seen <{",
        deny=["scope.repeat"],
    ),
    spy(
        "a list is made of the values of a denied scope",
        [SAFE],
        '{{ pluck "key" (values .scope) }}',
        "seen <",
        deny=["vault.key"],
    ),
    Attack(
        "`inputs_from` spreads a denied scope",
        why=ONE_OUTPUT,
        attempt=lambda project: spied(
            project, [SAFE], "", {"deny": ["vault"]}, inputs_from="scope.safe", inputs={"word": "x"}
        ),
        reason="`inputs_from` names `scope.safe`, which is not an object here",
    ),
    Attack(
        "two lanes render one scope",
        why=ONE_WRITER,
        attempt=writes(
            {**FORK, "branches": [lane(note("x", scope="r/{{ .a }}")), lane(note("y", scope="r/{{ .b }}"))]}
        ),
        reason="`fork/0/x` and `fork/1/y` run at the same time and both write the scope `r/one`",
    ),
    Attack(
        "a template renders the scope another lane has written out",
        why=ONE_WRITER,
        attempt=writes(
            {**FORK, "branches": [lane(note("x", scope="r/one")), lane(note("y", scope='{{ print "r." .b }}'))]}
        ),
        reason="both write the scope `r/one`",
    ),
    Attack(
        "a scope is put where another lane keeps an output",
        why=ONE_WRITER,
        attempt=writes(
            {**FORK, "branches": [lane(note("x", scope="r")), lane(note("y", scope='r/{{ print "said" }}'))]}
        ),
        reason="both write the scope `r/said`",
    ),
    Attack(
        "an output is put where another lane has a scope",
        why=ONE_WRITER,
        attempt=writes(
            {**FORK, "branches": [lane(note("y", scope='r/{{ print "said" }}/deep')), lane(note("x", scope="r"))]}
        ),
        reason="both write the scope `r/said`",
    ),
    Attack(
        "a lane inside a lane writes the scope of a lane outside",
        why=ONE_WRITER,
        attempt=writes(
            {
                **FORK,
                "branches": [
                    lane(note("x", scope="{{ .a }}")),
                    lane(
                        {
                            "id": "inner",
                            "type": "parallel",
                            "branches": [lane(note("y")), lane(note("z", scope="{{ .b }}"))],
                        }
                    ),
                ],
            }
        ),
        reason="`fork/0/x` and `fork/1/inner/1/z` run at the same time and both write the scope `one`",
    ),
    Attack(
        "a step in a loop inside a lane writes the scope of another lane",
        why=ONE_WRITER,
        attempt=writes(
            {
                **FORK,
                "branches": [
                    lane(note("x", scope="r/one")),
                    lane(note("y", scope="r/{{ .i }}", for_each={"as": "i", "over": ["one", "two"]})),
                ],
            }
        ),
        reason="`fork/0/x` and `fork/1/y[0]` run at the same time",
    ),
    Attack(
        "two items at the same time render one scope",
        why=ONE_WRITER,
        attempt=writes(note("x", scope="r/{{ len .i }}", for_each={"as": "i", "over": ["ab", "cd"], "parallel": True})),
        reason="`x[0]` and `x[1]` run at the same time and both write the scope `r/2`",
    ),
    Attack(
        "a failure that may be continued hides a shared scope",
        why=ONE_WRITER,
        attempt=writes(
            {
                **FORK,
                "branches": [
                    lane(note("x", scope="{{ .a }}", continue_on_fail=True)),
                    lane(note("y", scope="{{ .b }}", continue_on_fail=True)),
                ],
            }
        ),
        reason="both write the scope `one`",
    ),
    Attack(
        "a template renders an archive of a repeated block",
        why=OWN_PLACES,
        attempt=writes(note("x", scope='{{ print "repeat" }}/loop/0')),
        reason="the scope `repeat/loop/0` begins with `repeat`, which gert reserves",
    ),
    Attack(
        "a template renders an archive with dots",
        why=OWN_PLACES,
        attempt=writes(note("x", scope='{{ print "repeat.loop.0" }}')),
        reason="the scope `repeat.loop.0` begins with `repeat`, which gert reserves",
    ),
    Attack(
        "a template renders a scope of steps",
        why=OWN_PLACES,
        attempt=writes(note("x", scope='{{ print "step" }}')),
        reason="the scope `step` begins with `step`, which gert reserves",
    ),
    Attack(
        "a file name with a comma becomes two items",
        why=NO_SPLIT,
        attempt=split_names({}),
        reason="use `lines: true` where the text is extracted, or `split`",
    ),
    Attack(
        "a file name with a comma is one line",
        why=NO_SPLIT,
        attempt=split_names({"lines": True}),
        reason="rm important, not this.txt",
    ),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
