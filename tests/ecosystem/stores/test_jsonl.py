"""What only files can do wrong: torn lines, full disks, other writers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gert.ecosystem.stores import append_file
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.errors import IntegrityError, TraceError
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import MAX_LINE_BYTES

from .lines import RUN, answers, events

LINES = events(6)
ANSWERS = answers(3)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "trace.jsonl", tmp_path / "answers.jsonl"


@pytest.fixture
def trace(paths: tuple[Path, Path]) -> Path:
    """A trace of four events and two answers that was closed."""
    with JsonlStore(*paths) as store:
        store.append(RUN, 1, LINES[:4], ANSWERS[:2])
    return paths[0]


def jsonl(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_a_trace_is_its_lines(trace: Path, paths: tuple[Path, Path]) -> None:
    assert trace.read_bytes() == jsonl(LINES[:4])
    assert paths[1].read_bytes() == jsonl(ANSWERS[:2])


def test_without_a_file_for_them_answers_are_not_kept(tmp_path: Path) -> None:
    with JsonlStore(tmp_path / "trace.jsonl", None) as store:
        store.append(RUN, 1, LINES, ANSWERS)
        assert list(store.answers(RUN)) == []
        assert list(store.events(RUN)) == LINES
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_file_holds_one_run(trace: Path, paths: tuple[Path, Path]) -> None:
    with JsonlStore.reopen(*paths) as store, pytest.raises(TraceError, match=f"holds run `{RUN}`, and not `other`"):
        store.append("other", 1, events(1, "other"))


class TestANewTrace:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            pytest.param(jsonl(LINES), f"already holds run `{RUN}`$", id="a trace"),
            pytest.param(jsonl(LINES) + b'{"seq', f"holds run `{RUN}`, and its last line was not", id="a torn trace"),
            pytest.param(LINES[0][:9], "is not empty, and its last line was not", id="half a line"),
            pytest.param(b"dear diary\n", "is not empty$", id="something else"),
            pytest.param(b"\x00" * 4096, "is not empty, and its last line was not", id="zeros"),
        ],
    )
    def test_is_not_written_over_something(self, paths: tuple[Path, Path], content: bytes, message: str) -> None:
        paths[0].write_bytes(content)
        with pytest.raises(TraceError, match=message) as refusal:
            JsonlStore(*paths)
        assert refusal.value.hint == "choose another file, or resume the run it belongs to"
        assert paths[0].read_bytes() == content

    def test_needs_a_new_file_for_its_answers(self, paths: tuple[Path, Path]) -> None:
        paths[1].write_bytes(b"{}\n")
        with pytest.raises(TraceError, match=r"answers\.jsonl` is not empty"):
            JsonlStore(*paths)

    def test_may_go_into_an_empty_file(self, paths: tuple[Path, Path]) -> None:
        paths[0].touch()
        with JsonlStore(*paths) as store:
            store.append(RUN, 1, LINES)

    @pytest.mark.parametrize("which", [0, 1])
    def test_never_follows_a_link(self, paths: tuple[Path, Path], tmp_path: Path, which: int) -> None:
        target = tmp_path / "target"
        paths[which].symlink_to(target)
        with pytest.raises(TraceError, match="is a symbolic link"):
            JsonlStore(*paths)
        target.touch()
        with pytest.raises(TraceError, match="is a symbolic link"):
            JsonlStore(*paths)
        assert target.read_bytes() == b""

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            pytest.param("/dev/null", "is not a regular file", id="a device"),
            pytest.param(".", "cannot be opened: is a directory", id="a folder"),
            pytest.param("a\x00b", "is not a path", id="no path at all"),
        ],
    )
    def test_is_a_regular_file(self, path: str, message: str) -> None:
        with pytest.raises(TraceError, match=message):
            JsonlStore(path, None)

    def test_is_no_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TraceError, match="is not a regular file"):
            JsonlStore(tmp_path / "pipe", None)

    def test_is_written_by_one_at_a_time(self, paths: tuple[Path, Path]) -> None:
        with JsonlStore(*paths):
            for opened in (JsonlStore, JsonlStore.reopen):
                with pytest.raises(TraceError, match="is being written by another run"):
                    opened(*paths)
        JsonlStore(*paths).close()

    def test_is_locked_against_other_processes(self, paths: tuple[Path, Path]) -> None:
        script = (
            "import sys\nfrom gert.ecosystem.stores.jsonl import JsonlStore\n"
            "store = JsonlStore(sys.argv[1], sys.argv[2])\nprint('open', flush=True)\nsys.stdin.read()\n"
        )
        command = [sys.executable, "-c", script, *map(str, paths)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(TraceError, match="is being written by another run"):
                JsonlStore(*paths)
            other.kill()
        JsonlStore(*paths).close()


class TestGoingOn:
    @pytest.mark.parametrize(
        "torn",
        [
            pytest.param(LINES[4][:1], id="one byte"),
            pytest.param(LINES[4][:-1], id="all but one byte"),
            pytest.param(LINES[4], id="all but the line break"),
            pytest.param(b"\x00" * 512, id="zeros"),
            pytest.param(b"\x00" * 40 + b'"}}\n', id="zeros and the end of a line"),
            pytest.param(b"\x00\n" + LINES[4][:7], id="an unreadable line and half a line"),
            pytest.param(b"\n", id="an empty line"),
        ],
    )
    def test_a_torn_end_is_set_aside_and_never_lost(self, trace: Path, paths: tuple[Path, Path], torn: bytes) -> None:
        with trace.open("ab") as file:
            file.write(torn)
        with JsonlStore.reopen(*paths) as store:
            assert store.torn == torn
            assert list(store.events(RUN)) == LINES[:4]
            store.append(RUN, 5, LINES[4:])
        assert trace.read_bytes() == jsonl(LINES)
        beside = trace.with_name("trace.jsonl.torn")
        assert beside.read_bytes() == torn + b"\n"
        assert beside.stat().st_mode & 0o777 == 0o600

    def test_a_trace_that_was_cut_anywhere_goes_on_from_its_last_whole_line(
        self, trace: Path, paths: tuple[Path, Path]
    ) -> None:
        whole = jsonl(LINES)
        for cut in range(0, len(whole), 3):
            trace.write_bytes(whole[:cut])
            count = whole[:cut].count(b"\n")
            with JsonlStore.reopen(*paths, sync=False) as store:
                assert list(store.events(RUN)) == LINES[:count]
                assert (store.torn or b"") == whole[:cut].rpartition(b"\n")[2]
                store.append(RUN, count + 1, LINES[count:])
            assert trace.read_bytes() == whole

    def test_what_was_set_aside_before_stays(self, trace: Path, paths: tuple[Path, Path]) -> None:
        for torn in (b"first", b"second"):
            with trace.open("ab") as file:
                file.write(torn)
            JsonlStore.reopen(*paths).close()
        assert trace.with_name("trace.jsonl.torn").read_bytes() == b"first\nsecond\n"

    def test_nothing_is_taken_off_that_could_not_be_set_aside(self, trace: Path, paths: tuple[Path, Path]) -> None:
        with trace.open("ab") as file:
            file.write(b"torn")
        trace.with_name("trace.jsonl.torn").symlink_to("/dev/null")
        with pytest.raises(TraceError, match="is a symbolic link"):
            JsonlStore.reopen(*paths)
        assert trace.read_bytes() == jsonl(LINES[:4]) + b"torn"

    @pytest.mark.parametrize(
        "torn",
        [
            pytest.param(b'{"key', id="half an answer"),
            pytest.param(b"\x00\x00\x00}\n", id="zeros and the end of an answer"),
            pytest.param(b"{}", id="all but the line break"),
        ],
    )
    def test_a_torn_answer_is_set_aside(self, trace: Path, paths: tuple[Path, Path], torn: bytes) -> None:
        with paths[1].open("ab") as file:
            file.write(torn)
        with JsonlStore.reopen(*paths) as store:
            assert (store.torn, store.torn_answers) == (None, torn)
            assert list(store.answers(RUN)) == ANSWERS[:2]
            store.append(RUN, 5, [], ANSWERS[2:])
        assert paths[1].read_bytes() == jsonl(ANSWERS)

    def test_a_whole_trace_has_nothing_torn(self, trace: Path, paths: tuple[Path, Path]) -> None:
        with JsonlStore.reopen(*paths) as store:
            assert (store.torn, store.torn_answers) == (None, None)
        assert sorted(path.name for path in trace.parent.iterdir()) == ["answers.jsonl", "trace.jsonl"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            pytest.param([*LINES[:2], LINES[3]], "breaks at line 3", id="a line was removed"),
            pytest.param([LINES[0], b"{}", *LINES[1:]], "breaks at line 2", id="a line was added"),
            pytest.param([LINES[1]], "breaks at line 1", id="the beginning is missing"),
            pytest.param([LINES[0].replace(b"step_start", b"step_stop"), LINES[1]], "line 2", id="a line was changed"),
            pytest.param([LINES[0].replace(b'"seq":1,', b"")], "does not number its events", id="without numbers"),
            pytest.param([b"x", b"y"], "breaks at line 1", id="something else"),
            pytest.param([b"x" * (MAX_LINE_BYTES + 1)], "a line that is too long", id="a line without end"),
        ],
    )
    def test_only_a_chain_that_holds_is_continued(
        self, paths: tuple[Path, Path], content: list[bytes], message: str
    ) -> None:
        paths[0].write_bytes(jsonl(content))
        with pytest.raises(IntegrityError, match=message) as refusal:
            JsonlStore.reopen(*paths)
        assert refusal.value.hint == "`gert trace verify` says more"
        assert paths[0].read_bytes() == jsonl(content)

    def test_without_a_trace_there_is_nothing_to_go_on_with(self, paths: tuple[Path, Path]) -> None:
        with pytest.raises(TraceError, match="there is no file"):
            JsonlStore.reopen(*paths)
        assert not paths[0].exists()


FULL_DISK = f"""
import resource, sys
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.errors import TraceError
lines = open(sys.argv[1], "rb").read().splitlines()
limit = int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
store, first = JsonlStore(sys.argv[2], sys.argv[3]), 1
try:
    while True:
        store.append("{RUN}", first, lines[first - 1 : first + 2], [b'{{"first":%d}}' % first])
        first += 3
except TraceError as error:
    print(first - 1, error.message, sep="|")
try:
    store.append("{RUN}", first, lines[first - 1 : first], [b"{{}}"])
    print("small enough")
except TraceError as error:
    print("still full")
"""


class TestWhatCannotBeWritten:
    @pytest.mark.parametrize("limit", [2000, 2048, 3001, 4500, 5000])
    def test_a_full_disk_keeps_whole_batches_only(self, paths: tuple[Path, Path], tmp_path: Path, limit: int) -> None:
        lines = events(60)
        (tmp_path / "lines").write_bytes(jsonl(lines))
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK, str(tmp_path / "lines"), *map(str, paths), str(limit)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        first, again = done.stdout.splitlines()
        count, _, message = first.partition("|")
        assert "trace.jsonl` cannot be written: file too large" in message
        whole = int(count) + (1 if again == "small enough" else 0)
        assert paths[0].read_bytes() == jsonl(lines[:whole])
        with JsonlStore.reopen(*paths) as store:
            assert store.torn is None
            assert len(list(store.answers(RUN))) == int(count) // 3 + (1 if again == "small enough" else 0)
            store.append(RUN, whole + 1, lines[whole:])
            assert read_chain(store.events(RUN)).intact

    def test_short_writes_are_continued(self, paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        with JsonlStore(*paths) as store:
            store.append(RUN, 1, LINES, ANSWERS)
        assert (paths[0].read_bytes(), paths[1].read_bytes()) == (jsonl(LINES), jsonl(ANSWERS))

    def test_after_a_failed_sync_nothing_more_is_taken(
        self, paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with JsonlStore(*paths) as store:
            store.append(RUN, 1, LINES[:2])
            monkeypatch.setattr(append_file, "sync_data", fail)
            with pytest.raises(TraceError, match="cannot be written: input/output error"):
                store.append(RUN, 3, LINES[2:4])
            monkeypatch.undo()
            with pytest.raises(TraceError, match="takes nothing more: it could not be made durable"):
                store.append(RUN, 3, LINES[2:4])
            assert list(store.events(RUN)) == LINES[:2]
        assert paths[0].read_bytes() == jsonl(LINES[:2])

    def test_answers_are_written_before_their_events_and_both_are_synced_before_anyone_goes_on(
        self, paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        write, sync = os.write, append_file.sync_data

        def note(verb: str, fd: int) -> None:
            said.append(f"{verb} {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")

        def noted_write(fd: int, data: bytes) -> int:
            note("write", fd)
            return write(fd, data)

        def noted_sync(fd: int) -> None:
            note("sync", fd)
            sync(fd)

        monkeypatch.setattr(os, "write", noted_write)
        monkeypatch.setattr(append_file, "sync_data", noted_sync)
        with JsonlStore(*paths) as store:
            store.append(RUN, 1, LINES, ANSWERS)
            assert said[:2] == ["write answers.jsonl", "write trace.jsonl"]
            assert sorted(said[2:]) == ["sync answers.jsonl", "sync trace.jsonl"]

    def test_without_sync_nothing_is_synced(self, paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        with JsonlStore(*paths, sync=False) as store:
            monkeypatch.setattr(append_file, "sync_data", lambda fd: pytest.fail("synced"))
            store.append(RUN, 1, LINES, ANSWERS)

    @pytest.mark.parametrize(
        ("meddle", "message"),
        [
            pytest.param(lambda path: path.unlink(), "was removed", id="it was removed"),
            pytest.param(lambda path: path.write_bytes(b""), "was changed by someone else", id="it was emptied"),
            pytest.param(lambda path: path.open("ab").write(b"x"), "was changed", id="someone else wrote"),
        ],
    )
    @pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    def test_a_trace_that_others_meddle_with_is_not_written_on(
        self, paths: tuple[Path, Path], meddle: object, message: str
    ) -> None:
        with JsonlStore(*paths) as store:
            store.append(RUN, 1, LINES[:2])
            assert callable(meddle)
            meddle(paths[0])
            with pytest.raises(TraceError, match=message):
                store.append(RUN, 3, LINES[2:])


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n\n", [b"\n", b"\n"], id="empty lines"),
        pytest.param(b"abcd\nab", [b"abcd\n", b"ab"], id="a last line without its break"),
        pytest.param(b"abcde\nx\n", [b"abcde\n", b"x\n"], id="one too many is seen whole"),
        pytest.param(b"abcdefghij\nx\n", [b"abcde\n", b"x\n"], id="far too many are cut"),
        pytest.param(b"abcdef\n", [b"abcde\n"], id="two too many are cut"),
        pytest.param(b"abcdefghij", [b"abcde"], id="far too many without a break"),
        pytest.param(b"abcdef", [b"abcde"], id="two too many without a break"),
    ],
)
def test_lines_are_read_in_bounded_memory(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        assert list(append_file.read_lines(file, 4)) == lines
