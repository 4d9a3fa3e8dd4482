"""Eighty columns without any extra: tables on one line a row, prompts that wrap at words, and one spelling of items."""

import json
import shlex
import sys

import pytest
from tests.ecosystem.surfaces.cli.terminal import Terminal
from tests.ecosystem.surfaces.cli.workbench import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")

TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions:
  run: {argv: [sh, -c, "{{ .script }}"]}
  change:
    argv: [sh, -c, "{{ .script }}"]
    contract: {effects: [filesystem], writes: [the-branches-of-the-repository]}
    preview: {argv: [echo, "it would delete the branch and everything that was never pushed anywhere else, for good"]}
"""
BOOK = """
apiVersion: kernel/v0
meta: {name: clean-up-merged-branches,
       governance: {rules: [{writes: [the-branches-of-the-repository], action: require-approval}, {default: allow}]}}
tools: [sh]
steps:
  - id: delete
    type: tool
    title: Delete a branch that was merged a long time ago and that has not been needed since
    tool: sh
    action: ACTION
    for_each: {over: [feat/c], as: n, key: "{{ .n }}"}
    inputs: {script: 'echo {{ .n }} cannot be deleted because another worktree still uses it >&2; exit 1'}
  - {id: y, type: end, outcome: {category: resolved, code: done}}
"""
PREVIEW = "it would delete the branch and everything that was never pushed anywhere else, for good"


@pytest.fixture
def books(project: Project) -> Project:
    project.write("tools/sh.tool.yaml", TOOL)
    project.write("run.yaml", BOOK.replace("ACTION", "run"))
    project.write("change.yaml", BOOK.replace("ACTION", "change"))
    return project


def screen(project: Project, *words: str) -> list[str]:
    with Terminal(project, command=words, environ={"COLUMNS": "80"}) as terminal:
        terminal.ended(0)
        return terminal.screen.replace("\r", "").splitlines()


def test_a_list_of_runs_says_why_they_failed_on_one_line_each(books: Project) -> None:
    for _ in range(2):
        books.exec("run.yaml").ended(3)
    head, *rows, note = screen(books, "run", "list")
    assert head.split() == ["RUN", "RUNBOOK", "STARTED", "STATUS", "RESULT"]
    assert len(rows) == 2
    for row in rows:
        name, _, ago, status, why = row.split()[1:6]
        assert (name[:12], ago, status, why[:14]) == ("clean-up-mer", "ago", "failed", "`delete[feat/c")
        assert len(row) == 80
    assert note == "not shown: by, mode, events, took (see --json, or widen the terminal)"


def test_a_list_of_runs_shows_the_outcome_of_those_that_completed_and_why_others_failed(books: Project) -> None:
    books.exec("run.yaml").ended(3)
    books.write("good.yaml", BOOK.replace("ACTION", "run").replace("exit 1", "exit 0"))
    books.exec("good.yaml").ended(0)
    head, good, bad, _ = screen(books, "run", "list")
    assert head.split() == ["RUN", "RUNBOOK", "STARTED", "STATUS", "RESULT"]
    assert good.split()[-3:] == ["completed", "resolved:", "done"]
    assert bad.split()[4:6] == ["failed", "`delete[feat/c…"]


def test_explain_shows_the_decision_and_the_rule(books: Project) -> None:
    head, row, *_ = screen(books, "explain", "change.yaml")
    assert head.split()[-3:] == ["DECISION", "BY", "RULE"]
    assert "require-approval  runbook rule 1 (writes: [the-branches" in row
    assert len(row) == 80


def test_nothing_is_cut_where_output_is_no_terminal(books: Project) -> None:
    books.exec("run.yaml").ended(3)
    listed = books.gert("run", "list").ended(0).out
    assert listed.splitlines()[0].split()[-3:] == ["RESULT", "EVENTS", "TOOK"]
    assert "…" not in listed
    assert "`sh` exited with 1" in listed
    assert "not shown" not in listed


def test_a_prompt_wraps_at_words_and_shows_the_preview_once(books: Project) -> None:
    with Terminal(books, command=("exec", "change.yaml"), environ={"COLUMNS": "80"}) as terminal:
        terminal.answer("approve? [y/N, ? = more; a reason may follow]: ", "n")
        terminal.ended(3)
        lines = terminal.screen.replace("\r", "").splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("approval needed"))
    end = next(at for at, line in enumerate(lines) if line.startswith("approve?"))
    prompt = lines[begin:end]
    assert all(len(line) <= 80 for line in prompt)
    assert prompt[:2] == [
        "approval needed for step `delete[feat/c]`: Delete a branch that was merged a",
        "  │ long time ago and that has not been needed since",
    ]
    at = next(at for at, line in enumerate(prompt) if line.startswith("    │ "))
    assert prompt[at : at + 2] == [
        "    │ it would delete the branch and everything that was never pushed anywhere",
        "    │ else, for good",
    ]
    assert "\n".join(lines).count("    │ it would delete the branch") == 1
    assert not any("preview" in line for line in lines[:begin])


def test_a_preview_that_no_prompt_shows_is_in_the_progress(books: Project) -> None:
    said = books.exec("change.yaml", "--detach").ended(0).out
    assert said.count(f"│ {PREVIEW}") == 1


def test_people_read_the_key_of_an_item_and_programs_its_exact_path(books: Project) -> None:
    ran = books.exec("change.yaml", "--detach").ended(0)
    assert "approval pending for `delete[feat/c]`" in ran.out
    assert "%2F" not in ran.out + ran.err
    listed = books.gert("approvals", "list").ended(0).out
    assert "delete[feat/c]" in listed
    assert "%2F" not in listed
    [ticket] = json.loads(books.gert("approvals", "list", "--json").ended(0).out)
    assert ticket["path"] == "delete[feat%2Fc]"
    assert "`delete[feat/c]`" in books.gert("approvals", "show", ticket["ticket_id"]).ended(0).out
    shown = books.gert("run", "show", "last").ended(0).out
    assert "of `delete[feat/c]`: " in shown


def test_a_failed_item_has_one_spelling(books: Project) -> None:
    ran = books.exec("run.yaml").ended(3)
    assert "failed step: delete[feat/c]" in ran.out
    assert "%2F" not in ran.out + ran.err
    assert "%2F" not in books.gert("run", "list").ended(0).out
    assert "%2F" not in books.gert("outcomes").ended(0).out
    shown = books.gert("run", "show", "last").ended(0).out
    assert "failed at:   delete[feat/c]" in shown
    (again,) = [line for line in shown.splitlines() if "gert rerun" in line]
    assert again.endswith("--from 'delete[feat/c]'")
    words = shlex.split(again)[2:]
    assert books.gert(*words).ended(3).out.count("delete[feat/c]"), "what is copied is taken as it is shown"
    assert books.gert("run", "show", "last", "--json").ended(0).said["end"]["failed_step"] == "delete[feat%2Fc]"


@pytest.mark.parametrize("environ", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("words", [("validate", "run.yaml"), ("explain", "run.yaml"), ("run", "show", "none")])
def test_no_command_colours_where_none_are_wanted(
    books: Project, words: tuple[str, ...], environ: dict[str, str]
) -> None:
    with Terminal(books, command=words, environ=environ) as terminal:
        terminal.ended(2 if "none" in words else 0)
        assert "\x1b[" not in terminal.screen
