"""The test document: the expected result of a scenario."""

from typing import Any

from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES, RUN_STATUSES
from gert.kernel.runbook.documents.governance import RISK, VERDICTS
from gert.kernel.runbook.kinds import BOOL, DATA, EXTENSIONS, NONEMPTY, TEXT, TEXTS, ListOf, MapOf, words
from gert.kernel.runbook.model import Model, optional


class Expectations(Model):
    """What must be true of a run for its test to pass."""

    description: str | None = optional(TEXT, "what is tested")
    tags: tuple[str, ...] = optional(TEXTS, "words to select tests by", default=())
    golden: bool | None = optional(BOOL, "whether a recorded scenario runs by default")
    expected_status: str | None = optional(words(*RUN_STATUSES), "how the run ends")
    expected_outcome: str | None = optional(words(*OUTCOME_CATEGORIES), "category of the outcome")
    expected_code: str | None = optional(TEXT, "code of the outcome")
    must_reach: tuple[str, ...] = optional(TEXTS, "steps the run must visit", default=())
    must_not_reach: tuple[str, ...] = optional(TEXTS, "steps the run must not visit", default=())
    expected_outputs: dict[str, Any] = optional(MapOf(DATA), "outputs, exact or as `/regular expression/`", default={})
    expected_meta: dict[str, Any] = optional(MapOf(DATA), "details of the outcome", default={})
    expected_risk: dict[str, str] = optional(MapOf(RISK), "risk by step", default={})
    expected_decisions: dict[str, str] = optional(MapOf(words(*VERDICTS)), "verdict by step", default={})
    expected_events: tuple[str, ...] = optional(ListOf(NONEMPTY), "event types, in order, others between", default=())
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata", default={})
