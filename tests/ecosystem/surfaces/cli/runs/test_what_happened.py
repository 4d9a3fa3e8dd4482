"""Finding out what happened: why runs failed, each error once, newlines that can be seen, hints that name the fix."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import Terminal
from tests.ecosystem.surfaces.cli.workbench import ALLOW, END, NOTE, Project, note, of_type

BAD = ["sh", "-c", "echo the disk is gone >&2; exit 3"]
STEP: dict[str, Any] = {"id": "bad", "type": "tool", "tool": "bad"}


def failing(project: Project, *steps: dict[str, Any]) -> None:
    project.tool("bad", BAD)
    project.runbook(note("one"), *(steps or (STEP,)), tools=["note", "bad"])


def test_a_list_of_runs_says_why_one_failed(project: Project) -> None:
    failing(project)
    project.exec().ended(3)
    listed = project.gert("run", "list").ended(0).out
    assert "bad: `sh` exited with 3: the disk is gone" in listed
    (row,) = json.loads(project.gert("run", "list", "--json").out)
    assert row["why"] == "bad: `sh` exited with 3: the disk is gone"


def test_an_item_of_a_block_that_failed_is_named_once_and_as_people_read_it(project: Project) -> None:
    each = {**STEP, "for_each": {"over": ["a/b"], "as": "x", "key": "{{ .x }}"}}
    arm = {"condition": "default", "label": "some", "steps": [each]}
    failing(project, {"id": "any", "type": "branch", "branches": [arm]})
    project.exec().ended(3)
    assert " `bad[a/b]`: `sh` exited with 3: the disk is gone " in project.gert("run", "list").ended(0).out
    refused = project.gert("rerun", "last", "--from", "bad[a/c]").ended(2).err
    assert "it reached `one`, `bad[a/b]`, `bad`, `any`" in refused
    assert "did you mean `bad[a/b]`?" in project.gert("logs", "last", "bad[a/c]").ended(2).err


def test_a_tab_in_what_a_tool_printed_is_seen_as_one(project: Project) -> None:
    project.tool("bad", ["sh", "-c", "printf 'disk\\tgone\\n' >&2; exit 3"])
    project.runbook({**STEP}, tools=["bad"])
    ran = project.exec().ended(3)
    shown = project.gert("run", "show", "last").ended(0).out
    assert "disk⇥gone" in shown
    assert "\ufffd" not in ran.out + ran.err + shown


def test_a_run_is_shown_with_its_steps_and_why_one_failed(project: Project) -> None:
    failing(project)
    project.exec().ended(3)
    shown = project.gert("run", "show", "last").ended(0).out
    assert re.search(r"✓ one  .*\n  ✗ bad  .*the disk is gone", shown)
    steps = project.gert("run", "show", "last", "--json").ended(0).said["steps"]
    assert [(each["path"], each["status"]) for each in steps] == [("one", "success"), ("bad", "failed")]


def test_a_run_is_shown_with_what_its_outcome_says_and_who_approved_what(project: Project) -> None:
    asks = {"rules": [{"effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}
    outcome = {"category": "resolved", "code": "up", "meta": {"pods": 3, "zone": "eu\nwest"}}
    restart = note("restart", contract={"effects": ["files", "restart"]})
    project.runbook(restart, {"type": "end", "outcome": outcome}, governance=asks)
    with Terminal(project, "--as", "kim") as terminal:
        terminal.answer("approve?", "y it is quiet")
        terminal.ended(0)
    shown = project.gert("run", "show", "last").ended(0).out
    assert "  outcome:     resolved: up\n               pods = 3\n               zone = eu" in shown
    assert re.search(r"✓ restart  .*\n      approved by kim \(terminal\) at 20\S+Z: it is quiet\n", shown)
    said = project.gert("run", "show", "last", "--json").ended(0).said
    assert said["outcome"] == said["end"]["outcome"] == outcome
    [restarted, ended] = said["steps"]
    [approval] = restarted["approvals"]
    assert (approval.pop("at") or "").endswith("Z")
    expected = {"approver": "kim", "approved": True, "method": "terminal", "signed": False, "reason": "it is quiet"}
    assert approval == expected
    assert "approvals" not in ended


def test_an_answer_that_no_terminal_gave_is_shown_and_recorded_as_such(project: Project) -> None:
    project.runbook(note("restart"), governance={"rules": [{"default": "require-approval"}]})
    project.exec("--as", "kim", stdin="y\n").ended(0)
    assert "approved by kim (stdin) at 20" in project.gert("run", "show", "last").ended(0).out
    events = of_type(project.run().events(), "approval_submitted", "approval_response", "approval_resolved")
    assert [each["data"]["method"] for each in events] == ["stdin"] * 3
    project.verifies()


def test_a_run_is_shown_with_who_rejected_a_step(project: Project) -> None:
    asks = {"rules": [{"default": "require-approval"}]}
    project.runbook(note("restart"), governance=asks)
    project.exec("--detach").ended(0)
    [ticket] = json.loads(project.gert("approvals", "list", "--json").ended(0).out)
    project.gert("reject", ticket["ticket_id"], "--as", "lou", "--reason", "too late").ended(0)
    project.gert("resume", "last").ended(3)
    assert re.search(r"rejected by lou \(\S+\) at 20\S+Z: too late\n", project.gert("run", "show", "last").ended(0).out)


def test_the_status_of_a_failed_run_names_the_step(project: Project) -> None:
    failing(project)
    project.exec().ended(3)
    said = project.gert("run", "status", "last").ended(0).out
    assert "failed at:   bad\n" in said
    assert "│" not in said  # the reason is all that the tool printed
    assert f"output:      gert logs {project.run().id} bad\n" in said
    assert project.gert("run", "status", "last", "--json").ended(0).said["failed_step"] == "bad"


def test_the_status_of_a_run_that_completed_has_its_outcome(project: Project) -> None:
    outcome = {"category": "escalated", "code": "too_hot", "meta": {"degrees": 90}}
    project.runbook(note("one"), {"type": "end", "outcome": outcome})
    project.exec().ended(0)
    said = project.gert("run", "status", "last").ended(0).out
    assert "  outcome:     escalated: too_hot\n               degrees = 90\n" in said
    assert project.gert("run", "status", "last", "--json").ended(0).said["outcome"] == outcome


def test_the_status_of_a_run_that_was_cut_off_names_the_open_call_and_the_next_step(project: Project) -> None:
    script = f"{NOTE}; kill -9 $PPID"
    project.tool(
        "once",
        ["sh", "-c", script, "sh", "{{ .word }}", str(project.effects)],
        inputs={"word": {"type": "string", "required": True}},
        contract={"idempotent": False},
    )
    project.runbook(note("one"), note("pay", tool="once"), tools=["note", "once"])
    project.exec().ended(-signal.SIGKILL)
    shown, said = (project.gert("run", each, "last").ended(0).out for each in ("show", "status"))
    resume = f"  next:        gert resume {project.run().id} --reconcile pay=CHOICE\n"
    assert "  in doubt:    pay (once:go): gert stopped before recording a result" in said
    assert resume in said
    assert said[said.index("  in doubt:") :] == shown[shown.index("  in doubt:") :].partition("\n\nsteps")[0] + "\n"
    whole, brief = (project.gert("run", each, "last", "--json").ended(0).said for each in ("show", "status"))
    assert (brief["in_doubt"], brief["next"]) == (whole["in_doubt"], whole["next"])
    assert [each["path"] for each in brief["in_doubt"]] == ["pay"]


TALKS = (
    "for n in 1 2 3 4 5 6; do echo line $n $TOKEN >&2; done; printf '\\033[31mred\\033[0m\\033]0;t\\007\\n' >&2; exit 3"
)
LAST = [f"│ line {n} [REDACTED]" for n in range(3, 7)] + ["│ red�]0;t�"]


def talking(project: Project, script: str = TALKS, **more: Any) -> None:
    project.script("bad", script, secrets=[{"env": "TOKEN", "required": False}])
    project.runbook({**STEP, **more}, tools=["bad"])


def quoted(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("│")]


def test_what_a_failed_step_printed_last_is_shown_below_its_failure(project: Project) -> None:
    talking(project)
    ran = project.exec(TOKEN="s3cret-token").ended(3)
    assert re.search(r"  exit_code: `sh` exited with 3: .*red.*\n  │ line 3 ", ran.out)
    assert f"\noutput of the failed step: gert logs {project.run().id} bad\n" in ran.out
    assert quoted(ran.out) == LAST
    for command in ("status", "show"):
        said = project.gert("run", command, "last").ended(0).out
        assert quoted(said) == LAST
        assert re.search(rf"output: +gert logs {project.run().id} bad\n", said)
    assert "line 1 [REDACTED]" in project.gert("logs", "last", "bad").ended(0).out


def test_it_is_shown_on_a_terminal_too(project: Project) -> None:
    talking(project)
    with Terminal(project, environ={"TERM": "xterm", "TOKEN": "s3cret-token"}) as terminal:
        terminal.ended(3)
    # What is drawn while the step runs may have shown the same before.
    *_, last = terminal.screen.partition("exited with 3")
    assert [line for line in re.sub(r"\x1b\[[0-9;]*m", "", last).splitlines() if "│ line 6 [REDACTED]" in line]
    assert "s3cret" not in terminal.screen


@pytest.mark.parametrize(
    ("script", "more", "lines"),
    [
        pytest.param("echo one; echo two; exit 3", {}, ["│ one", "│ two"], id="stdout where stderr is empty"),
        pytest.param("echo one; echo why >&2; exit 3", {}, [], id="nothing where the reason says it all"),
        pytest.param("echo one >&2; echo two >&2", {}, [], id="nothing where it went well"),
        pytest.param("echo a >&2; echo b >&2; exit 3", {"continue_on_fail": True}, ["│ a", "│ b"], id="where it may"),
        pytest.param(
            "[ -e f ] || { touch f; echo old >&2; echo old >&2; exit 1; }; echo new; echo newer; exit 3",
            {"retry": {"max": 2, "backoff": "1ms"}},
            ["│ new", "│ newer"],
            id="of the last attempt",
        ),
    ],
)
def test_which_lines_are_shown(project: Project, script: str, more: dict[str, Any], lines: list[str]) -> None:
    talking(project, script, **more)
    assert quoted(project.exec().out) == lines


def test_lines_without_end_are_cut_and_not_shown_whole(project: Project) -> None:
    talking(project, "for n in 1 2 3; do head -c 100000 /dev/zero | tr '\\0' x >&2; echo >&2; done; exit 3")
    project.exec().ended(3)
    lines = quoted(project.gert("run", "status", "last").out)
    assert lines
    assert all(len(line) < 500 for line in lines)


def test_a_failure_of_a_step_that_called_nothing_names_no_output(project: Project) -> None:
    project.runbook({"id": "no", "type": "assert", "assert": [{"type": "equals", "value": "a", "expected": "b"}]})
    assert "gert logs" not in project.exec().ended(3).out
    assert "gert logs" not in project.gert("run", "status", "last").ended(0).out


def test_the_command_that_shows_output_names_the_item_and_the_ledger(project: Project) -> None:
    talking(project, "echo a b >&2; exit 3", for_each={"over": ["a/b c"], "as": "x", "key": "{{ .x }}"})
    ran = project.exec("--db", "runs.db").ended(3)
    (command,) = re.findall(r"output of the failed step: gert (logs .*)\n", ran.out)
    assert "a b" in project.gert(*shlex.split(command)).ended(0).out


def test_the_output_of_the_failed_step_is_found_before_that_of_steps_after_it(project: Project) -> None:
    talking(project, "echo a >&2; echo b >&2; exit 3")
    book = json.loads((project.root / "book.yaml").read_text())
    each = {"over": list(range(25)), "as": "i"}
    book["finally"] = [{"id": "tidy", "type": "tool", "tool": "ok", "for_each": each}]
    project.script("ok", "echo fine >&2")
    project.write("book.yaml", book | {"tools": ["bad", "ok"]})
    project.exec().ended(3)
    assert quoted(project.gert("run", "status", "last").ended(0).out) == ["│ a", "│ b"]


def test_the_values_of_a_shown_run_are_in_one_column_however_long_the_names_of_tools_and_policies_are(
    project: Project,
) -> None:
    project.note_tool("a-tool-with-a-rather-long-name")
    floor = {"apiVersion": "policy/v0", "meta": {"name": "a-rather-long-floor"}, "governance": ALLOW}
    project.write("floor.policy.yaml", floor)
    project.runbook(note("one"), tools=["note", "a-tool-with-a-rather-long-name"])
    project.exec("--policy", "floor.policy.yaml").ended(0)
    facts, _, _ = project.gert("run", "show", "last").ended(0).out.partition("\n\n")
    lines = [line for line in facts.splitlines()[1:] if not line.startswith("  next:")]
    assert any("a-rather-long-floor sha256:" in line for line in lines)
    assert {len(re.match(r"  [a-z ]+: +", line)[0]) for line in lines} == {15}  # type: ignore[index]


def test_a_narrow_terminal_drops_the_reason_and_keeps_id_and_status(project: Project) -> None:
    failing(project)
    project.exec().ended(3)
    narrow = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    with Terminal(project, command=("run", "list"), environ=narrow) as terminal:
        terminal.ended(0)
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen).splitlines())) <= 80
    assert project.run().id in terminal.screen
    assert "failed" in terminal.screen
    assert "the disk is gone" not in terminal.screen


def shown_at(columns: int, project: Project, *words: str, code: int = 0) -> list[str]:
    """The lines that a command prints on a terminal of so many columns, without colours."""
    narrow = {"COLUMNS": str(columns), "LINES": "24", "TERM": "xterm"}
    with Terminal(project, command=words, environ=narrow) as terminal:
        terminal.ended(code)
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen).splitlines()


def test_a_narrow_terminal_breaks_sentences_between_words_and_never_commands(project: Project) -> None:
    said = "a rather long complaint about all the things that went wrong while no one was looking at the disk"
    project.tool("bad", ["sh", "-c", f"echo {said} >&2; exit 3"])
    project.runbook(STEP, tools=["bad"])
    project.exec().ended(3)
    lines = shown_at(80, project, "run", "show", "last")
    assert all(len(line) <= 80 for line in lines)
    assert any(line.endswith(f" in runs/{project.run().id}/trace.jsonl") for line in lines)
    because = lines.index(next(line for line in lines if line.startswith("  because:")))
    assert lines[because + 1].startswith(" " * 15)
    assert said in re.sub(r"\s+", " ", "\n".join(lines[because:]))
    tried = shown_at(80, project, "tool", "try", "bad", code=3)
    assert f"command   sh -c 'echo {said} >&2; exit 3'" in tried
    result = tried.index(next(line for line in tried if line.startswith("result")))
    assert len(tried[result]) <= 80
    assert tried[result + 1].startswith(" " * 10)


def test_a_finding_is_broken_between_words(project: Project) -> None:
    project.write(
        "tools/x.tool.yaml",
        "apiVersion: tool/v0\nmeta: {name: x, binary: x}\nactions: {go: {argv: [x]}}\ncontract: {effects: [unknown]}\n",
    )
    lines = shown_at(80, project, "validate", "tools/x.tool.yaml")
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("    ") and "`writes`" in line for line in lines)


def test_digests_are_short_for_people_and_whole_for_programs(project: Project) -> None:
    project.runbook(note("one"))
    project.exec().ended(0)
    whole = project.gert("run", "show", "last", "--json").ended(0).said["runbook_hash"]
    assert f"digest:      {whole[:19]}…\n" in project.gert("run", "show", "last").ended(0).out


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((STEP,), id="a step"),
        pytest.param(({"id": "g", "type": "group", "steps": [STEP]},), id="in a group"),
        pytest.param(
            ({"id": "r", "type": "repeat", "repeat": {"max": 2, "until": "{{ false }}", "steps": [STEP]}},),
            id="in a repeat",
        ),
        pytest.param(({**STEP, "for_each": {"over": ["a"], "as": "x"}},), id="in a loop"),
        pytest.param(
            (
                {
                    "id": "p",
                    "type": "parallel",
                    "branches": [{"label": "a", "steps": [STEP]}, {"label": "b", "steps": [note("x")]}],
                },
            ),
            id="in a lane",
        ),
    ],
)
def test_an_error_is_printed_once(project: Project, steps: tuple[dict[str, Any], ...]) -> None:
    failing(project, *steps)
    ran = project.exec().ended(3)
    assert (ran.out + ran.err).count("the disk is gone") == 1
    shown = project.gert("trace", "show", "last").ended(0)
    assert shown.out.count("the disk is gone") == 1


def test_quiet_runs_print_the_error_once(project: Project) -> None:
    failing(project)
    ran = project.exec("--quiet").ended(3)
    assert (ran.out + ran.err).count("the disk is gone") == 1


def test_newlines_in_values_can_be_seen(project: Project) -> None:
    project.runbook(note("one", "{{ .text }}"), inputs={"text": {"type": "string", "default": "a\nb"}})
    shown = [project.exec().ended(0).out, project.gert("run", "show", "last").out]
    shown += [project.gert("trace", "show", "last", "-v").out]
    assert [text for text in shown if "a ⏎ b" not in text] == []


def test_strict_marks_the_file_that_makes_it_fail(project: Project) -> None:
    project.write(
        "tools/old.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {"name": "old"},
            "contract": {"side_effects": False},
            "actions": {"a": {"argv": ["true"]}},
        },
    )
    lenient = project.gert("validate", "tools").ended(0)
    assert "✓ tools/old.tool.yaml" in lenient.out
    strict = project.gert("validate", "tools", "--strict").ended(1)
    assert "✗ tools/old.tool.yaml" in strict.out
    files = project.gert("validate", "tools", "--strict", "--json").ended(1).said["files"]
    assert [each["valid"] for each in files if "old" in each["file"]] == [False]


class TestHintsNameTheFix:
    def test_a_name_without_its_dot(self, project: Project) -> None:
        project.runbook(note("one", "{{ n }}"), inputs={"n": {"type": "string", "default": "x"}})
        assert "hint: write `.n` for data" in project.gert("validate", "book.yaml").ended(1).out

    @pytest.mark.parametrize(
        ("document", "line"),
        [
            ({"meta": {"name": "b"}, "steps": [END]}, "kernel/v0"),
            ({"meta": {"name": "t"}, "actions": {"a": {"argv": ["true"]}}}, "tool/v0"),
            ({"meta": {"name": "p"}, "governance": ALLOW}, "policy/v0"),
        ],
        ids=["runbook", "tool", "policy"],
    )
    def test_no_version(self, project: Project, document: dict[str, Any], line: str) -> None:
        project.write("x.yaml", document)
        assert f"begin the file with `apiVersion: {line}`" in project.gert("validate", "x.yaml").ended(1).out

    def test_an_action_that_drops_effects(self, project: Project) -> None:
        contract = {"effects": ["network"], "writes": []}
        actions = {"a": {"argv": ["true"], "contract": {"effects": ["files"]}}}
        tool = {"apiVersion": "tool/v0", "meta": {"name": "t"}, "contract": contract, "actions": actions}
        project.write("tools/t.tool.yaml", tool)
        said = project.gert("validate", "tools").ended(1).out
        assert "repeat `network`, or move `effects` from the tool to its actions" in said

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
    def test_a_full_disk_names_the_run_to_resume(self, project: Project, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=False, capture_output=True
        )
        if mounted.returncode:
            pytest.skip("no disk can be mounted here")
        try:
            project.tool(
                "fill",
                [
                    "sh",
                    "-c",
                    f"[ -e done ] || {{ : > done; dd if=/dev/zero of={disk}/filler bs=4k 2>/dev/null; }}; true",
                ],
            )
            project.tool("big", ["sh", "-c", "head -c 50000 /dev/urandom | od"])
            filled = {"id": "fill", "type": "tool", "tool": "fill"}
            big = {"id": "big", "type": "tool", "tool": "big"}
            project.runbook(note("one"), filled, big, note("two"), tools=["note", "fill", "big"])
            ran = project.exec("--state-dir", disk).ended(4)
            (run_folder,) = [each for each in (disk / "runs").iterdir() if each.is_dir()]
            assert "no space left on device" in ran.err
            assert f"free space, then `gert resume {run_folder.name} --state-dir {disk}`" in ran.err
            (disk / "filler").unlink()
            project.gert("resume", run_folder.name, "--state-dir", disk, "--reconcile", "retry").ended(0)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


class TestRunsOfToolTry:
    """They are recorded like any other; lists and reports of runs leave them out."""

    @pytest.fixture
    def tried(self, project: Project) -> str:
        """The id of a run of `gert tool try`, before a run of a runbook that has a similar name."""
        project.gert("tool", "try", "note", "go", "--input", "word=x").ended(0)
        [tried] = project.runs()
        project.runbook(note("one"), name="try-note-go", file="try-note.yaml")
        project.exec("try-note.yaml").ended(0)
        return tried.id

    def test_a_list_leaves_them_out_and_says_so(self, project: Project, tried: str) -> None:
        listed = project.gert("run", "list").ended(0).out
        assert tried not in listed
        assert listed.endswith("\nleft out: 1 run of `gert tool try` (see --all)\n")
        [row] = json.loads(project.gert("run", "list", "--json").out)
        assert (row["run_id"] != tried, row["trial"]) == (True, False)

    @pytest.mark.parametrize("words", [["--all"], ["--runbook", "try-note-go"]], ids=["--all", "by name"])
    def test_a_list_shows_them_when_asked(self, project: Project, tried: str, words: list[str]) -> None:
        rows = {row["run_id"]: row["trial"] for row in json.loads(project.gert("run", "list", "--json", *words).out)}
        assert (len(rows), rows[tried]) == (2, True)
        assert re.search(rf"{tried} .* try ", project.gert("run", "list", *words).out)

    def test_one_that_was_cut_off_is_always_listed(self, project: Project) -> None:
        project.script("slays", "kill -9 $PPID", contract={"idempotent": False})
        project.gert("tool", "try", "slays").ended(-signal.SIGKILL)
        [row] = json.loads(project.gert("run", "list", "--json").out)
        assert (row["trial"], row["status"]) == (True, "cut-off")

    @pytest.mark.parametrize("place", [[], ["runs"]], ids=["the ledger", "traces"])
    def test_outcomes_do_not_count_them(self, project: Project, tried: str, place: list[str]) -> None:
        said = project.gert("outcomes", *place, "--json").ended(0).said
        assert [(each["runbook"], each["runs"]) for each in said["runbooks"]] == [("try-note-go", 1)]
        assert said["passed_over"]["trial"] == 1

    def test_no_rerun_is_offered_because_their_runbook_is_no_file(self, project: Project) -> None:
        project.tool("bad", BAD)
        project.gert("tool", "try", "bad").ended(3)
        assert project.gert("run", "show", "last", "--json").ended(0).said["next"] == []

    def test_last_names_them(self, project: Project) -> None:
        project.gert("tool", "try", "note", "go", "--input", "word=x").ended(0)
        assert "noted x" in project.gert("logs", "last").ended(0).out
