"""Modifiers of a step: jump, loop, visibility, principal and retry."""

from typing import Any, Final

from gert.kernel.foundation.principal import PRINCIPAL_KINDS
from gert.kernel.runbook.finding import Path
from gert.kernel.runbook.kinds import (
    BOOL,
    DURATION,
    IDENTIFIER_WORD,
    NONEMPTY_TEMPLATE,
    STEP_ID_WORD,
    TEMPLATE,
    TEMPLATED,
    TEXTS,
    Choice,
    Int,
    IntOrTemplate,
    ListOf,
    words,
)
from gert.kernel.runbook.model import Decoder, Model, optional, required
from gert.kernel.runbook.tree import Map, Seq
from gert.kernel.template import Template

RETRY_ON: Final = ("failed", "error", "timeout")


class NextBlock(Model):
    """A jump to a step of the same list; a backward jump needs `max`."""

    step: str = required(STEP_ID_WORD, "id of the step to go to")
    max: "int | Template | None" = optional(
        IntOrTemplate(minimum=0, maximum=10_000), "how many times the jump may be taken"
    )


class NextKind(Choice):
    """`next: id` is short for `next: {step: id}`."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode either form to the long one."""
        decoded = super().decode(doc, node, key, value, path)
        if isinstance(decoded, str):
            block = NextBlock(step=decoded, max=None)
            block.__dict__["path"] = (*path, key)
            return block
        return decoded


class ForEachBlock(Model):
    """Run the step once for each item of a list."""

    as_: str = required(IDENTIFIER_WORD, "name of the current item inside the loop", key="as")
    over: Any = required(
        Choice("a template or a list", {str: TEMPLATE, Seq: TEMPLATED}),
        "the items: a list, or a template that renders to one",
    )
    key: Template | None = optional(NONEMPTY_TEMPLATE, "key each result by this instead of its index")
    parallel: bool = optional(BOOL, "run the iterations concurrently", default=False)


class VisibilityBlock(Model):
    """Which variables the step may see; deny wins, and a present allow hides the rest."""

    allow: tuple[str, ...] | None = optional(TEXTS, "path globs the step may see")
    deny: tuple[str, ...] | None = optional(TEXTS, "path globs hidden from the step")


class PrincipalBlock(Model):
    """Who acts in this step."""

    kind: str = required(words(*PRINCIPAL_KINDS), "what kind of actor")
    id: Template = required(NONEMPTY_TEMPLATE, "a stable identifier: an email address, an agent id")
    role: Template | None = optional(TEMPLATE, "functional role, such as `oncall` or `judge`")
    model: Template | None = optional(TEMPLATE, "model identifier, for agents")


class RetryBlock(Model):
    """Retry a failed step; only for idempotent contracts."""

    max: int = required(Int(minimum=1, maximum=1000), "how many retries")
    backoff: str | None = optional(DURATION, "delay before the first retry; it doubles with each retry")
    max_backoff: str | None = optional(DURATION, "longest delay between attempts")
    on: tuple[str, ...] = optional(
        ListOf(words(*RETRY_ON), minItems=1, uniqueItems=True), "which results are retried (default: all)",
        default=RETRY_ON,
    )  # fmt: skip
