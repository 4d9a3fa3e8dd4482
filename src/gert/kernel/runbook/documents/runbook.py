"""The runbook document, `kernel/v0`."""

from typing import Any, Final

from gert.kernel.runbook.documents.contract import InputBlock
from gert.kernel.runbook.documents.governance import GovernanceBlock
from gert.kernel.runbook.documents.shared import SECRETS, OnOutcome, SecretBlock
from gert.kernel.runbook.documents.steps import STEPS, Step, StepKind
from gert.kernel.runbook.kinds import (
    EXTENSIONS,
    IDENTIFIER,
    NAME_WORD,
    TEMPLATED,
    TEXT,
    TEXTS,
    TIMEOUT,
    ListOf,
    MapOf,
    Nested,
    words,
)
from gert.kernel.runbook.model import Model, optional, required

API_VERSION: Final = "kernel/v0"


class RunbookMeta(Model):
    """The runbook's name, inputs, constants and governance."""

    name: str = required(NAME_WORD, "name of the runbook")
    description: str | None = optional(TEXT, "what the runbook is for")
    inputs: dict[str, InputBlock] = optional(
        MapOf(Nested(InputBlock), keys=IDENTIFIER), "values the caller provides", default={}
    )
    constants: dict[str, Any] = optional(
        MapOf(TEMPLATED, keys=IDENTIFIER), "fixed values; steps cannot change them", default={}
    )
    governance: GovernanceBlock | None = optional(Nested(GovernanceBlock), "rules that decide which steps may run")
    secrets: tuple[SecretBlock, ...] = optional(SECRETS, "secrets the runbook needs", default=())
    on_outcome: OnOutcome | None = optional(Nested(OnOutcome), "whom to notify, by outcome category")
    timeout: str | None = optional(TIMEOUT, "time limit for the whole run")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata; kept and recorded, never interpreted", default={})


class Runbook(Model):
    """A runbook: governed, recorded, replayable steps that lead to an outcome."""

    api_version: str = required(words(API_VERSION), "version of the language", key="apiVersion")
    meta: RunbookMeta = required(Nested(RunbookMeta), "name, inputs, constants and governance")
    tools: tuple[str, ...] = optional(TEXTS, "the only tools its steps may use: names or paths", default=())
    steps: tuple[Step, ...] = required(ListOf(StepKind(), minItems=1), "the steps, in order")
    finally_: tuple[Step, ...] = optional(
        STEPS, "steps that always run once after the run has ended", key="finally", default=()
    )
