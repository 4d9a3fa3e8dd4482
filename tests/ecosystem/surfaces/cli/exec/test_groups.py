"""A group on every surface: explained, run dry, run, tested with coverage, resumed and rerun (DECISIONS 85)."""

from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project, of_type


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def note(step_id: str, word: str, **more: object) -> dict[str, object]:
    return {"id": step_id, "type": "tool", "tool": "note", "inputs": {"word": word}, **more}


GROUP = {
    "id": "hosts",
    "type": "group",
    "for_each": {"as": "h", "over": ["web", "db"], "key": "{{ .h }}"},
    "steps": [note("one", "one-{{ .h }}"), note("two", "two-{{ .said }}")],
}
ASKS = {"rules": [{"effects": ["files"], "action": "require-approval"}, {"default": "allow"}]}


def test_a_group_is_explained_run_dry_tested_resumed_and_rerun(project: Project) -> None:
    book = project.runbook(GROUP)
    assert "two" in project.gert("explain", book).ended(0).out
    dry = project.gert("exec", "--mode", "dry-run", book).ended(0)
    assert "hosts[web]: 2 steps" in dry.out
    assert project.noted() == []
    project.gert("exec", "--record", "scenarios/book/one", book).ended(0)
    assert project.noted() == ["one-web", "two-one-web", "one-db", "two-one-db"]
    run = project.run()
    assert [each["path"] for each in of_type(run.events(), "group_start")] == ["hosts[web]", "hosts[db]"]
    (covered,) = project.gert("test", "--json", "--coverage", "--all", book).ended(0).said["coverage"]
    assert covered["steps"] == {"reached": 3, "total": 3, "missed": []}
    again = project.gert("rerun", "--run", run.folder.name, "--from", "hosts[db]/two").ended(0)
    assert project.noted()[4:] == ["two-one-db"], again.out


def test_a_run_that_waits_inside_a_group_is_resumed_there(project: Project) -> None:
    book = project.runbook(GROUP, governance=ASKS)
    waiting = project.gert("exec", "--detach", "--json", book).ended(0).said
    run_id, ticket = waiting["run_id"], waiting["pending"][0]["ticket_id"]
    assert waiting["pending"][0]["step_id"] == "one"
    project.gert("approve", ticket, "--as", "bob@example.com").ended(0)
    project.gert("resume", "--run", run_id, "--detach").ended(0)
    assert project.noted() == ["one-web"]
    (run,) = project.runs()
    assert [each["path"] for each in of_type(run.events(), "group_start")] == ["hosts[web]"]


def test_a_missing_key_is_told_in_the_result(project: Project) -> None:
    guarded = note("last", "x", when="{{ .hosts.wbe }}")
    said = project.gert("exec", "--json", project.runbook(GROUP, guarded)).ended(0).said
    assert said["warnings"] == ["`.hosts` has no key `wbe`, read by `last`; it has `web`, `db`"]
    assert "hosts has no key wbe; it has web, db" in project.gert("exec", project.root / "book.yaml").ended(0).out
