"""Where traces are found, and what is read from good, torn, foreign and hostile ones."""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.kernel.events.traces import OUTCOME, STORY, trace
from tests.stored_runs import store_run

from gert.ecosystem.host.runs import outcome_scan as scanning
from gert.ecosystem.host.runs.outcome_scan import Scan, Sources, sources_for
from gert.errors import DocumentError, UsageError
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import MAX_LINE_BYTES, Envelope, decode
from gert.kernel.events.outcomes import OutcomeReport, Selection, distinct
from gert.kernel.events.summary import RunSummary

RUN = "run-2026-02-28-001"
LINES = trace()
WHOLE = b"".join(line + b"\n" for line in LINES)


def renamed(run_id: str, text: bytes = WHOLE) -> bytes:
    return text.replace(RUN.encode(), run_id.encode())


def read(*paths: Path | str, selection: Selection | None = None) -> tuple[list[RunSummary], Scan]:
    scan = Scan(selection or Selection())
    return list(distinct(scan.runs(Sources(tuple(map(str, paths)))))), scan


def reasons(scan: Scan) -> list[str]:
    return [each.reason for each in scan.skipped]


class TestPlaces:
    def test_without_a_name_the_ledger_of_the_state_directory_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "gert-project.yaml").write_text("name: p\ntraces: { dir: t }\n")
        places = sources_for((), None, None, str(tmp_path), {})
        assert places.names == (str(tmp_path / "runs" / "ledger.db"),)

    def test_what_is_named_is_searched_and_nothing_else(self, tmp_path: Path) -> None:
        file = tmp_path / "one.jsonl"
        file.touch()
        environ = {"GERT_TRACES_DIR": "/elsewhere", "GERT_STATE_DIR": "/state"}
        assert sources_for((str(file),), None, None, str(tmp_path), environ) == Sources((str(file),))
        assert sources_for((), str(file), None, str(tmp_path), environ) == Sources(databases=(str(file),))

    def test_a_state_directory_that_is_named_is_searched_too(self, tmp_path: Path) -> None:
        state = str(tmp_path / "state")
        ledgers = sources_for((str(tmp_path),), None, state, str(tmp_path), {}).databases
        assert ledgers == (str(tmp_path / "state" / "runs" / "ledger.db"),)

    @pytest.mark.parametrize(("path", "db"), [("nope", None), (None, "nope.db"), ("a\0b", None)])
    def test_what_is_not_there_is_a_mistake(self, path: str | None, db: str | None, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="there is no file"):
            sources_for(() if path is None else (path,), db, None, str(tmp_path), {})


class TestFinding:
    @pytest.mark.parametrize("places", [Sources(("/nope/a",)), Sources(databases=("/nope/b",)), Sources()])
    def test_a_place_that_is_not_there_yet_is_empty(self, places: Sources) -> None:
        scan = Scan(Selection())
        assert (list(scan.runs(places)), scan.skipped_count) == ([], 0)

    def test_folders_are_searched_to_any_depth_in_a_stable_order(self, tmp_path: Path) -> None:
        for name in ["b/c/z", "b/a", "a", "B"]:
            file = tmp_path / f"{name}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(renamed(name.replace("/", "-")))
        (tmp_path / "a.json").write_bytes(WHOLE)
        runs, _ = read(tmp_path)
        assert [run.run_id for run in runs] == ["B", "a", "b-a", "b-c-z"]
        assert runs[-1].trace == str(tmp_path / "b" / "c" / "z.jsonl")

    @pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
    def test_links_are_followed_and_loops_end(self, tmp_path: Path) -> None:
        inside, outside = tmp_path / "in" / "deep", tmp_path / "out"
        inside.mkdir(parents=True)
        outside.mkdir()
        (inside / "loop").symlink_to(tmp_path / "in")
        (inside / "out").symlink_to(outside)
        (inside / "again").symlink_to(outside)
        (outside / "one.jsonl").write_bytes(WHOLE)
        (inside / "nowhere.jsonl").symlink_to(tmp_path / "nope")
        runs, scan = read(tmp_path / "in")
        assert ([run.run_id for run in runs], scan.traces) == ([RUN], 1)
        assert reasons(scan) == ["it cannot be read: no such file or directory"]

    @pytest.mark.skipif(sys.platform == "win32", reason="paths are too short there")
    def test_folders_may_be_nested_deeper_than_python_likes(self, tmp_path: Path) -> None:
        before, depth = os.getcwd(), 1_200
        os.chdir(tmp_path)
        try:
            for _ in range(depth):
                os.mkdir("d")
                os.chdir("d")
            Path("one.jsonl").write_bytes(WHOLE)
            runs, scan = read(tmp_path)
            # Whoever tidies up after the tests may not like it either.
            Path("one.jsonl").unlink()
            for _ in range(depth):
                os.chdir("..")
                os.rmdir("d")
        finally:
            os.chdir(before)
        assert ([run.run_id for run in runs], scan.skipped) == ([RUN], [])

    def test_one_file_is_read_once_whatever_it_is_called(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        os.link(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
        _, scan = read(tmp_path, tmp_path / "a.jsonl")
        assert scan.traces == 1

    def test_a_copy_is_the_same_run(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(b"".join(line + b"\n" for line in LINES[:3]))
        (tmp_path / "b.jsonl").write_bytes(WHOLE)
        runs, scan = read(tmp_path)
        assert [(run.run_id, run.status) for run in runs] == [(RUN, "completed")]
        assert scan.traces == 2


class TestNoTraces:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            pytest.param(b"", "it is empty", id="an empty file"),
            pytest.param(b'{"key":"a","answer":{}}\n', "its first line is not an event", id="answers"),
            pytest.param(b"hello\n", "its first line is not an event", id="text"),
            pytest.param(b"\n" + WHOLE, "its first line is not an event", id="an empty first line"),
            pytest.param(b"\xff\xfe\x00" * 100, "its first line is not an event", id="bytes"),
            pytest.param(b"[" * 100_000, "its first line is not an event", id="nested without end"),
            pytest.param(LINES[2] + b"\n", "it begins with `step_start`, and not with `run_start`", id="cut off"),
            pytest.param(LINES[0][:-9], "its first line is not an event", id="a torn first line"),
            pytest.param(b"SQLite format 3\x00....", "it is a database: read it with `--db`", id="a database"),
        ],
    )
    def test_a_file_that_is_no_trace_is_passed_over(self, content: bytes, reason: str, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(content)
        (tmp_path / "b.jsonl").write_bytes(WHOLE)
        runs, scan = read(tmp_path)
        assert [run.run_id for run in runs] == [RUN]
        assert [(each.file, each.reason) for each in scan.skipped] == [(str(tmp_path / "a.jsonl"), reason)]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "a.jsonl")
        _, scan = read(tmp_path)
        assert reasons(scan) == ["it is not a regular file"]

    @pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="nothing is forbidden to root")
    def test_what_may_not_be_read_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        (tmp_path / "a.jsonl").chmod(0)
        (tmp_path / "shut").mkdir(mode=0)
        _, scan = read(tmp_path)
        assert reasons(scan) == ["it cannot be read: permission denied"] * 2

    def test_only_so_many_are_remembered_and_all_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scanning, "MOST_SKIPPED", 2)
        for n in range(5):
            (tmp_path / f"{n}.jsonl").touch()
        _, scan = read(tmp_path)
        assert (len(scan.skipped), scan.skipped_count) == (2, 5)


class TestReading:
    @pytest.mark.parametrize(
        ("content", "status", "unreadable"),
        [
            pytest.param(WHOLE, "completed", 0, id="a whole trace"),
            pytest.param(WHOLE[:-1], "completed", 0, id="only the last line break is missing"),
            pytest.param(WHOLE[:-20], None, 0, id="the last line is torn"),
            pytest.param(LINES[0] + b"\n" + b'{"seq":2,"run', None, 0, id="the second line is torn"),
            pytest.param(LINES[0], None, 0, id="nothing but the start"),
            pytest.param(WHOLE.replace(b"\n", b"\r\n"), "completed", 0, id="line breaks of Windows"),
            pytest.param(WHOLE.replace(b"\n", b"\n\n"), "completed", 5, id="empty lines"),
            pytest.param(WHOLE.replace(LINES[2], b"\x00\x00"), "completed", 1, id="zeros in the middle"),
            pytest.param(WHOLE + b"garbage\nmore\n", "completed", 1, id="lines after the end"),
            pytest.param(
                b"".join(msgspec.json.format(line, indent=-1) + b"\n" for line in LINES), "completed", 0, id="compact"
            ),
            pytest.param(
                b"".join(msgspec.json.format(line, indent=0) + b"\n" for line in LINES), "completed", 0, id="spaced"
            ),
        ],
    )
    def test_what_is_left_of_a_trace_counts(
        self, content: bytes, status: str | None, unreadable: int, tmp_path: Path
    ) -> None:
        (tmp_path / "a.jsonl").write_bytes(content)
        [run], scan = read(tmp_path)
        assert (run.runbook, run.status, scan.unreadable) == ("service-health-check", status, unreadable)

    @pytest.mark.parametrize("size", [1, 2, 7, 64, 301, 1 << 20])
    def test_lines_are_the_same_however_a_file_is_cut(
        self, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scanning, "_CHUNK", size)
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        [run], scan = read(tmp_path)
        assert (run.status, run.code, scan.unreadable) == ("completed", OUTCOME.code, 0)

    def test_a_line_that_is_too_long_is_one_that_cannot_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = b'{"x":"' + b"x" * (MAX_LINE_BYTES * 3) + b'"}'
        (tmp_path / "a.jsonl").write_bytes(b"\n".join([LINES[0], long, *LINES[1:]]) + b"\n")
        held: list[int] = []

        def measuring(line: bytes) -> Envelope:
            held.append(len(line))
            return decode(line)

        monkeypatch.setattr(scanning, "decode", measuring)
        [run], scan = read(tmp_path)
        assert (run.status, scan.unreadable) == ("completed", 1)
        assert max(held) == MAX_LINE_BYTES + 1

    def test_only_events_that_matter_are_decoded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        seen: list[str] = []

        def noting(line: bytes) -> Envelope:
            event = decode(line)
            seen.append(event.type)
            return event

        monkeypatch.setattr(scanning, "decode", noting)
        read(tmp_path)
        assert seen == ["run_start", "outcome_resolved", "run_complete"]

    def test_events_of_another_run_do_not_count(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_bytes(LINES[0] + b"\n" + renamed("other"))
        [run], scan = read(tmp_path)
        assert (run.run_id, run.status) == (RUN, None)
        assert reasons(scan) == ["it also holds events of another run, which do not count"]

    def test_a_notification_after_the_end_changes_nothing(self, tmp_path: Path) -> None:
        sent = says.WebhookSent(url="https://example.com", delivered=False, attempts=3)
        lines = trace(story=[*STORY, (sent, None, None)])
        (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        [run], _ = read(tmp_path)
        assert (run.status, run.category) == ("completed", "resolved")

    @pytest.mark.parametrize(
        ("selection", "why"),
        [
            pytest.param(Selection(mode="replay"), "mode", id="another mode"),
            pytest.param(Selection(runbook="other"), "runbook", id="another runbook"),
        ],
    )
    def test_a_run_that_does_not_count_is_counted_as_such_once(
        self, selection: Selection, why: str, tmp_path: Path
    ) -> None:
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        (tmp_path / "copy.jsonl").write_bytes(WHOLE)
        runs, scan = read(tmp_path, selection=selection)
        assert (runs, dict(scan.passed_over)) == ([], {why: 1})
        assert scan.other_runbooks == ({"service-health-check"} if why == "runbook" else set())

    def test_of_a_run_that_does_not_count_nothing_more_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scanning, "_CHUNK", 1024)
        (tmp_path / "a.jsonl").write_bytes(WHOLE + WHOLE * 50)
        bytes_read: list[int] = []
        assert list(Scan(Selection(mode="replay"), bytes_read.append).runs(Sources((str(tmp_path),)))) == []
        assert sum(bytes_read) <= 1024


class TestDatabases:
    def test_every_run_of_a_database_is_read(self, tmp_path: Path) -> None:
        for name in ["r-1", "r-2"]:
            store_run(tmp_path / "runs.db", renamed(name).splitlines())
        scan = Scan(Selection())
        runs = list(scan.runs(Sources(databases=(str(tmp_path / "runs.db"),))))
        assert {(run.run_id, run.category) for run in runs} == {("r-1", "resolved"), ("r-2", "resolved")}

    def test_the_head_of_a_run_says_what_its_trace_says(self, tmp_path: Path) -> None:
        violated = [
            (says.ContractViolation(step_id=step, kind="missing_output", severity="error", message="m"), None, None)
            for step in ("each[1]", "each[2]", "other")
        ]
        forced = (
            says.BreakGlass(step_id="each[1]", overridden="deny", risk_level="high", actor="Ann Lee", reason="r"),
            None,
            None,
        )
        lines = trace(story=[STORY[0], *violated, forced, *STORY[1:]])
        store_run(tmp_path / "runs.db", lines)
        (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        reports = []
        for sources in (Sources((str(tmp_path / "a.jsonl"),)), Sources(databases=(str(tmp_path / "runs.db"),))):
            report = OutcomeReport()
            for run in Scan(Selection()).runs(sources):
                report.add(run)
            reports.append([each.as_data() for each in report.runbooks])
        assert reports[0] == reports[1]
        assert reports[0][0]["break_glass"]["by"] == [{"actor": "Ann Lee", "step": "each", "uses": 1}]

    def test_a_run_that_is_exported_too_counts_once(self, tmp_path: Path) -> None:
        store_run(tmp_path / "runs.db", LINES)
        (tmp_path / "a.jsonl").write_bytes(WHOLE)
        places = Sources((str(tmp_path / "a.jsonl"),), (str(tmp_path / "runs.db"),))
        assert len(list(distinct(Scan(Selection()).runs(places)))) == 1

    def test_a_run_that_is_none_keeps_no_other_from_being_read(self, tmp_path: Path) -> None:
        store_run(tmp_path / "runs.db", renamed("r-0").splitlines())
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as ledger:
            ledger.execute("UPDATE runs SET snapshot = CAST('x' AS BLOB) WHERE run_id = 'r-0'")
        store_run(tmp_path / "runs.db", LINES)
        scan = Scan(Selection())
        runs = list(scan.runs(Sources(databases=(str(tmp_path / "runs.db"),))))
        assert [run.run_id for run in runs] == [RUN]
        assert scan.skipped[0].file.endswith("runs.db: r-0")

    def test_another_database_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x.db").write_bytes(b"not a database at all")
        with pytest.raises(DocumentError, match="is not a database"):
            list(Scan(Selection()).runs(Sources(databases=(str(tmp_path / "x.db"),))))
