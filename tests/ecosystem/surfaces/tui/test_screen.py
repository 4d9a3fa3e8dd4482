"""The screen, driven by keys alone: lists, forms, a run, approvals, evidence."""

import asyncio
from typing import Any

import pytest
from tests.ecosystem.surfaces.tui.conftest import SIZES, on_screen, text_of, until
from textual.widgets import Button, Checkbox, DataTable, Input, Select, Tree

from gert.ecosystem.host.approvals.respond import Verdict
from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Confirm, Page, Respond
from gert.ecosystem.surfaces.tui.forms import EvidenceForm, StartForm
from gert.ecosystem.surfaces.tui.help import home_help, run_help
from gert.ecosystem.surfaces.tui.home import HomeScreen
from gert.ecosystem.surfaces.tui.run_screen import RunScreen

Work = Any


async def open_book(app: GertApp, pilot: Any, name: str) -> None:
    await until(pilot, app, name)
    table = app.screen.query_one("#runbooks", DataTable)
    row = next(at for at in range(table.row_count) if str(table.get_row_at(at)[0]) == name)
    table.move_cursor(row=row)
    await pilot.press("enter")
    await pilot.pause()
    assert isinstance(app.screen, StartForm)


async def press_button(app: GertApp, pilot: Any, name: str) -> None:
    app.screen.query_one(f"#{name}", Button).press()
    await pilot.pause()
    await pilot.pause()


async def start(app: GertApp, pilot: Any, name: str) -> RunScreen:
    await open_book(app, pilot, name)
    await press_button(app, pilot, "start")
    for _ in range(600):
        await pilot.pause(0.05)
        if isinstance(app.screen, RunScreen):
            return app.screen
    raise AssertionError(text_of(app))


@pytest.mark.parametrize("size", SIZES)
def test_an_incident_from_alert_to_outcome_by_keyboard(desk: Desk, size: tuple[int, int]) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        form = text_of(app)
        assert "host (string, required): Which host" in form
        assert "token (string, secret)" in form
        assert "hunter22" not in form
        assert app.screen.query_one("#input-token", Input).password
        app.screen.query_one("#input-host", Input).value = "web-1"
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "⚠ change approval")
        assert "looking at web-1" in shown
        assert "○ done" in shown
        await pilot.press("a")
        await pilot.pause()
        dialog = app.screen
        assert isinstance(dialog, Respond)
        ticket = text_of(app)
        assert "$ sh -c 'echo changed'" in ticket
        assert "+new" in ticket
        assert app.focused is dialog.query_one("#back")
        await press_button(app, pilot, "approve")
        assert "type the step id" in text_of(app)
        app.screen.query_one("#typed", Input).value = "change"
        await press_button(app, pilot, "approve")
        await until(pilot, app, "⚠ confirm a person")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, EvidenceForm)
        assert "see that web-1 is back [bold]" in text_of(app)
        await press_button(app, pilot, "done")
        assert "not every item of `seen` is checked" in text_of(app)
        app.screen.query_one(Checkbox).value = True
        app.screen.query_one("#piece-1", Input).value = "all well"
        await press_button(app, pilot, "done")
        final = await until(pilot, app, "outcome resolved: back")
        assert "✓ confirm" in final
        await pilot.press("q")

    app = on_screen(desk, work, size)
    assert "outcome: resolved: back" in app.parting


def test_an_approval_given_elsewhere_is_seen(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        app.screen.query_one("#input-host", Input).value = "web-1"
        await press_button(app, pilot, "start")
        await until(pilot, app, "⚠ change approval")
        (view,) = await asyncio.to_thread(desk.tickets)
        await desk.respond(Verdict(ticket=view.id, approved=False, approver="ann", reason="not now"))
        shown = await until(pilot, app, "failed")
        assert "not now" in shown or "rejected" in shown
        await pilot.press("q")

    on_screen(desk, work)


def test_a_failed_run_stays_at_the_failed_step_and_says_what_is_next(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "broken")
        shown = await until(pilot, app, "✗ bad")
        assert "sorry" in await until(pilot, app, "sorry")
        assert "exited with 3" in shown or "exited with 3" in text_of(app)
        for _ in range(100):
            await pilot.pause(0.05)
            if screen.selected is not None and screen.selected.name == "bad":
                break
        assert screen.selected is not None
        assert screen.selected.name == "bad"
        await pilot.press("l")
        assert "sorry" in await until(pilot, app, "log of bad")
        await pilot.press("escape")
        await pilot.press("q")

    app = on_screen(desk, work)
    assert any(line.startswith("failed: ") for line in app.parting)
    assert app.parting[-1].startswith("next: gert run show ")


PAGES = {
    "v": "host = web-1",
    "c": "decision:",
    "t": "run_start",
    "l": "looking at web-1",
    "e": "require-approval",
    "question_mark": "gert approvals show",
    "r": "gert rerun ",
}


def test_each_key_opens_its_page(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        app.screen.query_one("#input-host", Input).value = "web-1"
        await press_button(app, pilot, "start")
        await until(pilot, app, "⚠ change approval")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen._select(screen.steps.nodes["look"])
        await pilot.pause()
        for key, wanted in PAGES.items():
            await pilot.press(key)
            page = await until(pilot, app, wanted)
            assert "hunter22" not in page
            assert isinstance(app.screen, Page), key
            await pilot.press("escape")
            await pilot.pause()
        await desk.cancel(desk.place, screen.run_id)

    on_screen(desk, work)


def test_foreign_text_is_shown_and_never_interpreted(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        app.screen.query_one("#input-host", Input).value = "[bold]x[/nope]"
        await press_button(app, pilot, "start")
        shown = await until(pilot, app, "[/red]")
        assert "\x1b" not in shown
        assert "looking at [bold]x[/nope]" in shown
        await pilot.press("v")
        assert "[bold]x[/nope]" in await until(pilot, app, "host = ")
        await pilot.press("escape")
        await desk.cancel(desk.place, app.screen.run_id)  # type: ignore[attr-defined]

    on_screen(desk, work)


def test_leaving_asks_and_the_run_goes_on(desk: Desk) -> None:
    runs: list[str] = []

    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        runs.append(screen.run_id)
        await until(pilot, app, "→ wait")
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, Confirm)
        assert app.focused is app.screen.query(Button).first()
        await press_button(app, pilot, "choice-leave")
        assert type(app.screen).__name__ == "HomeScreen"
        await pilot.press("2")
        await until(pilot, app, "running")

    on_screen(desk, work)
    (entry,) = desk.runs()
    assert entry.status == "running"

    async def again(app: GertApp, pilot: Any) -> None:
        await until(pilot, app, "→ wait")
        await pilot.press("q")
        await pilot.pause()
        await press_button(app, pilot, "choice-stop")

    on_screen(desk, again, run=(desk.place, runs[0]))
    for _ in range(100):
        if desk.runs()[0].status == "cancelled":
            return
        asyncio.run(asyncio.sleep(0.05))
    raise AssertionError(desk.runs()[0].status)


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
        await pilot.press("q")

    on_screen(desk, work)
    assert desk.runs() == []


def test_a_form_that_is_refused_says_why_and_keeps_what_was_typed(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "incident")
        app.screen.query_one("#input-size", Select).value = "large"
        await press_button(app, pilot, "start")
        await until(pilot, app, "host")
        shown = await until(pilot, app, "no value for")
        assert "`host`" in shown
        await pilot.pause(0.2)
        assert app.screen.query_one("#input-size", Select).value == "large"

    on_screen(desk, work)


def test_read_only_changes_nothing(desk: Desk) -> None:
    desk.read_only = True

    async def work(app: GertApp, pilot: Any) -> None:
        await open_book(app, pilot, "broken")
        await press_button(app, pilot, "start")
        await until(pilot, app, "read-only")

    on_screen(desk, work)
    assert desk.runs() == []


def test_lists_are_filtered_searched_and_commanded(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await until(pilot, app, "incident")
        await pilot.press("slash")
        await pilot.press(*"brok", "enter")
        await until(pilot, app, "1 shown")
        assert app.screen.query_one("#runbooks", DataTable).row_count == 1
        await pilot.press("colon")
        await pilot.press(*"runs", "enter")
        await until(pilot, app, "0 shown")
        await pilot.press("colon")
        await pilot.press(*"nope", "enter")
        await pilot.press("colon")
        await pilot.press(*"quit", "enter")

    on_screen(desk, work)


def test_search_finds_a_step(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        await until(pilot, app, "→ wait")
        await pilot.press("slash")
        await pilot.press(*"wai", "enter")
        await pilot.pause()
        assert screen.selected is not None
        assert screen.selected.name == "wait"
        assert app.focused is screen.query_one(Tree)
        await desk.cancel(desk.place, screen.run_id)

    on_screen(desk, work)


def test_a_screen_that_is_resized_keeps_working(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        screen = await start(app, pilot, "slow")
        for size in ((300, 80), (40, 12), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until(pilot, app, "→ wait")
        await desk.cancel(desk.place, screen.run_id)

    on_screen(desk, work)


def test_every_key_of_help_is_bound_and_names_a_command() -> None:
    text = "\n".join([*run_help("RUN"), *home_help()])
    for command in ("gert run evidence", "gert approve", "gert logs", "gert explain", "gert rerun", "gert run cancel"):
        assert command in text
    bound = {each.key for screen in (RunScreen, HomeScreen) for each in screen.BINDINGS if hasattr(each, "key")}  # type: ignore[union-attr]
    for key in ("a", "v", "c", "t", "l", "q", "enter"):
        assert any(key in each.split(",") for each in bound), key
