"""A program that runs a runbook many times, and each time is killed at another point of its record.

Called with a JSON document: `book`, `evidence`, `stdin`, and `points`, each with the folder `at` that takes its
state and its side effects, `what` kind of point it is, and its number `n`:

before   nothing of the append with the n-th answer is written; of the first of all, where n is 0
midway   that append is written and not committed
after    that append is committed, and nothing that follows from it has happened
none     nobody is killed
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.host.run.execute import execute
from gert.ecosystem.host.run.options import RunOptions
from gert.ecosystem.ledger import transactions
from gert.ecosystem.ledger.sqlite.ledger import SqliteLedger
from gert.kernel.engine.inputs import GivenInput
from gert.kernel.ledger.record import Batch, Head, Write

append = SqliteLedger.append
transaction = transactions.append


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Killing:
    """Appends to a ledger, up to a point; counted by answers, since lanes may share an append or not."""

    def __init__(self, what: str, n: int) -> None:
        self._what = what
        self._n = n
        self._answers = 0
        self._appends = 0

    def _is_here(self, what: str) -> bool:
        return self._what == what and self._appends > 0 and self._answers >= self._n

    async def append(self, ledger: SqliteLedger, run_id: str, write: Write, **more: Any) -> Any:
        def counted(head: Head, now: str) -> Batch:
            batch = write(head, now)
            self._appends += 1
            self._answers += len(batch.answers)
            if self._is_here("before"):
                die()
            return batch

        written = await append(ledger, run_id, counted, **more)
        if self._is_here("after"):
            die()
        return written

    def transaction(self, *terms: Any, **more: Any) -> Generator[Any, Any, Any]:
        """The statements of an append; after the last of them comes the commit."""
        written = yield from transaction(*terms, **more)
        if self._is_here("midway"):
            die()
        return written

    def install(self) -> None:
        # A function, not a bound method: the ledger is its first argument.
        async def appending(ledger: SqliteLedger, run_id: str, write: Write, **more: Any) -> Any:
            return await self.append(ledger, run_id, write, **more)

        SqliteLedger.append = appending  # type: ignore[method-assign, assignment]
        transactions.append = self.transaction


def run(job: dict[str, Any], point: dict[str, Any]) -> None:
    """In a process of its own: run the runbook until the point."""
    at = Path(point["at"])
    at.mkdir(parents=True)
    os.dup2(os.open(job["stdin"], os.O_RDONLY), 0)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - this process only ever dies
    Killing(point["what"], point["n"]).install()
    options = RunOptions(
        file=job["book"],
        given={"folder": GivenInput(str(at))},
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
    json.dump(job["points"], sys.stdout)


if __name__ == "__main__":
    main()
