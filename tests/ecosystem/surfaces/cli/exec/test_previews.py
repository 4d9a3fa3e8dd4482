"""Previews: whoever decides sees what an action would do, and what they saw is part of what they approve."""

from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, call

RULES = [{"writes": ["things"], "action": "require-approval"}, {"default": "allow"}]


def prepared(project: Project, preview: list[str], **tool: Any) -> None:
    project.tool(
        "change",
        ["sh", "-c", "echo done > changed; echo changed"],
        contract={"effects": ["files"], "writes": ["things"], "idempotent": False},
        inputs={"name": {"type": "string", "required": True}},
        action={"preview": {"argv": preview}},
        **tool,
    )
    project.runbook(call("fix", "change", inputs={"name": "web"}), tools=["change"], governance={"rules": RULES})


def of_kind(project: Project, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in project.run().events() if event["type"] == kind]


def test_the_approver_sees_it_and_it_is_bound_to_the_approval(project: Project) -> None:
    prepared(project, ["echo", "would change {{ .name }}"])
    waiting = project.exec("--detach", "--json").ended(0).said
    [captured] = of_kind(project, "preview_captured")
    [submitted] = of_kind(project, "approval_submitted")
    assert captured["output"] == "would change web\n"
    assert submitted["preview_digest"] == captured["digest"]
    assert not (project.root / "changed").exists()
    ticket = waiting["pending"][0]["ticket_id"]
    assert "would change web" in project.gert("approvals", "show", ticket).ended(0).out
    project.gert("approve", ticket, "--as", "bob").ended(0)
    project.gert("resume", "--run", waiting["run_id"]).ended(0)
    assert (project.root / "changed").exists()


def test_another_preview_is_another_request(project: Project) -> None:
    hashes = []
    for words in ("one thing", "two things"):
        prepared(project, ["echo", words])
        project.exec("--detach").ended(0)
        hashes.append(project.runs()[-1].events()[-1]["data"]["request_hash"])
    assert len(set(hashes)) == 2


def test_a_preview_that_fails_is_said_and_approves_nothing(project: Project) -> None:
    prepared(project, ["sh", "-c", "echo no >&2; exit 3"])
    project.exec("--detach").ended(0)
    [captured] = of_kind(project, "preview_captured")
    assert "the preview failed" in captured["output"]
    assert not (project.root / "changed").exists()


def test_a_preview_that_exits_with_one_after_printing_has_not_failed(project: Project) -> None:
    (project.root / "new").write_text("port: 8080\n")
    prepared(project, ["diff", "-u", "/dev/null", str(project.root / "new")])
    project.exec("--detach").ended(0)
    [captured] = of_kind(project, "preview_captured")
    assert captured["output"].endswith("+port: 8080\n")
    assert "the preview" not in captured["output"]


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        pytest.param(
            "echo some; echo no >&2; exit 1",
            "some\nthe preview failed: `sh` exited with 1: no",
            id="exits with 1 after an error",
        ),
        pytest.param("echo some; exit 3", "some\nthe preview exited with 3", id="exits with another code"),
        pytest.param("exit 1", "the preview failed: `sh` exited with 1", id="exits with 1 and prints nothing"),
    ],
)
def test_a_preview_says_that_it(project: Project, script: str, ends: str) -> None:
    prepared(project, ["sh", "-c", script])
    project.exec("--detach").ended(0)
    [captured] = of_kind(project, "preview_captured")
    assert captured["output"] == ends


def test_a_dry_run_shows_it_and_changes_nothing(project: Project) -> None:
    prepared(project, ["echo", "would change {{ .name }}"])
    said = project.exec("--mode", "dry-run", "--probe-allow-effects", "files").ended(0).out
    assert "│ would change web" in said
    assert not (project.root / "changed").exists()


def test_a_probe_does_not_run_it(project: Project) -> None:
    prepared(project, ["sh", "-c", "touch looked"])
    project.exec("--mode", "probe").ended(0)
    assert not (project.root / "looked").exists()


def test_a_secret_in_a_preview_is_masked(project: Project) -> None:
    prepared(project, ["sh", "-c", "echo key $CANARY"], secrets=[{"env": "CANARY"}])
    project.exec("--detach", CANARY="cN4ry-of-the-preview").ended(0)
    [captured] = of_kind(project, "preview_captured")
    assert captured["output"] == "key [REDACTED]\n"
    kept = [file.read_bytes() for file in project.root.rglob("*") if file.is_file()]
    assert not [data for data in kept if b"cN4ry" in data]
