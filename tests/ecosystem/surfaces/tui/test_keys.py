"""Keys are settings, help names a command for everything, and every command that it names is there."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from tests.ecosystem.surfaces.tui.conftest import on_screen, on_top, until

from gert.ecosystem.surfaces.cli.main import group
from gert.ecosystem.surfaces.tui.app import GertApp
from gert.ecosystem.surfaces.tui.desk import Desk
from gert.ecosystem.surfaces.tui.dialogs import Line, Page
from gert.ecosystem.surfaces.tui.home import HomeScreen
from gert.ecosystem.surfaces.tui.keys import ALL, HOME, RUN, help_lines, read_keymap
from gert.ecosystem.surfaces.tui.run_screen import RunScreen
from gert.errors import UsageError


def written(folder: Path, text: str) -> dict[str, str]:
    (folder / "gert").mkdir()
    (folder / "gert" / "tui.yaml").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder)}


def test_a_user_without_settings_has_the_documented_keys(tmp_path: Path) -> None:
    assert read_keymap({"HOME": str(tmp_path)}) == {}


def test_keys_come_from_the_configuration_of_the_user(tmp_path: Path) -> None:
    keymap = read_keymap(written(tmp_path, "keys: {run.rerun: R, home.quit: 'q,Q', home.runs: 9}"))
    assert keymap == {"run.rerun": "R", "home.quit": "q,Q", "home.runs": "9"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("keys: {run.reran: R}", "there is no action `run.reran`", id="an unknown action is refused"),
        pytest.param("keys: {run.rerun: v}", "the key `v` is set for both", id="a key cannot do two things"),
        pytest.param("kees: {}", "expected only a map `keys`", id="an unknown setting is refused"),
        pytest.param("keys: [a]", "expected only a map `keys`", id="keys are a map"),
        pytest.param("keys: {run.rerun: ''}", "the key `` is set", id="an empty key is refused"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        read_keymap(written(tmp_path, text))


def test_a_key_that_was_set_works_is_named_in_help_and_its_old_key_does_nothing(desk: Desk) -> None:
    async def work(app: GertApp, pilot: Any) -> None:
        await until(pilot, app, "incident")
        await pilot.press("question_mark")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("f5")
        await on_top(pilot, app, Page)
        assert "f5        this page" in await until(pilot, app, "in forms and dialogs:")
        await pilot.press("escape")
        await on_top(pilot, app, HomeScreen)
        await pilot.press("F")
        await on_top(pilot, app, Line)

    on_screen(desk, work, keymap={"home.help": "f5", "home.filter": "F"})


@pytest.mark.parametrize("rows", [RUN, HOME], ids=["run", "home"])
def test_every_command_that_help_names_is_a_command_of_gert(rows: Any) -> None:
    text = "\n".join(help_lines(rows, {}, read_only=False))
    named = re.findall(r"gert ((?:[a-z]+ ?)+)", text)
    assert len(named) >= 5
    for words in named:
        found: click.Command = group
        for word in words.split():
            if isinstance(found, click.Group):
                known = found.get_command(click.Context(found), word)
                assert known is not None, words
                found = known


@pytest.mark.parametrize("screen", [RunScreen, HomeScreen])
def test_every_key_has_an_id_an_action_and_a_line_of_help(screen: Any) -> None:
    text = "\n".join(help_lines(screen.KEYS, {}, read_only=False))
    for key in screen.KEYS:
        assert key.what in text
        assert hasattr(screen, f"action_{key.action.partition('(')[0]}"), key.id
    assert {binding.id for binding in screen.BINDINGS} <= set(ALL)


def test_what_a_user_can_change_has_a_command() -> None:
    for key in ALL.values():
        if key.writes:
            assert key.command.startswith("gert "), key.id
