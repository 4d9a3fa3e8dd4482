"""The screen, driven by keys alone: lists, forms, a run, approvals, evidence."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.surfaces.tui.conftest import SIZES, eventually, on_screen, on_top, picture, seen, text_of, until
from textual.widgets import Button, Checkbox, DataTable, Input, Select, Tree
from textual.widgets._footer import FooterKey

from gert.ecosystem.host.approvals.respond import Verdict
from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Confirm, Line, Page, Respond
from gert.ecosystem.surfaces.tui.forms import EvidenceForm, SecretForm, StartForm
from gert.ecosystem.surfaces.tui.home import HomeScreen
from gert.ecosystem.surfaces.tui.output import OutputLog
from gert.ecosystem.surfaces.tui.picker import FilePicker
from gert.ecosystem.surfaces.tui.run_screen import RunScreen


async def open_book(app: GertApp, pilot: Any, name: str) -> None:
    await until(pilot, app, name)
    table = app.screen.query_one("#runbooks", DataTable)
    row = next(at for at in range(table.row_count) if str(table.get_row_at(at)[0]) == name)
    table.move_cursor(row=row)
    await pilot.press("enter")
    await on_top(pilot, app, StartForm)


async def press_button(app: GertApp, pilot: Any, name: str) -> None:
    app.screen.query_one(f"#{name}", Button).press()
    await pilot.pause()
    await pilot.pause()


async def start(app: GertApp, pilot: Any, name: str, host: str | None = None) -> RunScreen:
    await open_book(app, pilot, name)
    if host is not None:
        app.screen.query_one("#input-host", Input).value = host
    await press_button(app, pilot, "start")
    found: RunScreen = await on_top(pilot, app, RunScreen)
    return found


async def select(app: GertApp, pilot: Any, path: str) -> None:
    """Go to a step with the keys for it."""
    await until(pilot, app, path)
    await pilot.press("g")
    await on_top(pilot, app, Line)
    await pilot.press(*path, "enter")
    await on_top(pilot, app, RunScreen)
    await eventually(pilot, lambda: app.screen.selected is not None and app.screen.selected.path == path)  # type: ignore[attr-defined]


async def cancel(desk: Desk, screen: RunScreen) -> None:
    """End a run that a test leaves behind."""
    await desk.cancel(screen.place, screen.run_id)


@pytest.mark.parametrize("size", [*SIZES, (60, 20), (300, 80)])
def test_an_incident_from_alert_to_outcome_by_keyboard(desk: Desk, size: tuple[int, int]) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        form = await until(pilot, app, "host (string, required): Which host")
        assert "token (string, secret)" in form
        assert "hunter22" not in form
        assert "host (string, required)" in await seen(pilot, app, "Start")
        assert app.screen.query_one("#input-token", Input).password
        app.screen.query_one("#input-host", Input).value = "web-1"
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "⚠ change approval")
        assert "looking at web-1" in await until(pilot, app, "looking at web-1")
        assert "○ done" in shown
        await seen(pilot, app, "1 approval: a")
        await pilot.press("a")
        dialog = await on_top(pilot, app, Respond)
        ticket = text_of(app)
        assert "+new" in ticket
        assert "no one has answered yet" in ticket
        assert "$ sh -c 'echo changed'" in await seen(pilot, app, "Approve")
        assert app.focused is dialog.query_one("#back")
        await press_button(app, pilot, "approve")
        await until(pilot, app, "type the step id")
        app.screen.query_one("#typed", Input).value = "change"
        await press_button(app, pilot, "approve")
        await until(pilot, app, "⚠ confirm a person")
        await pilot.press("enter")
        await on_top(pilot, app, EvidenceForm)
        await seen(pilot, app, "see that web-1 is back [bold]")
        assert "▐ ▌ requests come in" in picture(app)
        await press_button(app, pilot, "done")
        await until(pilot, app, "not every item of `seen` is checked")
        app.screen.query_one(Checkbox).value = True
        app.screen.query_one("#piece-1", Input).value = "all well"
        await press_button(app, pilot, "done")
        final = await until(pilot, app, "outcome resolved: back")
        assert "✓ confirm" in final
        await seen(pilot, app, "✓ completed")
        await pilot.press("q")
        await on_top(pilot, app, HomeScreen)

    app = on_screen(desk, work, size)
    assert "outcome: resolved: back" in app.exit_lines


@pytest.mark.parametrize("size", [(40, 12), (60, 20), (80, 24)])
def test_what_is_asked_is_in_sight_whenever_the_terminal_is_resized(desk: Desk, size: tuple[int, int]) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        await pilot.resize_terminal(*size)
        (view,) = await asyncio.to_thread(desk.tickets)
        await desk.respond(Verdict(ticket=view.id, approved=True, approver="ann"))
        await until(pilot, app, "⚠ confirm a person")
        await pilot.press("enter")
        form = await on_top(pilot, app, EvidenceForm)
        shown = await seen(pilot, app, "see that web-1 is back [bold]")
        assert "Back" in shown
        assert form.query_one("#fields").scroll_y == 0
        assert isinstance(app.focused, Checkbox)
        await pilot.press("space", "tab", *"ok")
        assert form.query_one(Checkbox).value
        assert form.query_one("#piece-1", Input).value == "ok"
        await pilot.press("escape")
        await cancel(desk, await on_top(pilot, app, RunScreen))

    on_screen(desk, work, (100, 30))


def test_instructions_that_do_not_fit_are_scrolled_with_arrows_before_any_field(desk: Desk) -> None:
    long = "\n".join(f"      line {number}" for number in range(30))
    (Path(desk.root) / "long.yaml").write_text(
        "apiVersion: kernel/v0\nmeta: {name: long}\nsteps:\n  - id: read\n    type: manual\n    instructions: |\n"
        f"{long}\n    contract: {{effects: []}}\n    required_evidence: [{{kind: text, name: note}}]\n"
        "  - {id: done, type: end, outcome: {category: resolved, code: done}}\n"
    )

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "long")
        await until(pilot, app, "⚠ read a person")
        await pilot.press("enter")
        form = await on_top(pilot, app, EvidenceForm)
        await seen(pilot, app, "line 0")
        pane = form.query_one("#fields")
        await eventually(pilot, lambda: app.focused is pane)
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown", "pagedown")
        await seen(pilot, app, "line 29")
        await pilot.press("tab")
        assert app.focused is form.query_one("#piece-0")
        await seen(pilot, app, "note (text)")
        await pilot.press("escape")
        await cancel(desk, await on_top(pilot, app, RunScreen))

    on_screen(desk, work, (40, 12))


def test_an_approval_given_elsewhere_is_seen(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        (view,) = await asyncio.to_thread(desk.tickets)
        await desk.respond(Verdict(ticket=view.id, approved=False, approver="ann", reason="not now"))
        shown = await until(pilot, app, "failed")
        assert "not now" in shown or "rejected" in shown
        await pilot.press("q")

    on_screen(desk, work)


def test_an_answer_that_does_not_count_is_named_with_its_reason(desk: Desk, tmp_path: Path) -> None:
    """The key is unknown to the run."""
    desk.key = str(tmp_path / "ann.key")
    command = [sys.executable, "-m", "gert", "keys", "new", "--id", "ann", "--out", desk.key]
    subprocess.run(command, check=True, capture_output=True, timeout=120)

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        await seen(pilot, app, "1 approval: a")
        await pilot.press("a")
        dialog = await on_top(pilot, app, Respond)
        assert dialog.query_one("#key", Input).value == desk.key
        dialog.query_one("#typed", Input).value = "change"
        await press_button(app, pilot, "approve")
        await eventually(pilot, lambda: any("no key `ann` is known" in each.message for each in app._notifications))
        await seen(pilot, app, "1 approval: a")
        await cancel(desk, screen)

    on_screen(desk, work)


def test_a_rejection_from_the_list_of_approvals_names_its_reason(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        await pilot.press("3")
        await on_top(pilot, app, HomeScreen)
        await until(pilot, app, "change critical incident kim")
        await pilot.press("enter")
        dialog = await on_top(pilot, app, Respond)
        dialog.query_one("#reason", Input).value = "wrong host"
        await press_button(app, pilot, "reject")
        await on_top(pilot, app, HomeScreen)
        await pilot.press("2")
        assert (await on_top(pilot, app, RunScreen)).run_id == screen.run_id
        assert "wrong host" in await until(pilot, app, "wrong host")
        await until(pilot, app, "✗ failed")

    on_screen(desk, work)


def test_a_failed_run_stays_at_the_failed_step_and_says_what_is_next(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "broken")
        await until(pilot, app, "✗ bad")
        await until(pilot, app, "sorry")
        await until(pilot, app, "exited with 3")
        await eventually(pilot, lambda: screen.selected is not None and screen.selected.name == "bad")
        await pilot.press("l")
        await until(pilot, app, "log of bad")
        assert "sorry" in text_of(app)
        await pilot.press("escape")
        await on_top(pilot, app, RunScreen)
        await pilot.press("q")
        await on_top(pilot, app, HomeScreen)

    app = on_screen(desk, work)
    assert any(line.startswith("failed: ") for line in app.exit_lines)
    assert app.exit_lines[-1].startswith("next: gert rerun ")
    assert "--from 'bad'" in app.exit_lines[-1]


def test_a_rerun_is_confirmed_and_its_run_is_opened(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        first = await start(app, pilot, "broken")
        await until(pilot, app, "✗ failed")
        await eventually(pilot, lambda: first.selected is not None and first.selected.name == "bad")
        await pilot.press("r")
        await on_top(pilot, app, Confirm)
        assert "Start a new run from `bad`?" in text_of(app)
        assert f"gert rerun {first.run_id} --from 'bad'" in text_of(app)
        assert app.focused is app.screen.query(Button).first()
        await pilot.press("enter")
        assert await on_top(pilot, app, RunScreen) is first
        await pilot.press("r")
        await on_top(pilot, app, Confirm)
        await pilot.press("down", "enter")
        await eventually(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen is not first)
        await until(pilot, app, "✗ failed")
        again = app.screen
        assert isinstance(again, RunScreen)
        assert again.run_id != first.run_id
        assert again.steps.nodes["fine"].status == "success"

    on_screen(desk, work)
    new, old = desk.runs()
    started: Any = new.start
    assert started.payload.parent_run_id == old.run_id


def offered(app: GertApp) -> set[str]:
    """The keys in the footer that not every run allows at every time."""
    shown = {each.description for each in app.screen.query(FooterKey)}
    return shown & {"Advance", "Approve", "Rerun"}


def test_a_run_that_is_running_offers_no_rerun_and_no_approval(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        await until(pilot, app, "→ wait")
        assert offered(app) == set()
        await pilot.press("r", "a", "enter")
        await pilot.pause()
        assert app.screen is screen
        await screen.command(["rerun"])
        await eventually(pilot, lambda: any("unknown command `rerun`" in each.message for each in app._notifications))
        await cancel(desk, screen)

    on_screen(desk, work)


def test_a_run_that_has_ended_offers_a_rerun_and_nothing_to_advance_or_approve(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "broken")
        await until(pilot, app, "✗ failed")
        await eventually(pilot, lambda: offered(app) == {"Rerun"})
        await pilot.press("a", "enter")
        await pilot.pause()
        assert app.screen is screen

    on_screen(desk, work)


def test_a_run_that_waits_for_an_approval_offers_it(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        await until(pilot, app, "host (string, required): Which host")
        app.screen.query_one("#input-host", Input).value = "web-1"
        await press_button(app, pilot, "start")
        screen = await on_top(pilot, app, RunScreen)
        await until(pilot, app, "⚠ change approval")
        await eventually(pilot, lambda: offered(app) == {"Advance", "Approve"})
        await cancel(desk, screen)
        await until(pilot, app, "cancelled")
        await eventually(pilot, lambda: offered(app) == {"Rerun"})

    on_screen(desk, work)


PAGES = {
    "v": "host = web-1",
    "c": "decision:",
    "t": "run_start",
    "l": "looking at web-1",
    "e": "require-approval",
    "p": "+new",
    "question_mark": "gert approvals show",
}


@pytest.mark.parametrize("size", SIZES)
def test_each_key_opens_its_page(desk: Desk, size: tuple[int, int]) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        await select(app, pilot, "look")
        for key, wanted in PAGES.items():
            await pilot.press(key)
            await on_top(pilot, app, Page)
            page = await until(pilot, app, wanted)
            assert "hunter22" not in page
            await pilot.press("escape")
            await on_top(pilot, app, RunScreen)
        await cancel(desk, screen)

    on_screen(desk, work, size)


def test_variables_are_those_that_the_step_may_see(desk: Desk) -> None:
    (Path(desk.root) / "blind.yaml").write_text("""
apiVersion: kernel/v0
meta: {name: blind, inputs: {host: {type: string, default: web-1}}}
tools: [sh]
steps:
  - {id: one, type: tool, tool: sh, action: run, inputs: {script: "printf alpha"}}
  - id: two
    type: tool
    tool: sh
    action: run
    visibility: {deny: [one, host]}
    inputs: {script: "printf beta"}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
""")

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "blind")
        await until(pilot, app, "✓ completed")
        for step, has in (("one", True), ("two", False)):
            await select(app, pilot, step)
            await pilot.press("v")
            shown = await until(pilot, app, "beta")
            assert ("alpha" in shown) is has
            assert ("host = web-1" in shown) is has
            assert ("2 hidden by the `visibility`" in shown) is not has
            await pilot.press("escape")
            await on_top(pilot, app, RunScreen)

    on_screen(desk, work)


HOSTILE = r"[/red] [@click=app.quit]x[/] \\033[31mred \\033]52;c;aGk=\\007 \\033[2J"


def test_foreign_text_is_shown_and_never_interpreted(desk: Desk) -> None:
    name = "[/etc/passwd]"
    (Path(desk.root) / "hostile.yaml").write_text(f"""
apiVersion: kernel/v0
meta:
  name: hostile
  description: "[/nope] [@click=app.quit]run[/]"
  inputs:
    pick: {{type: string, enum: ["{name}", "b"], default: "{name}", description: "{name}"}}
    free: {{type: string, default: "{name}", pattern: ".*"}}
    raw: {{type: string, default: "a\\x1b[31mb"}}
tools: [sh]
steps:
  - {{id: say, title: "{name}", type: tool, tool: sh, action: run, inputs: {{script: "printf '{HOSTILE}'; exit 1"}}}}
  - {{id: over, type: end, outcome: {{category: resolved, code: over}}}}
""")

    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "hostile")
        form = await seen(pilot, app, f"pick (string): {name}")
        assert "[/nope] [@click=app.quit]run[/]" in form
        assert app.screen.query_one("#input-raw", Input).value == ""
        app.screen.query_one("#input-pick", Select).focus()
        await pilot.press("enter")
        await pilot.pause()
        assert "\x1b" not in picture(app)
        await pilot.press("escape")
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "[/red]")
        assert "[@click=app.quit]x[/]" in shown
        assert "\x1b" not in shown
        await until(pilot, app, "✗ failed")
        assert "\x1b" not in picture(app)
        for key in ("v", "c", "t", "l", "e"):
            await pilot.press(key)
            await on_top(pilot, app, Page)
            assert "\x1b" not in text_of(app)
            await pilot.press("escape")
            await on_top(pilot, app, RunScreen)
        await pilot.press("slash")
        await on_top(pilot, app, Line)
        await pilot.press(*name, "enter")
        await on_top(pilot, app, RunScreen)
        await pilot.press("colon")
        await on_top(pilot, app, Line)
        await pilot.press(*name, "enter")
        await eventually(pilot, lambda: any(f"unknown command `{name}`" in each.message for each in app._notifications))
        assert "\x1b" not in picture(app)

    on_screen(desk, work, (160, 50))


def test_leaving_asks_and_the_run_goes_on(desk: Desk) -> None:
    runs: list[str] = []

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        runs.append(screen.run_id)
        await until(pilot, app, "→ wait")
        await pilot.press("q")
        await on_top(pilot, app, Confirm)
        assert app.focused is app.screen.query(Button).first()
        await press_button(app, pilot, "choice-leave")
        await on_top(pilot, app, HomeScreen)
        await pilot.press("1")
        await until(pilot, app, "→ running, live")

    on_screen(desk, work)
    (entry,) = desk.runs()
    assert entry.status == "running"

    async def again(app: GertApp, pilot: Any) -> None:
        await on_top(pilot, app, RunScreen)
        await until(pilot, app, "→ wait")
        await pilot.press("q")
        await on_top(pilot, app, Confirm)
        app.screen.query_one("#choice-stop", Button).press()
        # The screen ends: there is nothing to pause.
        while not app.exit_lines or [each.status for each in desk.runs()] != ["cancelled"]:
            await asyncio.sleep(0.05)

    app = on_screen(desk, again, run=(desk.place, desk.find(runs[0][:20])))
    assert app.exit_lines[0].startswith(f"run {runs[0]}: ")


def test_step_by_step_each_call_waits_for_enter(desk: Desk) -> None:
    desk.steps = True

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "broken")
        await until(pilot, app, "fine: enter begins it")
        assert "  fine │ fine" not in text_of(app)
        await pilot.press("enter")
        await until(pilot, app, "bad: enter begins it")
        await pilot.press("enter")
        await until(pilot, app, "✗ bad")
        await pilot.press("q")

    on_screen(desk, work)


def test_a_dry_run_calls_nothing_and_is_not_among_the_runs(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "broken")
        app.screen.query_one("#back").focus()
        await pilot.press("d")
        assert app.screen.query_one("#mode", Select).value == "dry-run"
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "completed")
        assert "sorry" not in shown
        await until(pilot, app, "│ dry-run")
        await pilot.press("q")
        await on_top(pilot, app, HomeScreen)

    app = on_screen(desk, work)
    assert desk.runs() == []
    assert not any(line.startswith("next: ") for line in app.exit_lines)
    (folder,) = desk.temporary
    desk.close()
    assert not os.path.exists(folder)


def test_the_first_run_creates_a_ledger_that_is_named_and_not_there(desk: Desk, tmp_path: Path) -> None:
    desk.db, desk.state_dir = str(tmp_path / "new.db"), None

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "broken")
        await until(pilot, app, "✗ failed")

    assert desk.runs() == []
    on_screen(desk, work)
    assert len(desk.runs()) == 1


def test_a_run_of_another_project_is_found_where_it_is_recorded(desk: Desk, tmp_path: Path) -> None:
    """The screen was started elsewhere."""
    desk.state_dir = None
    desk.environ = {**desk.environ, "XDG_STATE_HOME": str(tmp_path / "own")}
    (Path(desk.root) / ".gert").mkdir()

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "broken")
        await until(pilot, app, "✗ failed")

    on_screen(desk, work)
    assert len(desk.runs()) == 1


def test_a_form_that_is_refused_says_why_and_keeps_what_was_typed(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        app.screen.query_one("#input-size", Select).value = "large"
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "no value for")
        assert "`host`" in shown
        await on_top(pilot, app, StartForm)
        assert app.screen.query_one("#input-size", Select).value == "large"

    on_screen(desk, work)


@pytest.mark.parametrize("key", ["enter", "question_mark", "slash"])
def test_a_screen_that_is_left_while_a_dialog_opens_does_not_crash(desk: Desk, key: str) -> None:
    for turns in range(0, 60, 4):

        async def work(app: GertApp, pilot: Any, turns: int = turns) -> None:
            await until(pilot, app, "incident")
            app.simulate_key(key)
            for _ in range(turns):
                await asyncio.sleep(0)
            app.exit()

        on_screen(desk, work)


def test_a_secret_that_cannot_be_resolved_again_is_asked_for_masked(desk: Desk) -> None:
    (Path(desk.root) / "sealed.yaml").write_text("""
apiVersion: kernel/v0
meta: {name: sealed, inputs: {token: {type: string, secret: true, required: true}}}
tools: [sh]
steps:
  - {id: fine, type: tool, tool: sh, action: run, inputs: {script: "echo fine"}}
  - {id: bad, type: tool, tool: sh, action: run, inputs: {script: "test '{{ .token }}' = hunter22 && exit 3"}}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
""")

    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "sealed")
        app.screen.query_one("#input-token", Input).value = "hunter22"
        await press_button(app, pilot, "start")
        await on_top(pilot, app, RunScreen)
        await until(pilot, app, "✗ failed")
        first = app.screen
        await select(app, pilot, "bad")
        await pilot.press("r")
        await on_top(pilot, app, Confirm)
        await press_button(app, pilot, "choice-rerun")
        form = await on_top(pilot, app, SecretForm)
        assert "`token`" in text_of(app)
        assert form.query_one("#input-token", Input).password
        await pilot.press(*"hunter22")
        assert "hunter22" not in picture(app)
        await pilot.press("tab", "tab", "enter")
        await eventually(pilot, lambda: isinstance(app.screen, RunScreen) and app.screen is not first)
        await until(pilot, app, "exited with 3")

    on_screen(desk, work)
    assert len(desk.runs()) == 2


def test_read_only_starts_and_answers_nothing_and_its_writing_keys_vanish(desk: Desk) -> None:
    runs: list[str] = []

    async def begin(app: GertApp, pilot: Any) -> None:
        runs.append((await start(app, pilot, "incident", "web-1")).run_id)
        await until(pilot, app, "⚠ change approval")

    on_screen(desk, begin)
    desk.read_only = True

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await on_top(pilot, app, RunScreen)
        await until(pilot, app, "⚠ change approval")
        shown = {binding.action for _, binding, enabled, _ in screen.active_bindings.values() if enabled}
        assert not {"advance", "rerun"} & shown
        assert "approvals" in shown
        await pilot.press("question_mark")
        assert "gert rerun" not in await until(pilot, app, "keys")
        await pilot.press("escape")
        await on_top(pilot, app, RunScreen)
        await pilot.press("r", "enter")
        assert app.screen is screen
        await pilot.press("a")
        dialog = await on_top(pilot, app, Respond)
        assert not dialog.query(Button)
        await pilot.press("escape")
        await on_top(pilot, app, RunScreen)
        await pilot.press("4")
        await on_top(pilot, app, HomeScreen)
        await open_book(app, pilot, "broken")
        options = app.screen.query_one("#mode", Select)._options
        assert [value for _, value in options] == ["dry-run", "replay"]

    on_screen(desk, work, run=(desk.place, runs[0]))
    assert len(desk.runs()) == 1
    asyncio.run(desk.cancel(desk.place, runs[0]))


@pytest.mark.parametrize("size", SIZES)
def test_lists_are_filtered_and_commanded(desk: Desk, size: tuple[int, int]) -> None:
    async def line(app: GertApp, pilot: Any, key: str, text: str) -> None:
        await pilot.press(key)
        await on_top(pilot, app, Line)
        await pilot.press(*text, "enter")
        await eventually(pilot, lambda: not isinstance(app.screen, Line))

    async def work(app: GertApp, pilot: Any) -> None:
        await until(pilot, app, "incident")
        await line(app, pilot, "slash", "brok")
        await until(pilot, app, "1 shown")
        assert app.screen.query_one("#runbooks", DataTable).row_count == 1
        await line(app, pilot, "colon", "runs")
        await until(pilot, app, "no run is recorded here yet")
        await line(app, pilot, "ctrl+p", "nope")
        await eventually(pilot, lambda: any("unknown command" in each.message for each in app._notifications))
        await line(app, pilot, "colon", "run last")
        await eventually(pilot, lambda: any("no run" in each.message for each in app._notifications))
        await pilot.press("2")
        await eventually(pilot, lambda: any("no run was opened" in each.message for each in app._notifications))
        await pilot.press("3")
        await until(pilot, app, "no run waits for approval")
        await pilot.press("4")
        await until(pilot, app, "3 shown")
        await pilot.press("j", "j", "k")
        assert app.screen.query_one("#runbooks", DataTable).cursor_row == 1
        await pilot.press("f1")
        assert "gert exec RUNBOOK" in await until(pilot, app, "in forms and dialogs:")
        await pilot.press("escape")
        await on_top(pilot, app, HomeScreen)
        await line(app, pilot, "colon", "quit")

    on_screen(desk, work, size)


def test_steps_are_searched_and_gone_to(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")

        def at(name: str) -> Any:
            return eventually(pilot, lambda: screen.selected is not None and screen.selected.name == name)

        await pilot.press("slash")
        await on_top(pilot, app, Line)
        await pilot.press(*"on", "enter")
        await at("confirm")
        assert app.focused is screen.query_one(Tree)
        await pilot.press("n")
        await at("done")
        await pilot.press("n")
        await at("confirm")
        await pilot.press("N")
        await at("done")
        await select(app, pilot, "look")
        await pilot.press("j")
        await at("change")
        await pilot.press("k")
        await at("look")
        await pilot.press("g")
        await on_top(pilot, app, Line)
        await pilot.press("escape")
        await on_top(pilot, app, RunScreen)
        await cancel(desk, screen)

    on_screen(desk, work)


def test_the_output_is_wrapped_followed_saved_copied_and_paged(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (Path(desk.root) / "wide.yaml").write_text("""
apiVersion: kernel/v0
meta: {name: wide}
tools: [sh]
steps:
  - {id: say, type: tool, tool: sh, action: run, inputs: {script: "seq 200; printf '%0300d\\\\n' 7"}}
  - {id: over, type: end, outcome: {category: resolved, code: over}}
""")

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "wide")
        await until(pilot, app, "✓ completed")
        output = screen.query_one(OutputLog)
        unwrapped = len(output.lines)
        await pilot.press("w")
        await eventually(pilot, lambda: len(output.lines) > unwrapped)
        assert all(len(line) <= output.scrollable_content_region.width for line in output.lines)
        await pilot.resize_terminal(160, 40)
        await eventually(
            pilot, lambda: max(map(len, output.lines)) > 80 and len(output.lines) < unwrapped + 5, lambda: text_of(app)
        )
        await pilot.press("w")
        await eventually(pilot, lambda: len(output.lines) == unwrapped)
        output.scroll_home(animate=False)
        await pilot.press("f")
        await eventually(pilot, lambda: output.is_vertical_scroll_end)
        await select(app, pilot, "say")
        await pilot.press("s")
        saved = tmp_path / f"{screen.run_id}-say.txt"
        await eventually(pilot, saved.exists)
        assert saved.read_text().startswith("1\n2\n3\n")
        assert saved.read_text().endswith("7\n")
        await pilot.press("y")
        await eventually(pilot, lambda: app.clipboard == screen.run_id)
        await pilot.press("o")
        await eventually(pilot, lambda: any("pager" in each.message for each in app._notifications))
        await pilot.press("m")
        await eventually(pilot, lambda: any("mouse" in each.message for each in app._notifications))

    on_screen(desk, work)


def test_output_that_arrives_does_not_move_a_screen_that_is_scrolled_up(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        await until(pilot, app, "→ wait")
        output = screen.query_one(OutputLog)
        output.add(f"line {number}" for number in range(100))
        await eventually(pilot, lambda: output.is_vertical_scroll_end)
        output.scroll_to(y=10, animate=False)
        await eventually(pilot, lambda: output.scroll_y == 10)
        output.add(["more"])
        await pilot.pause()
        assert output.scroll_y == 10
        await cancel(desk, screen)

    on_screen(desk, work)


def test_an_attachment_is_chosen_and_its_hash_is_shown(desk: Desk, tmp_path: Path) -> None:
    (Path(desk.root) / "attach.yaml").write_text("""
apiVersion: kernel/v0
meta: {name: attach}
steps:
  - id: proof
    type: manual
    instructions: attach the report
    contract: {effects: []}
    required_evidence: [{kind: attachment, name: report}]
  - {id: done, type: end, outcome: {category: resolved, code: done}}
""")
    folder = tmp_path / "files" / "deep"
    folder.mkdir(parents=True)
    (folder / "[red]report.txt").write_text("all well")

    async def work(app: GertApp, pilot: Any) -> None:
        await start(app, pilot, "attach")
        await until(pilot, app, "⚠ proof a person")
        await pilot.press("enter")
        form = await on_top(pilot, app, EvidenceForm)
        field = form.query_one("#piece-0", Input)
        field.value = str(folder / "nothing")
        await pilot.press("enter")
        await until(pilot, app, "there is no file")
        await pilot.press("f3")
        await on_top(pilot, app, FilePicker)
        await until(pilot, app, "[red]report.txt")
        await pilot.press("backspace")
        await until(pilot, app, "deep")
        await pilot.press("down", "enter")
        await until(pilot, app, "[red]report.txt")
        await pilot.press("down", "enter")
        await on_top(pilot, app, EvidenceForm)
        await until(pilot, app, "8 bytes, sha256:")
        assert field.value.endswith("deep/[red]report.txt")
        await press_button(app, pilot, "done")
        await until(pilot, app, "✓ completed")

    on_screen(desk, work, (40, 12))


def test_a_run_whose_driver_was_killed_is_resumed_with_enter(desk: Desk) -> None:
    import signal

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "incident", "web-1")
        await until(pilot, app, "⚠ change approval")
        (view,) = await asyncio.to_thread(desk.tickets)
        lease = await asyncio.to_thread(screen._feed._runs.reader.ask, lambda ledger: ledger.lease(screen.run_id))
        os.kill(lease.holder.pid, signal.SIGKILL)
        await desk.respond(Verdict(ticket=view.id, approved=True, approver="ann"))
        await until(pilot, app, "answered: enter resumes")
        await pilot.press("enter")
        await until(pilot, app, "⚠ confirm a person")
        await cancel(desk, screen)

    on_screen(desk, work)


def test_a_crash_of_the_screen_harms_no_run_and_prints_no_variables(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apps: list[GertApp] = []

    def crash(self: RunScreen) -> None:
        secret = "hunter22"
        raise RuntimeError(f"no {secret}")

    async def work(app: GertApp, pilot: Any) -> None:
        apps.append(app)
        await start(app, pilot, "slow")
        await until(pilot, app, "→ wait")
        monkeypatch.setattr(RunScreen, "action_contract", crash)
        await pilot.press("c")
        await eventually(pilot, lambda: not app.is_running)

    with pytest.raises(RuntimeError):
        on_screen(desk, work)
    (app,) = apps
    assert app.return_code == 4
    assert app.exit_lines[0].startswith("the screen ended: RuntimeError in ")
    assert "hunter22" not in "".join([*app.exit_lines, *capsys.readouterr()])
    (entry,) = desk.runs()
    assert entry.status == "running"
    asyncio.run(desk.cancel(desk.place, entry.run_id))


def test_a_screen_that_is_resized_keeps_working(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        await until(pilot, app, "→ wait")
        for size in ((300, 80), (40, 12), (1, 1), (20, 5), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await seen(pilot, app, "→ wait")
        await cancel(desk, screen)

    on_screen(desk, work)
