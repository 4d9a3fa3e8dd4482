"""Replay: every answer comes from the scenario, and nothing is started, opened, sent or written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import (
    PATIENCE,
    Project,
    Ran,
    completed,
    environment,
    events_in,
    note,
    of_type,
    snapshot,
)
from tests.soak import sampled

from gert.kernel.events.vocabulary import FAILURE_KINDS

# Ends the process, with a number nobody else uses, before anything of this kind happens.
SENTRY = """
import os, sys
import asyncio.base_events, asyncio.subprocess, socket, subprocess
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.exec", "os.system",
          "pty.spawn", "_posixsubprocess.fork_exec")
SPEAKS = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo",
          "socket.gethostbyname", "urllib.Request", "http.client.connect")
def alarm(what):
    os.write(2, ("SENTRY: " + what + chr(10)).encode())
    os._exit(86)
def watch(event, args):
    if event in STARTS or event in SPEAKS:
        alarm(event + " " + repr(args)[:200])
    if event == "socket.__new__" and args[1] not in (socket.AF_UNIX,):
        alarm(event + " " + repr(args)[:200])
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        if str(args[0]) not in (os.devnull, *ALLOWED):
            alarm(event + " " + repr(args)[:200])
def refuse(*_, **__):
    alarm("fork_exec")
ALLOWED = sys.argv.pop(1).split(os.pathsep)
import _posixsubprocess
_posixsubprocess.fork_exec = subprocess._fork_exec = refuse
sys.addaudithook(watch)
"""
WATCHED = SENTRY + "from gert.__main__ import main\nsys.argv[0] = 'gert'\nmain()\n"


def watched(project: Project, *words: str | Path, may_write: str = "", source: str = WATCHED, **environ: str) -> Ran:
    """`gert`, in a process that ends at once when it starts, opens or writes anything."""
    ended = subprocess.run(
        [sys.executable, "-B", "-c", source, may_write, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=project.root,
        env=environment(environ),
        timeout=PATIENCE,
        check=False,
    )
    return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def scenario(project: Project, name: str = "case", *, book: str = "book", test: Any = None, **sections: Any) -> Path:
    """A scenario of a runbook, and its test."""
    folder = f"scenarios/{book}/{name}"
    project.write(f"{folder}/scenario.yaml", sections)
    if test is not None:
        project.write(f"{folder}/test.yaml", test)
    return project.root / folder


def replayed(project: Project, *words: str | Path, name: str = "case") -> Ran:
    return project.exec("--mode", "replay", "--scenario", name, "--json", *words)


def traced(project: Project, *words: str | Path, name: str = "case", code: int = 0) -> list[dict[str, Any]]:
    """The events of a replay."""
    trace = project.root / "replayed.jsonl"
    trace.unlink(missing_ok=True)
    replayed(project, "--trace", trace, *words, name=name).ended(code)
    return events_in(trace)


def said(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What each step that completed gave as `said`."""
    done = of_type(events, "step_complete")
    return [(each["data"]["step_id"], (each["data"].get("outputs") or {}).get("said")) for each in done]


def noted(*words: str) -> list[dict[str, Any]]:
    return [{"stdout": f"noted {word}\n"} for word in words]


# --- it reaches nothing


LEFT = {"steps": [note("left", scope="left")]}
RIGHT = {"steps": [note("right", scope="right")]}


def reaching(project: Project) -> None:
    """A runbook that would leave its mark everywhere: by a tool, a secret, a file, a prompt, a webhook."""
    project.note_tool("secretive", secrets=[{"env": "NEVER_SET_KEY"}])
    project.runbook(
        note("one"),
        note("two", tool="secretive"),
        {"id": "look", "type": "manual", "instructions": "look", "required_evidence": [{"kind": "text", "name": "n"}]},
        {"id": "both", "type": "parallel", "branches": [LEFT, RIGHT]},
        note("many", "{{ .word }}", for_each={"as": "word", "over": ["a", "b"], "parallel": True}),
        after=[note("tidy")],
        tools=["note", "secretive"],
        governance={"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]},
        on_outcome={"resolved": {"webhook": "http://127.0.0.1:9/hook"}},
        inputs={
            "from_env": {"type": "string", "required": True, "from": "env/NEVER_SET"},
            "from_file": {"type": "string", "required": True, "from": "file/never-there"},
            "asked": {"type": "string", "required": True, "from": "prompt"},
            "key": {"type": "string", "required": True, "secret": True, "from": "env/NEVER_SET_EITHER"},
        },
    )
    scenario(
        project,
        input_answers={"from_env": "e", "from_file": "f", "asked": "p"},
        tool_responses={"note": {"stdout": "noted x"}, "secretive": {"stdout": "noted y"}},
        evidence={"look": {"n": "seen"}},
        test={"expected_status": "completed", "must_reach": ["one", "two", "look", "left", "right", "many", "tidy"]},
    )


def test_the_sentry_sees_a_real_run(project: Project) -> None:
    project.runbook(note("one"))
    assert watched(project, "exec", "book.yaml", may_write=str(project.root)).code == 86
    starts = SENTRY + "import subprocess; subprocess.run(['true'])"
    assert watched(project, source=starts).code == 86
    for speaks in ("socket.create_connection(('127.0.0.1', 9))", "socket.socket()", "socket.getaddrinfo('a.b', 1)"):
        assert watched(project, source=f"{SENTRY}{speaks}").code == 86
    assert watched(project, source=f"{SENTRY}open('mark', 'w')").code == 86
    assert watched(project, source=f"{SENTRY}socket.socketpair()").code == 0


def test_a_replay_starts_opens_sends_and_writes_nothing(project: Project) -> None:
    reaching(project)
    before = snapshot(project.root)
    ran = watched(project, "exec", "book.yaml", "--mode", "replay", "--scenario", "case", "--json").ended(0)
    assert ran.said["status"] == "completed"
    assert snapshot(project.root) == before
    assert (project.noted(), project.runs()) == ([], [])


@pytest.mark.parametrize("words", [(), ("--jobs", "1"), ("--all", "--coverage", "--json"), ("--update",)])
def test_a_test_starts_opens_sends_and_writes_nothing(project: Project, words: tuple[str, ...]) -> None:
    reaching(project)
    before = snapshot(project.root)
    watched(project, "test", ".", *words).ended(0)
    assert snapshot(project.root) == before
    assert (project.noted(), project.runs()) == ([], [])


def test_a_replay_sends_no_notification(project: Project) -> None:
    reaching(project)
    hook = {"webhook": "http://127.0.0.1:9/${HOOK}"}
    project.write("gert-project.yaml", {"name": "bench", "on_outcome": {"resolved": hook, "escalated": hook}})
    watched(project, "exec", "book.yaml", "--mode", "replay", "--scenario", "case", HOOK="x").ended(0)
    watched(project, "test", ".").ended(0)


def test_a_replay_that_always_records_records_no_scenario(project: Project) -> None:
    reaching(project)
    before = snapshot(project.root)
    watched(project, "exec", "book.yaml", "--mode", "replay", "--scenario", "case", GERT_AUTO_RECORD="1").ended(0)
    watched(project, "test", ".", GERT_AUTO_RECORD="1", GERT_TRACES_DIR="traces").ended(0)
    assert snapshot(project.root) == before


def test_a_worker_takes_no_program_from_the_folder_it_is_called_in(project: Project) -> None:
    """`python -m` looks in the working folder first, and that is somebody else's repository."""
    for name in "abc":
        project.runbook(note("one"), name=name)
        scenario(project, book=name, tool_responses={"one": {"stdout": "noted 1"}})
    trap = f"open({str(project.root / 'mark')!r}, 'w')\nraise SystemExit(9)\n"
    for module in ("msgspec", "asyncio", "json", "fnmatch", "gert", "click"):
        project.write(f"{module}.py", trap)
    gert = Path(sys.executable).with_name("gert")
    ended = subprocess.run(
        [gert, "test", ".", "--jobs", "2", "--json"],
        capture_output=True,
        cwd=project.root,
        env=environment(),
        timeout=PATIENCE,
        check=False,
    )
    assert not (project.root / "mark").exists()
    assert (ended.returncode, json.loads(ended.stdout)["passed"]) == (0, 3), ended.stderr


# --- asking for it wrongly


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(["--mode", "replay"], "needs a scenario", id="no scenario"),
        pytest.param(["--scenario", "case"], "only a replay", id="a scenario for a real run"),
        pytest.param(["--mode", "dry-run", "--scenario", "case"], "only a replay", id="a scenario for a dry run"),
        pytest.param(["--mode", "replay", "--scenario", ""], "needs a scenario", id="an empty name"),
        pytest.param(["--mode", "replay", "--scenario", "cas"], "did you mean `case`", id="a misspelt name"),
        pytest.param(["--mode", "replay", "--scenario", "../nowhere"], "no scenario", id="a folder that is not there"),
        pytest.param(["--mode", "replay", "--scenario", "case", "--record", "x"], "record", id="recording a replay"),
        pytest.param(["--mode", "playback", "--scenario", "case"], "playback", id="no such mode"),
    ],
)
def test_a_replay_that_is_asked_for_wrongly_is_refused_before_anything_runs(
    project: Project, words: list[str], why: str
) -> None:
    project.runbook(note("one"))
    scenario(project, tool_responses={"one": {"stdout": "noted 1"}})
    assert why in project.exec(*words).ended(2).err
    assert (project.noted(), project.runs()) == ([], [])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param("tool_responses: [", "scenario.yaml:1:", id="broken YAML"),
        pytest.param({"tool_responses": {"onee": {}}}, "no step or tool `onee`", id="a misspelt step"),
        pytest.param({"tool_responses": {"note:gone": {}}}, "gone", id="an action that is not there"),
        pytest.param({"tool_response": {}}, "tool_response", id="an unknown key"),
        pytest.param({"tool_responses": {"one": {"exitcode": 1}}}, "exitcode", id="an unknown key of an answer"),
        pytest.param({"tool_responses": {"one": {"exit_code": "x"}}}, "scenario.yaml:4:", id="a word for an exit code"),
        pytest.param({"tool_responses": {"one": "noted"}}, "scenario.yaml:3:", id="text for an answer"),
        pytest.param({"tool_responses": {"one": {"failure": {"kind": "odd", "message": "m"}}}}, "odd", id="odd kind"),
        pytest.param({"tool_responses": {"one": {"duration": "soon"}}}, "soon", id="no duration"),
        pytest.param({"tool_responses": {"one": {"duration": "-1s"}}}, "-1s", id="a duration before the beginning"),
        pytest.param({"inputs": {"nobody": 1}}, "nobody", id="an input that is not there"),
        pytest.param({"inputs": {"count": "many"}}, "count", id="an input of another type"),
        pytest.param({"input_answers": {"count": [1]}}, "count", id="an answer of another type"),
        pytest.param({"evidence": {"one": {"a": "b"}}}, "not a `manual` step", id="evidence for a tool"),
        pytest.param({"extension_responses": {"one": {}}}, "not a `extension` step", id="an extension's for a tool"),
        pytest.param({"approvals": {"two": {"approved": True}}}, "two", id="an approval for no step"),
        pytest.param({"approvals": {"one": {"approved": "maybe"}}}, "scenario.yaml:4:", id="neither yes nor no"),
        pytest.param("[]", "scenario.yaml", id="a list"),
        pytest.param("", "scenario.yaml", id="nothing"),
    ],
)
def test_a_scenario_that_is_not_sound_is_refused(project: Project, document: Any, why: str) -> None:
    project.runbook(note("one"), inputs={"count": {"type": "int", "default": 1}})
    folder = scenario(project)
    project.write("scenarios/book/case/scenario.yaml", document)
    ran = replayed(project)
    assert why in ran.ended(1).err
    (test,) = project.gert("test", folder, "--json").ended(1).said["tests"]
    assert test["verdict"] == "error"
    assert why in test["message"]


def test_an_empty_scenario_has_no_answers(project: Project) -> None:
    project.runbook(note("one"))
    scenario(project)
    project.write("scenarios/book/case/scenario.yaml", "{}")
    replayed(project).ended(3)


# --- missing answers


def test_a_missing_answer_names_the_step_the_key_and_the_section(project: Project) -> None:
    project.runbook(note("one"))
    scenario(project, description="nothing")
    ran = replayed(project).ended(3)
    for word in ("`one`", "`note:go`", "`tool_responses`"):
        assert word in ran.said["failure"]["message"]


def test_an_answer_that_is_used_up_names_its_key(project: Project) -> None:
    project.runbook(note("one"), note("two"), note("three"))
    scenario(project, tool_responses={"note:go": noted("1", "2")})
    message = replayed(project).ended(3).said["failure"]["message"]
    for word in ("2 answers", "`note:go`", "`three`", "`tool_responses`"):
        assert word in message


@pytest.mark.parametrize("where", ["a step", "a loop", "a lane", "finally"])
def test_going_on_after_failures_does_not_hide_a_missing_answer_from_a_test(project: Project, where: str) -> None:
    missing = note("gone", continue_on_fail=True)
    steps: dict[str, list[dict[str, Any]]] = {
        "a step": [missing],
        "a loop": [note("gone", for_each={"as": "x", "over": [1, 2]}, continue_on_fail=True)],
        "a lane": [{"id": "p", "type": "parallel", "branches": [{"steps": [missing]}, LEFT]}],
        "finally": [note("one")],
    }
    project.runbook(*steps[where], after=[note("gone")] if where == "finally" else ())
    answer = {"a lane": {"left": noted("1")[0]}, "finally": {"one": noted("1")[0]}}.get(where, {})
    scenario(project, tool_responses=answer, test={"expected_status": "completed"})
    report = project.gert("test", ".", "--json").ended(1).said
    (test,) = report["tests"]
    assert (test["verdict"], test["status"]) == ("failed", "completed"), test["message"]
    assert "gone" in test["differences"][0]["found"]


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        pytest.param({}, "`look`", id="no answer at all"),
        pytest.param({"look": []}, "0 answers", id="an empty list"),
        pytest.param({"look": {"duration": "soon", "n": "x"}}, "is invalid", id="a duration that is none"),
        pytest.param({"look": {"redacted": "many", "n": "x"}}, "is invalid", id="a count that is none"),
        pytest.param({"look": {"failure": "no", "n": "x"}}, "is invalid", id="a failure that is none"),
    ],
)
def test_evidence_that_is_missing_fails_the_step_and_the_test(project: Project, evidence: Any, why: str) -> None:
    wanted = [{"kind": "text", "name": "n"}]
    project.runbook({"id": "look", "type": "manual", "instructions": "look", "required_evidence": wanted})
    scenario(project, evidence=evidence)
    ran = replayed(project).ended(3)
    assert why in ran.said["failure"]["message"]
    (test,) = project.gert("test", ".", "--json").ended(1).said["tests"]
    assert why in test["differences"][0]["found"]


# --- which answer


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        pytest.param({"note": 1}, "111", id="the tool stands for every call"),
        pytest.param({"note": 1, "note:go": 2}, "222", id="an action is closer than its tool"),
        pytest.param({"note": 1, "note:go": 2, "s": 3}, "333", id="a step is closer than an action"),
        pytest.param({"s": 3, "s[1]": 4}, "343", id="an iteration is closer than its step"),
        pytest.param({"note": 1, "s[2]": 4}, "114", id="what an iteration does not say, the tool does"),
    ],
)
def test_the_closest_answer_is_given(project: Project, responses: dict[str, int], words: str) -> None:
    project.runbook(note("s", "x", for_each={"as": "i", "over": [7, 8, 9]}))
    scenario(project, tool_responses={key: noted(str(word))[0] for key, word in responses.items()})
    answers = [word for name, word in said(traced(project)) if name.startswith("s[")]
    assert answers == list(words)


def test_a_path_is_closer_than_anything(project: Project) -> None:
    arm = {"condition": "default", "label": "arm", "steps": [note("s")]}
    project.runbook({"id": "b", "type": "branch", "branches": [arm]})
    keys = ["note", "note:go", "s", "b/arm/s"]
    for count in range(1, len(keys) + 1):
        scenario(project, tool_responses={key: noted(key)[0] for key in keys[:count]})
        assert ("s", keys[count - 1]) in said(traced(project))


KEYS = ["plain", "a/b", "100%", "a b", "ünï-✓", "[x]", "a]b", "a[b", "%41", "..", "#", "a.b", ":", "'\"", "0"]


@pytest.mark.parametrize("parallel", [False, True])
def test_an_item_is_named_as_it_is_or_as_events_carry_it(project: Project, parallel: bool) -> None:
    loop = {"as": "k", "over": KEYS, "key": "{{ .k }}", "parallel": parallel}
    project.runbook(note("s", "x", for_each=loop))
    scenario(project, tool_responses={"s": {"stdout": "noted none"}})
    ids = [each["data"]["step_id"] for each in of_type(traced(project), "step_start") if "[" in each["data"]["step_id"]]
    assert len(ids) == len(KEYS)
    scenario(project, tool_responses={each: noted(str(at))[0] for at, each in enumerate(ids)})
    assert [word for name, word in said(traced(project)) if "[" in name] == [str(at) for at in range(len(KEYS))]
    plain = [key for key in KEYS if "]" not in key]
    responses = {f"s[{key}]": noted(key)[0] for key in plain}
    scenario(project, tool_responses={**responses, "s": {"stdout": "noted none"}})
    answers = [word for name, word in said(traced(project)) if "[" in name]
    assert answers == [key if key in plain else "none" for key in KEYS]


def test_a_list_is_used_up_in_the_order_lanes_are_declared(project: Project) -> None:
    lanes = [{"label": name, "steps": [note(f"{name}1", scope=name), note(f"{name}2", scope=name)]} for name in "cab"]
    project.runbook({"id": "p", "type": "parallel", "branches": lanes})
    scenario(project, tool_responses={"note": noted(*"123456")})
    answers = {name: word for name, word in said(traced(project)) if word is not None}
    assert answers == {"c1": "1", "c2": "2", "a1": "3", "a2": "4", "b1": "5", "b2": "6"}


def test_nested_loops_are_named_by_path(project: Project) -> None:
    inner = note("in", "x", for_each={"as": "j", "over": ["x", "y"], "key": "{{ .j }}"})
    project.runbook({"id": "r", "type": "repeat", "repeat": {"max": 2, "until": "{{ false }}"}, "steps": [inner]})
    scenario(project, tool_responses={"in": {"stdout": "noted none"}})
    paths = [each["path"] for each in of_type(traced(project), "step_start") if each["data"]["step_id"].endswith("]")]
    assert len(set(paths)) == 4
    scenario(
        project,
        tool_responses={paths[3]: noted("path")[0], "in[x]": noted("item")[0], "in": noted("step")[0]},
    )
    assert [word for name, word in said(traced(project)) if "[" in name] == ["item", "step", "item", "path"]


def test_the_trace_of_a_replay_is_the_same_every_time(project: Project) -> None:
    reaching(project)

    def seen() -> list[Any]:
        return [(each["type"], each.get("path"), each.get("principal")) for each in traced(project)]

    assert seen() == seen()


def test_unused_answers_are_mentioned_and_no_failure(project: Project) -> None:
    project.runbook(note("one"), note("two", when="{{ false }}"))
    scenario(project, tool_responses={"one": noted("1", "2"), "two": noted("3")})
    (test,) = project.gert("test", ".", "--json").ended(0).said["tests"]
    assert any("`tool_responses.one`" in each and "`tool_responses.two`" in each for each in test["notes"])


# --- answers


@pytest.mark.parametrize("kind", FAILURE_KINDS)
@pytest.mark.parametrize("code", sampled([None, 0, 1], [None]))
def test_any_kind_of_failure_can_be_answered(project: Project, kind: str, code: int | None) -> None:
    project.runbook(note("one"))
    answer = {"failure": {"kind": kind, "message": "because"}, **({} if code is None else {"exit_code": code})}
    scenario(project, tool_responses={"one": answer})
    assert replayed(project).ended(3).said["failure"] == {"kind": kind, "message": "because"}


@pytest.mark.parametrize(
    ("answer", "code", "outputs"),
    [
        pytest.param({"stdout": "noted x"}, 0, {"said": "x"}, id="0 is the default"),
        pytest.param({"exit_code": 1, "stdout": "noted x"}, 3, {"said": "x"}, id="what matches is kept"),
        pytest.param({"exit_code": 255, "stdout": "other"}, 3, {}, id="what does not is left out"),
        pytest.param({"exit_code": -9, "stderr": "killed"}, 3, {}, id="a signal"),
        pytest.param({"stdout": "other"}, 3, {}, id="a missing output is an error"),
        pytest.param({"outputs": {"said": "given"}, "stdout": "noted x"}, 0, {"said": "given"}, id="outputs win"),
        pytest.param({"outputs": {"said": "y"}, "exit_code": 2}, 3, {"said": "y"}, id="outputs and a failure"),
    ],
)
def test_exit_codes_and_outputs(project: Project, answer: dict[str, Any], code: int, outputs: dict[str, Any]) -> None:
    project.runbook(note("one"))
    scenario(project, tool_responses={"one": answer})
    done = completed(traced(project, code=code), "one")
    assert done.get("outputs", {}) == outputs
    assert done["status"] == ("success" if code == 0 else done["status"])


def test_a_failure_says_the_last_words_of_the_tool_and_no_escapes(project: Project) -> None:
    project.runbook(note("one"))
    scenario(project, tool_responses={"one": {"exit_code": 4, "stderr": "first\n\u001b[31mno luck\u0007\n\n"}})
    ran = project.exec("--mode", "replay", "--scenario", "case", "-v").ended(3)
    assert "exited with 4" in ran.out
    assert "no luck" in ran.out
    assert not {"\x1b", "\x07"} & set(ran.out + ran.err)


HELP = "Try 'tar --help' for more information."


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        pytest.param({}, "`note` exited with 4: tar: bad option", id="found as in a real run"),
        pytest.param(
            {"failure": {"kind": "exit_code", "message": f"`tar` exited with 4: {HELP}"}},
            f"`tar` exited with 4: {HELP}",
            id="or as it was recorded",
        ),
    ],
)
def test_the_reason_of_a_scripted_failure(project: Project, recorded: dict[str, Any], reason: str) -> None:
    project.runbook(note("one"))
    answer = {"exit_code": 4, "stderr": f"tar: bad option\n{HELP}\n", **recorded}
    scenario(project, tool_responses={"one": answer})
    assert completed(traced(project, code=3), "one")["failure"]["message"] == reason


@pytest.mark.parametrize(
    ("duration", "shown"), [("1500ms", "1.5s"), ("2m", "2m"), ("1h30m", "1h30m"), ("0s", "0s"), ("1ms", "1ms")]
)
def test_steps_take_as_long_as_the_scenario_says(project: Project, duration: str, shown: str) -> None:
    project.runbook(note("one"))
    scenario(project, tool_responses={"one": {"stdout": "noted 1", "duration": duration}})
    done = completed(traced(project), "one")
    assert done["duration"] == shown


def test_times_that_are_said_add_up(project: Project) -> None:
    project.runbook(note("one"), note("two"), note("three"))
    scenario(project, tool_responses={"note": {"stdout": "noted 1", "duration": "20m"}})
    ran = replayed(project).ended(0)
    assert ran.said["duration"] == pytest.approx(3600, abs=1)


def test_a_loop_that_waits_between_attempts_does_not_wait(project: Project) -> None:
    project.runbook(note("one", retry={"max": 3, "backoff": "10h"}))
    scenario(project, tool_responses={"one": [{"exit_code": 1}, {"exit_code": 1}, *noted("3")]})
    assert ("one", "3") in said(traced(project))


# --- approvals


DOWN = {"kind": "transport", "message": "down"}


def approving(project: Project, **rule: Any) -> None:
    governance = {"rules": [{"effects": ["files"], "action": "require-approval", **rule}, {"default": "allow"}]}
    terms = {"require_signed_approvals": True} if rule.pop("signed", None) else {}
    governance["rules"][0].pop("signed", None)
    project.runbook(note("one"), governance={**governance, **terms})


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({}, id="one person"),
        pytest.param({"min_approvers": 3}, id="three people"),
        pytest.param({"separation_of_duties": True}, id="not the person who started the run"),
        pytest.param({"min_approvers": 2, "approvers": ["ann", "bob", "cyd"]}, id="two of a list"),
        pytest.param({"approvers": ["group:ops"], "min_approvers": 2}, id="two of a group"),
        pytest.param({"approvers": ["group:ops"], "separation_of_duties": True}, id="another member of a group"),
        pytest.param({"signed": True}, id="where signatures are required"),
        pytest.param({"signed": True, "min_approvers": 2, "approvers": ["group:ops"]}, id="signed by two of a group"),
    ],
)
def test_an_approval_the_scenario_lacks_is_given_and_says_that_it_is_scripted(
    project: Project, rule: dict[str, Any]
) -> None:
    approving(project, **rule)
    project.write("gert-project.yaml", {"name": "bench", "groups": {"ops": ["ann", "bob", "cyd"]}})
    scenario(project, tool_responses={"one": noted("1")[0]})
    events = traced(project, "--as", "ann")
    (submitted,) = of_type(events, "approval_submitted")
    assert submitted["data"]["method"] == "scripted"
    people = {each["data"]["approver_id"] for each in of_type(events, "approval_response")}
    assert len(people) == rule.get("min_approvers", 1)
    if rule.get("separation_of_duties"):
        assert "ann" not in people
    if rule.get("approvers"):
        assert people <= {"ann", "bob", "cyd"}


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        pytest.param({}, {"approved": False}, id="rejected"),
        pytest.param({}, {"approved": False, "approver": "bob", "reason": "no"}, id="rejected by a named approver"),
        pytest.param({}, {"expired": True}, id="not answered in time"),
        pytest.param(
            {},
            {"submitted": False, "failure": {"kind": "transport", "message": "down"}},
            id="approvers could not be asked",
        ),
        pytest.param({}, {"failure": DOWN}, id="lost while waiting"),
        pytest.param({"approvers": ["ann"]}, {"approved": True, "approver": "eve"}, id="a person who is not listed"),
        pytest.param(
            {"approvers": ["group:ops"]}, {"approved": True, "approver": "eve"}, id="a person outside the group"
        ),
        pytest.param({"approvers": ["group:gone"]}, None, id="an unknown group"),
        pytest.param({"separation_of_duties": True}, {"approved": True, "approver": "ann"}, id="who started it"),
        pytest.param({"separation_of_duties": True}, {"approved": True, "approver": " ANN "}, id="in other letters"),
        pytest.param({"min_approvers": 2}, {"approved": True, "approver": "bob"}, id="one where two are needed"),
        pytest.param(
            {"min_approvers": 2},
            {"responses": [{"approver": "bob", "approved": True}, {"approver": "bob", "approved": True}]},
            id="the same person twice",
        ),
        pytest.param(
            {}, {"responses": [{"approver": "bob", "approved": False}, {"approver": "cyd", "approved": True}]}, id="no"
        ),
        pytest.param({"signed": True}, {"responses": [{"approver": "bob", "approved": True}]}, id="said and unsigned"),
    ],
)
def test_what_is_no_approval_runs_nothing(project: Project, rule: dict[str, Any], answer: Any) -> None:
    approving(project, **rule)
    project.write("gert-project.yaml", {"name": "bench", "groups": {"ops": ["ann", "bob", "cyd"]}})
    given: dict[str, Any] = {"approvals": {"one": answer}} if answer is not None else {}
    scenario(project, tool_responses={"one": noted("1")[0]}, **given)
    events = traced(project, "--as", "ann", code=3)
    assert not [each for each in of_type(events, "step_complete") if each["data"]["status"] == "success"]
    if "separation_of_duties" not in rule:  # a test is run by nobody in particular
        (test,) = project.gert("test", ".", "--json").ended(1).said["tests"]
        assert test["verdict"] == "failed"


def test_each_iteration_may_have_an_approval_of_its_own(project: Project) -> None:
    rules = [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]
    loop = {"as": "i", "over": ["a", "b", "c"], "key": "{{ .i }}"}
    project.runbook(note("s", "x", for_each=loop, continue_on_fail=True), governance={"rules": rules})
    scenario(project, tool_responses={"s": noted("1")[0]}, approvals={"s[b]": {"approved": False, "approver": "bob"}})
    ran = replayed(project).ended(3)
    assert "s" in ran.said["failed_step"]


# --- evidence and extensions


def manual(*wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "look", "type": "manual", "instructions": "look", "required_evidence": list(wanted), **more}


TEXT = {"kind": "text", "name": "n"}
LIST = {"kind": "checklist", "name": "l", "items": ["x", "y"]}
FILE = {"kind": "attachment", "name": "f"}


@pytest.mark.parametrize(
    ("wanted", "given", "code"),
    [
        pytest.param([TEXT], {"n": "seen"}, 0, id="text"),
        pytest.param([LIST], {"l": True}, 0, id="a whole list"),
        pytest.param([LIST], {"l": ["x", "y"]}, 0, id="every item"),
        pytest.param([TEXT], {"n": "seen", "by": "bob"}, 0, id="by a named person"),
        pytest.param([{"kind": "text", "name": "by"}], {"by": "the book"}, 0, id="evidence that is called `by`"),
        pytest.param([], {"reject": "no"}, 3, id="rejected without wanting anything"),
        pytest.param([TEXT], {"reject": "no time"}, 3, id="rejected"),
        pytest.param([TEXT], {"reject": True}, 3, id="rejected without a reason"),
        pytest.param([TEXT], {"failure": {"kind": "timeout", "message": "nobody came"}}, 3, id="not given in time"),
        pytest.param([TEXT], {}, 3, id="nothing"),
        pytest.param([TEXT], {"m": "other"}, 3, id="something else"),
        pytest.param([TEXT, LIST], {"n": "seen"}, 3, id="only one of two"),
    ],
)
def test_evidence(project: Project, wanted: list[Any], given: dict[str, Any], code: int) -> None:
    project.runbook(manual(*wanted))
    scenario(project, evidence={"look": given})
    traced(project, code=code)


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        pytest.param([TEXT], {}, id="nothing"),
        pytest.param([TEXT], {"n": "seen", "m": "other"}, id="more than was asked for"),
        pytest.param([LIST], {"l": ["x"]}, id="an item is missing"),
        pytest.param([LIST], {"l": ["x", "y", "z"]}, id="an item that is not in the list"),
        pytest.param([LIST], {"l": False}, id="a list that was not gone through"),
        pytest.param([TEXT], {"n": ""}, id="no text"),
    ],
)
def test_evidence_no_person_could_have_given_is_warned_of(
    project: Project, wanted: list[Any], given: dict[str, Any]
) -> None:
    project.runbook(manual(*wanted))
    folder = scenario(project, evidence={"look": given})
    assert "D62" in project.gert("validate", folder, "--strict").ended(1).out


def test_a_manual_step_that_wants_nothing_needs_no_answer(project: Project) -> None:
    project.runbook(manual())
    scenario(project, description="nothing")
    traced(project)


def test_the_person_who_gave_evidence_is_on_record(project: Project) -> None:
    project.runbook(manual(TEXT))
    scenario(project, evidence={"look": {"n": "seen", "by": "bob"}})
    done = [each for each in of_type(traced(project), "step_complete") if each["data"]["step_id"] == "look"]
    assert done[0]["principal"]["id"] == "bob"


# --- inputs


@pytest.mark.parametrize(
    ("declared", "section", "code"),
    [
        pytest.param({"type": "string", "required": True, "from": "env/GONE"}, "input_answers", 0, id="environment"),
        pytest.param({"type": "string", "required": True, "from": "file/gone"}, "input_answers", 0, id="file"),
        pytest.param({"type": "string", "required": True, "from": "prompt"}, "input_answers", 0, id="prompt"),
        pytest.param({"type": "string", "required": True, "from": "provider/p.q"}, "input_answers", 0, id="provider"),
        pytest.param({"type": "string", "required": True, "from": "env/GONE"}, "inputs", 0, id="given anyway"),
        pytest.param({"type": "string", "required": True}, "inputs", 0, id="given"),
        pytest.param({"type": "string", "required": True}, None, 2, id="required and not there"),
        pytest.param({"type": "string", "required": True, "from": "env/SET_THERE"}, None, 2, id="not from here"),
        pytest.param({"type": "string", "required": True, "enum": ["w"]}, "inputs", 1, id="not one of those"),
        pytest.param({"type": "string", "default": "v"}, None, 0, id="a default"),
        pytest.param({"type": "string", "required": True, "secret": True}, None, 0, id="a secret"),
        pytest.param({"type": "string", "secret": True}, None, 0, id="a secret that need not be"),
        pytest.param({"type": "string", "required": True, "secret": True, "pattern": "^x+$"}, None, 0, id="a pattern"),
        pytest.param({"type": "int", "required": True, "secret": True, "min": 5}, None, 0, id="a secret number"),
        pytest.param({"type": "string", "required": True, "secret": True, "from": "env/GONE"}, None, 0, id="from env"),
    ],
)
def test_inputs_come_from_the_scenario_and_nowhere_else(
    project: Project, declared: dict[str, Any], section: str | None, code: int
) -> None:
    project.runbook(note("one", "x"), inputs={"i": declared})
    given: dict[str, Any] = {section: {"i": "v"}} if section is not None else {}
    scenario(project, tool_responses={"one": noted("1")[0]}, **given)
    words = ("exec", "book.yaml", "--mode", "replay", "--scenario", "case")
    watched(project, *words, SET_THERE="from the environment").ended(code)


def test_what_the_caller_gives_wins_over_the_scenario(project: Project) -> None:
    project.runbook(note("one", "x"), inputs={"i": {"type": "string", "required": True}})
    scenario(project, inputs={"i": "scenario"}, tool_responses={"one": noted("1")[0]})
    events = traced(project, "--var", "i=caller")
    assert [each["data"]["value"] for each in of_type(events, "input_resolved")] == ["caller"]
