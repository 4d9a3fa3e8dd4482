"""The procedure of a runner: what it writes, in which order, and what is left where it is killed."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import KEYS, PING, Bench, bench, listed, ping
from tests.ecosystem.runners.trials import Trial, words
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor, vendor
from tests.soak import sampled

from gert.ecosystem.host.config.ledger_location import ledger_of, make_ledger_folder, open_ledger
from gert.ecosystem.host.runner.plan_files import store_plan
from gert.ecosystem.host.runner.project import RunnerProject
from gert.ecosystem.host.runner.recover import Recovered, recover
from gert.ecosystem.host.runner.spend import FolderSpend, LedgerSpend
from gert.ecosystem.ledger.verify_run import verify_run
from gert.ecosystem.runners.procedure import Finished
from gert.ecosystem.runners.verification import STEPS
from gert.kernel.events.envelope import decode
from gert.kernel.foundation.canonical import canonical
from gert.kernel.runner.exit_codes import CLASSES, RunnerExit


@pytest.fixture(scope="module")
def served() -> Iterator[Vendor]:
    with vendor() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, served: Vendor) -> Bench:
    served.asked.clear()
    return Bench(tmp_path / "project", served.port)


async def in_ledger(trial: Trial) -> Finished:
    """Execute a plan against the ledger of the project, as the process does."""
    root = str(trial.bench.root)
    make_ledger_folder(root)
    async with AsyncExitStack() as held:
        ledger = await held.enter_async_context(open_ledger(ledger_of(root), {}))
        leases = await held.enter_async_context(AsyncExitStack())
        trial.spend = LedgerSpend(ledger, ledger_of(root), leases, host="h", version="v", state=root)
        return await trial.runs()


def of_ledger(made: Bench, plan_id: str = "plan-1", **order: Any) -> Trial:
    trial = Trial(made, plan_id, ledger=ledger_of(str(made.root)), **order)
    store_plan(str(made.root), trial.plan)
    return trial


def recovered(made: Bench, *, look_only: bool = False) -> dict[str, Recovered]:
    async def look() -> dict[str, Recovered]:
        project = RunnerProject(str(made.root), environ={}, state=str(made.root))
        found = recover(project, actor="ann", now=datetime.now(UTC), look_only=look_only)
        return {each.plan_id: each async for each in found}

    return asyncio.run(look())


def events(made: Bench, plan_id: str = "plan-1") -> list[Any]:
    async def read() -> list[Any]:
        async with open_ledger(ledger_of(str(made.root)), {}, read_only=True) as ledger:
            (await verify_run(ledger, plan_id)).require()
            return [decode(line) for line in await ledger.lines(plan_id)]

    return asyncio.run(read())


class TestRecord:
    def test_an_execution_leaves_request_response_report_and_record(self, made: Bench) -> None:
        trial = Trial(made)
        finished = trial.run()
        assert finished.record is not None
        record = trial.artifact("record")
        # The names of the interface, verbatim.
        assert record["plan_id"] == "plan-1"
        assert record["runner_id"] == "local"
        assert record["vendor"] == "test"
        assert record["exit_code"] == 0
        assert record["request_artifact"] == "_state/runs/2026-02-28/plan-1/request.json"
        assert record["response_artifact"] == "_state/runs/2026-02-28/plan-1/response.json"
        for name, path in (("request", "request_artifact"), ("response", "response_artifact"), ("log", "log_artifact")):
            data = (made.root / record[path]).read_bytes()
            assert record["hashes"][name] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert record["isolation"]["level"] == "declared"
        assert record["outputs"] == {"path": "/ping/hi"}
        assert trial.artifact("request")["request"]["headers"] == {
            "authorization": f"Bearer {{{{secret_ref {made.ref}}}}}"
        }
        assert trial.artifact("response")["exchanges"][0]["status"] == 200
        assert (made.root / trial.plan.artifacts.log).read_text().startswith(f"# `{PING}`: done\n")

    def test_artifacts_are_for_their_owner_alone_and_leave_no_partial_files(self, made: Bench) -> None:
        Trial(made).run()
        found = list((made.root / "_state").rglob("*"))
        assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_file()} == {"0o600"}
        assert {oct(path.stat().st_mode & 0o777) for path in found if path.is_dir()} == {"0o700"}
        assert [path.name for path in found if "partial" in path.name] == []

    @pytest.mark.parametrize("status", [400, 404, 500, 503])
    def test_a_vendor_that_refuses_leaves_a_record_too(self, made: Bench, served: Vendor, status: int) -> None:
        served.answer = lambda asked, handler: (status, {}, b"no")
        try:
            trial = Trial(made)
            finished = trial.run()
        finally:
            served.answer = Vendor(0).answer
        assert words(finished) == f"23 vendor/status the vendor answered with status {status}"
        assert trial.artifact("response")["exchanges"][0]["body"] == "no"
        assert trial.artifact("response")["error"]["rule"] == "vendor/status"
        assert trial.artifact("record")["requests"] == 1

    def test_a_stopped_execution_leaves_a_record(self, made: Bench, served: Vendor) -> None:
        trial = Trial(made)

        async def run() -> Finished:
            stop = trial.stop = asyncio.Event()
            trial.observe = lambda step: stop.set() if step == "execute" else None
            return await trial.runs()

        finished = asyncio.run(run())
        assert words(finished).startswith("28 cancelled/signal")
        assert trial.artifact("record")["exit_code"] == 28

    def test_a_scope_may_be_narrower_than_the_plan(self, made: Bench) -> None:
        trial = Trial(made)
        trial.given["scope"] = ("test:ping",)
        assert trial.run().exit_code == 0
        assert trial.artifact("record")["scope"] == ["test:ping"]

    def test_every_rule_has_an_exit_code_of_its_class(self) -> None:
        assert set(CLASSES.values()) == set(RunnerExit) - {RunnerExit.DONE, RunnerExit.USAGE, RunnerExit.INTERNAL}


class TestLedger:
    def test_an_execution_is_a_run_whose_id_is_the_plans(self, made: Bench) -> None:
        trial = of_ledger(made)
        assert asyncio.run(in_ledger(trial)).exit_code == 0
        found = events(made)
        assert [event.type for event in found] == [
            "plan_created",
            "plan_authorized",
            "runner_started",
            "runner_recorded",
        ]
        created, authorized, _, recorded = (event.data for event in found)
        assert created["plan"]["secret_ref"] == made.ref
        assert authorized["digest"] == created["digest"]
        data = (made.root / trial.plan.artifacts.record).read_bytes()
        assert recorded["record_digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert recorded["record"] == json.loads(data)
        mirror = made.root / "runs" / "plan-1" / "trace.jsonl"
        assert [json.loads(line)["type"] for line in mirror.read_text().splitlines()] == [e.type for e in found]

    def test_a_failed_execution_is_a_failed_run(self, made: Bench) -> None:
        made.secret.chmod(0o644)
        assert asyncio.run(in_ledger(of_ledger(made))).exit_code == 20
        (row,) = listed(made.gert("run", "list", "--json").ended(0))
        assert (row["run_id"], row["kind"], row["status"], row["skill_id"]) == ("plan-1", "runner", "failed", PING)
        shown = made.gert("run", "show", "plan-1").ended(0).out
        assert "secret/mode" in shown

    def test_of_many_runners_with_one_plan_one_executes_it(self, made: Bench, served: Vendor) -> None:
        trials = [of_ledger(made) for _ in range(4)]

        async def race() -> list[int]:
            return [int(each.exit_code) for each in await asyncio.gather(*map(in_ledger, trials))]

        assert sorted(asyncio.run(race())) == [0, 15, 15, 15]
        assert len(served.asked) == 1

    def test_a_changed_record_of_a_run_is_found(self, made: Bench) -> None:
        import sqlite3

        asyncio.run(in_ledger(of_ledger(made)))
        with sqlite3.connect(ledger_of(str(made.root))) as db:
            db.execute("UPDATE events SET line = replace(line, '\"exit_code\":0', '\"exit_code\":1') WHERE seq = 4")
        assert made.gert("run", "verify", "plan-1").code == 1


KILLS = {f"{kind}: {step}": (kind, step) for kind in ("ledger", "folder") for step in STEPS}
KEPT = [name for name in KILLS if "ledger" in name or name.split()[1] in ("spend", "request", "response", "report")]


@pytest.mark.parametrize("point", sampled(KILLS, KEPT))
def test_a_runner_that_is_killed_leaves_a_record_or_a_plan_in_doubt(
    made: Bench, served: Vendor, point: tuple[str, str]
) -> None:
    """SIGKILL before every step: never a second call of the vendor, and recover says what became of the plan."""
    kind, step = point
    trial = of_ledger(made) if kind == "ledger" else Trial(made)
    store_plan(str(made.root), trial.plan)

    def die(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        trial.observe = die
        asyncio.run(in_ledger(trial) if kind == "ledger" else trial.runs())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    is_spent = STEPS.index(step) > STEPS.index("spend")
    is_recorded = STEPS.index(step) > STEPS.index("record")
    state = "done" if is_recorded else "in doubt" if is_spent else "unspent"
    seen = recovered(made, look_only=True)["plan-1"]
    assert (seen.state, seen.closed) == (state, False)
    found = recovered(made)["plan-1"]
    assert found.state == state
    if kind == "ledger" and is_spent:
        last = events(made)[-1]
        assert last.type == ("runner_recorded" if is_recorded else "runner_in_doubt")
        assert last.data.get("recovered", False) is is_recorded
        assert recovered(made)["plan-1"].closed is False, "it is closed once"
    asked = len(served.asked)
    again = of_ledger(made) if kind == "ledger" else Trial(made)
    finished = asyncio.run(in_ledger(again) if kind == "ledger" else again.runs())
    assert finished.exit_code == (RunnerExit.SPENT if is_spent else 0)
    assert len(served.asked) == (asked if is_spent else 1)
    assert len(served.asked) <= 1


class TestRecover:
    def test_a_plan_that_is_being_executed_is_left_alone(self, made: Bench) -> None:
        trial = of_ledger(made)
        seen: list[str] = []

        async def run() -> None:
            def look(step: str) -> None:
                if step == "response":
                    # In a process of its own: a ledger belongs to one.
                    child = os.fork()
                    if not child:
                        state = recovered(made)["plan-1"].state
                        os._exit(42 if state == "running" else 1)
                    seen.append(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))

            trial.observe = look
            await in_ledger(trial)

        asyncio.run(run())
        assert seen == ["42"]
        assert [event.type for event in events(made)][-1] == "runner_recorded"

    def test_another_plan_with_the_id_of_an_executed_one_hides_nothing(self, tmp_path: Path) -> None:
        with bench(tmp_path / "project") as (made, _):
            file = made.authorized()
            made.execute(file).ended(0)
            other = made.root / "other.plan.json"
            document = {**json.loads(file.read_text()), "inputs": {"word": "no"}}
            other.write_bytes(canonical(document))
            (said,) = listed(made.gert("runner", "recover", other, "--json").ended(0))
            assert (said["plan_id"], said["state"]) == (document["plan_id"], "done")
            assert "there is no file" in made.gert("runner", "recover", made.root / "gone.json").ended(2).err
            other.write_text("{}")
            assert "not a plan" in made.gert("runner", "recover", other).ended(1).err

    def test_a_record_that_cannot_be_read_leaves_the_plan_in_doubt(self, tmp_path: Path) -> None:
        with bench(tmp_path / "project") as (made, served):

            def no_folder(asked: Asked, handler: Handler) -> tuple[int, dict[str, str], bytes]:
                (made.root / "_state/runs").rename(made.root / "gone")
                (made.root / "_state/runs").write_text("no folder")
                return 200, {}, b"{}"

            served.answer = no_folder
            made.runner_tool()
            made.runbook(ping(), tools=["ping"])
            ran = made.exec("--json", **KEYS).ended(3)
            assert ran.said["failure"]["kind"] == "unknown_outcome"
            (said,) = listed(made.gert("runner", "recover", "--json").ended(3))
            assert said["state"] == "in doubt"
            assert len(served.asked) == 1

    def test_the_command_says_so_and_ends_with_3_where_one_is_in_doubt(self, tmp_path: Path) -> None:
        with bench(tmp_path / "project") as (made, served):
            file = made.create()
            out = made.gert("runner", "recover", file).ended(0).out
            assert "unspent" in out
            assert "not authorized" in out
            made.approve(file).ended(0)
            assert "authorized until" in made.gert("runner", "recover", file).ended(0).out
            made.execute(file).ended(0)
            assert "done" in made.gert("runner", "recover").ended(0).out
            trial = of_ledger(made, "plan-2")
            child = os.fork()
            if not child:
                trial.observe = lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == "secret" else None
                asyncio.run(in_ledger(trial))
                os._exit(0)
            os.waitpid(child, 0)
            (row,) = listed(made.gert("run", "list", "--status", "cut-off", "--json").ended(0))
            assert row["run_id"] == "plan-2"
            said = {each["plan_id"]: each for each in listed(made.gert("runner", "recover", "--json").ended(3))}
            assert (said["plan-2"]["state"], said["plan-2"]["closed"]) == ("in doubt", True)
            assert said["plan-2"]["artifacts"] == ["request"]
            (row,) = listed(made.gert("run", "list", "--status", "in-doubt", "--json").ended(0))
            assert row["run_id"] == "plan-2"
            assert served.asked[-1].path == "/ping/hi"
            made.gert("resume", "--run", "plan-2", **KEYS).ended(2)
            made.gert("run", "abandon", "plan-2", "--reason", "x").ended(2)


def test_without_a_ledger_single_use_holds_per_state_directory(made: Bench, served: Vendor, tmp_path: Path) -> None:
    assert Trial(made).run().exit_code == 0
    assert Trial(made).run().exit_code == RunnerExit.SPENT
    elsewhere = Trial(made)
    elsewhere.state = str(tmp_path / "elsewhere")
    elsewhere.spend = FolderSpend(elsewhere.state)
    assert elsewhere.run().exit_code == 0
    assert len(served.asked) == 2


def test_two_runners_on_postgres_share_one_plan(made: Bench, served: Vendor, dsn: str) -> None:
    from gert.ecosystem.ledger.postgres.ledger import PostgresLedger

    async def run(trial: Trial) -> int:
        async with AsyncExitStack() as held:
            ledger = await held.enter_async_context(PostgresLedger(dsn))
            leases = await held.enter_async_context(AsyncExitStack())
            trial.spend = LedgerSpend(ledger, "shared", leases, host="h", version="v", state=None)
            return int((await trial.runs()).exit_code)

    async def race() -> list[int]:
        return await asyncio.gather(*(run(Trial(made, ledger="shared")) for _ in range(2)))

    assert sorted(asyncio.run(race())) == [0, RunnerExit.SPENT]
    assert len(served.asked) == 1


def test_what_is_refused_before_the_spend_never_has_the_code_of_an_execution(made: Bench, served: Vendor) -> None:
    made.ca.write_text("no certificate")
    trial = Trial(made)
    finished = trial.run()
    assert (finished.exit_code, finished.record) == (RunnerExit.POLICY, None)
    assert words(finished).startswith("17 transport/tls")
    assert not (made.root / "_state").exists()
    assert served.asked == []
