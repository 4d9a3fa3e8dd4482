"""What commands print with --json: the shape of each result, and the JSON Schema of them.

A result that is a record of the host has the fields of that record. With several shapes, a result has one of them.
"""

from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypedDict

from gert.ecosystem.host.agent.prices import PriceTable
from gert.ecosystem.host.extensions.check import CheckResult
from gert.ecosystem.host.redrive.abandon import Abandoned
from gert.ecosystem.host.run.check_inputs import InputResult, ListedProvider
from gert.ecosystem.host.runner.create import SkillCheck
from gert.ecosystem.host.runner.dispatch import Dispatched
from gert.ecosystem.host.runner.doctor import Diagnosis
from gert.ecosystem.host.runner.recover import Recovered
from gert.ecosystem.host.runs.agent_timeline import Item, Totals
from gert.ecosystem.host.runs.compare_runs import Difference
from gert.ecosystem.host.runs.cost import CostRow
from gert.ecosystem.host.scenarios.compare_scenarios import Baseline
from gert.ecosystem.host.scenarios.curate import Curated, ScenarioInfo
from gert.ecosystem.host.shapes import approvals, documents, policies, reports, runs
from gert.ecosystem.host.shapes.documents import FREE
from gert.ecosystem.host.shapes.errors import ErrorResult
from gert.ecosystem.host.shapes.schema import schemas_for
from gert.ecosystem.host.tools.check_tools import CheckedTool
from gert.ecosystem.host.tools.import_mcp import ImportedFile
from gert.ecosystem.host.tools.new_tool import NewTool
from gert.ecosystem.host.tools.try_action import Tried
from gert.kernel.events.envelope import Envelope
from gert.kernel.runbook.schema import DIALECT
from gert.kernel.runner.authorization import Authorization
from gert.kernel.runner.execution_record import ExecutionRecord
from gert.kernel.runner.plan import Plan
from gert.kernel.scenario.changes import Changed, Ending


class ShownAgentRun(runs.ShownRun):
    """An agent run.

    timeline: its last items, or all of them with --all
    timeline_skipped: how many earlier items there are
    """

    tenant_id: str
    blocked_on: str | None
    pauses: list[str]
    failure_reason: str | None
    failure_step: str | None
    last_event_seq: int
    last_event_type: str | None
    last_step_key: str | None
    last_stage: str | None
    last_tool: str | None
    current_stage: str | None
    percent: int
    drift_count: int
    model_calls: int
    tool_calls: int
    model_cost_total: float
    started_at: str
    updated_at: str
    timeline: list[Item]
    timeline_skipped: int
    totals: Totals


class CostReport(TypedDict):
    """The cost of model calls."""

    by: str
    rows: list[CostRow]
    cost_usd: float


class ComparedRuns(TypedDict):
    """How two runs differ."""

    a: str
    b: str
    same_steps: int
    differences: list[Difference]


class NewScenario(TypedDict):
    """A scenario that was created.

    recorded: the run it was recorded from
    differs: why its replay differs from the run, if it does
    """

    folder: str
    runbook: str
    recorded: str | None
    differs: NotRequired[str | None]


class ShownScenario(ScenarioInfo, frozen=True, kw_only=True):
    """A scenario with its answers and expectations."""

    answers: FREE
    expectations: FREE | None


class ScenarioChanges(TypedDict):
    """What changed; what did not is left out."""

    outcome_changed: NotRequired[bool]
    reached: NotRequired[list[str]]
    unreached: NotRequired[list[str]]
    failure: NotRequired[Changed]
    meta: NotRequired[list[Changed]]
    decisions: NotRequired[list[Changed]]
    risks: NotRequired[list[Changed]]
    outputs: NotRequired[list[Changed]]
    commands: NotRequired[list[Changed]]


class ComparedScenario(TypedDict):
    """One scenario, before and now.

    baseline: what it was compared with
    missing: what the runbook asks and the scenario does not answer
    problem: why it could not be compared
    """

    scenario: str
    folder: str
    same: bool
    baseline: Baseline
    before: Ending | None
    after: Ending | None
    changes: ScenarioChanges
    missing: list[str]
    problem: str | None
    notes: list[str]


class ComparedRunbook(TypedDict):
    """The scenarios of a runbook, before and now."""

    runbook: str
    file: str
    against: str | None
    commit: str | None
    scenarios: list[ComparedScenario]
    unchanged: int
    changed: int


class NewProject(TypedDict):
    """A project that was created.

    kept: files of your own, which were not replaced
    next: commands to try
    """

    folder: str
    name: str
    written: list[str]
    replaced: list[str]
    kept: list[str]
    profile: NotRequired[str]
    next: list[str]


class ProviderList(TypedDict):
    """The configured providers of inputs."""

    providers: list[ListedProvider]


class CheckedInputs(TypedDict):
    """What providers answered."""

    inputs: list[InputResult]


class CheckedToolRow(CheckedTool, kw_only=True):
    """What is wrong with a tool, and what is worth knowing."""

    ok: bool


class CheckedTools(TypedDict):
    """Tools that were checked."""

    ok: bool
    tools: list[CheckedToolRow]


class ImportedTool(ImportedFile, frozen=True, kw_only=True):
    """A tool file that was imported; `text` is there if it was not written."""

    text: str = ""


class WrittenTool(NewTool, frozen=True, kw_only=True):
    """A tool file and what it holds; `text` is there if it was not written."""

    text: str = ""


class TriedAction(Tried, frozen=True, kw_only=True):
    """What an action did.

    contract_holds: whether it kept its contract
    """

    contract_holds: bool


class CheckedExtension(TypedDict):
    """The checks of a runner of extensions."""

    binary: str
    passed: bool
    checks: list[CheckResult]


class SkillRow(TypedDict):
    """A skill, and the runners that can execute it."""

    id: str
    vendor: str
    network: str
    valid: bool
    runners: list[str]
    file: str
    description: str | None


class ShownSkill(SkillRow):
    """A skill as its file has it (`gert schema skill`)."""

    digest: str
    apiVersion: str
    permissions: FREE
    networkPolicy: FREE | None
    requiredSecrets: list[FREE]
    contract: FREE
    timeout: str | None
    http: FREE | None
    program: FREE | None
    extract: FREE
    extensions: FREE


class CheckedSkill(SkillCheck, frozen=True):
    """What the gates say about a skill."""

    passes: bool


class CreatedPlan(documents.DecisionDocument):
    """A plan that was created, and what governance decides about it."""

    plan: Plan
    digest: str
    file: str


class ShownPlan(TypedDict):
    """A plan and its authorization."""

    plan: Plan
    digest: str
    authorization: Authorization | None


class VerifiedPlan(TypedDict):
    """Whether a runner would execute a plan."""

    valid: bool
    checks: list[reports.CheckRow]


class RefusedExecution(TypedDict):
    """A plan that its runner refused before it began."""

    plan_id: str
    refused: Dispatched | None


class RunnerRow(TypedDict):
    """A registered runner, and the skills that it can execute."""

    id: str
    capabilities: FREE
    digest: str
    skills: list[str]


class Version(TypedDict):
    """The version of gert."""

    version: str
    commit: str | None


_RUN: Final = (runs.RunResultDocument,)
_TICKET: Final = (approvals.AnsweredTicket, list[approvals.AnswerOfSeveral])
_CURATED: Final = (Curated,)
_VERIFIED: Final = (reports.VerifiedRun, reports.VerifiedLedger)
_SENT: Final = (runs.Sent,)
_EVENT: Final = (Envelope,)

RESULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "init": (NewProject,),
    "exec": (*_RUN, runs.StartedRun),
    "watch": (runs.WatchedRun,),
    "resume": (*_RUN, list[runs.ReadyRun]),
    "rerun": _RUN,
    "run list": (list[runs.RunRow],),
    "run show": (runs.ShownRunbookRun, ShownAgentRun, runs.ShownExecution),
    "run tail": _EVENT,
    "run abandon": (Abandoned,),
    "run status": (runs.RunStatus,),
    "run summaries": (reports.SummaryList,),
    "run artifacts": (reports.ArtifactList,),
    "run export": (reports.SentSpans,),
    "run cancel": _SENT,
    "run advance": _SENT,
    "run evidence": _SENT,
    "run cost": (CostReport,),
    "run diff": (ComparedRuns,),
    "run verify-ledger": _VERIFIED,
    "run verify": _VERIFIED,
    "logs": (runs.OutputPiece,),
    "approvals list": (list[approvals.Ticket],),
    "approvals show": (approvals.Ticket,),
    "approvals serve": (approvals.ServedPages, approvals.ServedTicket),
    "approve": _TICKET,
    "reject": _TICKET,
    "test": (documents.TestReport,),
    "diff": (ComparedRunbook,),
    "scenario new": (NewScenario,),
    "scenario promote": _CURATED,
    "scenario demote": _CURATED,
    "scenario list": (list[ScenarioInfo],),
    "scenario show": (ShownScenario,),
    "validate": (documents.Validation,),
    "explain": (documents.ExplainedRunbook,),
    "policy test": (policies.PolicyTestReport,),
    "policy explain": (policies.ExplainedPolicies,),
    "input list": (ProviderList,),
    "input check": (CheckedInputs,),
    "tool list": (documents.ToolList,),
    "tool show": (documents.ToolRow,),
    "tool check": (CheckedTools,),
    "tool import": (ImportedTool,),
    "tool new": (WrittenTool,),
    "tool try": (TriedAction,),
    "ext check": (CheckedExtension,),
    "skill list": (list[SkillRow],),
    "skill show": (ShownSkill,),
    "skill check": (list[CheckedSkill],),
    "plan create": (CreatedPlan,),
    "plan show": (ShownPlan,),
    "plan approve": _RUN,
    "plan verify": (VerifiedPlan,),
    "runner run": (ExecutionRecord, RefusedExecution),
    "runner recover": (list[Recovered],),
    "runner list": (list[RunnerRow],),
    "runner doctor": (list[Diagnosis],),
    "trace verify": (reports.VerifiedTrace,),
    "trace show": _EVENT,
    "outcomes": (reports.OutcomesReport,),
    "keys new": (approvals.KeyDocument,),
    "keys show": (approvals.KeyDocument,),
    "keys list": (list[approvals.KeyRow],),
    "models prices": (PriceTable,),
    "version": (Version,),
}
"""The shapes of each command."""

LINES: Final = frozenset({"watch", "run tail", "logs", "approvals serve", "trace show"})
"""Commands that print one line of JSON for each item, and those lines have the shape."""


def result_schema(command: str = "exec") -> dict[str, Any]:
    """The JSON Schema of what a command prints with --json: its result, or an error."""
    found, definitions = schemas_for((*RESULTS[command], ErrorResult))
    what = "Each line that" if command in LINES else "What"
    return {
        "$schema": DIALECT,
        "title": f"gert {command} --json",
        "description": f"{what} `gert {command}` prints with --json.",
        "anyOf": list(found),
        "$defs": definitions,
    }
