"""What every store promises, held against each of them."""

import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gert.ecosystem.stores.port import Store
from gert.errors import TraceError
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import MAX_LINE_BYTES

from .lines import RUN, answers, events, open_again, open_store

PERSISTENT = ["jsonl", "sqlite"]
LINES = events(6)
ANSWERS = answers(3)


@pytest.fixture(params=["memory", *PERSISTENT])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(kind, tmp_path) as opened:
        yield opened


def kept(store: Store, run_id: str = RUN) -> tuple[list[bytes], list[bytes]]:
    return list(store.events(run_id)), list(store.answers(run_id))


class TestWhatIsKept:
    def test_lines_come_back_byte_for_byte_and_in_order(self, store: Store) -> None:
        store.append(RUN, 1, LINES[:2], ANSWERS[:1])
        store.append(RUN, 3, LINES[2:5])
        store.append(RUN, 6, LINES[5:], ANSWERS[1:])
        assert kept(store) == (LINES, ANSWERS)

    def test_a_line_keeps_what_another_writer_would_write_otherwise(self, store: Store) -> None:
        line = LINES[0].replace(b'"data":{', b'"data" : { "\xc3\xa9\\u0000": 1e3 , ').replace(b"{", b"{ ", 1)
        store.append(RUN, 1, [line])
        assert kept(store)[0] == [line]

    @pytest.mark.parametrize("since", [0, 1, 5, 6, 7, 1000])
    def test_reading_begins_after_a_number(self, store: Store, since: int) -> None:
        store.append(RUN, 1, LINES)
        assert list(store.events(RUN, since)) == LINES[since:]

    def test_answers_may_come_without_events(self, store: Store) -> None:
        store.append(RUN, 1, LINES[:1])
        store.append(RUN, 2, [], ANSWERS)
        store.append(RUN, 2, LINES[1:])
        assert kept(store) == (LINES, ANSWERS)

    def test_an_empty_batch_is_nothing(self, store: Store) -> None:
        store.append(RUN, 1, [])
        assert (kept(store), list(store.runs())) == (([], []), [])

    def test_the_run_is_listed_once_it_has_events(self, store: Store) -> None:
        assert list(store.runs()) == []
        store.append(RUN, 1, [], ANSWERS)
        assert list(store.runs()) == []
        store.append(RUN, 1, LINES)
        assert list(store.runs()) == [RUN]

    def test_a_run_that_is_not_here_has_no_lines(self, store: Store) -> None:
        store.append(RUN, 1, LINES, ANSWERS)
        assert kept(store, "another") == ([], [])

    def test_the_longest_line_there_may_be_is_kept(self, store: Store) -> None:
        [line] = events(1, size=MAX_LINE_BYTES - len(events(1, size=0)[0]))
        assert len(line) == MAX_LINE_BYTES
        store.append(RUN, 1, [line])
        assert kept(store)[0] == [line]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("first", "batch", "message"),
        [
            pytest.param(3, LINES[2:4], "event 3 of run .* is written already", id="the last number again"),
            pytest.param(1, LINES[:1], "event 1 of run .* is written already", id="the first number again"),
            pytest.param(3, LINES[2:6], "is written already", id="a batch that begins before the end"),
            pytest.param(5, LINES[4:], "expected event 4 of run .*, found 5", id="a gap"),
            pytest.param(1000, [], "expected event 4 of run .*, found 1000", id="a gap without events"),
            pytest.param(0, LINES[:1], "expected event 0 of run .*, found event 1", id="the number zero"),
            pytest.param(-1, [], "written already", id="a number below zero"),
            pytest.param(4, LINES[4:], "expected event 4 of run .*, found event 5", id="a line of another number"),
            pytest.param(4, [LINES[3], LINES[5]], "expected event 5 .*, found event 6", id="a gap inside a batch"),
            pytest.param(4, [LINES[3], LINES[3]], "expected event 5 .*, found event 4", id="twice in a batch"),
            pytest.param(4, events(4, "other")[3:], "found event 4 of run `other`", id="a line of another run"),
            pytest.param(4, [LINES[3] + b"\n"], "event 4 has a line break", id="a line with its line break"),
            pytest.param(4, [LINES[3].replace(b",", b",\n", 1)], "has a line break", id="a line break inside a line"),
            pytest.param(4, [b""], "cannot be read back", id="an empty line"),
            pytest.param(4, [LINES[3][:-1]], "cannot be read back", id="half a line"),
            pytest.param(4, [b"[]"], "cannot be read back", id="a line that is no event"),
            pytest.param(4, [b'{"seq":4,"run_id":"\xff"}'], "cannot be read back", id="a line that is not UTF-8"),
            pytest.param(4, [b"[" * 100_000], "cannot be read back", id="a line that is nested without end"),
            pytest.param(4, [b" " * (MAX_LINE_BYTES + 1)], "is too large", id="a line that is too long"),
        ],
    )
    def test_nothing_of_a_bad_batch_is_written(
        self, store: Store, first: int, batch: list[bytes], message: str
    ) -> None:
        store.append(RUN, 1, LINES[:3], ANSWERS[:1])
        with pytest.raises(TraceError, match=message):
            store.append(RUN, first, batch, ANSWERS[1:])
        assert kept(store) == (LINES[:3], ANSWERS[:1])
        store.append(RUN, 4, LINES[3:], ANSWERS[1:])
        assert kept(store) == (LINES, ANSWERS)

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(b"{}\n", id="an answer with its line break"),
            pytest.param(b'{\n"a":1}', id="a line break inside an answer"),
            pytest.param(b"", id="an empty answer"),
            pytest.param(b'"' + b"x" * (64 * 1024 * 1024) + b'"', id="an answer that is too long"),
        ],
    )
    def test_a_bad_answer_keeps_its_events_out(self, store: Store, answer: bytes) -> None:
        with pytest.raises(TraceError, match="an answer is"):
            store.append(RUN, 1, LINES, [ANSWERS[0], answer])
        assert kept(store) == ([], [])

    @pytest.mark.parametrize("run_id", ["", "../up", "a/b", ".hidden", "a\x00b", "nul", "x" * 129])
    def test_a_run_id_is_a_name(self, store: Store, run_id: str) -> None:
        line = LINES[0].replace(RUN.encode(), run_id.encode().replace(b"\x00", b"\\u0000"))
        with pytest.raises(TraceError, match="is not a run id"):
            store.append(run_id, 1, [line])
        assert list(store.runs()) == []

    def test_a_closed_store_takes_nothing(self, store: Store) -> None:
        store.close()
        store.close()
        with pytest.raises(TraceError, match="the store is closed"):
            store.append(RUN, 1, LINES)


class TestReadingWhileWriting:
    def test_a_reader_sees_whole_batches_and_no_break(self, store: Store) -> None:
        lines, batch, seen, wrong = events(600), 3, set(), []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                found = list(store.events(RUN))
                seen.add(len(found))
                if len(found) % batch or found != lines[: len(found)]:
                    wrong.append(len(found))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for first in range(0, len(lines), batch):
            store.append(RUN, first + 1, lines[first : first + batch], [b"{}"])
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert kept(store) == (lines, [b"{}"] * 200)

    def test_writers_that_race_for_a_number_have_one_winner(self, store: Store) -> None:
        refused: list[str] = []
        barrier = threading.Barrier(4)

        def write() -> None:
            for number in range(1, 7):
                barrier.wait()
                try:
                    store.append(RUN, number, LINES[number - 1 : number])
                except TraceError as error:
                    refused.append(error.message)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kept(store)[0] == LINES
        assert len(refused) == 18

    def test_reading_takes_no_more_memory_than_a_few_lines(self, store: Store) -> None:
        lines = events(400, size=50_000)
        for first in range(0, len(lines), 50):
            store.append(RUN, first + 1, lines[first : first + 50])
        tracemalloc.start()
        try:
            assert sum(1 for _ in store.events(RUN)) == 400
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
        finally:
            tracemalloc.stop()

    def test_a_reader_that_stops_early_leaves_the_store_usable(self, store: Store) -> None:
        store.append(RUN, 1, LINES[:5])
        reader = store.events(RUN)
        assert next(reader) == LINES[0]
        store.append(RUN, 6, LINES[5:])
        del reader
        assert kept(store)[0] == LINES


class TestAfterItsProcess:
    @pytest.fixture(params=PERSISTENT)
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_everything_is_there_and_goes_on(self, kind: str, tmp_path: Path) -> None:
        with open_store(kind, tmp_path) as store:
            store.append(RUN, 1, LINES[:4], ANSWERS[:2])
        with open_again(kind, tmp_path) as store:
            assert kept(store) == (LINES[:4], ANSWERS[:2])
            assert list(store.runs()) == [RUN]
            with pytest.raises(TraceError, match="is written already"):
                store.append(RUN, 4, LINES[3:])
            with pytest.raises(TraceError, match="expected event 5"):
                store.append(RUN, 6, LINES[5:])
            store.append(RUN, 5, LINES[4:], ANSWERS[2:])
        with open_again(kind, tmp_path) as store:
            assert kept(store) == (LINES, ANSWERS)
            assert read_chain(store.events(RUN)).intact

    def test_a_store_that_was_never_written_is_empty(self, kind: str, tmp_path: Path) -> None:
        open_store(kind, tmp_path).close()
        with open_again(kind, tmp_path) as store:
            assert (kept(store), list(store.runs())) == (([], []), [])
            store.append(RUN, 1, LINES)

    def test_files_are_for_their_owner_alone(self, kind: str, tmp_path: Path) -> None:
        with open_store(kind, tmp_path) as store:
            store.append(RUN, 1, LINES, ANSWERS)
            assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}

    @pytest.mark.parametrize("sync", [True, False])
    def test_a_store_says_whether_it_is_durable(self, kind: str, tmp_path: Path, sync: bool) -> None:
        with open_store(kind, tmp_path, sync=sync) as store:
            assert store.durable is sync
            store.append(RUN, 1, LINES, ANSWERS)
            assert kept(store) == (LINES, ANSWERS)

    def test_a_folder_that_is_not_there_is_said(self, kind: str, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="there is no folder"):
            open_store(kind, tmp_path / "nowhere")

    def test_a_path_with_odd_characters_is_just_a_path(self, kind: str, tmp_path: Path) -> None:
        folder = tmp_path / "100% ?mode=memory#ä'"
        folder.mkdir()
        with open_store(kind, folder) as store:
            store.append(RUN, 1, LINES)
            assert kept(store)[0] == LINES
        with open_again(kind, folder) as store:
            assert kept(store)[0] == LINES


def test_memory_is_not_durable(tmp_path: Path) -> None:
    assert not open_store("memory", tmp_path).durable
