"""Steps that call skills: plan, verdict, ticket, authorization, one-shot runner, record; and the ways around a run."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import KEYS, PING, SEED, Bench, bench, holds_canary, listed, ping
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor
from tests.ecosystem.surfaces.cli.workbench import completed, note, of_type

GATE = {"rules": [{"effects": ["network"], "action": "require-approval", "min_approvers": 1}, {"default": "allow"}]}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Bench, Vendor]]:
    with bench(tmp_path / "project") as (made, served):
        made.runner_tool()
        yield made, served


def executions(made: Bench) -> list[dict[str, Any]]:
    return [row for row in listed(made.gert("run", "list", "--json").ended(0)) if row["kind"] == "runner"]


def test_a_step_calls_a_skill_and_its_outputs_are_there(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.runbook(ping(), note("after", "{{ .path }} {{ .step.ping.exit_code }}"), tools=["ping", "note"])
    made.exec("--as", "ann", **KEYS).ended(0)
    assert made.noted() == ["/ping/hi 0"]
    (run,) = [each for each in made.runs() if not each.id.startswith("plan-")]
    made.verifies(run)
    (row,) = executions(made)
    assert (row["status"], row["actor"], row["skill_id"]) == ("completed", "ann", PING)
    shown = made.gert("run", "show", row["run_id"]).ended(0).out
    assert f"started by:  run {run.id}" in shown
    assert '"plan_id"' in made.gert("logs", run.id, "ping").ended(0).out, "the record is what the step printed"
    assert holds_canary(made.root, but=[made.secret]) == []
    assert len(served.asked) == 1


def test_each_visit_of_a_step_is_a_plan_of_its_own(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    loop = ping(word="{{ .item }}", for_each={"over": ["a", "b"], "as": "item"})
    bounds = {"max": 2, "until": '{{ eq .path "no" }}'}
    again = {"id": "more", "type": "repeat", "repeat": bounds, "steps": [ping("in", word="c")]}
    made.runbook(loop, again, tools=["ping"])
    made.exec(**KEYS).ended(0)
    assert sorted(asked.path for asked in served.asked) == ["/ping/a", "/ping/b", "/ping/c", "/ping/c"]
    assert len({row["run_id"] for row in executions(made)}) == 4


def test_an_approval_is_over_the_plan_and_a_resume_executes_it(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.runbook(ping(), tools=["ping"], governance=GATE)
    said = made.exec("--detach", "--as", "ann", "--json", **KEYS).ended(0).said
    (pending,) = said["pending"]
    plan = pending["plan"]
    assert (plan["skill_id"], plan["secret_ref"], plan["inputs"]) == (PING, made.ref, {"word": "hi"})
    assert plan["network_policy"]["domains"] == ["vendor.test"]
    shown = made.gert("approvals", "show", pending["ticket_id"]).ended(0).out
    for words in ("runner:", "vendor.test", made.ref, "one execution", plan["plan_id"]):
        assert words in shown
    assert served.asked == []
    made.gert("approve", pending["ticket_id"], "--as", "bob").ended(0)
    made.gert("resume", "--run", said["run_id"], "--detach", **KEYS).ended(0)
    assert len(served.asked) == 1
    (row,) = executions(made)
    assert row["run_id"] == plan["plan_id"]
    lines = (made.root / "runs" / plan["plan_id"] / "trace.jsonl").read_text().splitlines()
    authorized = json.loads(lines[1])["data"]
    assert (authorized["verdict"], authorized["tickets"]) == ("approved", [pending["ticket_id"]])
    assert authorized["approvers"] == ["bob"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda made: made.skill(timeout="9s"), id="the skill"),
        pytest.param(lambda made: (made.runner.update(unsandboxed=True), made.settle()), id="the runner"),
        pytest.param(lambda made: made.runner_tool(ttl="2m"), id="the ttl"),
    ],
)
def test_what_changes_after_approval_is_not_executed(place: tuple[Bench, Vendor], change: Any) -> None:
    made, served = place
    made.runbook(ping(), tools=["ping"], governance=GATE)
    said = made.exec("--detach", "--as", "ann", "--json", **KEYS).ended(0).said
    made.gert("approve", said["pending"][0]["ticket_id"], "--as", "bob").ended(0)
    change(made)
    ran = made.gert("resume", "--run", said["run_id"], "--detach", "--json", "--allow-changed", **KEYS).ended(0)
    assert served.asked == []
    (pending,) = ran.said["pending"]
    assert pending["ticket_id"] != said["pending"][0]["ticket_id"], "a new plan needs a new approval"


def test_with_a_signing_key_the_runner_seals_its_run(place: tuple[Bench, Vendor]) -> None:
    made, _ = place
    key = {"GERT_TRACE_SIGNING_KEY": "ed25519:dHJhY2Uta2V5LW9mLXRoZS1iZW5jaC0wMTIzNDU2Nzg="}
    made.runbook(ping(), tools=["ping"])
    made.exec(**KEYS, **key).ended(0)
    (row,) = executions(made)
    said = made.gert("run", "verify", row["run_id"], "--json", **key).ended(0).said
    assert said["proven"] is True


def test_a_run_on_postgres_spends_its_plan_there(place: tuple[Bench, Vendor], dsn: str) -> None:
    made, served = place
    made.runbook(ping(), tools=["ping"])
    made.exec("--dsn", "env:LEDGER", LEDGER=dsn, **KEYS).ended(0)
    rows = listed(made.gert("run", "list", "--json", "--dsn", "env:LEDGER", LEDGER=dsn).ended(0))
    assert sorted(row["kind"] for row in rows) == ["runbook", "runner"]
    assert not (made.root / "runs").exists(), "nothing is recorded beside the ledger that was named"
    assert len(served.asked) == 1


def test_a_rejected_plan_is_never_executed(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.runbook(ping(), tools=["ping"], governance=GATE)
    said = made.exec("--detach", "--as", "ann", "--json", **KEYS).ended(0).said
    made.gert("reject", said["pending"][0]["ticket_id"], "--as", "bob", "--reason", "no").ended(0)
    made.gert("resume", "--run", said["run_id"], "--detach", **KEYS).ended(3)
    assert served.asked == []
    assert executions(made) == []


def test_a_dry_run_calls_nothing_and_needs_no_key(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.runbook(ping(), tools=["ping"])
    made.exec("--mode", "dry-run").ended(0)
    assert served.asked == []
    assert not (made.root / "_state").exists()


def test_a_probe_calls_a_skill_that_only_reads(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.skill(contract__writes=[])
    made.runbook(ping(), tools=["ping"])
    made.exec("--mode", "probe", **KEYS).ended(0)
    assert len(served.asked) == 1


def test_a_recorded_run_replays_without_a_runner(place: tuple[Bench, Vendor], tmp_path: Path) -> None:
    made, served = place
    made.runbook(ping(), note("after", "{{ .path }}"), tools=["ping", "note"])
    made.exec("--record", tmp_path / "scenario", **KEYS).ended(0)
    served.asked.clear()
    made.exec("--mode", "replay", "--scenario", tmp_path / "scenario").ended(0)
    assert served.asked == []
    assert holds_canary(tmp_path / "scenario") == []


def test_a_refusal_is_said_before_the_first_step(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    made.runbook(note("first"), ping(), tools=["note", "ping"])
    for change, words in (
        ({"secrets_policies": []}, "secrets-policy"),
        ({"runners": {}}, "no registered runner"),
    ):
        made.settle(**change)
        ran = made.exec(**KEYS).ended(1)
        assert words in ran.err or words in ran.err.replace("no secrets policy", "secrets-policy")
    assert made.noted() == []
    assert served.asked == []


def test_a_vendor_that_fails_fails_the_step_with_its_reason(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    served.answer = lambda asked, handler: (503, {}, b"busy")
    made.runbook(ping(), tools=["ping"])
    said = made.exec("--json", **KEYS).ended(3).said
    assert said["failure"]["kind"] == "tool_error"
    assert "the vendor answered with status 503" in said["failure"]["message"]


def kill_runner(made: Bench) -> None:
    """Kill the runner of this project."""
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", each, "cmdline").read_bytes()
        except OSError:
            continue
        if b"--dispatched" in words and str(made.root).encode() in words:
            os.kill(int(each), signal.SIGKILL)


class TestKilled:
    """gert is killed while its runner works."""

    def killed(self, made: Bench, served: Vendor, then: Any) -> str:
        """Start a run and kill gert when the vendor has the request; `then` answers. Gives the id of the run."""
        started: list[Any] = []

        def answer(asked: Asked, handler: Handler) -> Any:
            started[0].send_signal(signal.SIGKILL)
            started[0].wait(30)
            return then(asked, handler)

        served.answer = answer
        made.runbook(ping(), note("after", "{{ .path }}"), tools=["ping", "note"])
        started.append(made.start(GERT_PLAN_SIGNING_KEY=SEED))
        started[0].communicate(timeout=30)
        served.answer = Vendor(0).answer
        (run,) = [each for each in made.runs() if not each.id.startswith("plan-")]
        return run.id

    def test_the_runner_ends_by_itself_and_a_resume_takes_its_record(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        run_id = self.killed(made, served, Vendor(0).answer)
        deadline = time.monotonic() + 30
        while not list(made.root.glob("_state/runs/*/*/record.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        made.gert("resume", "--run", run_id, "--allow-running", **KEYS).ended(0)
        assert made.noted() == ["/ping/hi"]
        assert len(served.asked) == 1, "the vendor was called once"

    def test_a_runner_that_dies_too_leaves_a_call_in_doubt(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        run_id = self.killed(made, served, lambda asked, handler: kill_runner(made))
        ran = made.gert("resume", "--run", run_id, **KEYS).ended(3)
        assert "outcome of `ping` is unknown" in ran.err
        assert len(served.asked) == 1
        made.gert("runner", "recover", "--json").ended(3)
        made.gert("resume", "--run", run_id, "--reconcile", "ping=retry", **KEYS).ended(0)
        assert made.noted() == ["/ping/hi"]
        # Another attempt is another plan; the first one stays in doubt.
        plans = {row["run_id"][-2:]: row["status"] for row in executions(made)}
        assert plans == {"-1": "in-doubt", "-2": "completed"}
        assert len(served.asked) == 2

    def test_another_attempt_of_an_approved_call_needs_another_approval(self, place: tuple[Bench, Vendor]) -> None:
        made, served = place
        made.runbook(ping(), tools=["ping"], governance=GATE)
        said = made.exec("--detach", "--as", "ann", "--json", **KEYS).ended(0).said
        resume = ("resume", "--run", said["run_id"], "--detach", "--json")
        made.gert("approve", said["pending"][0]["ticket_id"], "--as", "bob").ended(0)
        served.answer = lambda asked, handler: kill_runner(made)
        # Its runner dies under a living gert: the outcome is unknown, and the run has failed.
        ran = made.gert(*resume, **KEYS).ended(3)
        assert ran.said["failure"]["kind"] == "unknown_outcome"
        served.answer = Vendor(0).answer
        made.gert("rerun", "--run", said["run_id"], "--from", "ping", "--detach", "--json", **KEYS)
        assert len(served.asked) == 1, "a rerun is another run, and its plan needs its own approval"


def test_a_runner_that_dies_under_a_living_gert_is_an_unknown_outcome(place: tuple[Bench, Vendor]) -> None:
    made, served = place

    served.answer = lambda asked, handler: kill_runner(made)
    made.runbook(ping(continue_on_fail=True), note("after"), tools=["ping", "note"])
    said = made.exec("--json", **KEYS).ended(3).said
    assert said["failure"]["kind"] == "unknown_outcome"
    assert made.noted() == [], "a run does not go on after an unknown outcome"


def test_a_cancelled_run_stops_its_runner_in_order(place: tuple[Bench, Vendor]) -> None:
    made, served = place
    served.answer = lambda asked, handler: time.sleep(3)
    made.runbook(ping(), tools=["ping"])
    process = made.start(GERT_PLAN_SIGNING_KEY=SEED)
    deadline = time.monotonic() + 30
    while not served.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    record = made.record()
    assert (record["exit_code"], record["rule"], record["requests"]) == (28, "cancelled/signal", 1)
    (row,) = executions(made)
    assert row["status"] == "failed"


def test_an_execution_is_a_run_of_its_own(place: tuple[Bench, Vendor]) -> None:
    made, _ = place
    made.runbook(ping(), tools=["ping"])
    made.exec(**KEYS).ended(0)
    (run,) = [each for each in made.runs() if not each.id.startswith("plan-")]
    assert of_type(run.events(), "plan_created") == []
    assert completed(run.events(), "ping")["outputs"] == {"path": "/ping/hi"}
