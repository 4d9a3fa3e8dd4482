"""Steps that an extension runner executes (ecosystem-v0 §6.3)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.runners import extension, program, runner
from tests.ecosystem.surfaces.cli.workbench import ALLOW, Project, completed, is_alive, note, of_type

SAYS = "return {'said': 'hello'}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def said(project: Project, step: str = "x") -> Any:
    return completed(project.run().events(), step)["outputs"]["said"]


# --- where a runner is found


def test_a_bare_name_is_a_program_on_the_path(project: Project, tmp_path: Path) -> None:
    runner(tmp_path / "bin" / "gert-ext-hello", SAYS)
    project.runbook(extension("x", "hello"), extension("y", "gert-ext-hello", scope="y"), tools=[])
    project.exec(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}").ended(0)
    assert (said(project), said(project, "y")) == ("hello", "hello")


@pytest.mark.parametrize(
    ("at", "book", "name"),
    [
        pytest.param("deep/books/ext/r", "deep/books/book.yaml", "./ext/r", id="beside the runbook"),
        pytest.param("ext/r", "deep/books/book.yaml", "ext/r", id="in the project"),
        pytest.param("../elsewhere/r", "book.yaml", "../elsewhere/r", id="outside the project"),
    ],
)
def test_a_path_is_looked_for_as_that_of_a_tool(project: Project, at: str, book: str, name: str) -> None:
    runner(project.root / at, SAYS)
    project.runbook(extension("x", name), tools=[], file=book)
    project.exec(book).ended(0)
    assert said(project) == "hello"


def test_an_absolute_path_is_used_as_it_is(project: Project, tmp_path: Path) -> None:
    project.runbook(extension("x", str(runner(tmp_path / "r", SAYS))), tools=[])
    project.exec().ended(0)


@pytest.mark.parametrize("mode", ["real", "dry-run", "probe"])
def test_a_missing_runner_is_said_before_the_first_step(project: Project, mode: str) -> None:
    project.write("ext/no", "not executable")
    project.runbook(note("first"), extension("x", "nowhere"), extension("y", "ext/no", scope="y"))
    told = project.gert("validate", "book.yaml").ended(0)
    assert (told.out.count("D50"), "gert-ext-<name>" in told.out) == (2, True)
    refused = project.exec("--mode", mode).ended(1)
    assert "`x` cannot run here: this installation has no runner for the extension `nowhere`" in refused.err
    assert (project.noted(), project.runs()) == ([], [])


# --- what a runner is given


def test_it_sees_inputs_contract_and_the_variables_that_it_may_see(project: Project) -> None:
    runner(project.root / "r", "return {'said': [inputs, vars, contract['outputs'], contract['effects']]}")
    project.runbook(
        note("first"),
        extension(
            "x", "./r", inputs={"a": "{{ .who }}"}, contract={"inputs": {"a": {"type": "string"}}},
            visibility={"allow": ["who"]},
        ),
        extension("y", "./r", scope="y", visibility={"deny": ["first", "step.**", "said"]}),
        inputs={"who": {"type": "string", "default": "ada"}, "other": {"type": "string", "default": "eve"}},
    )  # fmt: skip
    project.exec().ended(0)
    assert said(project) == [{"a": "ada"}, {"who": "ada", "step": {}}, {"said": {"type": "any"}}, []]
    visible = said(project, "y")[1]
    assert ("other" in visible, "first" in visible, "said" in visible) == (True, False, False)


def test_a_secret_is_given_only_as_an_input_and_never_recorded(project: Project) -> None:
    body = "sys.stderr.write('got ' + inputs['token'] + '\\n')\nreturn {'said': [len(inputs['token']), vars]}"
    runner(project.root / "r", body)
    project.runbook(
        extension("x", "./r", inputs={"token": "{{ .token }}"}, contract={"inputs": {"token": {"type": "string"}}}),
        tools=[],
        inputs={"token": {"type": "string", "secret": True, "from": "env/TOKEN"}},
    )
    project.exec(TOKEN="hunter2-hunter2").ended(0)
    assert said(project)[0] == len("hunter2-hunter2")
    assert said(project)[1]["token"] == "[REDACTED]"
    for file in project.root.rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file
    (answer,) = [each["answer"] for each in project.run().answers() if each["answer"].get("stderr")]
    assert answer["stderr"].strip() == "got [REDACTED]"


def test_an_input_that_the_contract_calls_secret_is_masked_in_the_answer_and_not_shown(project: Project) -> None:
    body = "print('got', inputs['pin'], file=sys.stderr)\nreturn {'said': 'the pin is ' + inputs['pin']}"
    runner(project.root / "r", body)
    contract = {"inputs": {"pin": {"type": "string", "secret": True}}}
    project.runbook(extension("x", "./r", inputs={"pin": "plain-4711-pin"}, contract=contract), tools=[])
    shown = project.exec().ended(0)
    assert said(project) == "the pin is [REDACTED]"
    recorded = b"".join(project.run().lines()) + json.dumps(project.run().answers()).encode()
    assert b"plain-4711-pin" not in recorded + (shown.out + shown.err).encode()


def test_its_environment_is_that_of_a_tool_with_the_secrets_of_the_runbook(project: Project) -> None:
    runner(project.root / "r", "return {'said': {n: n in os.environ for n in ('MINE', 'THEIRS', 'PLAIN', 'GERT_X')}}")
    project.tool("other", ["true"], secrets=[{"env": "THEIRS", "required": False}])
    project.runbook(
        extension("x", "./r"), tools=["other"], secrets=[{"env": "MINE"}],
    )  # fmt: skip
    project.exec(MINE="m1m1m1", THEIRS="t2t2t2", PLAIN="p", GERT_X="g").ended(0)
    assert said(project) == {"MINE": True, "THEIRS": False, "PLAIN": True, "GERT_X": False}


def test_one_process_serves_all_steps_and_ends_with_the_run(project: Project) -> None:
    runner(project.root / "r", "return {'said': os.getpid()}")
    loop = extension("each", "./r", for_each={"as": "n", "over": [1, 2, 3], "parallel": True}, scope="n/{{ .n }}")
    project.runbook(extension("x", "./r"), loop, tools=[])
    project.exec().ended(0)
    pids = {
        e["data"]["outputs"]["said"]
        for e in of_type(project.run().events(), "step_complete")
        if e["data"].get("outputs")
    }
    assert len(pids) == 1
    assert not is_alive(pids.pop())


# --- who acts


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, {"kind": "agent", "id": "judge-7", "model": "m"}, id="the runner, as it says of itself"),
        pytest.param(
            {"principal": {"kind": "human", "id": "ada"}}, {"kind": "human", "id": "ada"}, id="the step says who"
        ),
    ],
)
def test_the_principal_of_a_step(project: Project, more: dict[str, Any], expected: dict[str, Any]) -> None:
    greeting = {"capabilities": {}, "principal": {"kind": "agent", "id": "judge-7", "model": "m"}}
    runner(project.root / "r", SAYS, greeting)
    project.runbook(extension("x", "./r", **more), tools=[])
    project.exec().ended(0)
    event = of_type(project.run().events(), "step_complete")[0]
    assert event["principal"] == expected


def test_a_runner_cannot_act_as_a_person(project: Project) -> None:
    runner(project.root / "r", SAYS, {"capabilities": {}, "principal": {"kind": "human", "id": "ada"}})
    project.runbook(extension("x", "./r"), tools=[])
    project.exec().ended(3)
    event = of_type(project.run().events(), "step_complete")[0]
    assert "expected the kind of `principal` to be `agent` or `system`" in event["data"]["failure"]["message"]
    assert event["principal"].get("id") != "ada"


def test_a_keyed_agent_acts_for_itself_although_the_runner_has_a_principal(project: Project) -> None:
    runner(project.root / "r", SAYS, {"capabilities": {}, "principal": {"kind": "agent", "id": "runner"}})
    each = {"as": "a", "over": [{"id": "skeptic", "role": "doubt"}], "key": "{{ .a.id }}"}
    project.runbook(extension("x", "./r", for_each=each), tools=[])
    project.exec().ended(0)
    (event,) = [e for e in of_type(project.run().events(), "step_complete") if e["path"] == "x[skeptic]"]
    assert event["principal"] == {"kind": "agent", "id": "skeptic", "role": "doubt"}


# --- what it answers


OUTPUTS = {"said": {"type": "string"}, "maybe": {"type": "int", "required": False}, "gone": {"type": "string"}}


def test_undeclared_outputs_are_stripped_and_missing_ones_reported(project: Project) -> None:
    runner(project.root / "r", "return {'said': 7, 'extra': 'x'}")
    project.runbook(extension("x", "./r", contract={"outputs": OUTPUTS}), tools=[])
    project.exec().ended(0)
    events = project.run().events()
    assert completed(events, "x")["outputs"] == {"said": "7"}
    assert [(e["data"]["kind"], e["data"]["severity"]) for e in of_type(events, "contract_violation")] == [
        ("undeclared_output", "warning"),
        ("missing_output", "warning"),
    ]


def test_a_policy_may_refuse_violations(project: Project) -> None:
    runner(project.root / "r", "return {'extra': 'x'}")
    rules = {"rules": [{"contract_violations": "deny"}, {"default": "allow"}]}
    project.runbook(extension("x", "./r", continue_on_fail=True), tools=[], governance=rules)
    project.exec().ended(3)
    assert completed(project.run().events(), "x")["failure"]["kind"] == "contract_violation"


def test_an_exit_code_is_a_failure_that_the_author_may_continue_after(project: Project) -> None:
    program(project.root / "r", "serve(lambda p: {'outputs': {'said': 'partly'}, 'exit_code': 2, 'stderr': 'no disk'})")
    project.runbook(extension("x", "./r", continue_on_fail=True), tools=[])
    project.exec().ended(0)
    found = completed(project.run().events(), "x")
    assert (found["status"], found["exit_code"], found["outputs"]) == ("failed", 2, {"said": "partly"})
    assert found["failure"] == {"kind": "exit_code", "message": "the extension `./r` exited with 2: no disk"}


def test_a_runner_that_takes_too_long_is_ended_and_what_it_printed_is_kept(project: Project) -> None:
    runner(project.root / "r", "print('thinking', file=sys.stderr, flush=True); time.sleep(60)")
    project.runbook(extension("x", "./r", timeout="300ms", continue_on_fail=True), note("after"))
    project.exec().ended(0)
    found = completed(project.run().events(), "x")
    assert (found["status"], found["failure"]["kind"]) == ("error", "timeout")
    assert project.noted() == ["after"]
    assert "thinking" in project.gert("logs", project.run().id, "x").ended(0).out


# --- worlds


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_it_is_not_started_to_see_what_would_happen(project: Project, mode: str) -> None:
    runner(project.root / "r", f"open({str(project.effects)!r}, 'a').write('ran\\n'); return {{'said': 1}}")
    project.runbook(extension("x", "./r"), tools=[])
    project.exec("--mode", mode).ended(0)
    assert project.noted() == []


def test_a_recorded_run_is_replayed_without_the_runner(project: Project) -> None:
    greeting = {"capabilities": {}, "principal": {"kind": "agent", "id": "judge-7"}}
    file = runner(project.root / "r", "return {'said': os.getpid()}", greeting)
    project.runbook(extension("x", "./r"), tools=[])
    project.exec("--record", "one").ended(0)
    first = said(project)
    file.unlink()
    replayed = json.loads(
        project.exec("--mode", "replay", "--scenario", "one", "--json", "--trace", "t.jsonl").ended(0).out
    )
    assert replayed["status"] == "completed"
    events = [json.loads(line) for line in (project.root / "t.jsonl").read_text().splitlines()]
    event = of_type(events, "step_complete")[0]
    assert (event["data"]["outputs"], event["principal"]) == ({"said": first}, greeting["principal"])


# --- approvals


def test_an_approval_covers_the_runner_that_was_there_when_it_was_requested(project: Project, tmp_path: Path) -> None:
    note_run = f"open({str(project.effects)!r}, 'a').write(__file__ + '\\n'); return {{'said': 1}}"
    first, second = (runner(tmp_path / at / "gert-ext-act", note_run).parent for at in ("one", "two"))
    asks = {"rules": [{"default": "require-approval"}]}
    project.runbook(extension("x", "act"), tools=[], governance=asks)
    path = os.environ["PATH"]
    project.exec("--detach", PATH=f"{first}:{path}").ended(0)
    run = project.run()
    (ticket,) = run.requests()
    assert run.requests()[ticket]["program"] == str(first / "gert-ext-act")
    project.gert("approve", ticket, "--as", "ada").ended(0)
    project.gert("resume", "--run", run.id, PATH=f"{second}:{first}:{path}").ended(0)
    assert project.noted() == []
    assert len(run.requests()) == 2
    changed = [json.dumps(e["data"]) for e in run.events() if "when approval was requested" in json.dumps(e["data"])]
    assert str(second) in changed[0]
    again = next(each for each in run.requests() if each != ticket)
    project.gert("approve", again, "--as", "ada").ended(0)
    project.gert("resume", "--run", run.id, PATH=f"{second}:{first}:{path}").ended(0)
    assert project.noted() == [str(second / "gert-ext-act")]


def test_an_approved_runner_is_called(project: Project) -> None:
    runner(project.root / "r", SAYS)
    rules = {"rules": [{"effects": ["network"], "action": "require-approval"}, *ALLOW["rules"]]}
    project.runbook(extension("x", "./r", contract={"effects": ["network"], "writes": []}), tools=[], governance=rules)
    project.exec("--detach").ended(0)
    run = project.run()
    (ticket,) = run.requests()
    project.gert("approve", ticket, "--as", "ada").ended(0)
    project.gert("resume", "--run", run.id).ended(0)
    assert said(project) == "hello"
