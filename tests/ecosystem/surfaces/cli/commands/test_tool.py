"""`gert tool`: list, show, check and import."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.mcp.calls import RAW, lines, survivors
from tests.ecosystem.surfaces.cli.workbench import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def server(mode: str = "good", log: Path | str = os.devnull) -> str:
    return shlex.join([*RAW, mode, str(log)])


def import_raw(project: Project, *words: str, mode: str = "good", log: Path | str = os.devnull) -> Any:
    return project.gert("tool", "import", "--mcp", server(mode, log), *words)


# --- list and show


def test_list_says_where_each_tool_is_and_how_risky(project: Project) -> None:
    project.write(
        "sub/tools/other.tool.yaml",
        {"apiVersion": "tool/v0", "meta": {"name": "other"}, "actions": {"go": {"argv": ["x"]}}},
    )
    project.write("tools/broken.tool.yaml", "apiVersion: tool/v0\nmeta: 7\n")
    table = project.gert("tool", "list").ended(0).out.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["other", "stdio"], ["broken", "invalid"], ["note", "stdio"]]
    assert "critical" in table[1]
    said = project.gert("tool", "list", "--json").ended(0).said["tools"]
    assert {each["name"]: (each["file"], each["valid"]) for each in said} == {
        "other": ("sub/tools/other.tool.yaml", True),
        "broken": ("tools/broken.tool.yaml", False),
        "note": ("tools/note.tool.yaml", True),
    }
    [action] = said[-1]["actions"]
    assert (action["name"], action["risk_level"], action["contract"]["effects"]) == ("go", "low", ["files"])


def test_list_without_tools(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "tools/note.tool.yaml").unlink()
    assert "no tools" in project.gert("tool", "list").ended(0).out
    assert project.gert("tool", "check", "--json").ended(0).said == {"ok": True, "tools": []}


def test_show_prints_the_contract_of_each_action(project: Project) -> None:
    said = project.gert("tool", "show", "note").ended(0).out
    for line in (
        "tool      note",
        "effects   files",
        "writes    nothing",
        "risk      low",
        "inputs    word: string, required",
    ):
        assert line in said
    assert (
        project.gert("tool", "show", "tools/note.tool.yaml", "go", "--json").ended(0).said["actions"][0]["name"] == "go"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["show", "nope"], "there is no tool `nope`", id="no such tool"),
        pytest.param(["show", "nott"], "did you mean `note`?", id="a misspelt tool"),
        pytest.param(["show", "note", "gone"], "has no action `gone`", id="no such action"),
        pytest.param(["show", "no/such.tool.yaml"], "there is no file", id="no such file"),
        pytest.param(["check", "runs/"], "there is no file `runs/`", id="no such folder"),
    ],
)
def test_what_is_not_there(project: Project, words: list[str], says: str) -> None:
    said = project.gert("tool", *words).ended(2)
    assert says in said.err


def test_descriptions_cannot_act_on_a_terminal(project: Project) -> None:
    project.tool("odd", ["x"], action={"description": "a\x1b]0;x\x07\x1b[31mb"})
    assert "\x1b" not in project.gert("tool", "show", "odd").ended(0).out


# --- check


def test_check_finds_programs_secrets_and_mistakes(project: Project) -> None:
    project.tool("gone", ["no-such-program"])
    project.tool("secret", ["sh"], secrets=[{"env": "NOT_SET_HERE"}])
    project.write("tools/wrong.tool.yaml", {"apiVersion": "tool/v0", "meta": {"name": "wrong"}, "actions": {}})
    said = project.gert("tool", "check", "--json").ended(1).said
    found = {each["name"]: each["problems"] for each in said["tools"]}
    assert found.pop("note") == []
    assert [
        "no-such-program" in found["gone"][0],
        "NOT_SET_HERE" in found["secret"][0],
        "D50" in found["wrong"][0],
    ] == [True] * 3
    assert "✗ gone" in project.gert("tool", "check", "gone").ended(1).out


def test_check_compares_the_server_with_the_import(project: Project, log: Path) -> None:
    import_raw(project, "--name", "store", log=log).ended(0)
    said = project.gert("tool", "check", "store", "--json").ended(0).said["tools"][0]
    assert (said["server"], said["protocol"], said["problems"]) == ("raw[31m 1", "2025-11-25", [])
    file = project.root / "tools/store.tool.yaml"
    file.write_text(file.read_text().replace("- good", "- twice"))
    assert "lists the tool `do` twice" in project.gert("tool", "check", "store").ended(1).out
    project.gert("tool", "check", "store", "--offline").ended(0)
    assert list(survivors(log)) == []


def test_check_says_what_it_cannot_notice(project: Project) -> None:
    project.write(
        "tools/hand.tool.yaml",
        {
            "apiVersion": "tool/v0",
            "meta": {
                "name": "hand",
                "transport": "mcp",
                "connect": "stdio",
                "binary": RAW[0],
                "args": [*RAW[1:], "good"],
            },
            "contract": {"effects": [], "writes": []},
            "actions": {"do": {}, "gone": {}},
        },
    )
    [said] = project.gert("tool", "check", "hand", "--json").ended(1).said["tools"]
    assert said["problems"] == ["the server has no tool `gone`"]
    assert "was not imported" in said["notes"][0]


# --- import


def test_import_writes_a_valid_tool_and_calls_nothing(project: Project, log: Path) -> None:
    said = import_raw(project, "--name", "store", log=log).ended(0)
    assert "wrote tools/store.tool.yaml: 2 actions from raw[31m 1 (MCP 2025-11-25)" in said.out
    assert "\x1b" not in said.out
    assert (lines(log, "call"), list(survivors(log))) == ([], [])
    project.gert("validate", "--strict", "tools/store.tool.yaml").ended(0)
    shown = project.gert("tool", "show", "store", "do", "--json").ended(0).said
    assert shown["imported"] == {"server": "raw[31m 1", "tools": 2}
    [action] = shown["actions"]
    assert (action["risk_level"], action["contract"]["effects"], action["contract"]["idempotent"]) == (
        "low",
        ["store"],
        True,
    )
    assert set(action["contract"]["inputs"]) == {"text", "file_path"}
    plan = project.gert("tool", "show", "store", "plan", "--json").ended(0).said["actions"][0]
    assert (plan["risk_level"], plan["contract"]["effects"], plan["contract"]["writes"]) == (
        "critical",
        ["unknown"],
        ["unknown"],
    )


def test_import_again_keeps_reviewed_contracts_and_says_what_changed(project: Project, log: Path) -> None:
    import_raw(project, "--name", "store").ended(0)
    file = project.root / "tools/store.tool.yaml"
    reviewed = file.read_text().replace("- unknown", "- store", 2)
    file.write_text(reviewed)
    said = project.gert("tool", "import", "--mcp", server("changing", log), "--name", "store", "--json").ended(0).said
    again = project.gert("tool", "import", "--mcp", server("changing", log), "--name", "store", "--json").ended(0).said
    assert (said["replaced"], said["changes"]) == (True, [])
    assert again["changes"] == [
        "the tool `do` changed since it was imported: its annotations",
        "the server no longer has the tool `plan`",
    ]
    assert "- unknown" not in file.read_text()


def test_import_prints_to_standard_output(project: Project) -> None:
    said = import_raw(project, "--name", "store", "-o", "-").ended(0)
    assert said.out.startswith("# Imported")
    assert not (project.root / "tools/store.tool.yaml").exists()
    assert "text" in json.loads(import_raw(project, "-o", "-", "--json").ended(0).out)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(["--mcp", "no-such-server"], 1, "`no-such-server` was not found on PATH", id="no such program"),
        pytest.param(["--mcp", server("exit")], 4, "exited with 3: no configuration found", id="a server that exits"),
        pytest.param(["--mcp", server("endless-list")], 4, "lists tools without end", id="a list without end"),
        pytest.param(["--mcp", "'"], 2, "cannot be split", id="a command that is none"),
        pytest.param(["--mcp", " "], 2, "expected a command or a URL", id="nothing"),
        pytest.param(["--mcp", "http://mcp.internal/"], 1, "must be https", id="plain http"),
        pytest.param(["--mcp", "http://127.0.0.1:9/"], 4, "cannot be reached", id="nothing listens"),
        pytest.param(
            ["--mcp", "x", "--header", "A: b"], 2, "belongs to a server with a URL", id="headers for a program"
        ),
        pytest.param(["--mcp", "https://x/", "--header", "A"], 2, "takes `NAME: VALUE`", id="a header without a value"),
        pytest.param(["--mcp", "x", "--name", "../x"], 2, "cannot be the name of a tool", id="a name that is a path"),
        pytest.param(["--mcp", server(), "-o", "x.txt"], 2, "expected a YAML file", id="no YAML file"),
        pytest.param(["--mcp", server(), "-o", "tools/note.tool.yaml"], 2, "was not imported", id="a file of your own"),
    ],
)
def test_imports_that_fail(project: Project, words: list[str], code: int, says: str) -> None:
    before = project.kept()
    said = project.gert("tool", "import", *words).ended(code)
    assert says in said.err
    assert project.kept() == before


@pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param("uvx mcp-server-time --local-timezone UTC", "time", id="a package for uvx"),
        pytest.param("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /tmp", "filesystem", id="for npx"),
        pytest.param("python my_mcp_thing.py", "my_mcp_thing", id="a script"),
        pytest.param("/opt/bin/tickets", "tickets", id="a program"),
        pytest.param("https://mcp.example.com/mcp", "example", id="a URL"),
    ],
)
def test_names_are_guessed(place: str, name: str) -> None:
    from gert.ecosystem.host.tools.import_mcp import _meta

    assert _meta(place, None, ())["name"] == name


def test_secrets_in_headers_are_declared() -> None:
    from gert.ecosystem.host.tools.import_mcp import _draft, _meta

    draft = _draft(_meta("https://x.example/mcp?k=${KEY}", "x", ["Authorization: Bearer ${TOKEN}"]), None)
    assert [secret.env for secret in draft.secrets] == ["TOKEN", "KEY"]
    assert draft.meta.headers == {"Authorization": "Bearer ${TOKEN}"}


def test_braces_in_a_command_are_not_templates() -> None:
    from gert.ecosystem.host.tools.import_mcp import _draft, _meta
    from gert.kernel.template import render

    draft = _draft(_meta("server --format '{{ .name }}'", None, ()), None)
    assert [render(word, {}) for word in draft.meta.args] == ["--format", "{{ .name }}"]
