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
from gert.ecosystem.surfaces.cli.render.table import print_table
headings, rows, spare = json.load(open(sys.argv[1]))
print_table(headings, [[(text, None) for text in row] for row in rows], spare)
"""
RUN = "20260228-143000-120-s59f2y"
AGENT = "ticket-1042::sub_agent::" + "0123456789abcdef" * 4
HEADINGS = ["run", "runbook", "started", "status", "outcome"]
SPARE = ["outcome", "started", "runbook"]


def on_terminal(
    folder: Path,
    columns: int,
    rows: Sequence[Sequence[str]],
    headings: Sequence[str] = HEADINGS,
    spare: Sequence[str] = SPARE,
    **environ: str,
) -> list[str]:
    """The lines of a table on a terminal."""
    given = folder / "table.json"
    given.write_text(json.dumps([headings, rows, spare]))
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "dumb", "COLUMNS": str(columns), "PYTHONUTF8": "1", **environ}
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
        ("columns", "found", "note"),
        [
            pytest.param(120, "RUN RUNBOOK STARTED STATUS OUTCOME", "", id="all where there is room"),
            pytest.param(80, "RUN RUNBOOK STARTED STATUS", "outcome", id="the least is left out first"),
            pytest.param(62, "RUN RUNBOOK STATUS", "started, outcome", id="then the next"),
            pytest.param(40, "RUN STATUS", "runbook, started, outcome", id="to the id and how it stands"),
        ],
    )
    def test_an_id_is_whole_on_every_terminal(self, columns: int, found: str, note: str, tmp_path: Path) -> None:
        rows = [[RUN, "service-health", "12m30s ago", "cut-off", "escalated: nobody_home"]]
        head, row, *rest = on_terminal(tmp_path, columns, rows)
        assert head.split() == found.split()
        assert row.split()[0] == RUN
        assert "…" not in row
        said = " ".join(line.strip() for line in rest)
        assert said == (f"not shown: {note} (see --json, or widen the terminal)" if note else "")
        assert all(len(line) <= columns for line in (head, row, *rest))

    def test_the_whole_width_is_used(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 80, [["a", "b" * 50, "c" * 90]], ["id", "one", "two"], [])
        assert len(lines[1]) == 80
        assert lines[1].split() == ["a", "b" * 36 + "…", "c" * 36 + "…"]
        assert lines[2] == "… marks what was cut (see --json, or widen the terminal)"

    def test_a_column_that_matters_is_cut_before_it_is_left_out(self, tmp_path: Path) -> None:
        rows = [["a" * 30, "b" * 30, "c" * 90]]
        head, row, _ = on_terminal(tmp_path, 60, rows, ["id", "spare", "why"], ["spare"])
        assert head.split() == ["ID", "WHY"]
        assert row == f"{'a' * 30}  {'c' * 27}…"

    def test_a_wide_character_takes_two_columns(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 20, [["東京", "x"], ["y", "東京東京東京東京東京"]], ["id", "name"], [])
        assert lines[1:3] == ["東京  x", "y     東京東京東京…"]

    def test_a_column_that_is_irrelevant_is_left_out(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 120, [[RUN, "", "1s ago", "active", ""]])
        assert lines[0].split() == ["RUN", "STARTED", "STATUS"]
        assert len(lines) == 2, "no note says that an empty column is missing"

    @pytest.mark.parametrize("columns", [40, 60, 80])
    def test_an_id_wider_than_the_terminal_has_its_own_line_and_is_not_cut(self, columns: int, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, columns, [[AGENT, "", "1s ago", "active", ""]])
        assert lines[2:4] == [AGENT, "  active"]

    def test_markup_is_text(self, tmp_path: Path) -> None:
        lines = on_terminal(tmp_path, 80, [["r", "[bold]x[/bold]", "", "active", ""]])
        assert "[bold]x[/bold]" in lines[1]

    def test_it_needs_no_extra(self, tmp_path: Path) -> None:
        (tmp_path / "rich.py").write_text("raise ImportError")
        rows = [[RUN, "service-health", "12m30s ago", "cut-off", "escalated: nobody_home"]]
        assert on_terminal(tmp_path, 62, rows, PYTHONPATH=str(tmp_path)) == on_terminal(tmp_path, 62, rows)

    @pytest.mark.parametrize(
        ("environ", "has_colours"),
        [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({}, False)],
    )
    def test_colours_are_for_terminals_that_want_them(
        self, environ: dict[str, str], has_colours: bool, tmp_path: Path
    ) -> None:
        lines = on_terminal(tmp_path, 80, [["r", "x", "", "active", ""]], **environ)
        assert ("\x1b[" in lines[0]) == has_colours


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
