"""What gert reports of recorded runs: outcomes, verification, and what agents noted."""

from typing import Any, TypedDict

from gert.ecosystem.host.shapes.documents import FREE


class CheckRow(TypedDict):
    """A check; `passed` is null where it was not made."""

    number: int
    name: str
    passed: bool | None
    reason: str


class VerifiedRun(TypedDict):
    """Whether the record of a run is complete and unchanged.

    proven: a seal proves it, too
    """

    run_id: str
    valid: bool
    proven: bool
    kind: str | None
    events: int
    signed_by: str | None
    adopted: list[str]
    checks: list[CheckRow]


class VerifiedLedger(TypedDict):
    """The runs of a ledger.

    elsewhere: runs that the witness has of other ledgers
    """

    runs: list[VerifiedRun]
    elsewhere: dict[str, int]


class ChainBreak(TypedDict):
    """A line that breaks the chain of a trace."""

    line: int
    kind: str
    message: str


class VerifiedTrace(TypedDict):
    """Whether a trace is complete and unchanged."""

    valid: bool
    proven: bool
    trace: str
    run_id: str | None
    events: int
    head: str
    complete: bool
    signed_by: str | None
    sealed: int | None
    after_seal: int
    torn: str | None
    breaks: list[ChainBreak]
    break_count: int
    checks: list[CheckRow]


class SummaryRow(TypedDict):
    """A summary of an agent run."""

    parent_step_key: str | None
    seq: int
    step_key: str | None
    summary: Any
    summary_type: str
    timestamp: str | None


class SummaryList(TypedDict):
    """The summaries of an agent run, the newest first."""

    run_id: str
    summaries: list[SummaryRow]


class ArtifactList(TypedDict):
    """The newest value of each artifact of an agent run."""

    run_id: str
    artifacts: FREE


class SentSpans(TypedDict):
    """Spans that were sent to OpenTelemetry."""

    run_id: str
    spans: int


class Share(TypedDict):
    """How many runs ended in one way."""

    count: int
    percent: float


class CodeCount(TypedDict):
    """How often an outcome was reached."""

    code: str
    category: str
    count: int


class Spread(TypedDict):
    """How long runs took, in seconds."""

    runs: int
    median_seconds: float | None
    p95_seconds: float | None
    longest_seconds: float | None


class StepCount(TypedDict):
    """How often a step failed."""

    step: str | None
    count: int


class FailureCount(TypedDict):
    """How often runs failed in one way."""

    kind: str
    count: int
    steps: list[StepCount]


class ViolationCount(TypedDict):
    """A contract that several runs violated."""

    kind: str
    step: str
    runs: int
    times: int


class BreakGlassUse(TypedDict):
    """How often an actor overrode governance at a step."""

    actor: str | None
    step: str
    uses: int


class BreakGlassCount(TypedDict):
    """How often governance was overridden."""

    uses: int
    runs: int
    by: list[BreakGlassUse]


class RunbookOutcomesRow(TypedDict):
    """The outcomes of a runbook."""

    runbook: str
    runs: int
    first: str | None
    last: str | None
    endings: dict[str, Share]
    codes: list[CodeCount]
    other_codes: int
    durations: Spread
    waited: Spread
    failures: list[FailureCount]
    repeated_violations: list[ViolationCount]
    break_glass: BreakGlassCount


class SkippedFile(TypedDict):
    """A file that could not be read."""

    file: str
    reason: str


class SkippedFiles(TypedDict):
    """Files that could not be read; `files` has the first ones."""

    count: int
    files: list[SkippedFile]


class OutcomesReport(TypedDict):
    """Run outcomes by runbook.

    passed_over: runs that were not counted, by reason
    """

    runs: int
    since: str | None
    until: str | None
    runbook: str | None
    mode: str
    places: list[str]
    traces: int
    runbooks: list[RunbookOutcomesRow]
    passed_over: dict[str, int]
    skipped: SkippedFiles
    unreadable_lines: int
