"""A program that runs a runbook many times, and each time is killed at another point of its record.

Called with a JSON document: `book`, `evidence`, `stdin`, and `points`, each with the folder `at` that takes its
state and its side effects, `what` kind of point it is, and its number `n`:

event    events up to the n-th are written, whatever else was to be written with them is not
torn     the same, and half of the line after it
before   nothing of the batch with the n-th answer is written; of the first of all, where n is 0
answers  of that batch its answers are written, its events are not
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

from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.host.execute import execute
from gert.ecosystem.host.options import RunOptions
from gert.ecosystem.stores.jsonl import JsonlStore
from gert.kernel.engine.inputs import Given

append = JsonlStore.append


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Killing:
    """Appends what a store is given, up to a point."""

    def __init__(self, what: str, n: int, at: Path) -> None:
        self._what = what
        self._n = n
        self._at = at
        self._answers = 0

    def append(
        self,
        store: JsonlStore,
        run_id: str,
        first_seq: int,
        events: Sequence[bytes],
        answers: Sequence[bytes] = (),
    ) -> None:
        self._answers += len(answers)
        if self._answers >= self._n and self._what in ("before", "answers", "halved"):
            self._break_batch(store, run_id, first_seq, answers)
        left = self._n - first_seq + 1
        if self._what in ("event", "torn") and left < len(events):
            append(store, run_id, first_seq, events[:left], answers)
            if self._what == "torn":
                self._half("trace", events[left])
            die()
        append(store, run_id, first_seq, events, answers)
        if self._what in ("event", "torn") and left == len(events):
            die()

    def _break_batch(self, store: JsonlStore, run_id: str, first_seq: int, answers: Sequence[bytes]) -> NoReturn:
        if self._what == "answers" and answers:
            append(store, run_id, first_seq, (), answers)
        if self._what == "halved" and answers:
            append(store, run_id, first_seq, (), answers[:-1])
            self._half("answers", answers[-1])
        die()

    def _half(self, which: str, line: bytes) -> None:
        (path,) = self._at.glob(f"runs/*/{which}.jsonl")
        with path.open("ab") as file:
            file.write(line[: len(line) // 2])


def run(job: dict[str, Any], point: dict[str, Any]) -> None:
    """In a process of its own: run the runbook until the point."""
    at = Path(point["at"])
    at.mkdir(parents=True)
    os.dup2(os.open(job["stdin"], os.O_RDONLY), 0)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - this process only ever dies
    killing = Killing(point["what"], point["n"], at)
    # A function, not a bound method: the store is its first argument.
    JsonlStore.append = lambda store, *batch: killing.append(store, *batch)  # type: ignore[method-assign]  # noqa: PLW0108
    options = RunOptions(
        file=job["book"],
        given={"folder": Given(str(at))},
        actor="kim",
        state_dir=str(at),
        evidence=job["evidence"],
    )
    asyncio.run(execute(options))


def main() -> None:
    job = json.load(sys.stdin)
    # Read and checked once, for all of them.
    checked = Workspace().program(job["book"])
    Workspace.program = lambda self, file: checked  # type: ignore[method-assign]
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
