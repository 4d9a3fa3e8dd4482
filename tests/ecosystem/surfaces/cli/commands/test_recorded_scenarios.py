"""Recording: a run that was recorded as a scenario replays to the same, and nothing secret is in it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.canaries import found_in
from tests.ecosystem.surfaces.cli.commands.test_replay_mode import manual
from tests.ecosystem.surfaces.cli.workbench import (
    END,
    NOTE,
    PATIENCE,
    Project,
    Ran,
    call,
    environment,
    events_in,
    finish,
    mode_of,
    note,
    of_type,
    snapshot,
    until,
)
from tests.soak import sampled

from gert.kernel.runbook.reader import read

PLACE = "scenarios/book/kept"


def recorded(project: Project, *words: str | Path, code: int = 0, place: str = PLACE, **environ: str) -> Ran:
    """Run for real, and record."""
    ran = project.exec("--record", place, "--json", *words, **environ).ended(code)
    assert ran.said["scenario"] == {"folder": place, "differs": None}
    return ran


def document(project: Project, name: str = "scenario.yaml", place: str = PLACE) -> dict[str, Any]:
    reading = read((project.root / place / name).read_bytes())
    assert not reading.findings
    plain: dict[str, Any] = json.loads(json.dumps(reading.tree.root))
    return plain


def visited(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    done = of_type(events, "step_complete")
    return sorted((each.get("path", ""), each["data"]["status"]) for each in done)


def outputs(events: list[dict[str, Any]]) -> dict[str, Any]:
    done = of_type(events, "step_complete")
    return {each.get("path", ""): each["data"].get("outputs") for each in done}


def agrees(project: Project, ran: Ran, place: str = PLACE) -> None:
    """The scenario replays to the same steps, outputs and outcome, and passes its own test."""
    first = events_in(project.root / place / "trace.jsonl")
    trace = project.root / "again.jsonl"
    trace.unlink(missing_ok=True)
    again = project.exec("--mode", "replay", "--scenario", place, "--json", "--trace", trace)
    second = events_in(trace)
    assert (again.said["status"], again.said.get("outcome")) == (ran.said["status"], ran.said.get("outcome"))
    assert again.said.get("failure") == ran.said.get("failure")
    assert (visited(second), outputs(second)) == (visited(first), outputs(first))
    report = project.gert("test", place, "--all", "--json").ended(0).said
    assert report["tests"][0]["notes"] == []
    project.gert("validate", project.root / place, "--strict").ended(0)


# --- what replays


SLOW, QUICK = "sleep 0.2", "sleep 0.02"


def lane(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"label": name, "steps": [{**step, "scope": name} for step in steps]}


COUNT = """
file="$0"; read -r count < "$file" 2>/dev/null || count=0; count=$((count + 1)); echo "$count" > "$file"
echo "count $count"; [ "$count" -ge "$1" ]
"""


def counter(project: Project, name: str = "count", enough: int = 3) -> None:
    """A tool that fails until it was called often enough, and says how often it was."""
    project.tool(
        name,
        ["sh", "-c", COUNT, str(project.root / f"{name}.txt"), str(enough)],
        extract={"count": {"from": "stdout", "pattern": "count (\\d+)"}},
        outputs={"count": {"type": "int"}},
    )


def lanes(project: Project) -> None:
    project.note_tool("slow", before=SLOW)
    project.note_tool("quick", before=QUICK)
    project.runbook(
        {
            "id": "p",
            "type": "parallel",
            "branches": [
                lane("a", note("a1", tool="slow"), note("a2", tool="quick")),
                lane("b", note("b1", tool="quick"), note("b2", tool="slow")),
                lane("c", note("c1", tool="quick"), note("c2", tool="quick")),
            ],
        },
        tools=["slow", "quick"],
    )


def keyed(project: Project) -> None:
    project.script("wait", 'sleep "$1"; echo "took $1"', extract={"took": {"from": "stdout", "pattern": "took (.*)"}})
    project.tool(
        "wait",
        ["sh", "-c", 'sleep "$1"; echo "took $1"', "sh", "{{ .time }}"],
        inputs={"time": {"type": "string"}},
        extract={"took": {"from": "stdout", "pattern": "took (.*)"}},
    )
    project.runbook(
        call(
            "s",
            "wait",
            inputs={"time": "{{ .each.t }}"},
            for_each={"as": "each", "over": "{{ .all }}", "key": "{{ .each.k }}", "parallel": True},
        ),
        tools=["wait"],
        constants={
            "all": [
                {"k": "a/b", "t": "0.2"},
                {"k": "100%", "t": "0.02"},
                {"k": "[ü]", "t": "0.1"},
                {"k": "0", "t": "0"},
            ]
        },
    )


def retried(project: Project) -> None:
    counter(project)
    project.runbook(call("s", "count", retry={"max": 4, "backoff": "1ms"}), tools=["count"])


def jumping(project: Project) -> None:
    counter(project, enough=1)
    project.runbook(
        call("s", "count"),
        note("between"),
        note("back", when="{{ lt .step.s.count 3 }}", next={"step": "s", "max": 5}),
        tools=["count", "note"],
    )


def repeated(project: Project) -> None:
    counter(project, enough=1)
    body = [call("s", "count"), note("in", "{{ .x }}", for_each={"as": "x", "over": ["1", "2"]})]
    until_three = {"max": 9, "until": "{{ eq .count 3 }}"}
    project.runbook({"id": "r", "type": "repeat", "repeat": until_three, "steps": body}, tools=["count", "note"])


def tidied(project: Project) -> None:
    project.script("fail", "echo oops >&2; exit 7")
    project.runbook(note("one"), call("boom", "fail"), note("never"), tools=["note", "fail"], after=[note("tidy")])


def continued(project: Project) -> None:
    project.script("fail", "echo partly; exit 7", extract={"got": {"from": "stdout", "pattern": "(part)"}})
    project.runbook(call("boom", "fail", continue_on_fail=True), note("on"), tools=["note", "fail"])


def slow(project: Project) -> None:
    project.script("hang", "sleep 20")
    project.runbook(call("s", "hang", timeout="100ms", continue_on_fail=True), tools=["hang"])


def absent(project: Project) -> None:
    project.tool("gone", ["no-such-program-at-all"])
    project.runbook(call("s", "gone", continue_on_fail=True), tools=["gone"])


def unmatched(project: Project) -> None:
    project.script("odd", "echo nothing here", extract={"x": {"from": "stdout", "pattern": "x=(.)"}})
    project.runbook(call("s", "odd", continue_on_fail=True), tools=["odd"])


def skipped(project: Project) -> None:
    project.runbook(note("one"), note("two", when="{{ false }}"), note("three"))


@pytest.mark.parametrize(
    ("build", "code"),
    [
        pytest.param(lanes, 0, id="lanes whose answers arrive in another order than declared"),
        pytest.param(keyed, 0, id="a keyed loop whose items end in another order"),
        pytest.param(retried, 0, id="a step that is tried again"),
        pytest.param(jumping, 0, id="jumps back"),
        pytest.param(repeated, 0, id="loops in a repeat"),
        pytest.param(tidied, 3, id="a failure, and steps after it"),
        pytest.param(continued, 0, id="a failure that is gone over"),
        pytest.param(slow, 0, id="a step that takes too long"),
        pytest.param(absent, 0, id="a program that is not there"),
        pytest.param(unmatched, 0, id="an output that is not found"),
        pytest.param(skipped, 0, id="a step that is skipped"),
    ],
)
def test_a_recorded_run_replays_to_the_same(project: Project, build: Any, code: int) -> None:
    build(project)
    ran = recorded(project, code=code)
    effects = project.noted()
    agrees(project, ran)
    assert project.noted() == effects


def test_people_are_recorded_as_what_they_said(project: Project) -> None:
    rules = [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]
    project.runbook(manual({"kind": "text", "name": "n"}, contract={"effects": []}), governance={"rules": rules})
    project.write("evidence.yaml", {"look": {"n": "all good", "by": "bob"}})
    ran = recorded(project, "--evidence", "evidence.yaml")
    agrees(project, ran)
    assert document(project)["evidence"]["look"][0]["n"] == "all good"
    assert document(project)["evidence"]["look"][0]["by"] == "bob"


@pytest.mark.parametrize("name", ["by", "duration", "redacted", "reject", "failure"])
def test_evidence_may_be_called_like_what_stands_beside_it(project: Project, name: str) -> None:
    project.runbook(
        manual({"kind": "text", "name": name}),
        {
            "type": "end",
            "outcome": {"category": "resolved", "code": "x", "meta": {"m": f"{{{{ .step.look.{name} }}}}"}},
        },
        ends=False,
    )
    project.write("evidence.yaml", {"look": {name: "the evidence"}})
    ran = project.exec("--record", PLACE, "--json", "--evidence", "evidence.yaml", "--as", "ann")
    if ran.code != 0:
        assert name in ("by", "reject"), "only these are taken by the evidence file itself"
        return
    agrees(project, ran)
    assert document(project)["evidence"]["look"][0][name] == "the evidence"


def test_an_interrupted_run_is_recorded_where_it_stopped(project: Project) -> None:
    project.script("hang", f"touch {project.root / 'started'}; sleep 20")
    project.runbook(note("one"), call("s", "hang"), note("never"), tools=["note", "hang"], after=[note("tidy")])
    running = project.start("--record", PLACE, "--json")
    until((project.root / "started").exists)
    running.send_signal(signal.SIGINT)
    ran = finish(running).ended(130)
    assert ran.said["scenario"] == {"folder": PLACE, "differs": None}
    agrees(project, ran)
    assert document(project, "test.yaml")["expected_status"] == "cancelled"


def test_a_run_whose_time_is_over_is_recorded_where_it_stopped(project: Project) -> None:
    project.script("hang", "sleep 20")
    project.runbook(note("one"), call("s", "hang"), tools=["note", "hang"])
    agrees(project, recorded(project, "--timeout", "300ms", code=3))


# --- inputs


VALUES = [
    "007",
    "1.10",
    "1e3",
    "true",
    "No",
    "null",
    "~",
    "",
    " led and trailed ",
    "two\nlines\n",
    "\n",
    "{{ .x }}",
    "=",
    "!tag",
    "&a",
    "*a",
    "- x",
    "# c",
    "a: b",
    "'\"",
    "\u2028\u0085\ufeff",
    "😀",
    "\x07\x1b[0m",
    "/x/",
    "%",
    "@",
    "`",
    "\\n",
    "\ufffe\uffff",
]


@pytest.mark.parametrize("type_name", ["string", "any"])
def test_inputs_are_recorded_as_they_were_given(project: Project, type_name: str) -> None:
    given = {f"i{number}": value for number, value in enumerate(VALUES)}
    meta = {name: f"{{{{ .{name} }}}}" for name in given}
    project.runbook(
        {"type": "end", "outcome": {"category": "resolved", "code": "x", "meta": meta}},
        inputs={name: {"type": type_name, "required": True} for name in given},
        ends=False,
    )
    words = [word for name, value in given.items() for word in ("--var", f"{name}={value}")]
    agrees(project, recorded(project, *words))


def test_inputs_from_elsewhere_are_recorded_and_not_looked_for_again(project: Project) -> None:
    source = {"type": "string", "required": True}
    project.write("here.txt", "from a file")
    project.runbook(
        note("one", "{{ .e }} {{ .f }} {{ .d }}"),
        inputs={
            "e": {**source, "from": "env/THERE"},
            "f": {**source, "from": "file/here.txt"},
            "d": {"type": "string", "default": "default"},
        },
    )
    ran = recorded(project, THERE="from the environment")
    (project.root / "here.txt").unlink()
    agrees(project, ran)
    assert document(project)["input_answers"] == {"e": "from the environment", "f": "from a file"}
    assert "inputs" not in document(project)


# --- secrets


CANARY = {"KEY": "sK9/canary+value=Zz&1", "given": "gV5+given/canary==%41", "from_env": "eN1\\env\\canary<&>"}

SPILL = """
import base64, os, sys
from urllib.parse import quote, quote_plus
for text in (os.environ["KEY"], os.environ["GIVEN"], os.environ["BOUND"]):
    data = text.encode()
    for form in (text, "x" + text + "y", base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(),
                 base64.b64encode(b"a" + data).decode(), quote(text, safe=""), quote_plus(text), data.hex()):
        print("out", form)
        print("err", form, file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_no_secret_is_recorded_in_any_form(project: Project, code: int) -> None:
    project.write("spill.py", SPILL)
    secret = {"type": "string", "required": True, "secret": True}
    project.tool(
        "spill",
        [sys.executable, "-S", str(project.root / "spill.py"), str(code)],
        inputs={"given": {"type": "any"}, "from_env": {"type": "any"}},
        secrets=[{"env": "KEY"}],
        action={"env": {"GIVEN": "{{ .given }}", "BOUND": "{{ .from_env }}"}},
        extract={"all": {"from": "stdout", "pattern": "(?s)(.*)"}},
    )
    project.runbook(
        call("s", "spill", inputs={"given": "{{ .given }}", "from_env": "{{ .from_env }}"}),
        tools=["spill"],
        inputs={"given": secret, "from_env": {**secret, "from": "env/CANARY_BOUND"}},
    )
    ran = recorded(
        project,
        "--var",
        f"given={CANARY['given']}",
        code=code,
        KEY=CANARY["KEY"],
        CANARY_BOUND=CANARY["from_env"],
    )
    for name in ("scenario.yaml", "test.yaml", "trace.jsonl"):
        data = (project.root / PLACE / name).read_bytes()
        assert not found_in(data, CANARY), name
        assert "\ufdd0".encode() not in data
    response = document(project)["tool_responses"]["s"][0]
    assert "[REDACTED]" in response["stdout"]
    assert "[REDACTED]" in response["stderr"]
    agrees(project, ran)


@pytest.mark.parametrize("where", ["code", "meta"])
def test_an_outcome_that_names_a_secret_replays_to_the_same(project: Project, where: str) -> None:
    """Within the run it is a reference, in the record it is masked: both are the same outcome."""
    outcome = {"category": "resolved", "code": "done", "meta": {}}
    outcome[where] = "{{ .given }}" if where == "code" else {"given": "{{ .given }}"}
    inputs = {"given": {"type": "string", "required": True, "secret": True}}
    project.runbook(note("a"), {"type": "end", "outcome": outcome}, ends=False, inputs=inputs)
    ran = recorded(project, "--var", f"given={CANARY['given']}")
    agrees(project, ran)


def test_secret_outputs_and_evidence_are_not_recorded(project: Project) -> None:
    project.script(
        "mint",
        "echo token=tK4-minted-canary",
        extract={"token": {"from": "stdout", "pattern": "token=(.*)"}},
        outputs={"token": {"type": "string", "secret": True}},
    )
    project.runbook(call("s", "mint"), tools=["mint"])
    ran = recorded(project)
    assert not found_in((project.root / PLACE / "scenario.yaml").read_bytes(), {"token": "tK4-minted-canary"})
    agrees(project, ran)


# --- what tools print


PRINTS = {
    "a NUL": b"a\0b",
    "no UTF-8": b"\xff\xfe\x80x",
    "terminal escapes": b"\x1b[2J\x1b]0;t\x07",
    "carriage returns": b"1%\r2%\r\n",
    "tabs and trailing spaces": b"\ta \n b \n\n",
    "no newline": b"x",
    "only newlines": b"\n\n\n",
    "other line ends": "\u2028\u2029\x85\x0b\x0c".encode(),
    "a byte order mark": "\ufeffa\n".encode(),
    "noncharacters": "\ufffe\uffff\ufdd0\ufdd1\ufdef\U0001ffff\U0010ffff".encode(),
    "private and invisible characters": "\ue000\u200b\u202e\U000e0001".encode(),
    "beyond the basic plane": "\U0001f600".encode(),
    "YAML": b"---\n- a: |\n  b\n...\n",
    "templates": b"{{ .secret }}\n{{ end",
    "quotes": b"'\"\\\n",
    "every byte": bytes(range(256)),
}


@pytest.mark.parametrize("lines", [False, True], ids=["alone", "among other lines"])
def test_whatever_a_tool_prints_is_recorded(project: Project, lines: bool) -> None:
    tools = [f"say-{number}" for number in range(len(PRINTS))]
    for tool, printed in zip(tools, PRINTS.values(), strict=True):
        (project.root / tool).write_bytes(b"first\nout:" + printed + b"\nlast\n" if lines else b"out:" + printed)
        extract = {"all": {"from": "stdout", "pattern": "(?s)out:(.*)"}}
        project.tool(tool, ["cat", str(project.root / tool)], extract=extract)
    project.runbook(*(call(f"s{number}", tool) for number, tool in enumerate(tools)), tools=tools)
    agrees(project, recorded(project))


def test_a_megabyte_is_recorded(project: Project) -> None:
    project.script(
        "big",
        "head -c 1000000 /dev/zero | tr '\\0' 'x'; echo; echo END=1",
        extract={"end": {"from": "stdout", "pattern": "END=(.)"}},
    )
    project.script(
        "begin",
        "echo BEGIN=1; head -c 1000000 /dev/zero | tr '\\0' 'x'",
        extract={"begin": {"from": "stdout", "pattern": "BEGIN=(.)"}},
    )
    project.runbook(call("s", "big"), call("t", "begin"), tools=["big", "begin"])
    agrees(project, recorded(project))


# --- where


def test_what_is_recorded_is_for_its_owner_and_runs_once_it_is_golden(project: Project) -> None:
    project.runbook(note("one"))
    recorded(project)
    folder = project.root / PLACE
    assert sorted(each.name for each in folder.iterdir()) == ["scenario.yaml", "test.yaml", "trace.jsonl"]
    assert mode_of(folder) == 0o700
    assert document(project, "test.yaml") == {
        "description": document(project, "test.yaml")["description"],
        "golden": False,
        "expected_status": "completed",
        "expected_outcome": "resolved",
        "expected_code": "done",
        "must_reach": ["one"],
        "expected_commands": {"one": ["sh", "-c", f"\n{NOTE}\n", "sh", "one", str(project.effects)]},
    }
    assert project.gert("test", ".", "--json").ended(0).said["skipped"] == 1
    assert not [each for each in folder.parent.iterdir() if each.name.startswith(".")]
    project.gert("trace", "verify", folder / "trace.jsonl").ended(0)
    assert (folder / "trace.jsonl").read_bytes() == project.run().trace.read_bytes()


@pytest.mark.parametrize("place", ["new", "a/b/c/new", "./new/", "two words/ünï", "-dash"])
def test_the_folder_is_made(project: Project, place: str) -> None:
    project.runbook(note("one"))
    project.exec(f"--record={place}").ended(0)
    assert (project.root / place / "scenario.yaml").is_file()


def test_the_folder_one_works_in_may_be_the_empty_one(project: Project) -> None:
    project.runbook(note("one"))
    (project.root / "here").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "gert", "exec", "../book.yaml", "--record", ".", "--json"],
        cwd=project.root / "here",
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    said = Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode()).ended(0).said
    assert said["scenario"] == {"folder": ".", "differs": None}
    assert (project.root / "here/scenario.yaml").is_file()


def test_an_empty_folder_is_used(project: Project) -> None:
    project.runbook(note("one"))
    (project.root / PLACE).mkdir(parents=True)
    recorded(project)


@pytest.mark.parametrize("what", ["a folder with something in it", "a file", "a link to nowhere", "below a file"])
def test_a_place_that_cannot_be_used_is_refused_before_anything_runs(project: Project, what: str) -> None:
    project.runbook(note("one"))
    place = project.root / "place"
    if what == "a folder with something in it":
        place.mkdir()
        (place / ".hidden").write_text("mine")
    elif what == "a link to nowhere":
        place.symlink_to(project.root / "nowhere")
    else:
        place.write_text("mine")
    before = snapshot(project.root)
    ran = project.exec("--record", place / "below" if what == "below a file" else place).ended(2)
    assert "record" in ran.err or "place" in ran.err
    assert (project.noted(), project.runs()) == ([], [])
    assert snapshot(project.root) == before


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(project: Project) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is forbidden to root")
    project.runbook(note("one"))
    locked = project.root / "locked"
    locked.mkdir(0o500)
    project.exec("--record", locked / "new").ended(2)
    assert (project.noted(), project.runs()) == ([], [])


@pytest.mark.parametrize("value", ["true", "1", "YES", " on "])
def test_every_run_is_recorded_with_auto_record(project: Project, value: str) -> None:
    project.runbook(note("one"))
    said = project.exec("--json", GERT_AUTO_RECORD=value).ended(0).said
    place = project.root / "scenarios/book" / said["run_id"]
    assert (place / "scenario.yaml").is_file()
    assert said["scenario"]["differs"] is None
    assert project.gert("test", ".", "--all", "--json").ended(0).said["passed"] == 1


@pytest.mark.parametrize("value", ["", "0", "false", "no", "off", "maybe"])
def test_no_run_is_recorded_without_auto_record(project: Project, value: str) -> None:
    project.runbook(note("one"))
    assert "scenario" not in project.exec("--json", GERT_AUTO_RECORD=value).ended(0).said
    assert not (project.root / "scenarios").exists()


@pytest.mark.parametrize("mode", ["dry-run", "probe"])
def test_what_is_no_run_is_not_recorded(project: Project, mode: str) -> None:
    project.runbook(note("one"))
    project.exec("--mode", mode, GERT_AUTO_RECORD="1").ended(0)
    assert not (project.root / "scenarios").exists()
    project.exec("--mode", mode, "--record", "x").ended(2)


@pytest.mark.parametrize("place", ["--trace", "--db"])
def test_the_record_may_be_elsewhere(project: Project, place: str) -> None:
    project.runbook(note("one"))
    agrees(project, recorded(project, place, project.root / "elsewhere"))


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["aloud", "quiet"])
def test_a_scenario_that_cannot_be_written_is_an_error_although_the_run_completed(
    project: Project, quiet: tuple[str, ...]
) -> None:
    """The folder is taken while the run is under way."""
    project.script("take", f"mkdir -p {project.root / PLACE}; touch {project.root / PLACE}/mine")
    project.runbook(call("s", "take"), tools=["take"])
    ran = project.exec("--record", PLACE, *quiet).ended(4)
    assert "error: the scenario cannot be written to" in ran.err
    assert "scenario recorded" not in ran.out


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["aloud", "quiet"])
def test_a_run_that_failed_without_its_scenario_says_both(project: Project, quiet: tuple[str, ...]) -> None:
    project.script("take", f"mkdir -p {project.root / PLACE}; touch {project.root / PLACE}/mine; exit 5")
    project.runbook(call("s", "take"), tools=["take"])
    ran = project.exec("--record", PLACE, *quiet).ended(3)
    assert "error: the scenario cannot be written to" in ran.err
    assert "exited with 5" in ran.out + ran.err


def test_a_recording_that_succeeds_is_silent_with_quiet(project: Project) -> None:
    project.runbook(note("one"))
    ran = project.exec("--record", PLACE, "-q").ended(0)
    assert (ran.out, ran.err) == ("", "")
    assert (project.root / PLACE / "scenario.yaml").exists()


def test_a_run_that_cannot_be_recorded_ends_as_it_ended(project: Project) -> None:
    """The folder is taken while the run is under way."""
    project.script("take", f"mkdir -p {project.root / PLACE}; touch {project.root / PLACE}/mine")
    project.runbook(call("s", "take"), tools=["take"])
    ran = project.exec("--record", PLACE, "--json").ended(4)
    assert ran.said["status"] == "completed"
    assert "cannot be written" in ran.said["scenario"]["problem"]
    assert "cannot be written" in ran.err
    assert [each.name for each in (project.root / PLACE).iterdir()] == ["mine"]
    assert [each.name for each in (project.root / PLACE).parent.iterdir()] == ["kept"]


def test_a_scenario_that_is_not_the_runbooks_own_is_still_named(project: Project) -> None:
    project.runbook(note("one"), END, ends=False)
    recorded(project, place="elsewhere")
    assert project.gert("test", "elsewhere", "--json").ended(1).said["errors"] == 1
    project.exec("--mode", "replay", "--scenario", "elsewhere").ended(0)


def hanging(project: Project, *steps: dict[str, Any], **more: Any) -> None:
    project.script("hang", f"touch {project.root / 'started'}; sleep 20")
    project.runbook(*steps, tools=["note", "hang"], after=[note("tidy")], **more)


def loop_of_hangs(project: Project) -> None:
    hanging(project, call("s", "hang", for_each={"as": "i", "over": [1, 2, 3], "parallel": True}), note("never"))


def hang_beside_others(project: Project) -> None:
    first = lane("a", note("a1"), call("a2", "hang"), note("a3"))
    lanes = [first, lane("b", note("b1")), lane("c", call("c1", "hang"))]
    hanging(project, {"id": "p", "type": "parallel", "branches": lanes}, note("never"))


def hang_in_a_repeat(project: Project) -> None:
    body = [note("in"), call("s", "hang", when="{{ eq .repeat.index 1 }}"), note("after")]
    hanging(project, {"id": "r", "type": "repeat", "repeat": {"max": 3, "until": "{{ false }}"}, "steps": body})


def hang_that_may_fail(project: Project) -> None:
    hanging(project, call("s", "hang", continue_on_fail=True), note("never"))


def hang_while_waiting_to_try_again(project: Project) -> None:
    project.script("fails", f"touch {project.root / 'started'}; exit 1")
    retry = {"max": 3, "backoff": "20s"}
    project.runbook(call("s", "fails", retry=retry), note("never"), tools=["fails", "note"], after=[note("tidy")])


@pytest.mark.parametrize("lanes_at_once", sampled(["1", "2", "16"], ["2"]))
@pytest.mark.parametrize(
    "build",
    [loop_of_hangs, hang_beside_others, hang_in_a_repeat, hang_that_may_fail, hang_while_waiting_to_try_again],
)
def test_wherever_a_run_is_interrupted_its_scenario_stops_there(
    project: Project, build: Any, lanes_at_once: str
) -> None:
    build(project)
    running = project.start("--record", PLACE, "--json", "--max-parallel", lanes_at_once)
    until((project.root / "started").exists)
    running.send_signal(signal.SIGINT)
    ran = finish(running)
    assert ran.code == 130, ran
    assert ran.said["scenario"] == {"folder": PLACE, "differs": None}
    again = project.exec("--mode", "replay", "--scenario", PLACE, "--json")
    assert (again.said["status"], again.said["failure"]) == (ran.said["status"], ran.said["failure"])
    project.gert("test", PLACE, "--all").ended(0)


DATA = [
    {"<<": {"a": 1}, "b": 2},
    {"": 1, "1": 2, "true": 3, "~": 4, "*x": 5, "- a": 6, "a: b": 7, "\n": 8, "null": None, "{": {}, "[": []},
    {"a": [[], [[1]], [{"b": {}}], {"c": [None, True, False, 0, -0.5, 1e22, 1e-9, 9007199254740991]}]},
    [[["deep", {"er": ["\x00\ud7ff", "a\n\nb\n", "|", ">", "%YAML 1.2", "---", "..."]}]]],
    {"x-" + "k" * 300: "v" * 5000},
    {"ключ": "значение", "😀": ["😀"]},
]


@pytest.mark.parametrize("data", DATA, ids=range(len(DATA)))
def test_nested_inputs_are_recorded_as_they_were_given(project: Project, data: Any) -> None:
    project.runbook(
        {"type": "end", "outcome": {"category": "resolved", "code": "x", "meta": {"i": "{{ .i }}"}}},
        inputs={"i": {"type": "any", "required": True}},
        ends=False,
    )
    project.write("values.json", {"i": data})
    ran = recorded(project, "--vars-file", "values.json")
    assert ran.said["outcome"]["meta"]["i"] == data
    agrees(project, ran)


@pytest.mark.parametrize("data", DATA, ids=range(len(DATA)))
def test_nested_outputs_are_recorded_as_they_were_found(project: Project, data: Any) -> None:
    project.write("out.json", json.dumps(data))
    project.tool(
        "say",
        ["cat", str(project.root / "out.json")],
        extract={"all": {"from": "json", "path": "$"}},
    )
    project.runbook(
        call("s", "say"),
        {"type": "end", "outcome": {"category": "resolved", "code": "x", "meta": {"i": "{{ .step.s.all }}"}}},
        tools=["say"],
        ends=False,
    )
    ran = recorded(project)
    assert ran.said["outcome"]["meta"]["i"] == data
    agrees(project, ran)


def waiting_with(project: Project, *words: str) -> str:
    """The id of a run that waits for approval after a first step."""
    governed = {"rules": [{"writes": ["production"], "action": "require-approval"}, {"default": "allow"}]}
    project.note_tool("ask", contract={"writes": ["production"]})
    project.runbook(note("one"), note("two", "hello", tool="ask"), tools=["note", "ask"], governance=governed)
    project.exec("--detach", "--as", "kim", *words).ended(0)
    return project.run().id


def test_a_run_that_waited_is_recorded_when_it_has_ended_with_its_signed_approval(project: Project) -> None:
    signed = {"require_signed_approvals": True, "rules": [{"default": "require-approval"}]}
    project.runbook(note("write", "hello"), governance=signed)
    project.gert("keys", "new", "--id", "bob", "--out", "bob.key").ended(0)
    keys = {
        "GERT_APPROVAL_KEY_BOB": project.gert("keys", "show", "bob.key", "--json").said["public"],
        "GERT_APPROVAL_OWNER_BOB": "bob@example.com",
    }
    waiting = project.exec("--detach", "--record", PLACE, **keys).ended(0)
    run = project.run().id
    assert f"resume with: gert resume {run} --record {PLACE}\n" in waiting.out
    assert waiting.err == ""
    assert not (project.root / PLACE).exists()
    project.gert("approve", run, "--as", "bob@example.com", "--key", "bob.key", **keys).ended(0)
    ended = project.gert("resume", run, **keys).ended(0)
    assert f"scenario recorded in {project.root / PLACE}; its replay has the same outcome" in ended.out
    project.gert("test", PLACE, "--all").ended(0)
    project.gert("test", "book.yaml", "--all").ended(0)


@pytest.mark.parametrize("words", [(), ("--record", "elsewhere")], ids=["as it was started", "elsewhere"])
def test_a_run_that_waits_twice_is_recorded_where_the_last_command_says(
    project: Project, words: tuple[str, ...]
) -> None:
    run = waiting_with(project, "--record", PLACE)
    again = project.gert("resume", run, "--detach", *words).ended(0)
    place = words[1] if words else str(project.root / PLACE)
    assert f"resume with: gert resume {run} --record {place}\n" in again.out
    project.gert("approve", run, "--as", "ann").ended(0)
    ended = project.gert("resume", run, "--json", *words).ended(0).said
    assert ended["scenario"] == {"folder": place, "differs": None}
    project.exec("--mode", "replay", "--scenario", place).ended(0)
    assert (project.root / PLACE).exists() is (not words)


def test_a_run_is_recorded_although_only_its_resume_asks_for_it(project: Project) -> None:
    run = waiting_with(project)
    project.gert("approve", run, "--as", "ann").ended(0)
    project.gert("resume", run, "--record", PLACE).ended(0)
    project.gert("test", PLACE, "--all").ended(0)


def test_a_run_that_was_killed_is_recorded_by_its_resume(project: Project) -> None:
    project.script("hang", f"[ -e {project.root / 'started'} ] && exit; touch {project.root / 'started'}; sleep 60")
    project.runbook(note("one"), call("s", "hang"), tools=["note", "hang"])
    running = project.start("--record", PLACE)
    until((project.root / "started").exists)
    running.kill()
    finish(running)
    project.gert("resume", "last", "--allow-running").ended(0)
    assert project.noted() == ["one"]
    project.gert("test", PLACE, "--all").ended(0)


def test_a_folder_that_was_taken_since_does_not_stop_the_resume_and_is_an_error_at_its_end(project: Project) -> None:
    run = waiting_with(project, "--record", PLACE)
    project.write(f"{PLACE}/mine", "")
    project.gert("approve", run, "--as", "ann").ended(0)
    project.gert("resume", run, "--record", PLACE).ended(2)
    assert project.noted() == ["one"]
    ended = project.gert("resume", run).ended(4)
    assert "error: the scenario cannot be written to" in ended.err
    assert "run completed" in ended.out
    assert [each.name for each in (project.root / PLACE).iterdir()] == ["mine"]


def test_a_rerun_does_not_take_over_the_scenario_of_the_run(project: Project) -> None:
    project.script("bad", f"[ -e {project.root / 'fixed'} ]")
    project.runbook(note("one"), call("s", "bad"), tools=["note", "bad"])
    project.exec("--record", PLACE).ended(3)
    project.write("fixed", "")
    assert "scenario" not in project.gert("rerun", "last", "--from", "s", "--json").ended(0).said
