"""`gert trace` as people and scripts use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kernel.events.traces import PRIVATE_KEY, rechained, trace
from tests.stored_runs import store_run

from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.foundation.signature import parse_key

ROOT = Path(__file__).resolve().parents[5]
RUN = "run-2026-02-28-001"
PUBLIC = str(PRIVATE_KEY.public_text)
SEALED, UNSIGNED = trace(PRIVATE_KEY), trace()
NAMED = "GERT_TRACE_KEY_PROD_2026"


def jsonl(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("GERT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "sealed.jsonl").write_bytes(jsonl(SEALED))
    (tmp_path / "plain.jsonl").write_bytes(jsonl(UNSIGNED))
    store_run(tmp_path / "runs.db", SEALED, [b"{}"])
    return tmp_path


class TestVerify:
    def test_a_sealed_trace_holds(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv(NAMED, PUBLIC)
        assert main(["trace", "verify", "sealed.jsonl", "--key-id", "prod-2026"]) == 0
        head = json.loads(SEALED[-1])["prev_hash"]
        assert capsys.readouterr().out.splitlines() == [
            "✓ Chain integrity: 6 events, no breaks",
            "✓ Complete: `run_complete` at line 6",
            f"✓ Chain head: the head is {head}",
            "✓ Signature valid: signed by key `prod-2026`",
            "✓ Seal valid: `run_complete` signed by key `prod-2026`",
        ]

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param(["sealed.jsonl"], id="a file"),
            pytest.param(["sealed.jsonl", "--run", RUN], id="a file of a run"),
            pytest.param(["--db", "runs.db"], id="the only run of a database"),
            pytest.param(["--db", "runs.db", "--run", RUN], id="a run of a database"),
        ],
    )
    def test_the_key_of_a_trace_is_found_by_its_label(
        self, given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv(NAMED, PUBLIC)
        assert main(["trace", "verify", *given]) == 0
        assert "✓ Signature valid: signed by key `prod-2026`" in capsys.readouterr().out

    def test_standard_input_is_a_trace(self) -> None:
        command = [sys.executable, "-m", "gert", "trace", "verify", "-", "--json"]
        done = subprocess.run(command, input=jsonl(SEALED), capture_output=True, cwd=ROOT, timeout=60, check=False)
        assert (done.returncode, json.loads(done.stdout)["valid"]) == (0, True)
        done = subprocess.run(command, input=jsonl(SEALED)[:-1], capture_output=True, cwd=ROOT, timeout=60, check=False)
        assert (done.returncode, json.loads(done.stdout)["torn"]) == (1, "it has no line break")

    @pytest.mark.parametrize(
        ("file", "note"),
        [
            pytest.param("plain.jsonl", "- Signature not checked: the trace is not signed", id="not signed"),
            pytest.param("sealed.jsonl", "- Signature not checked: the trace is signed, and no key", id="no key"),
        ],
    )
    def test_what_was_not_checked_is_said(self, file: str, note: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", "verify", file]) == 0
        out = capsys.readouterr().out
        assert note in out
        assert "no signature was checked" in out

    @pytest.mark.parametrize(
        ("environ", "options"),
        [
            pytest.param({NAMED: PUBLIC}, [], id="a key is held"),
            pytest.param({"GERT_TRACE_SIGNING_KEY": "a shared secret"}, [], id="the signing key is held"),
            pytest.param({}, ["--key-id", "prod-2026"], id="a key is named"),
            pytest.param({}, ["--require-signature"], id="a signature is required"),
        ],
    )
    def test_an_unsigned_trace_fails_where_a_signature_is_demanded(
        self,
        environ: dict[str, str],
        options: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        assert main(["trace", "verify", "plain.jsonl", *options]) == 1
        said = capsys.readouterr()
        assert "✗ Signature invalid: the trace is not signed" in said.out
        assert ("no key to verify with is set" in said.err) is bool(options)

    def test_a_missing_key_is_told_where_to_be_put(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", "verify", "sealed.jsonl", "--key-id", "prod-2026"]) == 1
        assert f"set `{NAMED}`" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            pytest.param(jsonl([*SEALED[:2], *SEALED[3:]]), "✗ Chain broken: the chain breaks at line 3", id="removed"),
            pytest.param(
                jsonl(SEALED[:-1]), "✗ Incomplete: the trace is incomplete: there is no", id="the end is gone"
            ),
            pytest.param(jsonl(SEALED)[:-1], "✗ Incomplete: the trace is incomplete: its last line", id="torn"),
            pytest.param(jsonl(rechained(SEALED[1:])), "✗ Signature invalid:", id="rewritten"),
            pytest.param(jsonl([*SEALED, b"{}"]), "✗ Incomplete", id="something follows"),
            pytest.param(b"", "✗ Chain broken: there are no events", id="an empty file"),
            pytest.param(b"\x1b[2J\n" * 3, "  line 1: the line is not JSON", id="something else"),
        ],
    )
    @pytest.mark.parametrize("quiet", [False, True])
    def test_a_trace_that_does_not_hold_exits_with_1(
        self,
        content: bytes,
        said: str,
        quiet: bool,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv(NAMED, PUBLIC)
        (folder / "x.jsonl").write_bytes(content)
        assert main(["trace", "verify", "x.jsonl", *(["--quiet"] if quiet else [])]) == 1
        out = capsys.readouterr().out
        assert said in out
        assert "\x1b" not in out
        assert ("✓" in out) <= (not quiet)

    def test_quiet_is_irrelevant_of_what_holds(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", "verify", "plain.jsonl", "-q"]) == 0
        assert capsys.readouterr() == ("", "")

    def test_many_breaks_are_counted(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "x.jsonl").write_bytes(b"x\n" * 50)
        assert main(["trace", "verify", "x.jsonl", "-q"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "✗ Chain broken: there are no events"
        assert lines[1].startswith("  line 1: the line is not JSON")
        assert "  and 39 more breaks" in lines

    def test_a_break_is_not_said_twice(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "x.jsonl").write_bytes(jsonl([UNSIGNED[0], *UNSIGNED[2:]]))
        assert main(["trace", "verify", "x.jsonl", "-q"]) == 1
        assert capsys.readouterr().out.splitlines() == [
            "✗ Chain broken: the chain breaks at line 2: `prev_hash` is not the hash of the line before",
            "  line 2: expected event number 2, found 3",
        ]

    def test_json_carries_everything(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv(NAMED, PUBLIC)
        assert main(["trace", "verify", "sealed.jsonl", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [check["number"] for check in report.pop("checks")] == [1, 2, 3, 4, 5]
        assert len(report.pop("head")) == 64
        assert report == {
            "valid": True,
            "proven": True,
            "trace": "sealed.jsonl",
            "run_id": RUN,
            "events": 6,
            "complete": True,
            "signed_by": "prod-2026",
            "sealed": 6,
            "after_seal": 0,
            "torn": None,
            "breaks": [],
            "break_count": 0,
        }

    def test_json_names_the_breaks(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "x.jsonl").write_bytes(jsonl([*UNSIGNED[:2], *UNSIGNED[3:]]))
        assert main(["trace", "verify", "x.jsonl", "--json"]) == 1
        report = json.loads(capsys.readouterr().out)
        assert (report["valid"], report["break_count"]) == (False, 2)
        assert [(each["line"], each["kind"]) for each in report["breaks"]] == [(3, "prev_hash"), (3, "seq")]

    @pytest.mark.parametrize("secret", ["pssst", "base64:pssst!", "ed25519:cHNzc3Q="])
    def test_a_bad_key_exits_with_1_and_is_not_shown(
        self, secret: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("GERT_TRACE_SIGNING_KEY", secret)
        assert main(["trace", "verify", "sealed.jsonl"]) == 1
        said = capsys.readouterr()
        assert "`GERT_TRACE_SIGNING_KEY` does not hold a valid key" in said.err
        assert secret not in said.out + said.err


@pytest.mark.parametrize("what", ["verify", "show", "export"])
class TestWhatCannotBeFound:
    @pytest.mark.parametrize(
        ("given", "code", "message"),
        [
            pytest.param([], 2, "expected a trace", id="nothing"),
            pytest.param(["none.jsonl"], 2, "there is no file `none.jsonl`", id="no such file"),
            pytest.param(["--db", "none.db"], 2, "there is no file `none.db`", id="no such database"),
            pytest.param(["sealed.jsonl", "--db", "runs.db"], 2, "found both", id="two traces"),
            pytest.param(["--db", "runs.db", "--run", "x"], 2, "there is no run `x`", id="no such run"),
            pytest.param(["--db", "sealed.jsonl"], 1, "is not a database", id="no database"),
            pytest.param(["."], 1, "is not a regular file", id="a folder"),
        ],
    )
    def test_is_said(
        self, what: str, given: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", what, *given]) == code
        said = capsys.readouterr()
        assert message in said.err
        assert said.out == ""

    def test_several_runs_are_listed(self, what: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        store_run(folder / "runs.db", [SEALED[0].replace(RUN.encode(), b"another")])
        assert main(["trace", what, "--db", "runs.db"]) == 2
        assert f"name one: `another`, `{RUN}`" in capsys.readouterr().err

    def test_help_has_an_example(self, what: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", what, "--help"]) == 0
        assert f"Example: gert trace {what}" in capsys.readouterr().out


class TestExport:
    @pytest.mark.parametrize(
        "given",
        [
            pytest.param(["sealed.jsonl"], id="from a file"),
            pytest.param(["--db", "runs.db", "--run", RUN], id="from a database"),
        ],
    )
    def test_is_byte_for_byte(self, given: list[str], folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        assert main(["trace", "export", *given]) == 0
        assert capfdbinary.readouterr().out == jsonl(SEALED)
        assert main(["trace", "export", *given, "--output", "out.jsonl"]) == 0
        assert (folder / "out.jsonl").read_bytes() == jsonl(SEALED)
        assert (folder / "out.jsonl").stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(jsonl(SEALED)[:-20], id="a torn trace"),
            pytest.param(b"\r\n\x00\xff" * 100, id="something else"),
            pytest.param(b"x" * (17 * 1024 * 1024), id="a line without end"),
            pytest.param(b"", id="nothing"),
        ],
    )
    def test_leaves_nothing_out(self, content: bytes, folder: Path) -> None:
        (folder / "x.jsonl").write_bytes(content)
        assert main(["trace", "export", "x.jsonl", "-o", "out.jsonl"]) == 0
        assert (folder / "out.jsonl").read_bytes() == content

    @pytest.mark.parametrize(
        ("output", "message"),
        [
            pytest.param("sealed.jsonl", "`sealed.jsonl` exists already", id="the trace itself"),
            pytest.param("plain.jsonl", "`plain.jsonl` exists already", id="another file"),
            pytest.param("none/out.jsonl", "there is no folder `none`", id="no such folder"),
        ],
    )
    def test_writes_new_files_only(
        self, output: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["trace", "export", "sealed.jsonl", "--output", output]) == 2
        assert message in capsys.readouterr().err
        assert (folder / "sealed.jsonl").read_bytes() == jsonl(SEALED)

    def test_leaves_no_half_file(self, folder: Path) -> None:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(folder / "runs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE events SET line = 'text' WHERE seq = 4")
        assert main(["trace", "export", "--db", "runs.db", "-o", "out.jsonl"]) == 1
        assert not (folder / "out.jsonl").exists()

    def test_a_full_disk_is_said(self) -> None:
        command = [sys.executable, "-m", "gert", "trace", "export", "sealed.jsonl"]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
        assert done.returncode == 4
        assert done.stderr.startswith(b"error: system error: no space left on device\n")

    def test_an_export_verifies(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(NAMED, PUBLIC)
        assert main(["trace", "export", "--db", "runs.db", "-o", "out.jsonl"]) == 0
        assert main(["trace", "verify", "out.jsonl", "--key-id", "prod-2026"]) == 0


class TestShow:
    def test_json_is_one_object_per_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", "show", "sealed.jsonl", "--json"]) == 0
        out = capsys.readouterr().out
        assert [json.loads(line) for line in out.splitlines()] == [json.loads(line) for line in SEALED]
        assert out.isascii()

    def test_lines_that_cannot_be_read_are_reported_and_the_others_shown(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        deep = SEALED[2].replace(b'"data":{', b'"data":{"deep":' + b"[" * 100_000)
        (folder / "x.jsonl").write_bytes(jsonl([SEALED[0], b"\x1b[31m", deep, SEALED[3]]) + SEALED[4][:9])
        assert main(["trace", "show", "x.jsonl", "--json"]) == 0
        said = capsys.readouterr()
        assert [json.loads(line)["seq"] for line in said.out.splitlines()] == [1, 4]
        assert [line.split(":")[1] for line in said.err.splitlines()] == [" line 2", " line 3", " line 5"]
        assert "\x1b" not in said.err

    def test_many_of_them_are_counted(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "x.jsonl").write_bytes(jsonl([SEALED[0], *[b"x"] * 100, SEALED[1]]))
        assert main(["trace", "show", "x.jsonl", "--json"]) == 0
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 11
        assert said[-1] == "error: 90 more lines cannot be read"

    @pytest.mark.parametrize("depth", [100, 300, 900, 990, 1000, 1100])
    def test_what_is_nested_deep_is_no_internal_error(
        self, depth: int, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        deep = SEALED[2].replace(b'"data":{', b'"data":{"deep":' + b"[" * depth + b"]" * depth + b",")
        (folder / "x.jsonl").write_bytes(jsonl([SEALED[0], deep]))
        assert main(["trace", "show", "x.jsonl", "--json"]) == 0
        assert "internal" not in capsys.readouterr().err

    @pytest.mark.parametrize("content", [b"", b"x\n", b"\n\n\n"])
    def test_a_trace_without_events_exits_with_1(
        self, content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "x.jsonl").write_bytes(content)
        assert main(["trace", "show", "x.jsonl", "--json"]) == 1
        assert "error: there are no events\n" in capsys.readouterr().err

    @pytest.mark.parametrize("options", [[], ["--verbose"]])
    def test_people_see_a_timeline(self, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["trace", "show", "--db", "runs.db", *options]) == 0
        said = capsys.readouterr()
        assert "restart" in said.out
        assert said.err == ""


def test_the_public_key_is_all_an_auditor_needs() -> None:
    assert not parse_key(PUBLIC).can_sign
