"""What commands print: tables on terminals of any width, JSON a terminal does not act on, and nobody to print to."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.ecosystem.surfaces.cli.runs.ledgers import Place

from gert.ecosystem.surfaces.cli.commands.artana import main as artana
from gert.ecosystem.surfaces.cli.main import main as gert
from gert.ecosystem.surfaces.cli.render.output import print_json
from gert.ecosystem.surfaces.cli.render.text import elapsed

TABLE = """
import json, sys
from gert.ecosystem.surfaces.cli.render.output import print_table
headings, rows, spare = json.load(open(sys.argv[1]))
print_table(headings, [[(text, None) for text in row] for row in rows], spare)
"""
RUN = "20260228-143000-120-s59f2y"
AGENT = "ticket-1042::sub_agent::" + "0123456789abcdef" * 4
HEADINGS = ["run", "runbook", "started", "status", "outcome"]
SPARE = ["outcome", "started", "runbook"]


def on_terminal(folder: Path, columns: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table on a terminal."""
    given = folder / "table.json"
    given.write_text(json.dumps([HEADINGS, rows, SPARE]))
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "dumb", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    with subprocess.Popen([sys.executable, "-c", TABLE, str(given)], stdout=slave, env=environ) as process:
        os.close(slave)
        shown = b""
        try:
            while data := os.read(master, 65536):
                shown += data
        except OSError:
            pass  # nobody is left to write
        os.close(master)
    assert process.returncode == 0
    return shown.decode().splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
class TestTables:
    @pytest.mark.parametrize(
        ("columns", "found"),
        [
            pytest.param(120, ["run", "runbook", "started", "status", "outcome"], id="all where there is room"),
            pytest.param(80, ["run", "runbook", "started", "status"], id="the least is left out first"),
            pytest.param(62, ["run", "runbook", "status"], id="then the next"),
            pytest.param(40, ["run", "status"], id="to the id and how it stands"),
        ],
    )
    def test_an_id_is_whole_on_every_terminal(self, columns: int, found: list[str], tmp_path: Path) -> None:
        rows = [[RUN, "service-health", "12m30s ago", "cut-off", "escalated: nobody_home"]]
        lines = on_terminal(tmp_path, columns, rows)
        assert lines[1].split() == found
        assert lines[3].split()[0] == RUN
        assert "…" not in "".join(lines)
        assert all(len(line.rstrip()) <= columns for line in lines)

    def test_a_column_that_is_irrelevant_is_left_out(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 120, [[RUN, "", "1s ago", "active", ""]])
        assert lines[1].split() == ["run", "started", "status"]

    @pytest.mark.parametrize("columns", [40, 60, 80])
    def test_an_id_wider_than_the_terminal_is_folded_and_not_cut(self, columns: int, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, columns, [[AGENT, "", "1s ago", "active", ""]])
        assert "".join(line.split()[0] for line in lines[3:] if line.split()) == AGENT
        assert "…" not in "".join(lines)

    def test_markup_is_text(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 80, [["r", "[bold]x[/bold]", "", "active", ""]])
        assert "[bold]x[/bold]" in lines[3]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        pytest.param("Müller ✓ 東京", '"Müller ✓ 東京"', id="what can be read stays as it is"),
        pytest.param("\x1b[2J", '"\\u001b[2J"', id="an escape"),
        pytest.param("\x9b2J", '"\\u009b2J"', id="an escape in one character"),
        pytest.param("\x7f", '"\\u007f"', id="a deletion"),
        pytest.param("a\u202egnp.exe", '"a\\u202egnp.exe"', id="text that reads backwards"),
        pytest.param("\u2028", '"\\u2028"', id="another line break"),
        pytest.param("\U000e0041", '"\\udb40\\udc41"', id="a tag beyond the first plane"),
        pytest.param("\ud800 é", '"\\ud800 é"', id="half a character"),
    ],
)
def test_json_acts_on_no_terminal(text: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(text)
    said = capsys.readouterr().out
    assert said == f"{printed}\n"
    assert json.loads(said) == text


@pytest.mark.parametrize(
    ("spent", "text"),
    [
        (timedelta(hours=47, minutes=59), "47h59m"),
        (timedelta(days=2), "2d00h"),
        (timedelta(days=319, hours=15, minutes=14), "319d15h"),
    ],
)
def test_what_was_long_ago_is_counted_in_days(spent: timedelta, text: str) -> None:
    assert elapsed(spent) == text


@pytest.mark.parametrize(("main", "code"), [(gert, 4), (artana, 0)], ids=["gert", "artana"])
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["tail", "triage-1"]], ids=" ".join)
def test_a_standard_output_that_is_closed(
    main: object, code: int, words: list[str], sqlite_ledger: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Python makes of it: `gert run list >&-`.
    monkeypatch.setattr(sys, "stdout", None)
    assert callable(main)
    assert main(["run", *words, *sqlite_ledger.words]) == code
