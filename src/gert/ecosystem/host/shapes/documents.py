"""What gert says of documents: runbooks, tools, policies, scenarios and their findings."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

FREE = dict[str, Any]
"""An object whose keys the author of a document chose."""


class Parameter(TypedDict):
    """A declared input or output."""

    type: str
    required: NotRequired[bool]
    default: NotRequired[Any]
    enum: NotRequired[list[Any]]
    description: NotRequired[str]
    pattern: NotRequired[str]
    min: NotRequired[Any]
    max: NotRequired[Any]
    secret: NotRequired[bool]


class Finding(TypedDict):
    """A finding of validation."""

    rule: str
    severity: str
    path: str
    line: int
    column: int
    message: str
    hint: str | None


class NeededSecret(TypedDict):
    """A variable that a document needs."""

    env: str
    required: bool
    present: bool | None


class CheckedFile(TypedDict):
    """A file that was validated."""

    file: str
    kind: str | None
    valid: bool
    findings: list[Finding]
    secrets: list[NeededSecret]


class Counts(TypedDict):
    """Findings by severity.

    skipped: YAML files in the folders that are not gert documents
    unfinished: files with errors that prevented further checks of them
    """

    errors: int
    warnings: int
    notes: int
    skipped: int
    unfinished: int


class Validation(TypedDict):
    """The findings of files."""

    valid: bool
    files: list[CheckedFile]
    summary: Counts


class RunbookRow(TypedDict):
    """A runbook of a list."""

    name: str
    path: str
    valid: bool
    description: NotRequired[str]
    inputs: NotRequired[dict[str, Parameter]]
    allowed: NotRequired[Annotated[bool, Meta(description="Whether it may be started here.")]]


class RunbookPage(TypedDict):
    """A page of runbooks."""

    runbooks: list[RunbookRow]
    total: int
    next_cursor: NotRequired[str]


class ContractSummary(TypedDict):
    """The parts of a contract that governance uses; `effects` is null where they are unknown."""

    effects: list[str] | None
    reads: list[str]
    writes: list[str]
    deterministic: bool
    idempotent: bool
    inputs: NotRequired[dict[str, Parameter]]
    outputs: NotRequired[dict[str, Parameter]]


class ImportedFrom(TypedDict):
    """Where a tool was imported from.

    tools: how many the server had
    """

    server: str | None
    tools: int


class ToolActionRow(TypedDict):
    """An action of a tool."""

    name: str
    risk_level: str
    risk_reason: NotRequired[str]
    description: NotRequired[str]
    timeout: NotRequired[str]
    calls: NotRequired[str]
    contract: NotRequired[ContractSummary]


class ToolRow(TypedDict):
    """A tool."""

    file: str
    name: str
    valid: bool
    transport: NotRequired[str]
    place: NotRequired[str | None]
    description: NotRequired[str | None]
    secrets: NotRequired[list[str]]
    imported: NotRequired[ImportedFrom]
    actions: list[ToolActionRow]


class ToolList(TypedDict):
    """Tools."""

    tools: list[ToolRow]


class ToolPage(ToolList):
    """A page of tools."""

    total: int
    next_cursor: NotRequired[str]


class SchemaDocument(TypedDict):
    """The JSON Schema of a document kind."""

    type: str
    schema: FREE


class DecisionDocument(TypedDict):
    """A decision of governance; keys that do not apply are left out.

    decision: `allow`, `require-approval` or `deny`
    """

    decision: str
    rules: NotRequired[list[str]]
    min_approvers: NotRequired[int]
    approval_timeout: NotRequired[float | str | None]
    on_timeout: NotRequired[str]
    require_signed_approvals: NotRequired[bool]
    approvers: NotRequired[list[list[str]]]
    escalate_to: NotRequired[list[list[str]]]
    separation_of_duties: NotRequired[bool]
    break_glass: NotRequired[bool]
    violations_deny: NotRequired[bool]
    serialize: NotRequired[bool]
    notify: NotRequired[list[str]]
    max_targets: NotRequired[int]
    max_per_hour: NotRequired[int]


class ConsideredRule(TypedDict):
    """A rule of a policy.

    failed: why it does not match
    """

    rule: str
    failed: str | None


class ConsideredPolicy(TypedDict):
    """How a policy matches a contract.

    contract_of: `step`, or `tool` for the tool behind it
    decides: it is one of those that decided
    """

    policy: str
    contract_of: NotRequired[str]
    decision: str
    decides: NotRequired[bool]
    rules: list[ConsideredRule]


class PreviewDocument(TypedDict):
    """The preview of a step.

    not_run: why a policy forbids it
    """

    command: list[str]
    contract: ContractSummary
    not_run: str | None


class StepRow(DecisionDocument):
    """A step under the policies in force."""

    step: str
    step_type: str
    target: str
    path: str
    contract: ContractSummary
    risk_level: str
    risk_reason: str
    rule: str | None
    description: NotRequired[str]
    preview: NotRequired[PreviewDocument]
    considered: NotRequired[list[ConsideredPolicy]]


class ExplainedStepDocument(StepRow):
    """One step of a runbook."""

    runbook_name: str


class Crossing(TypedDict):
    """An input or a webhook, which crosses the boundary without a step."""

    direction: str
    what: str
    place: str
    effect: str
    refusal: str | None


class ExplainedRunbook(TypedDict):
    """A runbook under the policies in force."""

    runbook_name: str
    description: NotRequired[str | None]
    inputs: NotRequired[dict[str, Parameter]]
    steps: list[StepRow]
    crossings: NotRequired[list[Crossing]]


class MissedExpectation(TypedDict):
    """An expectation of a scenario that was not met."""

    name: str
    expected: str
    found: str
    hint: str | None


class TestRow(TypedDict):
    """The result of one scenario."""

    runbook: str
    scenario: str
    folder: str
    verdict: str
    seconds: float
    description: str | None
    status: str | None
    outcome: str | None
    differences: list[MissedExpectation]
    message: str | None
    hint: str | None
    notes: list[str]
    updates: NotRequired[FREE]


class CoveredPart(TypedDict):
    """How much of a part is reached."""

    reached: int
    total: int
    missed: list[str]


class CoverageRow(TypedDict):
    """The coverage of a runbook by its scenarios."""

    runbook: str
    complete: bool
    steps: CoveredPart
    arms: CoveredPart
    outcomes: CoveredPart


class Counted(TypedDict):
    """How many tests passed.

    stopped: not all of them ran
    """

    passed: int
    failed: int
    errors: int
    seconds: float
    stopped: bool


class TestReport(Counted):
    """The results of scenarios."""

    skipped: int
    updated: int
    tests: list[TestRow]
    coverage: NotRequired[list[CoverageRow]]


_Source = TypedDict("_Source", {"from": str | None})


class InputRow(Parameter, _Source):
    """An input of a form, and where its value comes from; `needed` says that a person has to give it."""

    needed: bool


class InputList(TypedDict):
    """The inputs of a runbook."""

    runbook_name: str
    inputs: dict[str, InputRow]
