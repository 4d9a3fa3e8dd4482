"""Runs in the background: they outlive what started them, and messages in their inbox control them."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gert.ecosystem.host.background.launch import Launched, resume_run, start_run
from gert.ecosystem.host.background.messages import Sender, advance_run, cancel_run, give_evidence
from gert.ecosystem.host.config.ledger_location import open_ledger
from gert.ecosystem.host.redrive.resume import ResumeOptions
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.ledger.holder import is_running
from gert.errors import DocumentError, InputError, UsageError
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.events.envelope import decode

TOOL = """
apiVersion: tool/v0
meta: {name: sh, binary: sh}
contract: {effects: [], writes: [], inputs: {script: {type: string}}}
actions: {run: {argv: [sh, -c, "{{ .script }}"]}}
"""
HEAD = """
apiVersion: kernel/v0
meta: {name: background, inputs: {word: {type: string, default: hello}}}
tools: [sh]
steps:
"""
END = "  - {id: done, type: end, outcome: {category: resolved, code: ok}}\n"


def tool(step: str, script: str) -> str:
    return f"  - {{id: {step}, type: tool, tool: sh, action: run, inputs: {{script: {script!r}}}}}\n"


MANUAL = "  - {id: look, type: manual, instructions: look, required_evidence: [{kind: text, name: note}]}\n"


@pytest.fixture
def book(tmp_path: Path) -> Callable[[str], RunOptions]:
    """Writes a runbook with these steps, and gives the options to run it."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sh.tool.yaml").write_text(TOOL)

    def write(body: str, **options: Any) -> RunOptions:
        file = tmp_path / "book.yaml"
        file.write_text(HEAD + body + END)
        return RunOptions(file=str(file), state_dir=str(tmp_path / "state"), **options)

    return write


async def events(launched: Launched) -> list[Any]:
    async with open_ledger(launched.database, os.environ, read_only=True) as ledger:
        return [decode(line) for line in await ledger.lines(launched.run_id)]


async def until(launched: Launched, wanted: str, step: str | None = None) -> list[Any]:
    """Wait for an event; the limit is for a machine under load."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = await events(launched)
        if any(each.type == wanted and getattr(each.payload, "step_id", step) == step for each in found):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"no {wanted}: {[each.type for each in await events(launched)]}")


def ended(found: list[Any]) -> Any:
    return next(each.payload for each in found if each.type == "run_complete")


def drive(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(bounded())


def test_a_run_in_the_background_completes(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(tool("one", "exit 0")))
        found = await until(launched, "run_complete")
        assert launched.pid is not None
        assert ended(found).status == "completed"

    drive(work)


@pytest.mark.parametrize(
    ("steps", "given", "error"),
    [
        pytest.param("  - {id: x, type: nonsense}\n", {}, DocumentError, id="an invalid runbook"),
        pytest.param(tool("one", "exit 0"), {"nope": GivenInput("x")}, InputError, id="an unknown input"),
    ],
)
def test_what_prevents_a_run_is_raised_where_it_was_started(
    book: Callable[..., RunOptions], steps: str, given: dict[str, GivenInput], error: type[Exception]
) -> None:
    with pytest.raises((error, UsageError)):
        asyncio.run(start_run(book(steps, given=given)))


def test_cancelling_records_who_and_why(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(tool("long", "sleep 60")))
        await until(launched, "step_start", "long")
        await cancel_run(Sender(database=launched.database, by="ann"), launched.run_id, os.environ, "wrong cluster")
        found = await until(launched, "run_complete")
        assert ended(found).status == "cancelled"
        assert "cancelled by ann: wrong cluster" in str(
            [each.payload for each in found if each.type == "run_cancelled"]
        )
        async with open_ledger(launched.database, os.environ, read_only=True) as ledger:
            (message,) = await ledger.messages(launched.run_id)
        assert message.taken is not None

    drive(work)


def test_evidence_that_does_not_fit_is_refused_and_the_step_waits_on(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(MANUAL))
        await until(launched, "step_start", "look")
        sender = Sender(database=launched.database, by="ann")
        await give_evidence(sender, launched.run_id, "look", os.environ, {"other": "x"})
        await give_evidence(sender, launched.run_id, "look", os.environ, {"note": "all well"})
        found = await until(launched, "run_complete")
        assert ended(found).status == "completed"
        async with open_ledger(launched.database, os.environ, read_only=True) as ledger:
            notes = [each.body.decode() for each in await ledger.messages(launched.run_id) if each.kind == "note"]
        assert any("asks for no evidence `other`" in note for note in notes)
        complete = next(each for each in found if each.type == "step_complete" and each.payload.step_id == "look")
        assert complete.principal.id == "ann"

    drive(work)


def test_a_rejected_manual_step_fails_the_run(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(MANUAL))
        await until(launched, "step_start", "look")
        sender = Sender(database=launched.database, by="ann")
        await give_evidence(sender, launched.run_id, "look", os.environ, reject="disk is full")
        found = await until(launched, "run_complete")
        assert ended(found).status == "failed"
        assert "disk is full" in str(found)

    drive(work)


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param("[]", id="a step without evidence"),
        pytest.param("[{kind: text, name: reject}]", id="a step whose evidence is called `reject`"),
    ],
)
@pytest.mark.parametrize("reason", ["", "disk is full"], ids=["without a reason", "with a reason"])
def test_a_rejection_never_confirms(book: Callable[..., RunOptions], evidence: str, reason: str) -> None:
    async def work() -> None:
        step = f"  - {{id: look, type: manual, instructions: look, required_evidence: {evidence}}}\n"
        launched = await start_run(book(step))
        await until(launched, "step_start", "look")
        sender = Sender(database=launched.database, by="ann")
        await give_evidence(sender, launched.run_id, "look", os.environ, reject=reason)
        found = ended(await until(launched, "run_complete"))
        assert (found.status, found.failure.kind) == ("failed", "rejected")

    drive(work)


def test_evidence_is_that_of_its_sender_whatever_it_says(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(MANUAL))
        await until(launched, "step_start", "look")
        sender = Sender(database=launched.database, by="mallory")
        await give_evidence(sender, launched.run_id, "look", os.environ, {"note": "all well", "by": "ann"})
        await give_evidence(sender, launched.run_id, "look", os.environ, {"note": "mine", "by": "mallory"})
        found = await until(launched, "run_complete")
        complete = next(each for each in found if each.type == "step_complete" and each.payload.step_id == "look")
        assert complete.principal.id == "mallory"
        async with open_ledger(launched.database, os.environ, read_only=True) as ledger:
            notes = [each.body.decode() for each in await ledger.messages(launched.run_id) if each.kind == "note"]
        assert any("`mallory` cannot give evidence as `ann`" in note for note in notes)

    drive(work)


def test_the_path_of_an_attachment_begins_in_the_folder_of_the_evidence(
    book: Callable[..., RunOptions], tmp_path: Path
) -> None:
    async def work() -> None:
        step = "  - {id: look, type: manual, instructions: look, required_evidence: [{kind: attachment, name: log}]}\n"
        launched = await start_run(book(step))
        await until(launched, "step_start", "look")
        (tmp_path / "evidence").mkdir()
        (tmp_path / "evidence" / "log.txt").write_text("seen")
        sender, folder = Sender(database=launched.database, by="ann"), str(tmp_path / "evidence")
        await give_evidence(sender, launched.run_id, "look", os.environ, {"log": "log.txt"}, folder=folder)
        assert ended(await until(launched, "run_complete")).status == "completed"

    drive(work)


def test_step_by_step_no_call_begins_before_it_may(book: Callable[..., RunOptions], tmp_path: Path) -> None:
    async def work() -> None:
        marks = [tmp_path / "a", tmp_path / "b"]
        steps = "".join(tool(mark.name, f"touch {mark}") for mark in marks)
        launched = await start_run(book(steps, steps=True))
        sender = Sender(database=launched.database, by="ann")
        await until(launched, "step_start", "a")
        await asyncio.sleep(0.3)
        assert not marks[0].exists()
        await advance_run(sender, launched.run_id, os.environ, "a")
        await until(launched, "step_start", "b")
        assert marks[0].exists()
        assert not marks[1].exists()
        await advance_run(sender, launched.run_id, os.environ)
        assert ended(await until(launched, "run_complete")).status == "completed"

    drive(work)


def test_a_request_that_is_repeated_starts_one_run(book: Callable[..., RunOptions], tmp_path: Path) -> None:
    async def work() -> None:
        options = book(tool("one", f"echo x >> {tmp_path / 'count'}"), given={"word": GivenInput("a", "mcp")})
        both = await asyncio.gather(*(start_run(options, request_id="r-1", caller="c") for _ in range(2)))
        assert both[0].run_id == both[1].run_id
        await until(both[0], "run_complete")
        again = await start_run(options, request_id="r-1", caller="c")
        assert again.run_id == both[0].run_id
        assert (tmp_path / "count").read_text() == "x\n"
        other = book(tool("one", "exit 0"), given={"word": GivenInput("b", "mcp")})
        with pytest.raises(UsageError, match="was used for another call"):
            await start_run(other, request_id="r-1", caller="c")
        assert (await start_run(other, request_id="r-1", caller="d")).run_id != again.run_id

    drive(work)


@pytest.mark.parametrize("step", [MANUAL, tool("long", "sleep 600")], ids=["for a person", "for a tool"])
def test_a_run_whose_ledger_was_removed_does_not_wait_on(
    book: Callable[..., RunOptions], tmp_path: Path, step: str
) -> None:
    async def work() -> None:
        launched = await start_run(book(step))
        await until(launched, "step_start", "look" if step == MANUAL else "long")
        async with open_ledger(launched.database, os.environ, read_only=True) as ledger:
            lease = await ledger.lease(launched.run_id)
        assert lease is not None
        assert lease.holder is not None
        shutil.rmtree(tmp_path / "state")
        while is_running(lease.holder):
            await asyncio.sleep(0.1)

    drive(work)


def test_a_killed_driver_is_resumed_in_the_background(book: Callable[..., RunOptions]) -> None:
    async def work() -> None:
        launched = await start_run(book(tool("one", "exit 0") + MANUAL))
        await until(launched, "step_start", "look")
        assert launched.pid is not None
        os.kill(launched.pid, signal.SIGKILL)
        sender = Sender(database=launched.database, by="ann")
        # Evidence that is given while no process drives the run waits for it.
        await give_evidence(sender, launched.run_id, "look", os.environ, {"note": "x"})
        state = os.path.dirname(os.path.dirname(str(launched.database)))
        await resume_run(ResumeOptions(run_id=launched.run_id, state_dir=state))
        found = await until(launched, "run_complete")
        assert ended(found).status == "completed"
        assert [each.payload.step_id for each in found if each.type == "step_complete"].count("one") == 1

    drive(work)


@pytest.mark.parametrize("command", [cancel_run, advance_run])
def test_a_run_without_a_driver_is_not_controlled(book: Callable[..., RunOptions], command: Any) -> None:
    async def work() -> None:
        launched = await start_run(book(tool("one", "exit 0")))
        await until(launched, "run_complete")
        await asyncio.sleep(0.2)
        with pytest.raises(UsageError, match=r"no process drives|has ended"):
            await command(Sender(database=launched.database, by="ann"), launched.run_id, os.environ)
        with pytest.raises(UsageError, match="there is no run"):
            await command(Sender(database=launched.database, by="ann"), "missing", os.environ)

    drive(work)
