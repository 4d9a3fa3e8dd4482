"""A harness that writes code until its tests pass, in a temporary git repository.

    python examples/agents/test_driven_coding.py --db coding.db --folder /tmp/coding

It works on one task in each wake. A task is done when the tests pass and the verifying model agrees; a model alone
cannot claim it. Kill it at any time and run it again: it continues with the task it was at.
"""

import argparse
import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from model import choose_model
from pydantic import BaseModel

from gert.agent import (
    ArtanaKernel,
    CodingHarnessTools,
    ModelRequest,
    SQLiteStore,
    TaskUnit,
    TenantContext,
    TestDrivenHarness,
)

TENANT = TenantContext(tenant_id="examples", budget_usd_limit=1)
TESTS = {
    "add": "from calc import add\n\ndef test():\n    assert add(2, 3) == 5\n",
    "mean": "from calc import mean\n\ndef test():\n    assert mean([1, 2, 6]) == 3\n    assert mean([]) == 0\n",
}
ATTEMPTS = 3


class Code(BaseModel):
    """The whole content of `calc.py`."""

    content: str


class File(BaseModel):
    """The arguments of `apply_patch`."""

    path: str
    content: str


ADD = "def add(a, b):\n    return a + b\n"
MEAN = ADD + "\n\ndef mean(values):\n    return sum(values) / len(values){}\n"


def script(request: ModelRequest[Any]) -> dict[str, Any]:
    """Write `add` at once, and `mean` at the second attempt: the first divides by zero."""
    asked = request.messages[-1].content
    if request.output_schema is not Code:
        return {"passed": '"exit_code":0' in asked, "reasoning": "the exit code of the tests"}
    if "`add`" in asked:
        return {"content": ADD}
    return {"content": MEAN.format(" if values else 0" if "ZeroDivisionError" in asked else "")}


class Coder(TestDrivenHarness):
    """Writes `calc.py`, one function after the other."""

    async def define_tasks(self) -> list[TaskUnit]:
        """One task for each test file."""
        return [TaskUnit(id=name, description=f"write `{name}` in calc.py") for name in TESTS]

    async def work_on(self, task: TaskUnit) -> None:
        """Write, test, and show the model what failed."""
        failure = ""
        for attempt in range(1, ATTEMPTS + 1):
            prompt = f"{task.description} so that this passes:\n{TESTS[task.id]}{failure}"
            code = await self.run_draft_model(prompt=prompt, output_schema=Code)
            file = File(path="calc.py", content=code.output.content)
            await self.run_tool(tool_name="apply_patch", arguments=file)
            if await self.verify_and_commit(task_id=task.id, test_command=f"test_{task.id}.py"):
                print(f"{task.id}: tests pass at attempt {attempt}")
                return
            failure = f"\nThe last attempt failed:\n{await self.get_artifact(key=f'test_result::{task.id}')}"
        raise RuntimeError(f"`{task.id}` has no passing tests after {ATTEMPTS} attempts")


def make_repository(folder: Path) -> None:
    """A git repository with tests and no code."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in TESTS.items():
        (folder / f"test_{name}.py").write_text(text)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


async def write_code(db: str, folder: Path, *, offline: bool) -> None:
    """Wake the harness until every task is done."""
    make_repository(folder)
    port, model = choose_model(script, offline=offline)
    tools = CodingHarnessTools(sandbox_root=str(folder)).registry()
    async with ArtanaKernel(store=SQLiteStore(db), model_port=port, tool_port=tools) as kernel:
        coder = Coder(kernel, TENANT, default_model=model, draft_model=model, verify_model=model)

        @kernel.tool(timeout_seconds=60)
        async def execute_test(command: str) -> dict[str, object]:
            """Run one test file of the repository."""
            code = f"import runpy; runpy.run_path({str(folder / command)!r})['test']()"
            words = [sys.executable, "-B", "-c", code]
            done = await asyncio.to_thread(subprocess.run, words, cwd=folder, capture_output=True, text=True)
            return {"exit_code": done.returncode, "output": done.stderr[-500:]}

        while any(unit.state != "done" for unit in await coder.run("coding")):
            pass
        progress = await kernel.get_run_progress(run_id="coding")
        print(f"{progress.percent} % done: {', '.join(progress.completed_stages)}")


def main(arguments: list[str] | None = None) -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", default="coding.db", help="The ledger (default: coding.db).")
    parser.add_argument("--folder", type=Path, default=Path("coding"), help="The repository (default: coding).")
    parser.add_argument("--offline", action="store_true", help="Use the script even if a key is set.")
    given = parser.parse_args(arguments)
    asyncio.run(write_code(given.db, given.folder.resolve(), offline=given.offline))


if __name__ == "__main__":
    main()
