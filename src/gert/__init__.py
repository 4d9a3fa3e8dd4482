"""gert: governed execution for people and agents.

The public API on one page. Nothing is imported until it is used, so that `import gert` costs nothing.

    import gert

    checked = gert.validate("runbooks/restart-pod.yaml")
    for finding in checked.findings:
        print(finding.line, finding.rule, finding.message)

    executed = gert.run("runbooks/restart-pod.yaml", {"pod": "web-1"}, actor="oncall@example.com")
    print(executed.status, executed.outcome)

    assert all(tested.verdict == "passed" for tested in gert.test("runbooks/"))
"""

from gert._version import __version__

TYPE_CHECKING = False  # as `typing` has it, without the cost of importing it
if TYPE_CHECKING:
    from typing import Any

    from gert.ecosystem.host.config.workspace import Checked as Checked
    from gert.ecosystem.host.config.workspace import validate_file as validate
    from gert.ecosystem.host.policy.explain_runbook import explain_runbook as explain
    from gert.ecosystem.host.run.execute import execute as execute
    from gert.ecosystem.host.run.execute import run_file as run
    from gert.ecosystem.host.run.options import Executed as Executed
    from gert.ecosystem.host.run.options import RunOptions as RunOptions
    from gert.ecosystem.host.scenarios.suite import Tested as Tested
    from gert.ecosystem.host.scenarios.suite import run_suite as test
    from gert.kernel.runbook.finding import Finding as Finding
    from gert.kernel.runbook.schema import schema_of as schema

__all__ = [
    "Checked",
    "Executed",
    "Finding",
    "RunOptions",
    "Tested",
    "__version__",
    "execute",
    "explain",
    "run",
    "schema",
    "test",
    "validate",
]

_PLACES = {
    "Checked": ("gert.ecosystem.host.config.workspace", "Checked"),
    "Executed": ("gert.ecosystem.host.run.options", "Executed"),
    "RunOptions": ("gert.ecosystem.host.run.options", "RunOptions"),
    "execute": ("gert.ecosystem.host.run.execute", "execute"),
    "run": ("gert.ecosystem.host.run.execute", "run_file"),
    "Finding": ("gert.kernel.runbook.finding", "Finding"),
    "explain": ("gert.ecosystem.host.policy.explain_runbook", "explain_runbook"),
    "Tested": ("gert.ecosystem.host.scenarios.suite", "Tested"),
    "test": ("gert.ecosystem.host.scenarios.suite", "run_suite"),
    "schema": ("gert.kernel.runbook.schema", "schema_of"),
    "validate": ("gert.ecosystem.host.config.workspace", "validate_file"),
}


def __getattr__(name: str) -> "Any":
    if name not in _PLACES:
        raise AttributeError(f"module 'gert' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
