"""Attempts to make a mode, a resume or a duration say what is not so."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import NOTE, Project, Ran, call, completed, note, of_type

LOOKS = {"effects": ["network"], "writes": [], "deterministic": False}
WRITES = {"effects": ["network"], "writes": ["disk"]}
DENY_WRITES = {"rules": [{"writes": ["disk"], "action": "deny"}, {"default": "allow"}]}
DENY_VIOLATIONS = {"rules": [{"contract_violations": "deny"}, {"default": "allow"}]}
ASKS = {"rules": [{"default": "require-approval"}]}


def ends(code: str) -> dict[str, Any]:
    return {"type": "end", "outcome": {"category": "resolved", "code": code}}


def branch(condition: str, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, Any]:
    branches = [{"condition": condition, "steps": first}, {"condition": "default", "steps": second}]
    return {"id": "which", "type": "branch", "branches": branches}


# --- modes


def probe_claims_health(*before: dict[str, Any]) -> Callable[[Project], str]:
    """Make a probe read the present world behind a write it left out, and claim what it found as the only outcome."""

    def attempt(project: Project) -> str:
        project.note_tool("looks", contract=LOOKS)
        project.note_tool("writes", contract=WRITES)
        healthy = branch('{{ eq .step.health.said "health" }}', [ends("healthy")], [ends("broken")])
        project.runbook(*before, note("health", tool="looks"), healthy, ends=False, tools=["looks", "writes"])
        said = project.exec("--mode", "probe", "--json").ended(0)
        assert "health" not in project.noted()
        assert {each["code"] for each in said.said["reachable_outcomes"]} == {"healthy", "broken"}
        return said.err

    return attempt


def probe_calls(tool_contract: dict[str, Any], **step: Any) -> Callable[[Project], str]:
    """Make a probe call a tool that never promised to write nothing."""

    def attempt(project: Project) -> str:
        project.note_tool("quiet", contract=tool_contract)
        tool = json.loads((project.root / "tools" / "quiet.tool.yaml").read_text())
        del tool["contract"]["writes"]
        project.write("tools/quiet.tool.yaml", tool)
        project.note_tool("looks", contract=LOOKS)
        project.runbook(note("one", tool="quiet", **step), note("two", tool="looks"), tools=["quiet", "looks"])
        said = project.exec("--mode", "probe").ended(0).out
        assert project.noted() == []
        assert "an earlier write was skipped" in said, "what comes after it would not read what it reads in a real run"
        return said

    return attempt


def denied(*words: str, **step: Any) -> Callable[[Project], str]:
    """Hide a step that policy denies in an arm, and take exit code 0 for permission."""

    def attempt(project: Project) -> str:
        project.note_tool("writes", contract=WRITES)
        arms = branch('{{ eq .step.one.said "x" }}', [note("hidden", tool="writes", **step), ends("a")], [ends("b")])
        project.runbook(note("one"), arms, ends=False, tools=["note", "writes"], governance=DENY_WRITES)
        return project.exec(*words).ended(3).out

    return attempt


def transport(**runbook: Any) -> Callable[[Project], str]:
    """Hide a step that cannot run here, so that the steps before it run first."""

    def attempt(project: Project) -> str:
        meta = {"name": "far", "transport": "mcp", "connect": "http://mcp.internal/mcp"}
        tool = {"apiVersion": "tool/v0", "meta": meta, "contract": LOOKS, "actions": {"go": {"mcp_tool": "m"}}}
        project.write("tools/far.tool.yaml", tool)
        project.runbook(note("one"), *runbook.pop("steps", []), tools=["note", "far"], **runbook)
        said = project.exec().ended(1).err
        assert (project.noted(), project.runs()) == ([], [])
        return said

    return attempt


# --- resumed runs


def killed(project: Project) -> None:
    """A run that was killed while it called `charge`, which must give a receipt."""
    project.tool(
        "once",
        ["sh", "-c", f"{NOTE}; kill -9 $PPID", "sh", "{{ .word }}", str(project.effects)],
        inputs={"word": {"type": "string", "required": True}},
        extract={"receipt": {"from": "stdout", "pattern": "noted (.*)"}},
        outputs={"receipt": {"type": "string", "required": True, "pattern": "^r-"}},
        contract={"idempotent": False},
    )
    steps = [note("before"), note("charge", tool="once"), note("after")]
    project.runbook(*steps, tools=["note", "once"], governance=DENY_VIOLATIONS)
    project.exec().ended(-signal.SIGKILL)


def reconciled(*outputs: str, choice: str = "charge=success", code: int = 2) -> Callable[[Project], str]:
    """Report something of a call that it cannot have given."""

    def attempt(project: Project) -> str:
        killed(project)
        given = [word for text in outputs for word in ("--reconcile-output", text)]
        ran: Ran = project.gert("resume", "--run", project.run().folder.name, "--reconcile", choice, *given)
        assert (project.noted(), of_type(project.run().events(), "run_resumed")) == (["before", "charge"], [])
        return ran.ended(code).err

    return attempt


def times_changed(change: dict[str, Any]) -> Callable[[Project], str]:
    """Change what the log of answers says of time, to make a recorded step look quicker or slower."""

    def attempt(project: Project) -> str:
        project.runbook(
            call("slow", "nap"),
            note("ask", tool="asks"),
            tools=["nap", "asks"],
            governance={"rules": [{"effects": ["asked"], "action": "require-approval"}, {"default": "allow"}]},
        )
        project.script("nap", "sleep 0.2")
        project.note_tool("asks", contract={"effects": ["asked"]})
        project.exec("--detach").ended(0)
        run = project.run()
        before = completed(run.events(), "slow")
        first = run.answers()[0]
        first["answer"] |= change
        run.change("UPDATE answers SET line = ?2 WHERE run_id = ?1 AND n = 1", json.dumps(first).encode())
        said = project.gert("resume", "--run", run.folder.name).ended(1).err
        assert completed(run.events(), "slow") == before
        return said

    return attempt


def parent(value: str) -> Callable[[Project], str]:
    """Put something that is no run id where the id of the parent is recorded."""

    def attempt(project: Project) -> str:
        project.runbook(note("one"))
        said = project.exec("--json", GERT_PARENT_RUN_ID=value).ended(0)
        assert "parent_run_id" not in project.run().events()[0]["data"]
        return said.out

    return attempt


WRITE = note("fix", tool="writes")
SKIPPED = "an earlier write was skipped"
NEVER = "a probe knows no read after a write it left out (DECISIONS 72)"
DENIED = "a denial is exit code 3 (DECISIONS 46)"
EARLY = "what cannot run is said before the first step (DECISIONS 73)"
REPORTED = "what the operator reports has the outputs the contract declares (DECISIONS 70)"
MEASURED = "durations are reproduced from the record, not taken from whoever edits it (DECISIONS 65)"

ATTACKS = [
    *(
        Attack(what, why="a probe calls only what promises to write nothing", attempt=attempt, reason="D48")
        for what, attempt in [
            ("a probe calls a tool that omits `writes`", probe_calls({"effects": ["network"]})),
            ("a step promises what its tool does not", probe_calls({"effects": ["network"]}, contract={"writes": []})),
            ("a step adds the effects", probe_calls({"effects": []}, contract={"effects": ["network"]})),
        ]
    ),
    Attack(
        "a probe reads after a write",
        why=NEVER,
        attempt=probe_claims_health(WRITE),
        reason=SKIPPED,
    ),
    Attack(
        "a probe reads after a write whose failure is continued",
        why=NEVER,
        attempt=probe_claims_health({**WRITE, "continue_on_fail": True}),
        reason=SKIPPED,
    ),
    Attack(
        "a probe reads after a write behind a guard that is unknown",
        why=NEVER,
        attempt=probe_claims_health(WRITE, note("again", tool="writes", when='{{ eq .step.fix.said "x" }}')),
        reason=SKIPPED,
    ),
    Attack(
        "a probe reads after a loop of writes",
        why=NEVER,
        attempt=probe_claims_health({**WRITE, "for_each": {"over": ["a"], "as": "n"}}),
        reason=SKIPPED,
    ),
    Attack("a dry run of a denied arm exits with 0", why=DENIED, attempt=denied("--mode", "dry-run"), reason="denies"),
    Attack(
        "a quiet dry run says nothing of it", why=DENIED, attempt=denied("--mode", "dry-run", "-q"), reason="denies"
    ),
    Attack("nor does a probe", why=DENIED, attempt=denied("--mode", "probe"), reason="denies"),
    Attack(
        "a denied step that is continued counts for nothing",
        why=DENIED,
        attempt=denied("--mode", "dry-run", continue_on_fail=True),
        reason="denies",
    ),
    Attack(
        "a denied loop counts for nothing",
        why=DENIED,
        attempt=denied("--mode", "dry-run", for_each={"over": ["a", "b"], "as": "n"}),
        reason="denies",
    ),
    Attack(
        "a step that cannot run stands behind one that runs",
        why=EARLY,
        attempt=transport(steps=[call("x", "far")]),
        reason="`x` cannot run here",
    ),
    Attack(
        "a step that cannot run stands behind a guard that is false",
        why=EARLY,
        attempt=transport(steps=[call("x", "far", when='{{ eq .step.one.said "no" }}')]),
        reason="`x` cannot run here",
    ),
    Attack(
        "a step that cannot run stands in `finally`",
        why=EARLY,
        attempt=transport(after=[call("x", "far")]),
        reason="`x` cannot run here",
    ),
    Attack(
        "a success without its required output",
        why=REPORTED,
        attempt=reconciled(code=3),
        reason="`receipt` of `charge`",
    ),
    Attack(
        "an output the contract does not declare",
        why=REPORTED,
        attempt=reconciled("charge.receipt=r-1", "charge.admin=true"),
        reason="has no output `admin`",
    ),
    Attack(
        "an output that breaks its declared limits",
        why=REPORTED,
        attempt=reconciled("charge.receipt=x"),
        reason="the output `receipt` of `charge`",
    ),
    Attack(
        "an output of a step that has completed",
        why=REPORTED,
        attempt=reconciled("charge.receipt=r-1", "before.said=other"),
        reason="not `before.said=other`",
    ),
    Attack(
        "an output of a call that failed",
        why=REPORTED,
        attempt=reconciled("charge.receipt=r-1", choice="charge=failed"),
        reason="reconciled as `failed`",
    ),
    Attack(
        "a recorded step took no time", why=MEASURED, attempt=times_changed({"at": 0.0}), reason="names answers that"
    ),
    Attack("a recorded step took a day", why=MEASURED, attempt=times_changed({"at": 86400.0}), reason="names answers"),
    Attack(
        "a recorded step was waiting all the time",
        why=MEASURED,
        attempt=times_changed({"idle": [[0.0, 1000.0]]}),
        reason="names answers that are not the stored ones",
    ),
    Attack(
        "a path as the id of the parent run",
        why="a run id is a name, never a path (DECISIONS 35)",
        attempt=parent("../../etc/passwd"),
        reason="completed",
    ),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)
