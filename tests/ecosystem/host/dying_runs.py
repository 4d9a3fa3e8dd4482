"""Runbook runs whose process dies at each call of the system in turn, and those who go on with them.

What each attempt came to is printed, and checked where it happens: `python -m tests.ecosystem.host.dying_runs FOLDER`.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.ecosystem.ledger.dying import KILLED, dies_at

from gert.ecosystem.host.execute import run_file
from gert.ecosystem.host.resume import ResumeOptions, resume
from gert.errors import GertError
from gert.kernel.events.chain import read_chain

COUNTED = ("write", "fsync", "fdatasync", "replace", "ftruncate", "mkdir")
MOST = 200
REFUSED = 3
STEPS = ("one", "two", "three")

TOOL = """
apiVersion: tool/v0
meta: {{name: mark, description: Marks, transport: stdio, binary: sh}}
contract:
  effects: [local]
  writes: [marks]
  idempotent: false
  deterministic: false
  inputs: {{name: {{type: string, required: true}}}}
  outputs: {{}}
actions:
  mark: {{argv: [sh, -c, 'echo $0 >> {marks}', '{{{{ .name }}}}']}}
"""


def prepare(folder: Path) -> Path:
    (folder / "tools").mkdir()
    (folder / "tools" / "mark.tool.yaml").write_text(TOOL.format(marks=folder / "marks"))
    lines = ["apiVersion: kernel/v0", "meta: {name: marks, governance: {rules: [{default: allow}]}}", "tools: [mark]"]
    lines += ["steps:", *(f"  - {{id: {name}, type: tool, tool: mark, inputs: {{name: {name}}}}}" for name in STEPS)]
    lines += ["  - {id: end, type: end, outcome: {category: resolved, code: ok}}"]
    runbook = folder / "marks.yaml"
    runbook.write_text("\n".join(lines) + "\n")
    return runbook


def child(work: Callable[[], object]) -> int:
    """How a process ended that did something."""
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except GertError as error:
            os.write(2, f"{error.message}\n".encode())
            os._exit(REFUSED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def goes_on(state: Path, run_id: str, number: int) -> None:
    """Go on with a run; what is in doubt is said to have happened, so that nothing may happen twice."""
    if number:
        dies_at(number, COUNTED)
    options = ResumeOptions(run_id=run_id, state_dir=str(state), reconcile={"*": "success"})
    asyncio.run(resume(options, environ={"PATH": os.defpath}))


def marks_of(folder: Path) -> Counter[str]:
    marks = folder / "marks"
    return Counter(marks.read_text().split() if marks.exists() else ())


def attempt(folder: Path, runbook: Path, number: int, second: int) -> bool:
    """Let a run die, and who goes on with it; whether the first of them died at all."""
    state = folder / f"state-{number}"
    (folder / "marks").unlink(missing_ok=True)

    def begins() -> None:
        dies_at(number, COUNTED)
        run_file(str(runbook), state_dir=str(state))

    code = child(begins)
    runs = os.listdir(state / "runs") if (state / "runs").exists() else []
    for run_id in runs:
        trace = state / "runs" / run_id / "trace.jsonl"
        if code == 0 or not trace.exists() or not (trace.parent / "state.json").exists() or not trace.stat().st_size:
            assert code == 0 or not marks_of(folder), "something happened before it was on record"
            continue
        child(partial(goes_on, state, run_id, second))
        last = child(partial(goes_on, state, run_id, 0))
        report = read_chain(trace.read_bytes().splitlines(keepends=True))
        assert (report.break_count, report.torn) == (0, None)
        # Done by the second already, it is finished, and the last is refused.
        assert b'"run_complete"' in trace.read_bytes(), last
    found = marks_of(folder)
    assert not found or max(found.values()) == 1, found
    sys.stdout.write(f"{code} {len(runs)} {sum(found.values())}\n")
    return code == KILLED


def main(folder: Path) -> None:
    runbook = prepare(folder)
    for number in range(1, MOST):
        if not attempt(folder, runbook, number, 1 + number % 9):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
