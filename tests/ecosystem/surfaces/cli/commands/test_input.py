"""`gert input`: what is configured, and what providers answer outside a run."""

import json
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.exec.test_providers import KEY, SECRET, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "project")


def test_providers_are_listed_without_starting_them(shop: Shop) -> None:
    shop.configured(
        cmdb={"binary": "./cmdb.py", "timeout": "5s", "config": {"api_key_env": "CMDB_KEY"}},
        gone={"binary": "never-installed"},
    )
    listed = json.loads(shop.gert("input", "list", "--json", CMDB_KEY=KEY).ended(0).out)["providers"]
    assert [(each["name"], each["timeout"], each["variables"]) for each in listed] == [
        ("cmdb", 5.0, {"CMDB_KEY": True}),
        ("gone", 30.0, {}),
    ]
    assert listed[0]["program"] == str(shop.root / "cmdb.py")
    assert (listed[1]["program"], listed[1]["problem"]) == (None, "`never-installed` was not found on PATH")
    shown = shop.gert("input", "list", CMDB_KEY=KEY).ended(0).out
    assert KEY not in shown
    assert "CMDB_KEY" in shown
    assert shop.asks() == []


def test_a_project_without_providers(shop: Shop) -> None:
    shop.configured()
    assert shop.gert("input", "list").ended(0).out == "no providers are configured\n"


def test_bindings_are_tried(shop: Shop) -> None:
    said = json.loads(shop.gert("input", "check", "cmdb.host", "provider/cmdb.port", "--json").ended(0).out)
    assert said == {
        "inputs": [
            {"input": "cmdb.host", "source": "provider/cmdb.host", "value": "srv1"},
            {"input": "provider/cmdb.port", "source": "provider/cmdb.port", "value": 8080},
        ]
    }
    assert shop.asks() == [["host", "port"]]
    assert shop.runs() == []


def test_the_bindings_of_a_runbook_are_tried_and_secrets_not_shown(shop: Shop) -> None:
    shop.book(
        host={"type": "string", "from": "cmdb.host"},
        port={"type": "bool", "from": "cmdb.port"},
        key={"type": "string", "secret": True, "from": "cmdb.key"},
        name={"type": "string", "from": "env/USER"},
    )
    ran = shop.gert("input", "check", "book.yaml", "--json").ended(1)
    found = {each["input"]: each for each in json.loads(ran.out)["inputs"]}
    assert found["host"]["value"] == "srv1"
    assert found["key"]["value"] == "[REDACTED]"
    assert found["port"]["problem"]["kind"] == "invalid_value"
    assert "name" not in found
    assert SECRET not in ran.out + ran.err
    text = shop.gert("input", "check", "book.yaml").ended(1)
    assert "expected a bool" in text.out
    assert SECRET not in text.out + text.err


def test_a_value_that_is_not_there_is_a_problem(shop: Shop) -> None:
    ran = shop.gert("input", "check", "cmdb.zone", "--json").ended(1)
    [found] = json.loads(ran.out)["inputs"]
    assert found["problem"]["kind"] == "no_value"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        pytest.param(
            ["env/HOME"], "`env/HOME` is not a binding to a provider", "cmdb.server.hostname", id="a variable"
        ),
        pytest.param(["cmdb"], "`cmdb` is not a binding to a provider", "", id="no path"),
        pytest.param(["cmbd.x"], "no provider `cmbd` is configured", "did you mean `cmdb`?", id="a misspelt name"),
        pytest.param(["nothing.x"], "no provider `nothing` is configured", "gert input list", id="an unknown name"),
        pytest.param(["quiet.yaml"], "no input of `quiet.yaml` is bound to a provider", "", id="a runbook without any"),
        pytest.param([], "missing argument", "--help", id="nothing"),
    ],
)
def test_wrong_use(shop: Shop, words: list[str], message: str, hint: str) -> None:
    shop.runbook(name="quiet")
    ran = shop.gert("input", "check", *words).ended(2)
    assert message in ran.err.lower() if not words else message in ran.err
    assert hint in ran.err


def test_text_that_would_control_a_terminal_is_not_printed(shop: Shop) -> None:
    shop.provider("cmdb", "m = read(); answer(m, {'cmdb.host': '\\x1b]0;owned\\x07 [bold]x[/bold]'})")
    ran = shop.gert("input", "check", "cmdb.host").ended(0)
    assert "\x1b" not in ran.out
    assert "[bold]x[/bold]" in ran.out
