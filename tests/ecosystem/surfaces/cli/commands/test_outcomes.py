"""`gert outcomes` as people and scripts use it."""

import csv
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.stored_runs import store_notes, store_run

from gert.ecosystem.surfaces.cli.live import progress as progressing
from gert.ecosystem.surfaces.cli.live.progress import Progress
from gert.ecosystem.surfaces.cli.main import main
from gert.ecosystem.surfaces.cli.render.runs.outcome_rows import cell
from gert.ecosystem.surfaces.cli.render.runs.outcome_text import bar, percent_text

NOW = datetime.now(UTC)
Output = pytest.CaptureFixture[str]


def lines_of(run_id: str, *events: tuple[str, dict[str, Any]], ago: timedelta = timedelta(0)) -> list[bytes]:
    stamp = (NOW - ago).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return [
        msgspec.json.encode(
            {"seq": n, "run_id": run_id, "type": kind, "timestamp": stamp, "prev_hash": "0" * 64, "data": data}
        )
        for n, (kind, data) in enumerate(events, start=1)
    ]


def story(
    category: str | None = "resolved", code: str = "done", *, runbook: str = "health", mode: str = "real", **end: Any
) -> list[tuple[str, dict[str, Any]]]:
    outcome = {"category": category, "code": code}
    ended = {"status": "completed", "mode": mode, "duration": "4.2s"} | ({"outcome": outcome} if category else {}) | end
    began = {"runbook": runbook, "runbook_hash": "", "actor": "alice", "host": "h", "gert_version": "0", "mode": mode}
    return [("run_start", began), ("run_complete", ended)]


def failing(kind: str, step: str) -> list[tuple[str, dict[str, Any]]]:
    return story(None, status="failed", failure={"kind": kind, "message": "m"}, failed_step=step)


def write(folder: Path, run_id: str, events: list[tuple[str, dict[str, Any]]], ago: timedelta = timedelta(0)) -> Path:
    file = folder / f"{run_id}.jsonl"
    file.write_bytes(b"\n".join(lines_of(run_id, *events, ago=ago)) + b"\n")
    return file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("GERT_", "XDG_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "gert-project.yaml").write_text("name: p\ntraces: { dir: traces }\n")
    traces = tmp_path / "traces"
    traces.mkdir()
    return traces


def said(output: Output, *options: str, place: str | None = "traces", code: int = 0) -> str:
    assert main(["outcomes", *([place] if place else []), *options]) == code
    return output.readouterr().out


def document(output: Output, *options: str, place: str | None = "traces") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(output, *options, "--json", place=place))
    return found


class TestText:
    def test_it_looks_as_promised(self, folder: Path, capsys: Output) -> None:
        outcomes = [("resolved", "service_restarted")] * 12 + [("resolved", "dns_fixed")] * 5
        outcomes += [("escalated", "unknown_failure")] * 3 + [("no_action", "healthy")] * 2 + [("needs_rca", "odd")]
        for n, (category, code) in enumerate(outcomes):
            write(folder, f"r-{n}", story(category, code, runbook="service-health-check"))
        out = said(capsys, "--since", "7d", "--runbook", "service-health-check")
        assert out.splitlines() == [
            "",
            "  service-health-check (23 runs, last 7 days)",
            "",
            "  resolved:    17 (74%)  ████████████████░░░░░░",
            "  escalated:    3 (13%)  ███░░░░░░░░░░░░░░░░░░░",
            "  no_action:    2 (9%)   ██░░░░░░░░░░░░░░░░░░░░",
            "  needs_rca:    1 (4%)   █░░░░░░░░░░░░░░░░░░░░░",
            "",
            "  Top outcome codes:",
            "    service_restarted   12",
            "    dns_fixed            5",
            "    unknown_failure      3",
            "    healthy              2",
            "    odd                  1",
            "",
            "  Duration:",
            "    median 4.2s, p95 4.2s, longest 4.2s",
            "",
        ]

    def test_what_went_wrong_is_told(self, folder: Path, capsys: Output) -> None:
        violation = ("contract_violation", {"kind": "missing_output", "step_id": "look"})
        glass = ("break_glass", {"actor": "bob", "step_id": "restart", "reason": "fire"})
        start, end = story()
        for n, events in enumerate(
            [
                failing("exit_code", "each[1]"),
                failing("exit_code", "look"),
                failing("exit_code", "each[4]"),
                failing("timeout", "look"),
                [start, violation, violation, end],
                [start, violation, glass, end],
                story(None, status="cancelled"),
                story(None, status="error"),
                [start],
            ]
        ):
            write(folder, f"r-{n}", events)
        out = said(capsys)
        assert "  failed:       4 (44%)  ██████████░░░░░░░░░░░░" in out
        assert "  error:        1 (11%)  ██░" in out
        assert "  cancelled:    1 (11%)  ██░" in out
        assert "  incomplete:   1 (11%)  ██░" in out
        assert "  Failures:\n    exit_code  3  at each (2), look (1)\n    timeout    1  at look\n" in out
        assert "  Repeated contract violations:\n    missing_output at look  in 2 runs, 3 times\n" in out
        assert "  Break-glass:\n    1 decision overridden in 1 run: bob at restart (1)\n" in out

    @pytest.mark.parametrize(
        ("options", "period"),
        [
            pytest.param(["--since", "1d"], "last day", id="one day"),
            pytest.param(["--since", "24h"], "last 24 hours", id="hours stay hours"),
            pytest.param(["--since", "1h30m"], "last 1h30m", id="anything else as it was written"),
            pytest.param([], f"{NOW:%Y-%m-%d}", id="the day of the runs"),
            pytest.param(["--since", "7d", "--until", "0s"], f"{NOW:%Y-%m-%d}", id="a period that is over"),
        ],
    )
    def test_the_period_is_named(self, options: list[str], period: str, folder: Path, capsys: Output) -> None:
        write(folder, "r-1", story())
        assert f"health (1 run, {period})" in said(capsys, *options)

    def test_days_of_first_and_last_run_are_named(self, folder: Path, capsys: Output) -> None:
        write(folder, "r-1", story())
        write(folder, "r-2", story(), ago=timedelta(days=3))
        assert f"(2 runs, {NOW - timedelta(days=3):%Y-%m-%d} to {NOW:%Y-%m-%d})" in said(capsys)

    def test_nothing_in_a_trace_acts_on_the_terminal(self, folder: Path, capsys: Output) -> None:
        evil = "\x1b[2J\u202e"
        write(folder, "r-1", story(code=f"c{evil}", runbook=f"b{evil}"))
        write(folder, "r-2", failing(f"k{evil}", f"s{evil}"))
        for options in ([], ["--json"], ["--csv"]):
            out = said(capsys, *options)
            assert "\x1b" not in out
            assert "\u202e" not in out

    def test_a_stream_without_blocks_gets_plain_bars(self, folder: Path) -> None:
        write(folder, "r-1", story())
        write(folder, "r-2", failing("exit_code", "look"))
        command = [sys.executable, "-m", "gert", "outcomes", str(folder)]
        environ = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        done = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=True)
        assert b"  resolved:     1 (50%)  ###########...........\n" in done.stdout

    @pytest.mark.parametrize(
        ("share", "filled"), [(0, 0), (0.0001, 1), (0.5, 11), (0.99, 22), (1, 22)]
    )  # fmt: skip
    def test_a_bar_shows_whatever_happened(self, share: float, filled: int) -> None:
        assert bar(share, "#", ".") == "#" * filled + "." * (22 - filled)

    @pytest.mark.parametrize(
        ("percent", "text"), [(0, "0%"), (0.1, "<1%"), (8.7, "9%"), (99.4, "99%"), (99.9, ">99%"), (100, "100%")]
    )
    def test_percent_are_whole_and_never_lie(self, percent: float, text: str) -> None:
        assert percent_text(percent) == text


class TestWhichRuns:
    def test_only_real_runs_count_unless_told_otherwise(self, folder: Path, capsys: Output) -> None:
        for mode in ("real", "replay", "dry-run", "probe"):
            write(folder, mode, story(mode=mode))
        assert document(capsys)["runs"] == 1
        assert document(capsys, "--mode", "all")["runs"] == 4
        found = document(capsys, "--mode", "dry-run")
        assert (found["runs"], found["passed_over"]["mode"]) == (1, 3)
        assert found["runbooks"][0]["endings"]["no_outcome"]["count"] == 1

    @pytest.mark.parametrize(
        ("options", "runs"),
        [
            pytest.param(["--since", "7d"], 2, id="the last seven days"),
            pytest.param(["--since", "30m"], 1, id="the last half hour"),
            pytest.param(["--until", "30m"], 2, id="all but the last half hour"),
            pytest.param(["--since", "7d", "--until", "1h"], 1, id="from and to"),
            pytest.param(["--since", f"{NOW - timedelta(days=3):%Y-%m-%d}"], 2, id="since the beginning of a day"),
            pytest.param(["--until", f"{NOW - timedelta(days=2):%Y-%m-%d}"], 2, id="until the end of a day"),
            pytest.param(["--since", f"{NOW - timedelta(days=2, hours=1):%Y-%m-%dT%H:%M:%S}"], 2, id="a time is UTC"),
            pytest.param(["--since", (NOW - timedelta(hours=1)).isoformat()], 1, id="a timestamp"),
            pytest.param(["--since", "2999-01-01"], 0, id="the future"),
            pytest.param(["--until", "9999-12-31"], 3, id="the last day there is"),
        ],
    )
    def test_a_run_counts_by_its_start(self, options: list[str], runs: int, folder: Path, capsys: Output) -> None:
        for n, days in enumerate([0, 2, 40]):
            write(folder, f"r-{n}", story(), ago=timedelta(days=days))
        assert document(capsys, *options)["runs"] == runs

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            pytest.param(["--since", "yesterday"], "expected a duration or a date, found `yesterday`", id="a word"),
            pytest.param(["--since", "-7d"], "expected a duration or a date, found `-7d`", id="a negative duration"),
            pytest.param(["--since", "7"], "a date, found `7`", id="no unit"),
            pytest.param(["--until", "2026-02-30"], "a date, found `2026-02-30`", id="a day that is none"),
            pytest.param(
                ["--since", "0001-01-01T00:00:00+14:00"], "expected a duration or a date", id="before the first day"
            ),
            pytest.param(["--since", "1d", "--until", "2d"], "`--since` must be before `--until`", id="backwards"),
            pytest.param(["--json", "--csv"], "expected `--json` or `--csv`, found both", id="two forms"),
            pytest.param(["--mode", "fast"], "`fast` is not one of", id="no mode"),
            pytest.param(["nope"], "there is no file or folder `nope`", id="no path"),
            pytest.param(["--db", "nope.db"], "there is no file `nope.db`", id="no database"),
        ],
    )
    def test_mistakes_are_named(self, options: list[str], message: str, capsys: Output) -> None:
        assert main(["outcomes", *options]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.out == "" or "--json" in options

    def test_without_a_place_the_ledger_of_the_state_directory_is_read(
        self, folder: Path, tmp_path: Path, capsys: Output
    ) -> None:
        write(folder, "r-1", story())
        (tmp_path / "runs").mkdir()
        store_run(tmp_path / "runs" / "ledger.db", lines_of("r-2", *story()))
        found = document(capsys, place=None)
        assert (found["runs"], found["places"]) == (1, [str(tmp_path / "runs" / "ledger.db")])
        assert document(capsys, "--state-dir", ".")["runs"] == 2
        assert document(capsys, "--state-dir", "elsewhere", place=None)["runs"] == 0

    def test_a_database_is_read(self, folder: Path, tmp_path: Path, capsys: Output) -> None:
        write(folder, "r-1", story())
        store_run(tmp_path / "runs.db", lines_of("r-2", *story("escalated")))
        assert document(capsys, "--db", "runs.db", place=None)["runs"] == 1
        assert document(capsys, "--db", "runs.db")["runs"] == 2
        assert main(["outcomes", "--db", "traces/r-1.jsonl"]) == 1
        assert "is not a database" in capsys.readouterr().err

    def test_agent_runs_of_a_ledger_have_no_outcome(self, tmp_path: Path, capsys: Output) -> None:
        store_notes(tmp_path / "agents.db", "agent-1", 2)
        found = document(capsys, "--db", "agents.db", place=None)
        assert (found["runs"], found["places"], found["skipped"]["count"]) == (0, ["agents.db"], 0)

    def test_a_folder_is_no_ledger(self, tmp_path: Path, capsys: Output) -> None:
        (tmp_path / "plain").mkdir()
        assert main(["outcomes", "--db", "plain"]) == 2
        assert "found the folder `plain`" in capsys.readouterr().err


class TestNothing:
    def test_nothing_is_found(self, tmp_path: Path, capsys: Output) -> None:
        out = said(capsys, place=None)
        assert out.splitlines()[0] == f"No runs found in {tmp_path / 'runs' / 'ledger.db'}."
        assert "hint: " in out

    def test_nothing_is_an_empty_document(self, capsys: Output) -> None:
        found = document(capsys)
        assert (found["runs"], found["runbooks"], found["skipped"]) == (0, [], {"count": 0, "files": []})

    def test_nothing_is_a_table_without_rows(self, capsys: Output) -> None:
        assert said(capsys, "--csv").startswith("run_id,runbook,started,")

    @pytest.mark.parametrize(
        ("options", "line", "hint"),
        [
            pytest.param(
                ["--runbook", "helth"], "1 of another runbook.", "did you mean `--runbook health`?", id="typo"
            ),
            pytest.param(["--runbook", "zzz"], "1 of another runbook.", "omit `--runbook`", id="another runbook"),
            pytest.param(["--since", "1h"], "1 outside the period.", "`--since` and `--until`", id="too old"),
            pytest.param(["--mode", "probe"], "1 in another mode.", "`--mode all`", id="another mode"),
        ],
    )
    def test_what_was_passed_over_is_said(
        self, options: list[str], line: str, hint: str, folder: Path, capsys: Output
    ) -> None:
        write(folder, "r-1", story(), ago=timedelta(days=2))
        first, second = said(capsys, *options).splitlines()
        assert first == f"No runs to count: of 1 run found, {line}"
        assert hint in second


class TestNotes:
    def test_what_is_no_trace_is_noted_and_does_no_harm(self, folder: Path, capsys: Output) -> None:
        write(folder, "r-1", story())
        (folder / "notes.jsonl").write_text("hello\n")
        assert main(["outcomes", "traces"]) == 0
        printed = capsys.readouterr()
        assert "health (1 run," in printed.out
        assert printed.err == "note: skipped `traces/notes.jsonl`: its first line is not an event\n"
        assert document(capsys)["skipped"]["count"] == 1

    def test_many_are_counted(self, folder: Path, capsys: Output) -> None:
        for n in range(9):
            (folder / f"{n}.jsonl").touch()
        assert main(["outcomes", "traces"]) == 0
        assert "note: skipped 4 more files: `--json` lists the reasons" in capsys.readouterr().err

    def test_lines_that_cannot_be_read_are_counted(self, folder: Path, capsys: Output) -> None:
        file = write(folder, "r-1", story())
        file.write_bytes(file.read_bytes().replace(b"\n", b"\nbroken\n", 1))
        assert main(["outcomes", "traces"]) == 0
        assert "note: 1 line of traces cannot be read" in capsys.readouterr().err
        assert document(capsys)["unreadable_lines"] == 1


class TestRows:
    def rows(self, output: Output, *options: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(said(output, *options, "--csv"))))

    def test_each_run_is_a_row(self, folder: Path, capsys: Output) -> None:
        write(folder, "r-1", story("escalated", "dns"))
        write(folder, "r-2", failing("timeout", "each[2]"))
        write(folder, "r-3", story()[:1])
        done, failed, unfinished = self.rows(capsys)
        assert list(done) == [
            "run_id", "runbook", "started", "mode", "actor", "status", "category", "code", "duration_seconds",
            "waited_seconds", "failure_kind", "failed_step", "violations", "trace",
        ]  # fmt: skip
        assert (done["status"], done["category"], done["code"], done["duration_seconds"]) == (
            "completed", "escalated", "dns", "4.2"
        )  # fmt: skip
        assert (done["waited_seconds"], unfinished["waited_seconds"]) == ("0.0", "")
        assert done["trace"] == "traces/r-1.jsonl"
        assert (failed["status"], failed["failure_kind"], failed["failed_step"]) == ("failed", "timeout", "each[2]")
        assert (unfinished["status"], unfinished["category"], unfinished["duration_seconds"]) == ("incomplete", "", "")

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            pytest.param("=1+1", "'=1+1", id="a formula"),
            pytest.param("+1", "'+1", id="a sum"),
            pytest.param("-1", "'-1", id="a difference"),
            pytest.param("@SUM(A1)", "'@SUM(A1)", id="a function"),
            pytest.param("\t=1", "'⇥=1", id="after a tab"),
            pytest.param("\r=1", "'\N{REPLACEMENT CHARACTER}=1", id="after a carriage return"),
            pytest.param(" =1", "' =1", id="after a space"),
            pytest.param("\N{FULLWIDTH EQUALS SIGN}1", "'\N{FULLWIDTH EQUALS SIGN}1", id="a wide formula"),
            pytest.param("a=1", "a=1", id="harmless"),
            pytest.param("", "", id="nothing"),
            pytest.param(None, "", id="none"),
            pytest.param(0, "0", id="a number"),
            pytest.param("a\nb", "a\N{REPLACEMENT CHARACTER}b", id="two lines"),
        ],
    )
    def test_no_cell_is_a_formula(self, value: str | float | None, written: str) -> None:
        assert cell(value) == written

    def test_cells_with_commas_and_quotes_come_back_whole(self, folder: Path, capsys: Output) -> None:
        write(folder, "r-1", story(code='a,"b"', runbook="=cmd|x"))
        [row] = self.rows(capsys)
        assert (row["code"], row["runbook"]) == ('a,"b"', "'=cmd|x")


class TestProgress:
    def test_it_is_silent_at_first_and_leaves_nothing_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [0.0]
        monkeypatch.setattr(progressing, "monotonic", lambda: clock[0])
        stream = io.StringIO()
        reading = Progress(stream)
        reading.on_read(5_000_000)
        reading.clear()
        assert stream.getvalue() == ""
        clock[0] = 1.5
        reading.on_read(5_000_000)
        reading.on_read(5_000_000)
        reading.clear()
        assert stream.getvalue() == "\r\x1b[Kreading traces: 10 MB\r\x1b[K"

    def test_without_a_terminal_no_progress_is_shown(self, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(progressing, "PATIENCE", 0.0)
        with progressing.progress() as reading:
            reading.on_read(1)
        assert capsys.readouterr().err == ""
