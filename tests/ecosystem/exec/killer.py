"""A program that runs a runbook many times, and each time is killed at another point of its record.

Called with a JSON document: `book`, `evidence`, `stdin`, and `points`, each with the folder `at` that takes its
state and its side effects, `what` kind of point it is, and its number `n`:

event    events up to the n-th are written, whatever else was to be written with them is not
torn     the same, and half of the line after it
before   nothing of the n-th batch is written
answers  of the n-th batch its answers are written, its events are not
halved   the same, and of its last answer only half
none     nobody is killed
"""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gert.ecosystem.host import execute
from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.kernel.engine.inputs import Given


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class KillingStore(JsonlStore):
    """Writes what it is given, up to a point."""

    what = "none"
    n = 0

    def __init__(self, trace: Any, answers: Any, *, sync: bool = True) -> None:
        super().__init__(trace, answers, sync=sync)
        self._paths = {"events": Path(trace), "answers": Path(answers)}
        self._batches = 0

    def append(self, run_id: str, first_seq: int, events: Sequence[bytes], answers: Sequence[bytes] = ()) -> None:
        self._batches += 1
        if self._batches == self.n and self.what in ("before", "answers", "halved"):
            self._break_batch(run_id, first_seq, answers)
        left = self.n - first_seq + 1
        if self.what in ("event", "torn") and left < len(events):
            super().append(run_id, first_seq, events[:left], answers)
            if self.what == "torn":
                self._half("events", events[left])
            die()
        super().append(run_id, first_seq, events, answers)
        if self.what in ("event", "torn") and left == len(events):
            die()

    def _break_batch(self, run_id: str, first_seq: int, answers: Sequence[bytes]) -> NoReturn:
        if self.what == "answers" and answers:
            super().append(run_id, first_seq, (), answers)
        if self.what == "halved" and answers:
            super().append(run_id, first_seq, (), answers[:-1])
            self._half("answers", answers[-1])
        die()

    def _half(self, which: str, line: bytes) -> None:
        with self._paths[which].open("ab") as file:
            file.write(line[: len(line) // 2])


def run(job: dict[str, Any], point: dict[str, Any]) -> None:
    """In a process of its own: run the runbook until the point."""
    at = Path(point["at"])
    at.mkdir(parents=True)
    os.dup2(os.open(job["stdin"], os.O_RDONLY), 0)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - this process only ever dies
    KillingStore.what, KillingStore.n = point["what"], point["n"]
    execute.JsonlStore = KillingStore  # type: ignore[misc]
    options = execute.RunOptions(
        file=job["book"],
        given={"folder": Given(str(at))},
        actor="kim",
        state_dir=str(at),
        evidence=job["evidence"],
    )
    asyncio.run(execute.execute(options))


def main() -> None:
    job = json.load(sys.stdin)
    # Read and checked once, for all of them.
    workspace = Workspace()
    workspace.program(job["book"])
    execute.Workspace = lambda: workspace  # type: ignore[misc, assignment]
    for point in job["points"]:
        child = os.fork()
        if not child:
            try:
                run(job, point)
            except BaseException as problem:
                os.write(2, f"{point}: {problem!r}\n".encode())
                os._exit(70)
            os._exit(0)
        point["status"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        point["files"] = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(point["at"]).glob("runs/*/*")
        }
    json.dump(job["points"], sys.stdout)


if __name__ == "__main__":
    main()
