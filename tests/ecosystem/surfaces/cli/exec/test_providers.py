"""Runs whose inputs come from providers: one call, on record with their source, and never asked again."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.rpc.children import PRELUDE
from tests.ecosystem.surfaces.cli.workbench import Project, call, note

SECRET = "correct-horse-battery"
KEY = "pd-key-0123456789"
ASKED = """
while True:
    m = read()
    with open({asked!r}, "a") as file: file.write(json.dumps([b["path"] for b in m["params"]["bindings"]]) + chr(10))
    values = {{"host": "srv1", "port": 8080, "key": {secret!r}, "leak": os.environ.get("CMDB_KEY")}}
    answer(m, {{b["input"]: values[b["path"]] for b in m["params"]["bindings"] if b["path"] in values}})
"""


class Shop(Project):
    """A project with the providers `cmdb` and `other`, which note what they are asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked = root / "asked"
        self.provider("cmdb", ASKED.format(asked=str(self.asked), secret=SECRET))
        self.configured(
            cmdb={"binary": "./cmdb.py", "config": {"api_key_env": "CMDB_KEY"}}, other={"binary": "./cmdb.py"}
        )
        self.book()

    def provider(self, name: str, code: str) -> None:
        self.write(f"{name}.py", f"#!{sys.executable} -SE\n{PRELUDE}\n{code}\n").chmod(0o755)

    def configured(self, file: str = "gert-project.yaml", **providers: Any) -> None:
        named = {"name": "bench"} if file == "gert-project.yaml" else {}
        self.write(file, {**named, "providers": providers})

    def book(self, *steps: Any, governance: Any = None, **inputs: Any) -> None:
        declared = inputs or {
            "host": {"type": "string", "required": True, "from": "provider/cmdb.host"},
            "port": {"type": "int", "from": "cmdb.port"},
            "zone": {"type": "string", "from": "other.zone", "default": "eu"},
        }
        self.runbook(*steps, inputs=declared, governance=governance)

    def asks(self) -> list[Any]:
        return [json.loads(line) for line in self.asked.read_text().splitlines()] if self.asked.exists() else []

    def resolved(self) -> dict[str, tuple[str, Any]]:
        events = (event for event in self.run().events() if event["type"] == "input_resolved")
        return {event["data"]["name"]: (event["data"]["source"], event["data"].get("value")) for event in events}

    def left(self) -> bytes:
        """Everything that runs left behind."""
        return b"".join(path.read_bytes() for path in (self.root / "runs").rglob("*") if path.is_file())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "project")


def test_each_provider_is_asked_once_and_each_input_is_on_record(shop: Shop) -> None:
    shop.exec().ended(0)
    assert sorted(shop.asks()) == [["host", "port"], ["zone"]]
    assert shop.resolved() == {
        "host": ("provider/cmdb.host", "srv1"),
        "port": ("provider/cmdb.port", 8080),
        "zone": ("default", "eu"),
    }
    shop.verifies()


def test_what_is_given_is_not_asked_for(shop: Shop) -> None:
    shop.exec("--var", "host=mine", "--var", "port=1", "--var", "zone=us").ended(0)
    assert shop.asks() == []


@pytest.mark.parametrize("file", [".gert/config.yaml", "gert-config.yaml"])
def test_a_provider_may_be_configured_beside_the_project(shop: Shop, file: str) -> None:
    shop.configured()
    up = "../cmdb.py" if file.startswith(".gert") else "./cmdb.py"
    shop.configured(file, cmdb={"binary": up}, other={"binary": up})
    shop.exec().ended(0)
    assert len(shop.asks()) == 2


def test_a_failure_stops_the_run_before_it_begins(shop: Shop) -> None:
    shop.provider("cmdb", "m = read(); write(id=m['id'], error={'code': -32001, 'message': 'the CMDB is down'})")
    ran = shop.exec().ended(2)
    assert (
        "input `host` from `provider/cmdb.host`: the provider `cmdb` answered with an error: the CMDB is down"
        in ran.err
    )
    assert "pass the value with --var or --input" in ran.err
    assert shop.runs() == []


def test_a_secret_of_a_provider_is_seen_by_nothing_but_the_tool(shop: Shop) -> None:
    shop.tool(
        "use",
        ["sh", "-c", 'test ${#1} -eq 21 && echo "got $1 and [$CMDB_KEY]"', "sh", "{{ .key }}"],
        inputs={"key": {"type": "string", "secret": True}},
        extract={"said": {"from": "stdout"}},
    )
    shop.runbook(
        call("use", "use", inputs={"key": "{{ .key }}"}),
        tools=["use"],
        inputs={"key": {"type": "string", "secret": True, "required": True, "from": "provider/cmdb.key"}},
    )
    ran = shop.exec(CMDB_KEY=KEY).ended(0)
    left = shop.left()
    for text in (SECRET, KEY):
        assert text not in ran.out + ran.err
        assert text.encode() not in left
    assert b"got [REDACTED] and []" in left


def test_a_credential_that_a_provider_gives_away_is_no_input(shop: Shop) -> None:
    shop.book(leak={"type": "string", "from": "cmdb.leak"})
    ran = shop.exec(CMDB_KEY=KEY).ended(2)
    assert "the input `leak` holds a secret and is not declared as one" in ran.err
    assert KEY not in ran.out + ran.err


@pytest.mark.parametrize("action", ["deny", "require-approval"])
def test_policies_on_the_network_apply(shop: Shop, action: str) -> None:
    shop.book(governance={"rules": [{"effects": ["network"], "action": action}, {"default": "allow"}]})
    ran = shop.exec().ended(2)
    assert "the effect `network`" in ran.err
    assert shop.asks() == []
    explained = shop.gert("explain", "book.yaml").ended(0).out
    assert "provider/cmdb.host" in explained


def test_a_dry_run_asks_only_where_the_effect_is_allowed(shop: Shop) -> None:
    shop.exec("--mode", "dry-run").ended(0)
    assert len(shop.asks()) == 2
    ran = shop.exec("--mode", "dry-run", "--probe-allow-effects", "files").ended(2)
    assert "a dry-run may not have the effect network" in ran.err
    assert len(shop.asks()) == 2


def test_a_recorded_run_is_replayed_without_the_provider(shop: Shop) -> None:
    shop.exec("--record", "fine").ended(0)
    asked = len(shop.asks())
    (shop.root / "cmdb.py").unlink()
    folder = next(shop.root.rglob("scenario.yaml")).parent
    ran = shop.exec("--mode", "replay", "--scenario", folder).ended(0)
    assert "srv1" in ran.out + ran.err
    assert len(shop.asks()) == asked


def test_a_resumed_run_asks_only_for_secrets(shop: Shop) -> None:
    inputs = {
        "host": {"type": "string", "from": "cmdb.host"},
        "key": {"type": "string", "secret": True, "from": "cmdb.key"},
    }
    approve = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}
    shop.book(note("say", "{{ .host }}"), governance=approve, **inputs)
    shop.exec("--detach").ended(0)
    assert shop.asks() == [["host", "key"]]
    run = shop.run()
    ticket = next(event["data"]["ticket_id"] for event in run.events() if event["type"] == "approval_submitted")
    shop.gert("approve", ticket, "--as", "bob").ended(0)
    shop.gert("resume", "--run", run.id).ended(0)
    assert shop.asks() == [["host", "key"], ["key"]]
    assert shop.noted() == ["srv1"]


def test_a_rerun_takes_the_recorded_values(shop: Shop) -> None:
    shop.book(note("say", "{{ .host }}"), host={"type": "string", "from": "cmdb.host"})
    shop.exec().ended(0)
    (shop.root / "cmdb.py").unlink()
    shop.gert("rerun", "--run", shop.run().id, "--from", "say").ended(0)
    assert shop.noted() == ["srv1", "srv1"]


def test_a_provider_that_does_not_answer_in_time_is_ended(shop: Shop) -> None:
    shop.configured(cmdb={"binary": "./cmdb.py", "timeout": "200ms"})
    shop.book(host={"type": "string", "from": "cmdb.host"})
    shop.provider("cmdb", f"open({str(shop.root / 'pid')!r}, 'w').write(str(os.getpid()))\nread(); time.sleep(60)")
    ran = shop.exec().ended(2)
    assert "the provider `cmdb` did not answer `resolve` within 200ms" in ran.err
    assert not Path(f"/proc/{(shop.root / 'pid').read_text()}").exists()


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        pytest.param({"binary": "./gone.py"}, "D50", "cannot start the provider `cmdb`", id="a missing program"),
        pytest.param(
            {"binary": "./cmdb.py", "config": {"token": "abc"}}, "D73", "is written in the file", id="a credential"
        ),
    ],
)
def test_validate_says_what_is_wrong_with_a_provider(shop: Shop, change: Any, rule: str, message: str) -> None:
    shop.configured(cmdb=change, other={"binary": "./cmdb.py"})
    found = shop.gert("validate", ".").ended(0)
    assert rule in found.out + found.err
    assert message in found.out + found.err


def test_the_error_of_one_input_does_not_quote_the_secret_of_another(shop: Shop) -> None:
    shop.book(
        call("x", "note", inputs={"word": "x"}),
        key={"type": "string", "secret": True, "from": "provider/cmdb.key"},
        port={"type": "int", "from": "provider/cmdb.key"},
    )
    said = shop.exec().ended(2)
    assert "port" in said.err
    assert SECRET not in said.out + said.err
