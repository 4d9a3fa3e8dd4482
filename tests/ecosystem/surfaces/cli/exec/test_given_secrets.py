"""A secret on its way from the caller to a tool: it is one from the beginning, and comes from where it was meant to."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, call, files_under

SECRET = "corr3ct-horse-battery"
PLAIN = {"type": "string", "required": True}
ASK = {"rules": [{"default": "require-approval"}]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    (tmp_path / "pass phrase").write_text(f"{SECRET}\n")
    made.tool(
        "seal",
        ["sh", "-c", f'read p; echo "sealed with $p"; printf \'%s\' "$p" > {tmp_path}/got'],
        inputs={"passphrase": {**PLAIN, "secret": True}, "note": {"type": "string"}},
        action={"stdin": "{{ .passphrase }}\n"},
        extract={"said": {"from": "stdout"}},
    )
    return made


def sealing(project: Project, value: str = "{{ .key }}", *, secret: bool = True, **more: Any) -> None:
    inputs = {"key": {**PLAIN, "secret": secret}, "note": {"type": "string", "default": ""}}
    step = call("seal", "seal", inputs={"passphrase": value, "note": "{{ .note }}"})
    project.runbook(step, tools=["seal"], inputs=inputs, **more)


def got(project: Project) -> str:
    return (project.root.parent / "got").read_text()


def is_silent(project: Project, *runs: Ran) -> bool:
    kept = b"".join(path.read_bytes() for path in files_under(project.root))
    return SECRET.encode() not in kept + "".join(ran.out + ran.err for ran in runs).encode()


def test_a_plain_input_that_a_tool_takes_as_a_secret_is_refused_before_anything_is_recorded(project: Project) -> None:
    sealing(project, secret=False)
    checked = project.gert("validate", "book.yaml").ended(1)
    assert "error[D58]" in checked.out
    assert "mark the input `key` as `secret: true`" in checked.out
    ran = project.exec("--var", f"key={SECRET}").ended(1)
    assert "mark the input `key` as `secret: true`" in ran.err
    assert project.runs() == []
    assert is_silent(project, checked, ran)


@pytest.mark.parametrize("words", [(), ("--json",), ("--verbose",), ("--record", "recorded")], ids=" ".join)
def test_a_secret_input_reaches_the_tool_and_nothing_that_is_kept_or_shown(
    project: Project, words: tuple[str, ...]
) -> None:
    sealing(project)
    ran = project.exec("--input", f"key=@{project.root.parent}/pass phrase", *words).ended(0)
    assert got(project) == SECRET
    shown = [project.gert(*each.split()).ended(0) for each in ("run show last", "logs last", "diagram book.yaml")]
    assert is_silent(project, ran, *shown)
    assert "visible" not in ran.err


@pytest.mark.parametrize("background", [(), ("--background",)], ids=["here", "in the background"])
@pytest.mark.parametrize("path", ["pass phrase", "nowhere"])
def test_the_name_of_a_file_is_not_taken_for_the_secret(
    project: Project, path: str, background: tuple[str, ...]
) -> None:
    sealing(project)
    ran = project.exec("--var", f"key=@{project.root.parent}/{path}", *background).ended(2)
    assert "`--var` reads no file" in ran.err
    assert "pass --input key=@FILE" in ran.err
    assert path not in ran.err
    assert project.runs() == []


def test_a_secret_may_begin_with_an_at_sign(project: Project) -> None:
    sealing(project)
    project.exec("--input", 'key="@horse-battery"').ended(0)
    assert got(project) == "@horse-battery"


def test_a_tool_that_is_tried_takes_no_name_of_a_file_for_its_secret_either(project: Project) -> None:
    refused = project.gert("tool", "try", "seal", "--var", "passphrase=@x").ended(2)
    assert "the secret input `passphrase`" in refused.err
    tried = project.gert("tool", "try", "seal", "--var", f"passphrase={SECRET}", "--json").ended(0)
    assert "the secret input `passphrase` is visible in the list of processes" in tried.err
    assert got(project) == SECRET
    assert is_silent(project, tried)


@pytest.mark.parametrize("option", ["--var", "--input"])
def test_a_secret_on_the_command_line_is_worth_a_warning(project: Project, option: str) -> None:
    sealing(project)
    ran = project.exec(option, f"key={SECRET}", "--json").ended(0)
    assert "warning: the secret input `key` is visible in the list of processes" in ran.err
    assert "pass --input key=@FILE" in ran.err
    assert is_silent(project, ran)


@pytest.mark.parametrize(("path", "warns"), [("pass phrase", True), ("nowhere", False)])
def test_an_ordinary_text_that_names_a_file_is_worth_a_warning(project: Project, path: str, warns: bool) -> None:
    sealing(project)
    key = ("--input", f"key=@{project.root.parent}/pass phrase")
    ran = project.exec(*key, "--var", f"note=@{project.root.parent}/{path}").ended(0)
    assert ("--input reads the file, --var does not" in ran.err) is warns


def printed(ran: Ran, start: str) -> list[str]:
    [line] = [each for each in ran.out.splitlines() if start in each]
    return shlex.split(line.partition(start)[2])


def test_the_command_that_resumes_a_run_names_the_file_of_its_secret(project: Project) -> None:
    sealing(project, governance=ASK)
    waiting = project.exec("--detach", "--input", f"key=@{project.root.parent}/pass phrase").ended(0)
    resume = printed(waiting, "resume with: gert ")
    assert resume[-2:] == ["--input", f"key=@{project.root.parent}/pass phrase"]
    again = project.gert(*resume).ended(0)
    assert printed(again, "resume with: gert ") == resume
    shown = project.gert("run", "show", "last").ended(0)
    assert "--input key=@FILE" in shown.out
    asked = project.gert("approvals", "show", "last", "--json").ended(0)
    approved = project.gert(*printed(waiting, "approval pending for `seal`: gert "), "--as", "bob").ended(0)
    assert printed(approved, "  gert resume ")[-2:] == ["--input", "key=@FILE"]
    listed = project.gert("approvals", "list").ended(0)
    assert "--input key=@FILE` " in f"{listed.out} ".replace("\n", " ")
    none_left = project.gert("approve", "last", "--all").ended(2)
    assert "--input key=@FILE`" in none_left.err
    ready = project.gert("resume", "--ready")
    assert f"hint: `gert resume {project.run().id} --input key=@FILE` resumes it" in ready.err
    ended = project.gert(*resume, "--json").ended(0)
    assert got(project) == SECRET
    assert is_silent(project, waiting, again, shown, asked, approved, listed, ready, ended)


@pytest.mark.parametrize(
    ("words", "binding", "needed"),
    [
        pytest.param(("--var", f"key={SECRET}"), None, ["--input", "key=@FILE"], id="on the command line"),
        pytest.param((), "env/KEY", [], id="from the environment"),
    ],
)
def test_a_secret_without_a_file_is_named_only_if_it_must_be_given_again(
    project: Project, words: tuple[str, ...], binding: str | None, needed: list[str]
) -> None:
    bound = {"from": binding} if binding is not None else {}
    inputs = {"key": {**PLAIN, "secret": True, **bound}}
    step = call("seal", "seal", inputs={"passphrase": "{{ .key }}"})
    project.runbook(step, tools=["seal"], inputs=inputs, governance=ASK)
    waiting = project.exec("--detach", *words, KEY=SECRET).ended(0)
    assert printed(waiting, "resume with: gert ")[2:] == needed
    assert is_silent(project, waiting)


def test_a_resume_that_is_given_a_secret_in_clear_warns(project: Project) -> None:
    sealing(project, governance=ASK)
    project.exec("--detach", "--input", f"key=@{project.root.parent}/pass phrase").ended(0)
    ran = project.gert("resume", "last", "--input", f"key={SECRET}").ended(0)
    assert "the secret input `key` is visible" in ran.err
    assert is_silent(project, ran)
