"""`gert serve` as an editor uses it: a process, one JSON message a line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.ecosystem.surfaces.line_client import LineClient
from tests.ecosystem.surfaces.mcp.conftest import LONG, QUICK, TOOL, WRITES

from gert.ecosystem.host.operations.editor_table import EDITOR_OPERATIONS
from gert.ecosystem.surfaces.serve.messages import NOTIFICATIONS
from gert.ecosystem.surfaces.serve.service import MOST_CALLS, OWN, reference


def fits(schema: dict[str, Any], said: Any) -> None:
    """Whatever arrives has the shape of the reference, and no other keys."""
    jsonschema_rs.validator_for(schema).validate(said)


class Editor(LineClient):
    """A client with the messages it received."""

    def __init__(self, root: Path, *arguments: str) -> None:
        super().__init__([sys.executable, "-m", "gert", "serve", "--root", str(root), *arguments])

    def next(self) -> dict[str, Any]:
        message = super().next()
        if message.get("method") in NOTIFICATIONS:
            fits(reference()["notifications"][message["method"]]["params"], message["params"])
        return message

    def answer(self, number: int | None) -> dict[str, Any]:
        while True:
            message = self.next()
            if "id" in message and message["id"] == number:
                return message
            self.told.append(message)

    def call(self, method: str, **params: Any) -> Any:
        answer = self.answer(self.begin(method, **params))
        assert "result" in answer, answer
        fits(reference()["methods"][method]["result"], answer["result"])
        return answer["result"]

    def fault(self, method: str, **params: Any) -> Any:
        return self.answer(self.begin(method, **params))["error"]

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        found = next((each for each in self.told if wanted(each)), None)
        while found is None:
            message = self.next()
            self.told.append(message)
            found = message if wanted(message) else None
        return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    (folder / "tools").mkdir(parents=True)
    (folder / "gert-project.yaml").write_text("name: served\n")
    (folder / "tools" / "sh.tool.yaml").write_text(TOOL)
    for name, text in (("quick", QUICK), ("long", LONG), ("writes", WRITES)):
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def editor(root: Path, tmp_path: Path) -> Iterator[Editor]:
    made = Editor(root, "--state-dir", str(tmp_path / "state"))
    yield made
    made.end()


def test_an_editor_validates_runs_follows_and_approves(editor: Editor, root: Path) -> None:
    assert editor.fault("gert/validate", path="quick.yaml")["code"] == -32002
    assert "gert/exec" in editor.call("initialize", protocol_version="1")["methods"]
    assert editor.call("gert/validate", path="quick.yaml")["valid"] is True
    assert editor.call("gert/inputs", path="writes")["inputs"]["text"]["needed"] is True
    started = editor.call("gert/exec", path="writes", vars={"text": "x"}, wait_seconds=20, progress_token="p")
    assert started["status"] == "waiting_for_approval"
    assert any(each["method"] == "gert/progress" and each["params"]["token"] == "p" for each in editor.told)
    editor.call("gert/follow", run_id=started["run_id"])
    (ticket,) = editor.call("gert/list_approvals")["tickets"]
    assert ticket["ticket_id"] == started["waiting"]["ticket_id"]
    said = editor.call("gert/answer_approval", ticket_id=ticket["ticket_id"], verdict="approve", approver="kim")
    assert said["received"] is True
    ended = editor.until(lambda each: each.get("method") == "gert/status" and each["params"]["status"] == "completed")
    assert ended["params"]["run_id"] == started["run_id"]
    numbers = [each["params"]["event"]["seq"] for each in editor.told if each.get("method") == "gert/event"]
    assert numbers == list(range(1, len(numbers) + 1))
    page = editor.call("gert/events", run_id=started["run_id"], since=2)
    assert page["events"][0]["seq"] == 3
    assert editor.call("gert/list_runs", status="completed")["runs"][0]["run_id"] == started["run_id"]
    assert editor.close() == 0


def test_findings_follow_a_file(editor: Editor, root: Path) -> None:
    editor.call("initialize")
    editor.call("gert/watch", paths=["quick.yaml"])

    def found(each: dict[str, Any]) -> bool:
        return each.get("method") == "gert/diagnostics" and bool(each["params"]["findings"])

    editor.until(lambda each: each.get("method") == "gert/diagnostics" and not each["params"]["findings"])
    (root / "quick.yaml").write_text(QUICK.replace("tool: sh", "tool: nope"))
    finding = editor.until(found)["params"]["findings"][0]
    assert finding["line"] > 1
    assert editor.call("gert/unwatch", paths=["quick.yaml"])["stopped"] == ["quick.yaml"]


def test_a_cancelled_request_is_answered_once_and_its_run_goes_on(editor: Editor) -> None:
    editor.call("initialize")
    status = editor.call("gert/exec", path="long", request_id="1")
    number = editor.begin("gert/run_status", run_id=status["run_id"], wait_seconds=20)
    cancel = json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": number}}).encode()
    for _ in range(3):
        editor.send(cancel)
    assert editor.answer(number)["error"]["code"] == -32800
    assert editor.call("gert/exec", path="long", request_id="1")["run_id"] == status["run_id"]
    assert editor.call("gert/cancel", run_id=status["run_id"])["status"] == "cancelled"
    assert number not in [each.get("id") for each in editor.told]


def test_every_method_but_initialize_is_refused_before_it(editor: Editor) -> None:
    refused = [name for name in (*OWN, *(f"gert/{name}" for name in EDITOR_OPERATIONS)) if name.startswith("gert/")]
    for name in refused:
        assert editor.fault(name)["code"] == -32002, name
    assert editor.fault("initialize", protocol_version="0")["code"] == -32602
    assert editor.fault("gert/validate", path="quick.yaml")["code"] == -32002
    assert editor.call("initialize", protocol_version="1", capabilities={"unknown": True})["protocol_version"] == "1"
    assert editor.call("gert/methods")["methods"].keys() == {*OWN, *(f"gert/{name}" for name in EDITOR_OPERATIONS)}
    editor.call("shutdown")
    assert editor.fault("gert/validate", path="quick.yaml")["code"] == -32002


def test_progress_is_told_only_for_a_token_that_was_sent(editor: Editor) -> None:
    editor.call("initialize")
    editor.call("gert/exec", path="quick", wait_seconds=20)
    assert not [each for each in editor.told if each.get("method") == "gert/progress"]
    editor.call("gert/exec", path="quick", wait_seconds=20, progress_token=7)
    told = [each["params"]["token"] for each in editor.told if each.get("method") == "gert/progress"]
    assert set(told) == {7}


def test_more_calls_than_are_served_at_once_are_refused_and_can_be_retried(editor: Editor) -> None:
    editor.call("initialize")
    run_id = editor.call("gert/exec", path="long")["run_id"]
    numbers = [editor.begin("gert/run_status", run_id=run_id, wait_seconds=15) for _ in range(MOST_CALLS + 5)]
    refused = editor.until(lambda each: "error" in each)
    assert refused["error"]["code"] == -32001
    assert refused["error"]["data"]["retryable"] is True
    for number in numbers:
        editor.send(json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": number}}).encode())
    left = set(numbers) - {each.get("id") for each in editor.told}
    while left:
        message = editor.next()
        left.discard(message.get("id"))
    assert editor.call("gert/cancel", run_id=run_id)["status"] == "cancelled"


def test_an_editor_that_comes_back_follows_from_where_it_was(editor: Editor, root: Path, tmp_path: Path) -> None:
    editor.call("initialize")
    run_id = editor.call("gert/exec", path="quick", wait_seconds=20)["run_id"]
    total = editor.call("gert/events", run_id=run_id)["total"]
    editor.end()
    other = Editor(root, "--state-dir", str(tmp_path / "state"))
    other.call("initialize")
    other.call("gert/follow", run_id=run_id, since=total - 2)
    other.until(lambda each: each.get("method") == "gert/status")
    seen = [each["params"]["event"]["seq"] for each in other.told if each.get("method") == "gert/event"]
    assert seen == [total - 1, total]
    assert other.call("gert/events", run_id=run_id, since=total)["events"] == []
    assert other.fault("gert/follow", run_id="nope")["data"]["code"] == "unknown_run"
    assert other.fault("gert/follow", run_id=run_id, since=-1)["code"] == -32602
    other.end()


def test_the_findings_of_a_file_that_is_gone_are_told(editor: Editor, root: Path) -> None:
    editor.call("initialize")
    editor.call("gert/watch", paths=["quick.yaml"])
    editor.until(lambda each: each.get("method") == "gert/diagnostics" and not each["params"]["findings"])
    (root / "quick.yaml").unlink()
    told = editor.until(lambda each: each.get("method") == "gert/diagnostics" and bool(each["params"]["findings"]))
    assert told["params"]["findings"][0]["rule"] == "unknown_path"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param(b"nonsense", -32700, id="no JSON"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"gert/nope"}', -32601, id="an unknown method"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"gert/validate","params":[1]}', -32600, id="params in a list"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"gert/watch","params":{"paths":1}}', -32602, id="wrong params"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"method":"gert/watch","params":{"paths":["../x"]}}', -32000, id="outside the root"
        ),
    ],
)
def test_bad_messages_are_answered_and_the_server_goes_on(editor: Editor, line: bytes, code: int) -> None:
    editor.call("initialize")
    editor.send(line)
    number = 7 if b'"id":7' in line else None
    assert editor.answer(number)["error"]["code"] == code
    assert editor.call("gert/validate", path="quick.yaml")["valid"] is True


def test_it_ends_when_the_editor_is_gone_and_prints_nothing_else(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gert", "serve", "--root", str(root)],
        input=b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n',
        capture_output=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in done.stdout.splitlines())


def test_every_method_and_notification_is_described() -> None:
    found = reference()
    assert found["notifications"].keys() == NOTIFICATIONS.keys()
    assert found["methods"].keys() == {*OWN, *(f"gert/{name}" for name in EDITOR_OPERATIONS)}
    for name, each in (*found["methods"].items(), *found["notifications"].items()):
        assert each["description"], name
        assert each["params"]["type"] == "object"
