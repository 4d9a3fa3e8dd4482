"""The stdio transport: exits, streams, standard input, limits, and what a process leaves running."""

import asyncio
import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.ecosystem.process.calls import PYTHON, SH, call, failed, finished, run, stdio, tool_of

from gert.ecosystem.process import descriptors
from gert.ecosystem.process.capture import KEPT_IN_LOG
from gert.kernel.engine.requests import ToolAnswer

TEXT = {"it": {"from": "stdout", "trim": False}}
JSON = {"it": {"from": "json"}}


# --- exits


def test_a_success_has_outputs_and_says_what_it_printed() -> None:
    answer = run(
        [*SH, "echo 42; echo note >&2"],
        extract={"n": {"from": "stdout"}, "e": {"from": "stderr", "trim": False}, "c": {"from": "exit_code"}},
        outputs={"n": {"type": "int"}, "e": {"type": "string"}, "c": {"type": "int"}},
    )
    assert answer.outputs == {"n": 42, "e": "note\n", "c": 0}
    assert (answer.exit_code, answer.stdout, answer.stderr, answer.failure) == (0, "42\n", "note\n", None)
    assert answer.redacted == 0
    assert answer.duration >= 0
    assert answer.duration == round(answer.duration, 3)


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        pytest.param("exit 1", 1, "`sh` exited with 1", id="without a word"),
        pytest.param("echo out; echo err >&2; exit 2", 2, "`sh` exited with 2: err", id="stderr says why"),
        pytest.param("echo out; exit 3", 3, "`sh` exited with 3: out", id="or else stdout"),
        pytest.param("printf 'a\\nb\\n\\n  \\n' >&2; exit 4", 4, "`sh` exited with 4: b", id="the last line not empty"),
        pytest.param("echo; echo ' ' >&2; exit 255", 255, "`sh` exited with 255", id="only white space"),
        pytest.param("printf '\\033[31mred\\007' >&2; exit 1", 1, "`sh` exited with 1: �[31mred�", id="no tricks"),
        pytest.param("printf 'x%.0s' $(seq 500) >&2; exit 1", 1, f"`sh` exited with 1: {'x' * 199}…", id="a long line"),
        pytest.param("kill -TERM $$", 143, "`sh` was killed by SIGTERM", id="a signal"),
        pytest.param("echo why >&2; kill -KILL $$", 137, "`sh` was killed by SIGKILL", id="a kill signal"),
        pytest.param("kill -40 $$", 168, "`sh` was killed by signal 40", id="a signal without a name"),
    ],
)  # fmt: skip
def test_an_exit_that_is_no_success(script: str, code: int, message: str) -> None:
    answer = run([*SH, script])
    assert answer.exit_code == code
    assert answer.failure is not None
    assert (answer.failure.kind, answer.failure.message) == ("exit_code", message)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param(["tar", "--nope"], "tar: unrecognized option '--nope'", id="tar"),
        pytest.param(["grep", "--nope"], "grep: unrecognized option '--nope'", id="grep"),
        pytest.param(["git", "commit", "--nope"], "error: unknown option `nope'", id="git and its usage"),
        pytest.param(["git", "-C", "/", "status"], "fatal: not a git repository (or any", id="git"),
        pytest.param(["openssl", "req", "-nope"], "req: Unknown option", id="openssl"),
        pytest.param(["sqlite3", "-nope"], "sqlite3: Error: unknown option: -nope", id="sqlite3"),
        pytest.param([*PYTHON, "1/0"], "ZeroDivisionError: division by zero", id="a traceback"),
        pytest.param([*PYTHON, "import argparse; argparse.ArgumentParser('x').parse_args(['y'])"],
                     "x: error: unrecognized arguments: y", id="argparse"),
    ],
)  # fmt: skip
def test_real_programs_say_why_they_failed_and_not_where_their_help_is(command: list[str], reason: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    answer = run(command)
    assert answer.failure is not None
    assert f"exited with {answer.exit_code}: {reason}" in answer.failure.message


def test_after_a_failed_exit_outputs_are_best_effort() -> None:
    """DECISIONS 15."""
    extract = {"a": {"from": "stdout", "pattern": "a=(.)"}, "b": {"from": "stdout", "pattern": "b=(.)"}}
    answer = run([*SH, "echo a=1; exit 1"], extract=extract, outputs={"a": {}, "b": {"required": True}})
    assert answer.outputs == {"a": "1"}
    failed(answer, "exit_code", "exited with 1")


def test_an_output_that_is_not_found_is_a_failure() -> None:
    answer = run([*SH, "echo nothing of use"], extract={"n": {"from": "stdout", "pattern": "[0-9]+"}})
    failed(answer, "extraction", "output `n` of action `go`: expected text that matches `[0-9]+` on stdout")
    assert answer.exit_code == 0


def test_the_system_refusing_to_start_a_process_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EAGAIN, "no more processes, says /some/path")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    failed(run(["true"]), "transport", "`true` cannot be started: resource temporarily unavailable")


def test_an_error_without_a_number_is_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("unknown")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "posix_spawn", refuse)
    failed(run(["true"]), "transport", "cannot be started: the system gives no reason")


def test_running_out_of_descriptors_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise OSError(errno.EMFILE, "too many")

    transport, tool = stdio(), tool_of({"argv": ["cat"], "stdin": "x"})

    async def scarce() -> ToolAnswer:
        monkeypatch.setattr(os, "pipe", refuse)
        return await call(transport, tool)

    failed(finished(scarce), "transport", "too many open files")


# --- text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param("os.write(1, 'é日本🦀'.encode())", "é日本🦀", id="any script"),
        pytest.param("os.write(1, b'\\xe6'); time.sleep(.02); os.write(1, b'\\x97\\xa5')", "日", id="one in two parts"),
        pytest.param("os.write(1, b'a\\0b\\r\\n')", "a\0b\r\n", id="NUL and carriage return stay"),
        pytest.param("os.write(1, '\\ufdd0token\\ufdd1'.encode())", "�token�", id="a tool cannot print a reference"),
    ],
)
def test_what_is_printed_becomes_text(code: str, text: str) -> None:
    answer = run([*PYTHON, f"import os, time; {code}"], extract=TEXT)
    assert answer.outputs == {"it": text}
    assert answer.stdout == text


@pytest.mark.parametrize(
    ("printed", "text", "logged"),
    [
        pytest.param(r"a\xff\xfeb", "a��b", r"a\xff\xfeb", id="two bad bytes"),
        pytest.param(r"a\xe6\x97", "a�", r"a\xe6\x97", id="half a character at the end"),
        pytest.param(r"\xed\xa0\x80", "���", r"\xed\xa0\x80", id="an encoded surrogate"),
        pytest.param(r"\xe6\x97\xe6\x97\xa5", "�日", r"\xe6\x97日", id="half a character before a whole one"),
    ],
)
def test_bytes_that_are_not_utf_8_are_extracted_as_u_fffd_and_logged_as_they_are(
    printed: str, text: str, logged: str
) -> None:
    answer = run([*PYTHON, f"import os; os.write(1, b'{printed}')"], extract=TEXT)
    assert answer.outputs == {"it": text}
    assert answer.stdout == logged


def test_a_reference_spelled_in_json_is_not_one_either() -> None:
    answer = run([*PYTHON, r"""print('{"a\\ufdd0": "\\ufdd0token\\ufdd1"}')"""], extract=JSON)
    assert answer.outputs == {"it": {"a�": "�token�"}}


def test_json_that_is_none_is_a_failure() -> None:
    failed(run([*SH, "echo '{'"], extract=JSON), "extraction", "expected JSON on stdout, found `{\\n`")


def test_a_nesting_bomb_is_a_failure() -> None:
    failed(run([*PYTHON, "print('[' * 3_000_000)"], extract=JSON), "extraction", "nested too deeply")


def test_an_answer_holds_everything_up_to_a_bound() -> None:
    answer = run([*PYTHON, f"import sys; print('é' * 20_000); print('x' * {KEPT_IN_LOG - 1}, file=sys.stderr)"])
    assert answer.stdout == "é" * 20_000 + "\n"
    assert answer.stderr == "x" * (KEPT_IN_LOG - 1) + "\n"


@pytest.mark.parametrize("limit", [3 * KEPT_IN_LOG, KEPT_IN_LOG // 4], ids=["below the limit", "above the limit"])
def test_of_a_long_output_the_first_and_the_last_part_are_kept(limit: int) -> None:
    code = f"import sys; sys.stdout.write('begin' + 'é' * {KEPT_IN_LOG // 2} + 'x' * 1000 + 'end'); sys.exit(3)"
    answer = run([*PYTHON, code], limit=limit)
    first, _, last = answer.stdout.partition("\n[1008 bytes were left out]\n")
    assert first.startswith("beginé")
    assert last.endswith("xend")
    assert len(answer.stdout.encode()) < KEPT_IN_LOG + 100
    assert answer.exit_code == 3


# --- limits


def test_output_beyond_the_limit_is_dropped_and_the_process_is_not_held_up() -> None:
    code = "import os\nfor _ in range(50): os.write(1, b'x' * 1_000_000)\nos.write(2, b'all written')"
    answer = run([*PYTHON, code], extract={"it": TEXT["it"], "e": {"from": "stderr", "trim": False}})
    assert answer.failure is None
    assert answer.outputs["e"] == "all written"
    text = answer.outputs["it"]
    assert text.endswith("x\n[output was longer than 10 MiB; the rest was dropped]\n")
    assert text.startswith("x" * 10 * 1024 * 1024)
    assert len(text) < 10 * 1024 * 1024 + 100
    assert answer.stdout.endswith("x")
    assert "bytes were left out]" in answer.stdout


@pytest.mark.parametrize(
    ("size", "is_whole"), [(99, True), (100, True), (101, False)], ids=["below", "at the limit", "one byte over"]
)
def test_the_limit_is_exact(size: int, is_whole: bool) -> None:
    answer = run([*PYTHON, f"print('x' * {size}, end='')"], extract=TEXT, limit=100)
    assert (answer.outputs["it"] == "x" * size) == is_whole
    assert ("longer than 100 bytes" in answer.outputs["it"]) == (not is_whole)


def test_truncated_json_is_a_failure_that_says_so() -> None:
    answer = run([*PYTHON, "print([1] * 1000)"], extract=JSON, limit=100)
    failed(answer, "extraction", "found output longer than the limit of 100 bytes")


def test_a_document_that_would_be_whole_at_the_cut_is_not_taken_for_it() -> None:
    answer = run([*SH, "printf '123456'"], extract=JSON, limit=3)
    failed(answer, "extraction", "longer than the limit of 3 bytes")


def test_a_pattern_that_misses_in_truncated_output_says_so() -> None:
    answer = run([*SH, "printf 'abcdef123'"], extract={"it": {"from": "stdout", "pattern": "[0-9]+$"}}, limit=6)
    failed(answer, "extraction", "on stdout, of which only the beginning was kept")


def test_the_reason_of_a_failure_is_found_beyond_the_limit_of_output() -> None:
    failed(run([*SH, "echo more more >&2; echo reason >&2; exit 1"], limit=7), "exit_code", "exited with 1: reason")


# --- standard input


def test_stdin_is_written() -> None:
    answer = run(["cat"], inputs={"x": "é日"}, action={"stdin": "<{{ .x }}>\n"}, extract=TEXT)
    assert answer.outputs == {"it": "<é日>\n"}


def test_twenty_megabytes_of_stdin_do_not_deadlock() -> None:
    """The process writes as much as it reads, so neither may wait for the other."""
    text = "0123456789abcdef" * 1_310_720
    answer = run(["cat"], inputs={"x": text}, action={"stdin": "{{ .x }}"}, extract=TEXT, limit=64 << 20)
    assert answer.failure is None
    assert answer.outputs["it"] == text


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 300_000])
def test_stdin_of_any_size_ends(size: int) -> None:
    answer = run(["wc", "-c"], inputs={"x": "x" * size}, action={"stdin": "{{ .x }}"}, extract=TEXT)
    assert int(answer.outputs["it"]) == size


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 0", 0, id="a process that reads nothing"),
        pytest.param("head -c 10 >/dev/null; exit 0", 0, id="one that stops reading"),
        pytest.param("exec 0<&-; sleep 0.05; exit 3", 3, id="one that closes it"),
    ],
)
def test_a_process_need_not_read_its_stdin(script: str, code: int) -> None:
    answer = run([*SH, script], inputs={"x": "x" * 5_000_000}, action={"stdin": "{{ .x }}"})
    assert answer.exit_code == code


def test_stdin_can_be_opened_by_name() -> None:
    """It is a pipe; /dev/stdin of a process that has a socket there cannot be opened."""
    answer = run(["cat", "/dev/stdin"], action={"stdin": "here"}, extract=TEXT)
    assert answer.outputs == {"it": "here"}


def test_without_stdin_a_process_reads_nothing_of_ours() -> None:
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from tests.ecosystem.process.calls import run
answer = run(["cat"], extract={{"it": {{"from": "stdout", "trim": False}}}})
print(repr(answer.outputs["it"]), repr(sys.stdin.read()))
"""
    root = Path(__file__).parents[3]
    child = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        input="for gert",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert child.stdout == "'' 'for gert'\n"


# --- listeners


def heard(argv: list[str], **options: Any) -> list[tuple[str, str, str]]:
    chunks: list[tuple[str, str, str]] = []
    run(argv, on_output=lambda path, stream, text: chunks.append((path, stream, text)), **options)
    return chunks


def test_output_is_heard_in_whole_lines() -> None:
    code = "import os, time\nfor part in (b'on', b'e\\ntw', b'o\\nrest'): os.write(1, part); time.sleep(.03)"
    chunks = heard([*PYTHON, code])
    assert [path for path, _, _ in chunks] == ["steps/0"] * len(chunks)
    assert [text for _, _, text in chunks] == ["one\n", "two\n", "rest"]


def test_both_streams_are_heard() -> None:
    assert sorted(heard([*SH, "echo a; echo b >&2"])) == [("steps/0", "stderr", "b\n"), ("steps/0", "stdout", "a\n")]


def test_long_lines_are_heard_in_bounded_parts() -> None:
    texts = [text for _, _, text in heard([*PYTHON, "print('x' * 100_000)"])]
    assert max(map(len, texts)) <= 8192
    assert "".join(texts) == "x" * 100_000 + "\n"


def test_no_more_is_heard_than_is_kept() -> None:
    text = "".join(text for _, _, text in heard([*PYTHON, "print('x' * 100_000)"], limit=1000))
    assert text == "x" * 1000 + "\n[output was longer than 1000 bytes; the rest was dropped]\n"


def test_output_is_heard_while_the_process_runs(tmp_path: Path) -> None:
    """The process waits for a file that only the listener makes."""
    flag = tmp_path / "heard"
    answer = run(
        [*SH, f"echo ready; while ! test -e {flag}; do sleep 0.01; done"],
        on_output=lambda *_: flag.touch(),
    )
    assert answer.failure is None


def test_a_listener_that_fails_ends_the_process(tmp_path: Path) -> None:
    def fail(*_: str) -> None:
        raise RuntimeError("the screen is gone")

    with pytest.raises(RuntimeError, match="the screen is gone"):
        run([*SH, f"echo $$ > {tmp_path}/pid; echo hi; exec sleep 60"], on_output=fail)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


# --- what is left running


def test_what_a_process_leaves_running_does_not_hold_up_the_call(tmp_path: Path) -> None:
    """A daemon left behind on purpose is legitimate: it is not ended, only no longer listened to."""
    answer = run([*SH, f"sleep 60 & echo $! > {tmp_path}/pid; printf hi"], extract=TEXT, quiet=0.05)
    left = int((tmp_path / "pid").read_text())
    os.kill(left, signal.SIGKILL)  # raises if it were gone
    assert answer.failure is None
    assert answer.outputs == {"it": "hi"}


def test_what_is_left_running_and_keeps_printing_does_not_hold_up_the_call(tmp_path: Path) -> None:
    script = f"(while :; do echo x; sleep 0.01; done) & echo $! > {tmp_path}/pid; exit 5"
    try:
        answer = run([*SH, script], quiet=0.05)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert answer.exit_code == 5


def test_output_that_comes_shortly_after_the_exit_is_heard() -> None:
    answer = run([*SH, "(sleep 0.05; echo late) & exit 0"], extract=TEXT, quiet=1.0)
    assert answer.outputs == {"it": "late\n"}


def test_a_process_that_closes_its_output_and_lives_on_is_waited_for() -> None:
    answer = run([*SH, "echo hi; exec >&- 2>&-; sleep 0.1; exit 7"], extract=TEXT)
    assert answer.exit_code == 7
    assert answer.outputs == {"it": "hi\n"}


def test_a_process_has_no_descriptor_but_the_three() -> None:
    answer = run([*PYTHON, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"], extract=TEXT)
    assert answer.outputs == {"it": "['0', '1', '2']\n"}


def test_many_calls_run_side_by_side_and_leave_nothing_open() -> None:
    transport = stdio()
    tool = tool_of({"argv": ["sh", "-c", "cat; echo e >&2"], "stdin": "{{ .n }}", "extract": TEXT}, outputs={"it": {}})

    async def calls() -> list[ToolAnswer]:
        return await asyncio.gather(*(call(transport, tool, {"n": n}) for n in range(30)))

    gc.collect()  # what other tests have left must not be counted
    before = len(os.listdir("/proc/self/fd"))
    assert [answer.outputs["it"] for answer in finished(calls)] == [str(n) for n in range(30)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert not transport._live


# --- how processes are started


def test_what_this_process_inherited_no_tool_gets(way: str) -> None:
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    try:
        if way != "Popen":
            descriptors.keep_private()  # as at the start of a process that was given it
        answer = run([*PYTHON, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"], extract=TEXT)
    finally:
        os.close(inherited)
        os.close(other)
    assert answer.outputs == {"it": "['0', '1', '2']\n"}


def test_a_library_in_another_process_leaves_its_descriptors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_private", Event())
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    try:
        answer = run([*PYTHON, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"], extract=TEXT)
        assert os.get_inheritable(inherited)
    finally:
        os.close(inherited)
        os.close(other)
    assert answer.outputs == {"it": "['0', '1', '2']\n"}


def test_where_descriptors_are_not_listed_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_private", Event())
    monkeypatch.setattr(descriptors, "_FOLDER", "/nowhere")
    descriptors.keep_private()
    assert not descriptors.are_private()


def test_a_process_leads_a_session_of_its_own() -> None:
    answer = run([*PYTHON, "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))"], extract=TEXT)
    assert answer.outputs == {"it": "True\n"}


def test_a_broken_pipe_ends_a_process_as_it_does_elsewhere() -> None:
    answer = run([*SH, "(yes; echo $? >&2) | head -n 1; wait"], extract=TEXT)
    assert answer.outputs == {"it": "y\n"}
    assert "141" in answer.stderr


def test_signals_that_are_not_python_s_own_are_inherited_as_they_are() -> None:
    shown = "import signal; print([n for n in ('SIGPIPE', 'SIGXFSZ', 'SIGTERM', 'SIGINT', 'SIGCHLD')"
    shown += " if signal.getsignal(getattr(signal, n)) is signal.SIG_IGN])"
    # Python ignores the first two by itself; a shell does not.
    answer = run([*SH, "grep SigIgn /proc/$$/status"], extract=TEXT)
    [ignored] = answer.outputs.values()
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0
    assert run([*PYTHON, shown], extract=TEXT).outputs == {"it": "['SIGPIPE', 'SIGXFSZ']\n"}


def test_a_folder_of_its_own_is_where_a_process_starts(tmp_path: Path) -> None:
    answer = run([*SH, "pwd"], extract=TEXT, working=str(tmp_path))
    assert answer.outputs == {"it": f"{tmp_path}\n"}


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_process_without_standard_files_starts_tools_that_have_them(closed: tuple[int, ...], way: str) -> None:
    # What is opened next takes the numbers that are free, among them those a tool finds its files under.
    code = f"""if True:
        import os, sys
        sys.path[:0] = {sys.path!r}
        from gert.ecosystem.process import descriptors
        from tests.ecosystem.process.calls import run
        {"descriptors.keep_private()" if way != "Popen" else ""}
        result = os.dup(2)
        for number in {closed}:
            os.close(number)
        answer = run(["sh", "-c", "cat; echo out; echo err >&2"], extract={TEXT!r})
        os.write(result, repr((answer.outputs, answer.stderr, answer.exit_code)).encode())
        os._exit(0)
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert ran.stderr.decode() == repr(({"it": "out\n"}, "err\n", 0))
