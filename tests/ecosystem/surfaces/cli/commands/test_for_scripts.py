"""What scripts rely on: one schema of results, errors as JSON, exit codes, completion."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.cli.terminal import Terminal
from tests.ecosystem.surfaces.cli.workbench import GERT, NOTE, Project, environment, note

from gert.ecosystem.surfaces.cli.main import COMMANDS, group
from gert.ecosystem.surfaces.cli.results import result_schema

ASKS = {"rules": [{"writes": ["disk"], "action": "require-approval"}, {"default": "allow"}]}
DENIES = {"rules": [{"writes": ["disk"], "action": "deny"}, {"default": "allow"}]}
SCHEMA = jsonschema_rs.validator_for(result_schema())


def greeting(project: Project) -> None:
    project.tool(
        "say",
        ["sh", "-c", "echo hello"],
        outputs={"said": {"type": "string"}},
        extract={"said": {"from": "stdout", "pattern": "(.*)"}},
    )
    steps: list[dict[str, Any]] = [
        {"id": "greet", "title": "Say hello", "type": "tool", "tool": "say"},
        {"id": "never", "type": "tool", "tool": "say", "when": '{{ eq .greet.said "bye" }}'},
        {"id": "done", "type": "end", "outcome": {"category": "resolved", "code": "ok"}},
    ]
    project.write("book.yaml", {"apiVersion": "kernel/v0", "meta": {"name": "b"}, "tools": ["say"], "steps": steps})


def test_the_result_of_a_run_has_its_steps_and_outputs(project: Project) -> None:
    greeting(project)
    said = project.gert("exec", "book.yaml", "--json", "--state-dir", "state").ended(0).said
    assert [(step["path"], step["status"]) for step in said["steps"]] == [
        ("greet", "success"),
        ("never", "skipped"),
        ("done", "success"),
    ]
    assert said["steps"][0]["exit_code"] == 0
    assert said["steps"][0]["title"] == "Say hello"
    assert said["outputs"] == {"greet": {"said": "hello"}}


class TestTheResultOfAResume:
    """It is of the whole run, not of what happened since."""

    def asking(self, project: Project) -> None:
        project.note_tool("asks", contract={"writes": ["disk"]})
        steps = [note("one"), note("two", tool="asks"), note("three")]
        project.runbook(*steps, tools=["note", "asks"], governance=ASKS)

    def test_has_the_steps_and_outputs_of_the_whole_run(self, project: Project) -> None:
        self.asking(project)
        waits = project.exec("--json", "--detach").ended(0).said
        assert list(waits["outputs"]) == ["one"]
        project.gert("approve", "last", "--as", "lou").ended(0)
        said = project.gert("resume", "last", "--json").ended(0).said
        SCHEMA.validate(said)
        assert [step["path"] for step in said["steps"]][:3] == ["one", "two", "three"]
        assert list(said["outputs"]) == ["one", "two", "three"]
        shown = project.gert("run", "show", "last", "--json").ended(0).said
        assert said["steps"] == shown["steps"]

    def test_has_them_while_the_run_still_waits(self, project: Project) -> None:
        self.asking(project)
        waits = project.exec("--json", "--detach").ended(0).said
        again = project.gert("resume", "last", "--json", "--detach").ended(0).said
        assert again["status"] == "waiting"
        assert (again["steps"], again["outputs"]) == (waits["steps"], waits["outputs"])

    def test_has_each_step_once_although_a_resume_asked_for_outputs(self, project: Project) -> None:
        script = f"{NOTE}; kill -9 $PPID"
        project.tool(
            "once",
            ["sh", "-c", script, "sh", "{{ .word }}", str(project.effects)],
            inputs={"word": {"type": "string", "required": True}},
            outputs={"count": {"type": "int", "required": True}},
            extract={"count": {"from": "stdout", "pattern": "noted (.*)"}},
            contract={"idempotent": False},
        )
        project.runbook(note("one"), note("two", tool="once"), tools=["note", "once"])
        project.exec().ended(-signal.SIGKILL)
        command = ("resume", "last", "--reconcile", "success", "--json")
        with Terminal(project, command=command) as terminal:
            terminal.answer("two.count: ", "4")
            terminal.ended(0)
            assert terminal.screen.count('"path": "one"') == 1


class TestFailOn:
    """`--fail-on` makes a failure of outcomes that a script must not go on after."""

    def ending(self, project: Project, category: str = "escalated") -> None:
        end = {"type": "end", "outcome": {"category": category, "code": "too_hot"}}
        project.note_tool("asks", contract={"writes": ["disk"]})
        project.runbook(note("one"), note("two", tool="asks"), end, tools=["note", "asks"], governance=ASKS)

    @pytest.mark.parametrize("words", [[], ["--json"], ["-q"]], ids=["as text", "as JSON", "quietly"])
    def test_an_outcome_that_it_names_fails_the_command_and_says_so(self, project: Project, words: list[str]) -> None:
        end = {"type": "end", "outcome": {"category": "escalated", "code": "too_hot"}}
        project.runbook(note("one"), end)
        ran = project.exec("--fail-on", "needs_rca,escalated", *words).ended(3)
        assert ran.err.splitlines()[-1] == "error: the outcome is `escalated: too_hot`, which `--fail-on` names"
        if words == ["--json"]:
            assert ran.said["status"] == "completed"
        project.exec("--fail-on", "needs_rca", "--fail-on", "waiting", *words).ended(0)

    def test_a_run_that_waits_fails_only_where_it_is_named(self, project: Project) -> None:
        self.ending(project)
        project.exec("--detach", "--fail-on", "escalated").ended(0)
        ran = project.exec("--detach", "--fail-on", "escalated,waiting").ended(3)
        assert "error: the run waits for approval, which `--fail-on` names" in ran.err
        assert "resume with: gert resume" in ran.out

    def test_a_resume_and_a_rerun_fail_on_it_as_well(self, project: Project) -> None:
        self.ending(project)
        project.exec("--detach").ended(0)
        project.gert("resume", "last", "--detach", "--fail-on", "waiting").ended(3)
        project.gert("approve", "last", "--as", "lou").ended(0)
        project.gert("resume", "last", "--fail-on", "escalated").ended(3)
        project.gert("rerun", "last", "--from", "two", "--detach", "--fail-on", "waiting").ended(3)

    def test_a_run_that_failed_ends_as_it_does_without(self, project: Project) -> None:
        project.tool("bad", ["sh", "-c", "exit 3"])
        project.runbook({"id": "two", "type": "tool", "tool": "bad"}, tools=["bad"])
        assert "--fail-on" not in project.exec("--fail-on", "escalated").ended(3).err

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            pytest.param(["excalated"], "did you mean `escalated`?", id="a misspelt category"),
            pytest.param(["waitin"], "did you mean `waiting`?", id="a misspelt `waiting`"),
            pytest.param(["failed"], "`failed` is not an outcome category", id="a status"),
            pytest.param(["escalated", "--mode", "dry-run"], "of a dry-run", id="a dry run, which has no outcome"),
            pytest.param(["escalated", "--background"], "in the background", id="a run that it does not wait for"),
        ],
    )
    def test_what_cannot_be_checked_is_refused_before_anything_runs(
        self, project: Project, words: list[str], says: str
    ) -> None:
        project.runbook(note("one"))
        assert says in project.exec("--fail-on", *words).ended(2).err
        assert project.noted() == []


class TestOneSchema:
    """`gert schema result` describes what exec, resume and rerun print, and every error."""

    @pytest.mark.parametrize(
        ("words", "code"), [([], 0), (["--mode", "dry-run"], 0), (["--record", "made"], 0), (["--db", "x.db"], 0)]
    )
    def test_runs(self, project: Project, words: list[str], code: int) -> None:
        greeting(project)
        SCHEMA.validate(project.gert("exec", "book.yaml", "--json", *words).ended(code).said)

    @pytest.mark.parametrize(
        ("governance", "words", "code", "status"),
        [
            (ASKS, ["--detach"], 0, "waiting"),
            (DENIES, [], 3, "failed"),
            (DENIES, ["--mode", "dry-run"], 3, "failed"),
        ],
        ids=["waiting", "denied", "denied in a dry-run"],
    )
    def test_runs_that_do_not_complete(
        self, project: Project, governance: dict[str, Any], words: list[str], code: int, status: str
    ) -> None:
        project.note_tool("asks", contract={"writes": ["disk"]})
        project.runbook(note("one"), note("two", tool="asks"), tools=["note", "asks"], governance=governance)
        said = project.exec("--json", *words).ended(code).said
        SCHEMA.validate(said)
        assert said["status"] == status

    def test_a_step_that_fails_a_resume_and_a_rerun(self, project: Project) -> None:
        project.tool("bad", ["sh", "-c", "echo why >&2; exit 3"])
        project.runbook(note("one"), {"id": "two", "type": "tool", "tool": "bad"}, tools=["note", "bad"])
        failed = project.exec("--json").ended(3).said
        SCHEMA.validate(failed)
        assert failed["steps"][-1]["failure"]["message"] == failed["failure"]["message"]
        SCHEMA.validate(project.gert("rerun", "last", "--from", "two", "--json").ended(3).said)

    @pytest.mark.parametrize(
        ("words", "exit_code", "code"),
        [
            (["exec", "--json"], 2, "usage"),
            (["exec", "nope.yaml", "--json"], 2, "usage"),
            (["exec", "book.yaml", "--json", "--bogus"], 2, "usage"),
            (["exec", "book.yaml", "--var", "limit=x", "--json"], 2, "invalid_inputs"),
            (["exec", "broken.yaml", "--json"], 1, "invalid_document"),
            (["run", "show", "nope", "--json"], 2, "usage"),
            (["resume", "nope", "--json"], 2, "usage"),
            (["approve", "nope", "--json"], 2, "usage"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
    )
    def test_errors(self, project: Project, words: list[str], exit_code: int, code: str) -> None:
        project.runbook(note("one"), inputs={"limit": {"type": "int", "default": 1}})
        project.write("broken.yaml", "apiVersion: kernel/v0\nmeta: {name: b}\nsteps: [{id: a, type: nope}, {id: b}]\n")
        ran = project.gert(*words).ended(exit_code)
        SCHEMA.validate(ran.said)
        error = ran.said["error"]
        assert (error["code"], error["exit_code"]) == (code, exit_code)
        assert error["message"] in ran.err
        assert len(ran.out.splitlines()) == 1
        if code == "invalid_document":
            assert [each["line"] for each in error["findings"]] == [3, 3]
        if code == "invalid_inputs":
            assert error["inputs"][0]["input"] == "limit"

    def test_without_json_errors_are_for_people_only(self, project: Project) -> None:
        ran = project.gert("exec", "nope.yaml").ended(2)
        assert ran.out == ""
        assert ran.err.count("error:") == 1

    def test_the_word_after_two_dashes_is_no_option(self, project: Project) -> None:
        assert project.gert("exec", "--", "--json").ended(2).out == ""

    def test_an_error_after_the_result_adds_no_second_document(self, project: Project) -> None:
        project.runbook(note("one"))
        ran = project.gert("test", ".", "--json", "--junit", "missing/report.xml")
        json.loads(ran.out)

    def test_it_is_printed(self, project: Project) -> None:
        schema = project.gert("schema", "result").ended(0).said
        jsonschema_rs.meta.validate(schema)
        assert schema == result_schema()

    def test_of_any_command_it_is_printed(self, project: Project) -> None:
        assert project.gert("schema", "result", "run", "list").ended(0).said == result_schema("run list")
        assert "did you mean `run list`?" in project.gert("schema", "result", "run", "lst").ended(2).err
        assert "takes no command" in project.gert("schema", "tool", "exec").ended(2).err


def every_command() -> list[list[str]]:
    def below(words: list[str], command: click.Command) -> list[list[str]]:
        inner = command.commands.items() if isinstance(command, click.Group) else ()
        return [words, *(each for name, sub in inner for each in below([*words, name], sub))]

    context = click.Context(group)
    found: list[list[str]] = [[]]
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        found += below([name], command)
    return found


def test_every_help_page_has_the_exit_codes() -> None:
    for words in every_command():
        context, command = click.Context(group), group
        if words:
            found = group.get_command(context, words[0])
            for word in words[1:]:
                assert isinstance(found, click.Group)
                found = found.get_command(context, word)
            assert found is not None
            command = found  # type: ignore[assignment]
        shown = " ".join(command.get_help(click.Context(command, info_name="x")).split())
        assert shown.count("Exit codes: 0 done, or waiting for approval; 1 a check failed; 2 usage error") == 1, words


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_scripts(self, project: Project, shell: str) -> None:
        assert "_GERT_COMPLETE" in project.gert("completion", shell).ended(0).out

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (["exp"], ["explain"]),
            (["run", "verify"], ["verify", "verify-ledger"]),
            (["exec", "--det"], ["--detach"]),
            (["exec", "--mode", "re"], ["real", "replay"]),
            (["completion", ""], ["bash", "fish", "zsh"]),
        ],
        ids=" ".join,
    )
    def test_commands_options_and_values(self, project: Project, words: list[str], found: list[str]) -> None:
        assert sorted(completed(project, *words)) == found

    def test_files(self, project: Project) -> None:
        assert completed(project, "exec", "bo") == ["bo"]
        assert completed(project, "diagram", "bo") == ["bo"]

    def test_runs_of_the_chosen_ledger(self, project: Project) -> None:
        project.runbook(note("one"))
        project.exec().ended(0)
        run_id = project.run().id
        for words in (["run", "show"], ["resume"], ["logs"], ["rerun", "--run"], ["run", "cancel"]):
            assert completed(project, *words, "") == ["last", run_id], words
            assert completed(project, *words, run_id[:10]) == [run_id], words
        assert run_id in completed(project, "trace", "verify", "")
        assert completed(project, "run", "show", "--state-dir", "elsewhere", "2") == []

    def test_open_tickets_of_the_chosen_ledger(self, project: Project) -> None:
        project.note_tool("asks", contract={"writes": ["disk"]})
        asks = {"rules": [{"writes": ["disk"], "action": "require-approval"}, {"default": "allow"}]}
        project.runbook(note("one", tool="asks"), tools=["asks"], governance=asks)
        ticket = project.exec("--detach", "--json").ended(0).said["pending"][0]["ticket_id"]
        for words in (["approve"], ["reject"], ["approvals", "show"], ["resume", "--ticket"]):
            assert completed(project, *words, "") == ["last", ticket], words
            assert completed(project, *words, ticket[:10]) == [ticket], words
        assert completed(project, "approve", ticket, ticket[:10]) == [ticket]
        assert completed(project, "approve", "--all", ticket[:10]) == [ticket.rpartition("-")[0]]
        project.gert("approve", "last").ended(0)
        project.gert("resume", "last", "--ticket", "last").ended(0)
        assert completed(project, "approve", "") == ["last"]

    def test_a_damaged_ledger_completes_nothing(self, project: Project) -> None:
        (project.root / "runs").mkdir(parents=True)
        (project.root / "runs/ledger.db").write_text("nonsense")
        project.write("gert-project.yaml", {"name": "p"})
        assert completed(project, "run", "show", "2") == []

    @pytest.mark.needs("bash")
    def test_bash_completes_a_command(self, project: Project) -> None:
        answered = in_shell(
            project, "bash", 'COMP_WORDS=(gert expl); COMP_CWORD=1; _gert_completion gert; echo "${COMPREPLY[@]}"'
        )
        assert answered == "explain"

    @pytest.mark.needs("fish")
    def test_fish_completes_a_command(self, project: Project) -> None:
        assert in_shell(project, "fish", "complete -C 'gert expl'").split()[0] == "explain"

    @pytest.mark.needs("zsh")
    def test_zsh_reads_the_script(self, project: Project) -> None:
        assert (
            in_shell(
                project, "zsh", "print $+functions[_gert_completion]", before="autoload -U compinit; compinit -u -D"
            )
            == "1"
        )


def completed(project: Project, *words: str) -> list[str]:
    """What the completion script of bash is answered, without the kinds."""
    line = {"COMP_WORDS": " ".join(("gert", *words)), "COMP_CWORD": str(len(words)), "_GERT_COMPLETE": "bash_complete"}
    done = subprocess.run(
        GERT, cwd=project.root, env=environment(line), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return [each.partition(",")[2] for each in done.stdout.splitlines() if each]


def in_shell(project: Project, shell: str, command: str, before: str = ":") -> str:
    """What a shell prints after it has read the completion script."""
    script = project.write("script", project.gert("completion", shell).ended(0).out)
    bin_folder = Path(project.root) / "bin"
    bin_folder.mkdir()
    (bin_folder / "gert").write_text("#!/bin/sh\nexec " + " ".join(GERT) + ' "$@"\n')
    (bin_folder / "gert").chmod(0o755)
    path = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "HOME": str(project.root)}
    done = subprocess.run(
        [shell, "-c", f"{before}; source {script}; {command}"],
        cwd=project.root,
        env=environment(path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout.strip()


class TestVerifyingEveryRun:
    """What could not be checked is said once for all runs, and with -v for each."""

    def test_each_reason_is_said_once_with_the_number_of_runs(self, project: Project) -> None:
        project.runbook(note("one"))
        for _ in range(3):
            project.exec().ended(0)
        ran = project.gert("run", "verify-ledger").ended(0)
        assert ran.out.count(": valid\n") == 3
        assert ran.err.splitlines() == [
            "  seal not checked for 3 runs: the head of the run is not sealed",
            "  trace_signature, trace_body not checked for 3 runs: the trace is not signed",
        ]
        one = project.gert("run", "verify-ledger", "last").ended(0).err.splitlines()
        assert one == [
            "  seal not checked: the head of the run is not sealed",
            "  trace_signature, trace_body not checked: the trace is not signed",
        ]
        each = project.gert("run", "verify-ledger", "-v").ended(0).err.splitlines()
        assert each.count("  trace_body not checked: the trace is not signed") == 3
