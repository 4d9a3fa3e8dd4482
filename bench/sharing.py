"""One SQLite ledger shared by many processes: `python -m bench.sharing [PROCESSES]` prints the longest waits.

It compares `gert exec` processes that start together with bare processes that each commit as many rows to one SQLite
file. It judges nothing: what a machine does under a hundred processes depends on the machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

PROCESSES = 100
STEPS = 3
COMMITS = 2 * STEPS + 2
_BOOK = {
    "apiVersion": "kernel/v0",
    "meta": {"name": "share", "governance": {"rules": [{"default": "allow"}]}},
    "tools": ["idle"],
    "steps": [
        *({"id": f"s{n}", "type": "tool", "tool": "idle"} for n in range(STEPS)),
        {"type": "end", "outcome": {"category": "resolved", "code": "done"}},
    ],
}
_TOOL = {
    "apiVersion": "tool/v0",
    "meta": {"name": "idle"},
    "contract": {"effects": ["none"], "writes": []},
    "actions": {"go": {"argv": ["true"]}},
}
_BARE = f"""
import sqlite3, sys, time
longest = 0.0
link = sqlite3.connect(sys.argv[1], timeout=600, isolation_level=None)
link.execute("PRAGMA synchronous=FULL")
for _ in range({COMMITS}):
    began = time.perf_counter()
    link.execute("BEGIN IMMEDIATE")
    link.execute("INSERT INTO lines VALUES (zeroblob(500))")
    link.execute("COMMIT")
    longest = max(longest, time.perf_counter() - began)
print(longest)
"""


def bare_writers(folder: Path, processes: int) -> list[float]:
    """The longest wait of each process that only commits rows."""
    path = folder / "bare.db"
    subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys; link = sqlite3.connect(sys.argv[1]); "
         "link.execute('PRAGMA journal_mode=WAL'); link.execute('CREATE TABLE lines (line BLOB)')", str(path)],
        check=True,
    )  # fmt: skip
    words = [sys.executable, "-c", _BARE, str(path)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return [float(process.communicate()[0]) for process in started]


def gert_processes(folder: Path, processes: int) -> tuple[int, list[float]]:
    """How many `gert exec` processes failed, and the longest time between two events of each run."""
    (folder / "tools").mkdir()
    (folder / "gert-project.yaml").write_text("name: share\n")
    (folder / "book.yaml").write_text(json.dumps(_BOOK))
    (folder / "tools" / "idle.tool.yaml").write_text(json.dumps(_TOOL))
    words = [sys.executable, "-m", "gert", "exec", "book.yaml", "--json", "--quiet"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
    started = [
        subprocess.Popen(words, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    ended = [process.communicate() for process in started]
    failed = [err for process, (_, err) in zip(started, ended, strict=True) if process.returncode]
    for err in failed[:3]:
        print(err.decode(), file=sys.stderr)
    return len(failed), [_longest_wait(trace) for trace in (folder / "runs").glob("*/trace.jsonl")]


def _longest_wait(trace: Path) -> float:
    times = [datetime.fromisoformat(json.loads(line)["timestamp"]) for line in trace.read_text().splitlines()]
    return max((later - earlier).total_seconds() for earlier, later in pairwise(times))


def main(processes: int = PROCESSES) -> int:
    """Print both; 1 where a run failed."""
    with tempfile.TemporaryDirectory() as place:
        bare = bare_writers(Path(place), processes)
        began = time.perf_counter()
        failed, waits = gert_processes(Path(place), processes)
        took = time.perf_counter() - began
    print(f"{processes} bare writers of {COMMITS} commits: longest wait {max(bare):.2f} s")
    print(
        f"{processes} gert exec of {STEPS} steps: longest wait {max(waits):.2f} s, {failed} failed, {took:.1f} s in all"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else PROCESSES))
