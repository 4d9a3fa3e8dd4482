"""gert: governed execution for people and agents.

The public API on one page. Nothing is imported until it is used, so that `import gert` costs nothing.

    import gert

    checked = gert.validate("runbooks/restart-pod.yaml")
    for finding in checked.findings:
        print(finding.line, finding.rule, finding.message)

    executed = gert.run("runbooks/restart-pod.yaml", {"pod": "web-1"}, actor="oncall@example.com")
    print(executed.status, executed.outcome)

    assert all(tested.verdict == "passed" for tested in gert.test("runbooks/"))

A program can bring its own approvals, inputs, tools and signature verification: `parts=gert.Parts(…)`.
"""

from gert._version import __version__

TYPE_CHECKING = False  # as `typing` has it, without the cost of importing it
if TYPE_CHECKING:
    from typing import Any

    from gert.ecosystem.approvals.port import StillOpen as StillOpen
    from gert.ecosystem.host.config.workspace import Checked as Checked
    from gert.ecosystem.host.config.workspace import validate_file as validate
    from gert.ecosystem.host.embedding.ports import ApprovalProvider as ApprovalProvider
    from gert.ecosystem.host.embedding.ports import ApprovalResponse as ApprovalResponse
    from gert.ecosystem.host.embedding.ports import ApprovalTicket as ApprovalTicket
    from gert.ecosystem.host.embedding.ports import InputResolver as InputResolver
    from gert.ecosystem.host.embedding.ports import Parts as Parts
    from gert.ecosystem.host.embedding.ports import SignatureVerifier as SignatureVerifier
    from gert.ecosystem.host.embedding.ports import SignedResponse as SignedResponse
    from gert.ecosystem.host.embedding.ports import ToolCall as ToolCall
    from gert.ecosystem.host.embedding.ports import ToolExecutor as ToolExecutor
    from gert.ecosystem.host.embedding.ports import ToolResult as ToolResult
    from gert.ecosystem.host.policy.explain_runbook import explain_runbook as explain
    from gert.ecosystem.host.redrive.resume import ResumeOptions as ResumeOptions
    from gert.ecosystem.host.redrive.resume import resume as execute_resume
    from gert.ecosystem.host.redrive.resume import resume_run as resume
    from gert.ecosystem.host.run.execute import execute as execute
    from gert.ecosystem.host.run.execute import run_file as run
    from gert.ecosystem.host.run.options import Executed as Executed
    from gert.ecosystem.host.run.options import RunOptions as RunOptions
    from gert.ecosystem.host.scenarios.suite import Tested as Tested
    from gert.ecosystem.host.scenarios.suite import run_suite as test
    from gert.kernel.engine.inputs import GivenInput as GivenInput
    from gert.kernel.engine.inputs import InputBinding as InputBinding
    from gert.kernel.engine.inputs import InputProblem as InputProblem
    from gert.kernel.governance.approval import ApprovalRequest as ApprovalRequest
    from gert.kernel.runbook.finding import Finding as Finding
    from gert.kernel.runbook.schema import schema_of as schema

__all__ = [
    "ApprovalProvider",
    "ApprovalRequest",
    "ApprovalResponse",
    "ApprovalTicket",
    "Checked",
    "Executed",
    "Finding",
    "GivenInput",
    "InputBinding",
    "InputProblem",
    "InputResolver",
    "Parts",
    "ResumeOptions",
    "RunOptions",
    "SignatureVerifier",
    "SignedResponse",
    "StillOpen",
    "Tested",
    "ToolCall",
    "ToolExecutor",
    "ToolResult",
    "__version__",
    "execute",
    "execute_resume",
    "explain",
    "resume",
    "run",
    "schema",
    "test",
    "validate",
]

_PLACES = {
    "ApprovalProvider": ("gert.ecosystem.host.embedding.ports", "ApprovalProvider"),
    "ApprovalRequest": ("gert.kernel.governance.approval", "ApprovalRequest"),
    "ApprovalResponse": ("gert.ecosystem.host.embedding.ports", "ApprovalResponse"),
    "ApprovalTicket": ("gert.ecosystem.host.embedding.ports", "ApprovalTicket"),
    "GivenInput": ("gert.kernel.engine.inputs", "GivenInput"),
    "InputProblem": ("gert.kernel.engine.inputs", "InputProblem"),
    "InputBinding": ("gert.kernel.engine.inputs", "InputBinding"),
    "InputResolver": ("gert.ecosystem.host.embedding.ports", "InputResolver"),
    "Parts": ("gert.ecosystem.host.embedding.ports", "Parts"),
    "SignatureVerifier": ("gert.ecosystem.host.embedding.ports", "SignatureVerifier"),
    "SignedResponse": ("gert.ecosystem.host.embedding.ports", "SignedResponse"),
    "StillOpen": ("gert.ecosystem.approvals.port", "StillOpen"),
    "ToolCall": ("gert.ecosystem.host.embedding.ports", "ToolCall"),
    "ToolExecutor": ("gert.ecosystem.host.embedding.ports", "ToolExecutor"),
    "ToolResult": ("gert.ecosystem.host.embedding.ports", "ToolResult"),
    "ResumeOptions": ("gert.ecosystem.host.redrive.resume", "ResumeOptions"),
    "execute_resume": ("gert.ecosystem.host.redrive.resume", "resume"),
    "resume": ("gert.ecosystem.host.redrive.resume", "resume_run"),
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
