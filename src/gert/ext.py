"""For authors of extension runners: a program that executes steps for gert, in ten lines.

    #!/usr/bin/env python3
    from gert.ext import Failed, Step, run

    def execute(step: Step) -> dict:
        target = step.inputs["target"]
        if target == "nowhere":
            raise Failed(f"cannot reach {target}")
        return {"status": f"{target} is healthy"}

    run(execute)

Save it as `gert-ext-NAME` on PATH, make it executable, and check it with `gert ext check gert-ext-NAME`. The protocol
is described in docs/extensions.md.
"""

from gert.ecosystem.rpc.runner import Failed, Step, run

__all__ = ["Failed", "Step", "run"]
