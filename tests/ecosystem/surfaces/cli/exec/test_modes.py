"""Modes and floors: a dry run touches nothing, a probe only looks, and policy decides before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call, completed, events_in, note, of_type

LOOKS = {"effects": ["network"], "writes": []}


def mixed(project: Project) -> None:
    """Steps that only look, one that writes, one that touches what is not allowed, and people."""
    project.note_tool("looks", contract={**LOOKS, "deterministic": False})
    project.note_tool("same", contract={**LOOKS, "deterministic": True})
    project.note_tool("writes", contract={"effects": ["network"], "writes": ["disk"]})
    project.runbook(
        note("looks", tool="looks"),
        note("same", tool="same"),
        note("writes", tool="writes"),
        note("files"),
        {"id": "look", "type": "manual", "instructions": "look", "contract": {"effects": []}},
        note("last", tool="looks"),
        tools=["note", "looks", "same", "writes"],
        governance={"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]},
        after=[note("tidy")],
    )


def branching(project: Project) -> None:
    def ends(code: str) -> list[dict[str, Any]]:
        return [{"type": "end", "outcome": {"category": "resolved", "code": code}}]

    project.runbook(
        note("one"),
        {
            "id": "which",
            "type": "branch",
            "branches": [
                {"condition": '{{ eq .step.one.said "a" }}', "steps": [note("two"), *ends("first")]},
                {"condition": "default", "steps": ends("second")},
            ],
        },
        ends=False,
    )


# --- dry run


def test_a_dry_run_starts_nothing_asks_nothing_and_is_not_recorded(project: Project) -> None:
    mixed(project)
    ran = project.exec("--mode", "dry-run", stdin="y\ny\n").ended(0)
    assert (project.noted(), project.runs()) == ([], [])
    assert "not recorded" in ran.out
    assert "approve?" not in ran.err


def test_a_dry_run_shows_every_outcome_and_claims_none(project: Project) -> None:
    branching(project)
    said = project.exec("--mode", "dry-run", "--json").ended(0).said
    assert [outcome["code"] for outcome in said["reachable_outcomes"]] == ["first", "second"]
    assert "outcome" not in said
    assert (said["trace"], said["db"], project.runs()) == (None, None, [])


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
@pytest.mark.parametrize("place", ["--trace", "--db"])
def test_it_is_recorded_where_an_option_says_so(project: Project, mode: str, place: str) -> None:
    branching(project)
    where = project.root / "kept"
    project.exec("--mode", mode, place, where).ended(0)
    project.gert("trace", "verify", *((where,) if place == "--trace" else ("--db", where))).ended(0)
    assert project.runs() == []
    if place == "--trace":
        last = events_in(where)[-1]["data"]
        assert (last["mode"], "outcome" in last) == (mode, False)


def test_a_dry_run_needs_no_secret_and_no_program(project: Project) -> None:
    project.tool("gone", ["no-such-program"], secrets=[{"env": "NOT_SET"}])
    project.runbook(call("x", "gone"), tools=["gone"], secrets=[{"env": "NOR_THIS"}])
    project.exec("--mode", "dry-run").ended(0)


def test_a_dry_run_still_needs_its_inputs(project: Project) -> None:
    project.runbook(note("one"), inputs={"name": {"type": "string", "required": True}})
    assert "name" in project.exec("--mode", "dry-run").ended(2).err


@pytest.mark.parametrize(
    "secrets", [{}, {"token": {"type": "string", "secret": True, "default": "x"}}], ids=["", "secret"]
)
@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_what_is_computed_from_something_unknown_is_shown_as_unknown(
    project: Project, mode: str, secrets: dict[str, Any]
) -> None:
    writes = {"effects": ["network"], "writes": ["disk"]}
    project.tool("keys", ["redis-cli"], extract={"keys": {"from": "stdout", "lines": True}}, contract=writes)
    project.tool(
        "evict",
        ["redis-cli", "keep-{{ len .xs }}", "{{ if gt (len .xs) 2 }}drop{{ else }}keep{{ end }}", "{{ .name }}"],
        inputs={each: {"type": "any"} for each in ("xs", "name", "token")},
        action={"preview": {"argv": ["redis-cli", "{{ len .xs }}"]}},
        contract=writes,
    )
    inputs = {"xs": "{{ .keys }}", "name": "web-{{ upper .keys }}", **({"token": "{{ .token }}"} if secrets else {})}
    evict = {**call("evict", "evict", inputs=inputs), "title": "Evict {{ len .keys }} keys"}
    each = {**call("each", "evict", inputs=inputs), "for_each": {"as": "key", "over": "{{ .keys }}"}}
    project.runbook(call("all", "keys"), evict, each, tools=["keys", "evict"], inputs=secrets)
    shown = project.exec("--mode", mode).ended(0).out
    assert "Evict (unknown) keys" in shown
    assert shown.count("command: redis-cli 'keep-(unknown)' '(unknown)' 'web-(unknown)'") == 2
    assert shown.count("preview not run, redis-cli '(unknown)'") == (2 if mode == "dry-run" else 0)
    assert "↻ each: an unknown number of items, explored with one" in shown
    steps = project.exec("--mode", mode, "--json").ended(0).said["steps"]
    assert steps[1]["title"] == "Evict (unknown) keys"


# --- probe


def test_a_probe_runs_only_what_looks_and_what_claims_to_be_deterministic_twice(project: Project) -> None:
    mixed(project)
    trace = project.root / "t.jsonl"
    ran = project.exec("--mode", "probe", "--trace", trace, stdin="y\ny\n").ended(0)
    assert project.noted() == ["looks", "same", "same"]
    events = events_in(trace)
    # What it would read after the write that was left out, is not known (DECISIONS 72).
    assert completed(events, "last")["reason"] == "after_skipped_write"
    for step in ("writes", "files", "look", "tidy"):
        done = completed(events, step)
        assert (done["status"], done["reason"], done["assumed"]) == ("skipped", "probe", True), step
    assert completed(events, "looks")["status"] == "success"
    assert "approve?" not in ran.err
    assert of_type(events, "approval_submitted") == []


def test_a_probe_may_be_allowed_more_effects_but_never_writes(project: Project) -> None:
    project.note_tool("writes", contract={"effects": ["files"], "writes": ["disk"]})
    project.runbook(note("files"), note("writes", tool="writes"), tools=["note", "writes"])
    project.exec("--mode", "probe").ended(0)
    assert project.noted() == []
    project.exec("--mode", "probe", "--probe-allow-effects", "network, files").ended(0)
    assert project.noted() == ["files"]
    project.exec("--mode", "probe", "--probe-allow-effects", "").ended(0)
    assert project.noted() == ["files"]


def test_a_probe_does_not_run_a_tool_that_does_not_say_what_it_touches(project: Project) -> None:
    project.write(
        "tools/silent.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "silent"},
            "actions": {"go": {"argv": ["sh", "-c", f"echo silent >> {project.effects}"]}},
        },
    )
    project.runbook(call("x", "silent"), tools=["silent"])
    project.exec("--mode", "probe", "--probe-allow-effects", "network,files,unknown").ended(0)
    assert project.noted() == []


def ends(code: str) -> dict[str, Any]:
    return {"type": "end", "outcome": {"category": "resolved", "code": code}}


def arms(step: str, *, first: list[dict[str, Any]], second: list[dict[str, Any]], on: str = "look") -> dict[str, Any]:
    """Take the first arm if a step said its own id, which it does whenever it is called."""
    condition = f'{{{{ eq .step.{on}.said "{on}" }}}}'
    branches = [{"condition": condition, "steps": first}, {"condition": "default", "steps": second}]
    return {"id": step, "type": "branch", "branches": branches}


def probed(project: Project, *steps: dict[str, Any], **runbook: Any) -> tuple[list[str], list[str]]:
    """What a probe ran, and the codes of the outcomes it found."""
    project.note_tool("looks", contract={**LOOKS, "deterministic": False})
    project.note_tool("writes", contract={"effects": ["network"], "writes": ["disk"]})
    project.runbook(*steps, ends=False, tools=["looks", "writes"], **runbook)
    said = project.exec("--mode", "probe", "--json").ended(0).said
    return project.noted(), [outcome["code"] for outcome in said["reachable_outcomes"]]


LOOK, WRITE = note("look", tool="looks"), note("write", tool="writes")
CHOICE = arms("which", first=[ends("as it is now")], second=[ends("otherwise")])
MANUAL = {"id": "fix", "type": "manual", "instructions": "fix it", "contract": {"effects": ["x"], "writes": ["y"]}}
KNOWN, ALL = ["as it is now"], ["as it is now", "otherwise"]


@pytest.mark.parametrize(
    ("steps", "ran", "codes"),
    [
        pytest.param([LOOK, CHOICE], ["look"], KNOWN, id="a read with nothing before it is known"),
        pytest.param([LOOK, WRITE, CHOICE], ["look"], KNOWN, id="a read before the write is known"),
        pytest.param([WRITE, LOOK, CHOICE], [], ALL, id="a read after a write that was left out is not"),
        pytest.param([MANUAL, LOOK, CHOICE], [], ALL, id="nor after a person would have changed something"),
        pytest.param(
            [note("a", tool="looks"), arms("go", on="a", first=[WRITE], second=[]), LOOK, CHOICE],
            ["a"],
            ALL,
            id="nor behind an arm that was taken",
        ),
        pytest.param(
            [{**WRITE, "for_each": {"over": ["x", "y"], "as": "n", "parallel": True}}, LOOK, CHOICE],
            [],
            ALL,
            id="nor behind a loop",
        ),
        pytest.param(
            [{"id": "r", "type": "repeat", "repeat": {"max": 1}, "steps": [WRITE]}, LOOK, CHOICE],
            [],
            ALL,
            id="nor behind a repeat",
        ),
        pytest.param(
            [
                {
                    "id": "p",
                    "type": "parallel",
                    "branches": [
                        {"label": "w", "steps": [{**WRITE, "scope": "w"}]},
                        {"label": "r", "steps": [{**LOOK, "contract": {"reads": ["disk"]}}]},
                    ],
                },
                CHOICE,
            ],
            [],
            ALL,
            id="nor in a lane that waits for it",
        ),
    ],
)
def test_a_probe_knows_no_read_after_a_write_that_was_left_out(
    project: Project, steps: list[dict[str, Any]], ran: list[str], codes: list[str]
) -> None:
    assert probed(project, *steps) == (ran, codes)


def test_a_write_left_out_in_one_arm_does_not_hide_what_another_arm_reads(project: Project) -> None:
    # Which arm is taken depends on a person, so both are explored; the second holds no write.
    person = {
        "id": "ask",
        "type": "manual",
        "instructions": "?",
        "contract": {"effects": [], "outputs": {"said": {"type": "string"}}},
    }
    other = note("other", tool="looks")
    steps = [
        person,
        arms("which", on="ask", first=[WRITE, note("after", tool="looks"), ends("one")], second=[other, ends("two")]),
    ]
    assert probed(project, *steps) == (["other"], ["one", "two"])


def test_finally_reads_nothing_after_a_write_that_was_left_out_on_some_way(project: Project) -> None:
    assert probed(
        project, LOOK, arms("w", first=[WRITE, ends("x")], second=[ends("y")]), after=[note("tidy", tool="looks")]
    ) == (["look"], ["x"])


DENIES_WRITES = {"rules": [{"writes": ["disk"], "action": "deny"}, {"default": "allow"}]}


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_a_denied_arm_is_reported_in_text_json_and_exit_code(project: Project, mode: str) -> None:
    project.note_tool("writes", contract={"effects": ["network"], "writes": ["disk"]})
    steps = [note("one"), arms("which", on="one", first=[WRITE, ends("fixed")], second=[ends("left")])]
    project.runbook(*steps, ends=False, tools=["note", "writes"], governance=DENIES_WRITES)
    trace = project.root / "t.jsonl"
    ran = project.exec("--mode", mode, "--json", "--trace", trace).ended(3)
    assert [outcome["code"] for outcome in ran.said["reachable_outcomes"]] == ["left"]
    (denied,) = ran.said["denied"]
    assert denied["path"].endswith("/write")
    assert "is denied by" in denied["message"]
    assert events_in(trace)[-1]["data"]["denied"] == [denied]
    for words in ([], ["--quiet"]):
        text = project.exec("--mode", mode, *words).ended(3).out
        assert f"olicy denies `{denied['path']}`" in text


def test_a_dry_run_of_a_real_denial_is_not_hidden_by_what_continues(project: Project) -> None:
    project.note_tool("writes", contract={"effects": ["network"], "writes": ["disk"]})
    loop = {**WRITE, "for_each": {"over": "{{ .one.said }}", "as": "n"}, "continue_on_fail": True}
    project.runbook(note("one"), loop, tools=["note", "writes"], governance=DENIES_WRITES)
    assert project.exec("--mode", "dry-run", "--json").ended(3).said["denied"]


def test_a_probe_says_why_it_leaves_a_step_out(project: Project) -> None:
    project.note_tool("writes", contract={"effects": ["files"], "writes": ["disk"]})
    project.note_tool("silent", contract={"effects": ["unknown"]})
    look = {"id": "look", "type": "manual", "instructions": "look", "contract": {"effects": []}}
    steps = note("files"), note("writes", tool="writes"), note("silent", tool="silent"), look
    project.runbook(*steps, tools=["note", "writes", "silent"])
    lines = [line.strip() for line in project.exec("--mode", "probe").ended(0).out.splitlines()]
    left_out = [at for at, line in enumerate(lines) if line.endswith("not run: probe")]
    why = {lines[at].split()[1]: lines[at + 1] for at in left_out}
    assert why == {
        "files": "a probe may not have the effect files, unless: --probe-allow-effects network,files",
        "writes": "it writes disk",
        "silent": "its contract does not say what it touches",
        "look": "a probe calls only tools and prompts no one",
    }


def test_what_a_lane_would_do_stands_below_its_line(project: Project) -> None:
    lanes = [{"label": name, "steps": [note(f"in_{name}", scope=name)]} for name in ("a", "b")]
    project.runbook({"id": "both", "type": "parallel", "branches": lanes})
    lines = project.exec("--mode", "dry-run").ended(0).out.splitlines()
    at = next(at for at, line in enumerate(lines) if "▸ a/in_a" in line)
    assert lines[at + 1].index("contract:") == lines[at].index("▸") + 4


# --- floors


def policy(project: Project, action: str, name: str = "floor") -> Path:
    rules = [{"name": f"{name} rule", "effects": ["files"], "action": action}, {"default": "allow"}]
    return project.write(
        f"{name}.policy.yaml", {"apiVersion": "policy/v0", "meta": {"name": name}, "governance": {"rules": rules}}
    )


def test_a_floor_denies_what_the_runbook_allows(project: Project) -> None:
    project.runbook(note("one", continue_on_fail=True), note("two"), after=[])
    said = project.exec("--json", "--policy", policy(project, "deny")).ended(3).said
    assert (said["status"], said["failure"]["kind"]) == ("failed", "denied")
    assert project.noted() == []
    events = project.run().events()
    assert completed(events, "one")["reason"] == "governance_denied"
    (decision,) = of_type(events, "governance_decision")
    assert "floor rule" in str(decision["data"]["rule"])
    assert "floor" in str(of_type(events, "run_start")[0]["data"]["policy_hashes"])


def test_a_floor_asks_where_the_runbook_does_not(project: Project) -> None:
    project.runbook(note("one"))
    floor = policy(project, "require-approval")
    project.exec("--policy", floor).ended(3)
    assert project.noted() == []
    project.exec("--policy", floor, stdin="y\n").ended(0)
    assert project.noted() == ["one"]


def test_a_floor_never_loosens(project: Project) -> None:
    project.runbook(note("one"), governance={"rules": [{"default": "deny"}]})
    project.exec("--policy", policy(project, "allow")).ended(3)
    assert project.noted() == []


def test_the_strictest_of_several_floors_decides(project: Project) -> None:
    project.runbook(note("one"))
    words = ("--policy", policy(project, "allow", "lax"), "--policy", policy(project, "deny", "strict"))
    project.exec(*words, stdin="y\n").ended(3)
    project.exec("--policy", project.root, stdin="y\n")
    assert project.noted() == []


def test_the_floor_of_the_project_holds_without_being_named(project: Project) -> None:
    project.runbook(note("one"))
    policy(project, "deny")
    project.write("gert-project.yaml", {"name": "p", "policies": ["floor.policy.yaml"]})
    project.exec().ended(3)
    assert project.noted() == []


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"name": "p", "policies": ["floor.policy.yaml"], "polices": []}, id="a key that is none"),
        pytest.param({"policies": ["floor.policy.yaml"]}, id="no name"),
        pytest.param({"name": "p", "policies": "floor.policy.yaml"}, id="no list of policies"),
        pytest.param({"name": "p", "policies": ["flor.policy.yaml"]}, id="a policy that is not there"),
        pytest.param('name: p\npolicies: ["floor.policy.yaml"\n', id="no YAML"),
        pytest.param("- a list\n", id="a list"),
    ],
)
def test_a_project_file_that_is_not_valid_stops_the_run(project: Project, document: Any) -> None:
    """Its floor would be gone without a word."""
    project.runbook(note("one"))
    policy(project, "deny")
    project.write("gert-project.yaml", document)
    ran = project.exec()
    assert project.noted() == []
    assert ran.code in (1, 2)


def test_a_denied_run_still_tidies_up_if_policy_lets_it(project: Project) -> None:
    project.note_tool("gentle", contract={"effects": ["network"]})
    project.runbook(note("one"), after=[note("tidy", tool="gentle"), note("rough")], tools=["note", "gentle"])
    project.exec("--policy", policy(project, "deny")).ended(3)
    assert project.noted() == ["tidy"]
