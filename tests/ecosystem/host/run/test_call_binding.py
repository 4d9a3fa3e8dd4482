"""What the host adds to a request for approval, and what it finds changed."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gert.ecosystem.host.config.machine.platform import machine_id
from gert.ecosystem.host.run.world.call_binding import CHANGED, Binding
from gert.ecosystem.tools.stdio import ProgramLocation
from gert.kernel.engine.requests import Subject
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.approval import ApprovalRequest

KEY = "k" * 64
SUBJECT = Subject(inputs={"word": secret_ref("text"), "plain": "x"}, tool="note", action="go")
REQUEST = ApprovalRequest(
    run_id="r", runbook="b", step_id="s", title=None, risk_level="high", rule=None, contract={}, target="note:go",
    inputs={"word": secret_ref("text"), "plain": "x"}, request_hash="", min_approvers=1, approvers=(), admitted=(),
    separation_of_duties=False, require_signed_approvals=False, requested_by="ann", approval_timeout=60.0,
    runbook_hash="h", hidden={"word": "runbook"}, tool_digest="d", command={"program": "note"},
)  # fmt: skip


def binding(
    text: str = "one",
    *,
    key: str = KEY,
    host: str = "here",
    program: str | None = "/bin/note",
    folder: str = "/work",
) -> Binding:
    place = ProgramLocation(program, folder) if program is not None else None
    return Binding(secrets={"text": text}, key=key, host=host, locate=lambda _: place)


def changed(**parts: Any) -> Callable[[ApprovalRequest], ApprovalRequest]:
    return lambda request: msgspec.structs.replace(request, **parts)


def test_what_was_completed_is_not_outdated() -> None:
    asked = binding().complete(REQUEST, SUBJECT)
    assert asked.secrets.keys() == {"word"}
    assert asked.secrets["word"].startswith("hmac-sha256:")
    assert (asked.program, asked.host) == ("/bin/note", "here")
    assert binding().outdated(asked, SUBJECT) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param(binding("two"), "the secret input `word`", id="another value"),
        pytest.param(binding(key="other"), "the secret input `word`", id="another key"),
        pytest.param(binding(program="/evil/note"), "now at `/evil/note`", id="another place"),
        pytest.param(binding(program=None), "now at nowhere", id="no program"),
        pytest.param(binding(folder="/else"), "and is now `/else`", id="another folder"),
    ],
)
def test_what_the_host_finds_changed(now: Binding, why: str) -> None:
    failure = now.outdated(binding().complete(REQUEST, SUBJECT), SUBJECT)
    assert failure is not None
    assert failure.kind == "approval_outdated"
    assert why in failure.message


def test_on_another_host_the_program_may_be_elsewhere() -> None:
    asked = binding().complete(REQUEST, SUBJECT)
    assert binding(host="there", program="/opt/note", folder="/srv").outdated(asked, SUBJECT) is None
    assert binding(host="there").here(asked).program is None
    assert binding().here(asked).program == "/bin/note"


def test_a_machine_is_told_by_its_id_and_not_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_id()
    monkeypatch.setattr("socket.gethostname", lambda: "other")
    assert machine_id() == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed(runbook_hash="other"), id="runbook"),
        pytest.param(changed(step_id="s[1]"), id="step"),
        pytest.param(changed(contract={"writes": ["x"]}), id="contract"),
        pytest.param(changed(inputs={"plain": "y"}), id="inputs"),
        pytest.param(changed(hidden={}), id="who hides an input"),
        pytest.param(changed(tool_digest="other"), id="tool file"),
        pytest.param(changed(command={"program": "note", "env": {"A": "b"}}), id="command"),
        pytest.param(changed(preview="nothing"), id="preview"),
        pytest.param(changed(preview_command=("echo",)), id="command of the preview"),
        pytest.param(changed(preview_skipped="why"), id="preview that was not run"),
    ],
)
def test_every_part_of_a_request_is_bound(change: Callable[[ApprovalRequest], ApprovalRequest]) -> None:
    asked = binding().complete(REQUEST, SUBJECT)
    failure = binding().outdated(change(asked), SUBJECT)
    assert failure is not None
    assert failure.message == CHANGED


def test_two_inputs_of_one_value_do_not_show_that_they_are_equal() -> None:
    subject = Subject(inputs={"a": secret_ref("text"), "b": secret_ref("text")})
    asked = binding().complete(msgspec.structs.replace(REQUEST, hidden={"a": "runbook", "b": "tool"}), subject)
    assert asked.secrets["a"] != asked.secrets["b"]


def test_a_secret_inside_a_nested_input_is_bound() -> None:
    subject = Subject(inputs={"word": {"list": [secret_ref("text")]}})
    one, two = (binding(each).complete(REQUEST, subject) for each in ("one", "two"))
    assert one.secrets["word"] != two.secrets["word"]
