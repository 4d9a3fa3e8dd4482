"""Starting: whichever way a process is started, it finds the same, and where it cannot be, the same is said."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from ast import literal_eval
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.ecosystem.process.calls import PYTHON, SH, failed, run

from gert.ecosystem.process import descriptors
from gert.ecosystem.process.find_program import Programs

TEXT = {"it": {"from": "stdout", "trim": False}}
ROOT = Path(__file__).resolve().parents[3]
OTHER_MACHINE = b"\xb7\x00" if os.uname().machine != "aarch64" else b"\x3e\x00"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is in the folder tools run in: elsewhere there is one way only."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How processes were started, one after the other."""
    ways: list[str] = []

    def note(module: Any, name: str) -> None:
        real = getattr(module, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            ways.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)

    note(os, "posix_spawn")
    note(subprocess, "Popen")
    return ways


def text(argv: list[str], **options: Any) -> str:
    answer = run(argv, extract=TEXT, **options)
    assert answer.failure is None
    return str(answer.outputs["it"])


def apart(code: str, way: str, **options: Any) -> str:
    """Run Python in a process of its own, which starts tools this way; what it wrote."""
    lines = [
        "import os, sys",
        f"sys.path[:0] = {[*sys.path, str(ROOT)]!r}",
        "from gert.ecosystem.process import descriptors",
        "from tests.ecosystem.process.calls import run",
        f"TEXT = {TEXT!r}",
        "run(['true'])",  # whatever is loaded late is loaded
        "descriptors.keep_private()" if way != "Popen" else "",
        code,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False, timeout=60, **options
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


# --- which way


def test_a_process_is_started_the_quick_way_in_the_folder_of_this_one_only(
    here: Path, way: str, spawned: list[str]
) -> None:
    (here / "sub").mkdir()
    (here / "link").symlink_to(here)
    for folder in (here, here / "sub", here / "link"):
        run(["true"], working=str(folder))
    assert spawned == ["posix_spawn" if way != "Popen" else "Popen", "Popen", "Popen"]


def test_a_process_follows_its_folder_and_not_this_process(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "link").symlink_to(here / "sub")
    os.chdir(here / "link")
    assert [text([*SH, "pwd -P"], working=str(each)) for each in (here, here / "link", here / "sub")] == [
        f"{here}\n",
        f"{here}/sub\n",
        f"{here}/sub\n",
    ]


# --- what a process finds


def test_odd_variables_arrive_as_they_are() -> None:
    odd = {"EMPTY": "", "A b": "x", "\udcff": "\udcfe", "é": "日", "lower.dot": "1", "BASH_FUNC_x%%": "() { :; }"}
    code = "import os; print({k: v for k, v in os.environb.items() if k not in (b'PATH', b'LC_CTYPE', b'_GERT_CALL')})"
    found = text([*PYTHON, code], environment={"PATH": os.environ["PATH"], **odd})
    assert literal_eval(found) == {os.fsencode(name): os.fsencode(value) for name, value in odd.items()}


@pytest.mark.parametrize("name", ["", "=", "=B", "A=B"])
def test_a_variable_without_a_name_is_not_handed_on(name: str) -> None:
    found = text(["env"], environment={"PATH": os.environ["PATH"], name: "odd", "KEPT": "yes"})
    assert "KEPT=yes\n" in found
    assert "odd" not in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("", "`env`: `` is not a valid variable name", id="an empty name"),
        pytest.param("=B", "`env`: `=B` is not a valid variable name", id="a name that begins with ="),
        pytest.param("A=B", "`env`: `A=B` is not a valid variable name", id="a name with ="),
        pytest.param("A\0B", "`env` contains a NUL character", id="a name with NUL"),
    ],
)
def test_an_impossible_variable_is_refused(name: str, message: str) -> None:
    failed(run(["env"], action={"env": {name: "x"}}), "invalid_input", message)


def test_arguments_arrive_as_they_are() -> None:
    given = ["", "a b", "é日", "-", "--", "$HOME", "\n", "y" * 100_000]
    assert literal_eval(text([*PYTHON, "import sys; print(sys.argv[1:])", *given])) == given


@pytest.mark.parametrize(
    "action", [{"argv": ["echo", "é"]}, {"env": {"A": "é"}}, {"env": {"É": "a"}}, {"cwd": "é"}], ids=str
)
def test_what_the_encoding_of_the_system_does_not_know_is_refused(action: Mapping[str, Any], way: str) -> None:
    code = f"answer = run(['echo'], action={action!a}); print(answer.failure.kind, ascii(answer.failure.message))"
    ascii_only = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    assert "invalid_input" in (said := apart(code, way, env=ascii_only))
    assert "contains a character that the encoding `ascii` does not have" in said


def test_limits_mask_and_priority_are_inherited(way: str) -> None:
    code = """
import resource, signal
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
os.umask(0o027)
os.nice(3)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, 40})
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda *_: None)
# Without a shell in between, which has a mind of its own about signals.
for argv in (["sh", "-c", "umask; ulimit -n; nice"], ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]):
    sys.stdout.write(run(argv, extract=TEXT).outputs["it"])
"""
    umask, files, nice, blocked, ignored = apart(code, way).splitlines()
    assert (umask, files, nice) == ("0027", "100", str(min(os.nice(0) + 3, 19)))
    assert int(blocked.split()[1], 16) == 1 << (signal.SIGUSR1 - 1) | 1 << 39
    # Two signals are the C library's own, and nobody sees them.
    assert int(ignored.split()[1], 16) & ~(0b11 << 31) == 1 << (signal.SIGHUP - 1)


def test_no_process_has_a_terminal() -> None:
    assert "No such device" in text([*SH, "(: </dev/tty) 2>&1; true"])


# --- what cannot be started


def put(data: bytes, name: str = "it") -> None:
    Path(name).write_bytes(data)
    Path(name).chmod(0o755)


def another_machine() -> bytes:
    program = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes())
    program[18:20] = OTHER_MACHINE
    return bytes(program)


NEITHER = "it is neither a program for this machine nor a script with `#!`"


@pytest.mark.parametrize(
    ("made", "kind", "reason"),
    [
        pytest.param(lambda: b"echo hi\n", "transport", NEITHER, id="a script without #!"),
        pytest.param(lambda: b"", "transport", NEITHER, id="an empty file"),
        pytest.param(lambda: b"\x7fELF garbage", "transport", NEITHER, id="a broken program"),
        pytest.param(another_machine, "transport", NEITHER, id="a program of another machine"),
        pytest.param(lambda: b"#!/no/such\n", "not_found", "its interpreter was not found", id="no interpreter"),
        pytest.param(lambda: b"#!/bin/sh\r\n", "not_found", "its interpreter was not found", id="lines of Windows"),
        pytest.param(lambda: b"#!/tmp\n", "transport", "permission denied", id="a folder as interpreter"),
    ],
)
def test_a_file_that_is_no_program(made: Callable[[], bytes], kind: str, reason: str, spawned: list[str]) -> None:
    put(made())
    failed(run(["./it"]), kind, f"`./it` cannot be started: {reason}")
    assert len(spawned) == 1


def test_a_program_that_is_being_written() -> None:
    put(Path(shutil.which("true") or "/bin/true").read_bytes())
    with open("it", "r+b"):
        failed(run(["./it"]), "transport", "`./it` cannot be started: text file busy")


def test_a_program_that_goes_away_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Programs, "find", lambda *_: "/nowhere/it")
    failed(run(["it"]), "not_found", "`it` cannot be started: it was removed")


def test_too_many_processes(way: str) -> None:
    if os.getuid() != 0:
        pytest.skip("the limit of another user is wanted, so that nobody else is held up")
    code = """
import resource
os.chdir("/")
os.setgroups([])
os.setgid(65533)
os.setuid(65533)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
print(run(["true"], environment={"PATH": "/usr/bin:/bin"}).failure.message)
"""
    assert apart(code, way) == "`true` cannot be started: resource temporarily unavailable\n"


# --- the folder


def test_a_folder_that_was_removed(here: Path) -> None:
    here.rmdir()
    answer = run(["true"], working=str(here))
    failed(answer, "not_found", f"`true` cannot be started: the folder `{here}` does not exist")


def test_a_folder_that_was_moved_away(here: Path) -> None:
    here.rename(here.with_name("elsewhere"))
    failed(run(["true"], working=str(here)), "not_found", f"the folder `{here}` does not exist")


def test_a_folder_that_became_a_file(here: Path) -> None:
    here.rmdir()
    here.touch()
    failed(run(["true"], working=str(here)), "not_found", f"the folder `{here}` does not exist")


def test_a_folder_that_was_removed_and_made_again(here: Path) -> None:
    here.rmdir()
    here.mkdir()
    assert text([*SH, "touch made; pwd -P"], working=str(here)) == f"{here}\n"
    assert (here / "made").exists()


def test_a_name_found_from_a_folder_that_was_removed(here: Path) -> None:
    put(b"#!/bin/sh\n")
    (here / "sub").mkdir()
    os.chdir(here / "sub")
    (here / "sub").rmdir()
    answer = run(["it"], working=str(here), environment={"PATH": ".."})
    failed(answer, "not_found", "`it` was not found on PATH: the working folder was removed")


def test_a_folder_that_may_not_be_entered(way: str) -> None:
    if os.getuid() != 0:
        pytest.skip("root is wanted, to become somebody else")
    folder = tempfile.mkdtemp()  # for its owner alone
    code = f"""
os.chdir("/")
os.setgroups([])
os.setgid(65533)
os.setuid(65533)
print(run(["true"], working={folder!r}, environment={{"PATH": "/usr/bin:/bin"}}).failure.message)
"""
    try:
        assert apart(code, way) == f"`true` cannot be started: no permission to enter the folder `{folder}`\n"
    finally:
        os.rmdir(folder)


# --- descriptors


def test_a_descriptor_that_cannot_be_marked_keeps_the_promise_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(descriptors, "_private", Event())
    monkeypatch.setattr(os, "set_inheritable", refuse)
    descriptors.keep_private()
    assert not descriptors.are_private()


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="a Linux descriptor")
def test_a_descriptor_of_a_path_alone_is_marked_too(here: Path, way: str) -> None:
    descriptor = os.open(here, os.O_PATH)
    os.set_inheritable(descriptor, True)
    try:
        if way != "Popen":
            descriptors.keep_private()
        assert text([*PYTHON, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"]) == "['0', '1', '2']\n"
    finally:
        os.close(descriptor)
