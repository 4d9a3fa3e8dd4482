"""A tool executor: the program calls tools itself. Here `kubectl` is a cluster in memory.

Run it: python examples/embedding/tool_executor.py
"""

import asyncio
import tempfile
from pathlib import Path

import gert

HERE = Path(__file__).resolve().parent
RUNBOOK = HERE.parent / "runbooks" / "restart-pod.yaml"


class Cluster:
    """Answers the actions of `examples/tools/kubectl.tool.yaml` that the runbook uses."""

    def __init__(self, *pods: str) -> None:
        self.pods = list(pods)
        self.deleted: list[str] = []

    async def execute(self, call: gert.ToolCall) -> gert.ToolResult | dict[str, object]:
        """Called only for calls that policies allow, after an approval where one is needed."""
        if call.action == "get":
            return {"items": [{"metadata": {"name": name}} for name in self.pods]}
        pod = call.inputs["pod"]
        if pod not in self.pods:
            return gert.ToolResult(exit_code=1, stderr=f"pods {pod!r} not found")
        await asyncio.sleep(0.01)  # cancelled with the run
        self.pods.remove(pod)
        self.deleted.append(pod)
        return gert.ToolResult(exit_code=0, stdout=f'pod "{pod}" deleted\n')

    def preview(self, call: gert.ToolCall) -> gert.ToolResult:
        """What an approver sees before deciding."""
        return gert.ToolResult(exit_code=0, stdout=f"would delete {call.inputs['pod']} of {len(self.pods)} pods\n")


def main() -> None:
    """Look at the pods; the dry run shows what a real one would do."""
    with tempfile.TemporaryDirectory() as state:
        parts = gert.Parts(tools={"kubectl": Cluster("web-1", "web-2")})
        shown = gert.run(str(RUNBOOK), {"pod": "web-1"}, parts=parts, mode="dry-run", state_dir=state)
        print(shown.status, [outcome.code for outcome in shown.reachable_outcomes])


if __name__ == "__main__":
    main()
