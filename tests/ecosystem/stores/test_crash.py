"""A process that is killed while it writes: what it said is written, is written."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.soak import sampled

from gert.ecosystem.stores.jsonl import JsonlStore
from gert.kernel.events.chain import read_chain

from .lines import RUN, events, open_again

ROOT = Path(__file__).resolve().parents[3]
LINES = events(4000, size=3000)

# Prints the number of the last event after every append that returned.
WRITER = """
import os, sys
from pathlib import Path
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.ecosystem.stores.sqlite import SqliteStore
kind, folder, lines, run = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
lines = open(lines, "rb").read().splitlines()
if kind == "sqlite":
    store = SqliteStore(folder / "runs.db")
elif (folder / "trace.jsonl").exists():
    store = JsonlStore.reopen(folder / "trace.jsonl", folder / "answers.jsonl")
else:
    store = JsonlStore(folder / "trace.jsonl", folder / "answers.jsonl")
done = sum(1 for _ in store.events(run))
os.write(1, b"open\\n")
while done < len(lines):
    batch = lines[done : done + 1 + done % 4]
    store.append(run, done + 1, batch, [b'{"leads_to":%d}' % (done + len(batch))])
    done += len(batch)
    os.write(1, b"%d\\n" % done)
"""


@pytest.mark.parametrize("kills", sampled([6, 48], [6]))
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_killed_writer_has_written_all_it_said(kind: str, kills: int, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"\n".join(LINES))
    command = [sys.executable, "-c", WRITER, kind, str(tmp_path), str(tmp_path / "lines"), RUN]
    chance = random.Random(20260228)
    said = 0
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as writer:
            assert writer.stdout is not None
            assert writer.stderr is not None
            assert writer.stdout.readline() == b"open\n", writer.stderr.read()
            heard = [writer.stdout.readline() for _ in range(chance.randrange(30))]
            # At any moment: while it writes, syncs or prepares the next batch.
            for _ in range(chance.randrange(20_000)):
                pass
            writer.kill()
            heard += writer.stdout.read().splitlines()
        said = max([said, *map(int, heard)])
        with open_again(kind, tmp_path) as store:
            kept = list(store.events(RUN))
            assert len(kept) >= said
            assert kept == LINES[: len(kept)]
            report = read_chain(kept)
            assert (report.break_count, report.torn) == (0, None)
            leads = [int(answer.rpartition(b":")[2][:-1]) for answer in store.answers(RUN)]
            # Never an event whose answer is missing; an answer whose events are missing is what a crash may leave.
            assert not kept or max(leads) >= len(kept)
            if isinstance(store, JsonlStore) and store.torn is not None:
                assert LINES[len(kept)].startswith(store.torn)
    assert said > kills
