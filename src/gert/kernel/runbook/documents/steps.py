"""The nine kinds of step, and the modifiers they take."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from gert.errors import TemplateEvalError
from gert.kernel.events.vocabulary import OUTCOME_CATEGORIES
from gert.kernel.foundation.names import did_you_mean, listing
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents.contract import ContractBlock
from gert.kernel.runbook.documents.modifiers import (
    ForEachBlock,
    NextBlock,
    NextKind,
    PrincipalBlock,
    RetryBlock,
    VisibilityBlock,
)
from gert.kernel.runbook.finding import Path, error
from gert.kernel.runbook.kinds import (
    BOOL,
    CONDITION,
    EXTENSIONS,
    IDENTIFIER_WORD,
    NONEMPTY,
    NONEMPTY_TEMPLATE,
    STEP_ID_WORD,
    TEMPLATE,
    TEMPLATED,
    TEXT,
    TIMEOUT,
    Choice,
    IntOrTemplate,
    ListOf,
    MapOf,
    Nested,
    TemplateText,
    words,
)
from gert.kernel.runbook.model import Decoder, Kind, Model, Schema, describe, optional, required
from gert.kernel.runbook.tree import Map, Seq
from gert.kernel.template import Budget, Template, condition

EVIDENCE_KINDS: Final = ("text", "checklist", "attachment")
DEFAULT_ARM: Final = "default"

# Each kind of assertion, and whether it compares with `expected`.
ASSERTIONS: Final[dict[str, bool]] = {
    "equals": True,
    "not_equals": True,
    "contains": True,
    "not_contains": True,
    "matches": True,
    "not_matches": True,
    "greater_than": True,
    "greater_or_equal": True,
    "less_than": True,
    "less_or_equal": True,
    "exists": False,
    "not_exists": False,
    "empty": False,
    "not_empty": False,
}
PATTERN_ASSERTIONS: Final = frozenset({"matches", "not_matches"})

# The budget for evaluating a constant template during validation; a document may contain thousands of them.
VALIDATION_BUDGET: Final = Budget(max_steps=100, max_output=1000)


class Step(Model):
    """The keys of every step."""

    type: ClassVar[str] = ""
    executes: ClassVar[bool] = False

    type_: str = optional(TEXT, "what kind of step", key="type", default="")
    id: str | None = optional(STEP_ID_WORD, "name of the step, unique in the runbook")
    title: Template | None = optional(TEMPLATE, "a short title for people")
    description: Template | None = optional(TEMPLATE, "what the step is for")
    when: Template | None = optional(CONDITION, "run the step only if this holds")
    extensions: dict[str, Any] = optional(EXTENSIONS, "free metadata; kept and recorded, never interpreted", default={})

    # The modifiers that only some kinds take, so that they can be read from any step.
    next: NextBlock | None = None
    for_each: ForEachBlock | None = None
    continue_on_fail: bool = False
    scope: Template | None = None
    export: tuple[str, ...] = ()
    visibility: VisibilityBlock | None = None
    principal: PrincipalBlock | None = None
    timeout: str | None = None
    retry: RetryBlock | None = None
    contract: ContractBlock | None = None

    @classmethod
    def noun(cls) -> str:
        """Return the noun for messages."""
        return "a step"

    @classmethod
    def report_unknown(cls, doc: Decoder, key: str, path: Path) -> None:
        """S04: report a key of another kind of step differently from an unknown key."""
        owners = [kind for kind, model in STEP_KINDS.items() if key in model.fields]
        if not owners:
            super().report_unknown(doc, key, path)
            return
        hint = f"`{key}` belongs to {listing(owners)} steps"
        doc.report(error("S04", (*path, key), f"`{key}` does not belong on a `{cls.type}` step", hint, on_key=True))

    @property
    def label(self) -> str:
        """The name of the step in messages: its id, or its kind if it has none."""
        return f"`{self.id}`" if self.id else f"this `{self.type}` step"

    @classmethod
    def object_schema(cls, defs: dict[str, Schema]) -> Schema:
        """Return the schema of the object, with its `type` fixed."""
        schema = super().object_schema(defs)
        schema["properties"] = {"type": {"const": cls.type}, **schema["properties"]}
        return schema


class _FlowStep(Step):
    """Modifiers of every step except `end`."""

    next: NextBlock | None = optional(
        NextKind("a step id, or a map with `step`", {str: STEP_ID_WORD, Map: Nested(NextBlock)}),
        "the step to run after this one",
    )
    for_each: ForEachBlock | None = optional(Nested(ForEachBlock), "run once for each item of a list")
    continue_on_fail: bool = optional(BOOL, "record a failure and continue the run", default=False)


class _ExecutingStep(_FlowStep):
    """Modifiers of the steps that execute."""

    executes: ClassVar[bool] = True

    id: str = required(STEP_ID_WORD, "name of the step, unique in the runbook")
    scope: Template | None = optional(
        TemplateText("a scope path", minLength=1), "namespace for its outputs, such as `round/0`"
    )
    export: tuple[str, ...] = optional(ListOf(IDENTIFIER_WORD, uniqueItems=True), "outputs made global", default=())
    visibility: VisibilityBlock | None = optional(Nested(VisibilityBlock), "which variables the step may see")
    principal: PrincipalBlock | None = optional(Nested(PrincipalBlock), "who acts in this step")
    timeout: str | None = optional(TIMEOUT, "time limit for the step")
    retry: RetryBlock | None = optional(Nested(RetryBlock), "retry on failure; idempotent contracts only")


class _ContractStep(_ExecutingStep):
    """Steps with external effects, which may tighten the contract of their tool."""

    contract: ContractBlock | None = optional(Nested(ContractBlock), "tightens the contract")


class Inputs(dict[str, Any]):
    """Inputs by name; `texts` has the source text of scalars that are not text, for inputs declared as text."""

    def __init__(
        self, values: Mapping[str, Any] = MappingProxyType({}), texts: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(values)
        self.texts = texts or {}


class InputsKind(MapOf):
    """A map of templated values that keeps their source text."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Inputs:
        """Decode each value."""
        values = super().decode(doc, node, key, value, path)
        return Inputs(values, value.texts if type(value) is Map else None)


INPUTS: Final = InputsKind(TEMPLATED)
INPUTS_FROM: Final = Choice(
    "the name of an object, or a list of names", {str: NONEMPTY, Seq: ListOf(NONEMPTY, minItems=1)}
)


class _CallingStep(_ContractStep):
    """Steps that pass inputs to a tool or an extension."""

    inputs: Inputs = optional(INPUTS, "input values; templates at every depth", default=Inputs())
    inputs_from: Any = optional(INPUTS_FROM, "objects whose keys are spread into the inputs")

    @property
    def spread(self) -> tuple[tuple[str, Path], ...]:
        """The sources of `inputs_from` with their paths."""
        if self.inputs_from is None:
            return ()
        if isinstance(self.inputs_from, str):
            return ((self.inputs_from, self.at("inputs_from")),)
        return tuple((name, self.at("inputs_from", i)) for i, name in enumerate(self.inputs_from))


class ToolStep(_CallingStep):
    """Execute a tool action."""

    type = "tool"
    tool: str = required(NONEMPTY, "a tool the runbook declares")
    action: str | None = optional(NONEMPTY, "which action; optional if the tool has only one")


class EvidenceBlock(Model):
    """One piece of evidence a person must give."""

    kind: str = required(words(*EVIDENCE_KINDS), "text, checklist or attachment")
    name: str = required(IDENTIFIER_WORD, "name of the evidence, readable as an output")
    description: str | None = optional(TEXT, "what the person should give")
    items: tuple[str, ...] = optional(ListOf(NONEMPTY, minItems=1), "the items of a checklist", default=())


class ManualStep(_ContractStep):
    """Ask a person to do something, and collect evidence."""

    type = "manual"
    instructions: Template = required(NONEMPTY_TEMPLATE, "what the person should do")
    required_evidence: tuple[EvidenceBlock, ...] = optional(
        ListOf(Nested(EvidenceBlock)), "evidence that the step requires", default=()
    )


class AssertionBlock(Model):
    """One value and what it is compared with."""

    type: str = required(words(*ASSERTIONS), "how the value is compared")
    value: Any = required(TEMPLATED, "the value")
    expected: Template | None = optional(TEMPLATE, "the expected value")
    message: Template | None = optional(TEMPLATE, "error message if the assertion fails")


class AssertStep(_ExecutingStep):
    """Evaluate assertions; `.passed` is true if all hold."""

    type = "assert"
    assert_: tuple[AssertionBlock, ...] = required(
        ListOf(Nested(AssertionBlock), minItems=1), "assertions that must all hold", key="assert"
    )


class StepKind(Kind):
    """A step of the kind its `type` names."""

    def decode(self, doc: Decoder, node: Map | Seq, key: Any, value: Any, path: Path) -> Any:
        """Decode by `type`; a step with a `repeat` block needs none."""
        here = (*path, key)
        if type(value) is not Map:
            doc.wrong(here, "a step", value)
            return None
        kind = value.get("type", _REPEAT_BLOCK if "repeat" in value else None)
        if kind is None:
            doc.report(error("S03", here, "`type` is missing", f"one of {listing(STEP_KINDS)}"))
            return None
        model = STEP_KINDS.get(kind) if isinstance(kind, str) else None
        if model is None:
            guess = did_you_mean(kind, STEP_KINDS) if isinstance(kind, str) else None
            hint = f"did you mean `{guess}`?" if guess else f"one of {listing(STEP_KINDS)}"
            doc.report(error("S05", (*here, "type"), f"{_kind_label(kind)} is not a step type", hint))
            return None
        return model.decode(doc, value, here)

    def schema(self, defs: dict[str, Schema]) -> Schema:
        """Return the schema of a step: each type has its own keys."""
        if "Step" not in defs:
            defs["Step"] = {}
            defs["Step"] = {
                "type": "object",
                "description": "One step of a runbook.",
                "properties": {"type": {"description": "what kind of step", "enum": list(STEP_KINDS)}},
                "anyOf": [{"required": ["type"]}, {"required": ["repeat"]}],
                "allOf": [
                    {
                        "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                        "then": model.schema(defs),
                    }
                    for name, model in STEP_KINDS.items()
                ]
                + [{"if": {"not": {"required": ["type"]}}, "then": RepeatStep.schema(defs)}],
            }
        return {"$ref": "#/$defs/Step"}


def _kind_label(kind: Any) -> str:
    return f"`{shorten(kind)}`" if isinstance(kind, str) else describe(kind)


STEPS: Final = ListOf(StepKind())
_REPEAT_BLOCK: Final = "repeat"


class Arm(Model):
    """One arm of a branch."""

    condition: Template = required(CONDITION, "when this arm is taken; `default` if no other is")
    label: str | None = optional(NONEMPTY, "name of the arm in traces and diagrams")
    steps: tuple[Step, ...] = required(STEPS, "the steps of the arm")

    @property
    def is_default(self) -> bool:
        """Whether this arm is taken when no other is."""
        return self.condition.source.strip() == DEFAULT_ARM

    @property
    def is_always_taken(self) -> bool:
        """Whether no later arm can be taken: a `default`, or a constant condition like `{{ true }}`."""
        if self.is_default or self.condition.references:
            return self.is_default
        try:
            return condition(self.condition, {}, VALIDATION_BUDGET)
        except TemplateEvalError:
            return False


class BranchStep(_FlowStep):
    """Take exactly one of several arms."""

    type = "branch"
    branches: tuple[Arm, ...] = required(ListOf(Nested(Arm), minItems=1), "the arms, tried in order")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its arms in traces."""
        return _names(self.branches)


class Lane(Model):
    """One lane of a parallel block."""

    label: str | None = optional(NONEMPTY, "name of the lane in traces and diagrams")
    steps: tuple[Step, ...] = required(STEPS, "the steps of the lane")


class ParallelStep(_FlowStep):
    """Run lanes concurrently, each on its own copy of the state."""

    type = "parallel"
    branches: tuple[Lane, ...] = required(ListOf(Nested(Lane)), "the lanes")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its lanes in traces."""
        return _names(self.branches)


def _names(branches: "tuple[Arm | Lane, ...]") -> tuple[str, ...]:
    """Return their labels, or positions from 0 for those without a label."""
    return tuple(each.label or str(index) for index, each in enumerate(branches))


class OutcomeBlock(Model):
    """How the run ended, in a form for policies and metrics."""

    category: str = required(words(*OUTCOME_CATEGORIES), "one of the four categories")
    code: Template = required(NONEMPTY_TEMPLATE, "what it means in your domain")
    meta: dict[str, Any] = optional(MapOf(TEMPLATED), "further details; templates at every depth", default={})


class EndStep(Step):
    """End the run with an outcome."""

    type = "end"
    outcome: OutcomeBlock = required(Nested(OutcomeBlock), "the outcome")


class ExtensionStep(_CallingStep):
    """Run the step in an extension, under a contract declared here."""

    type = "extension"
    extension: str = required(NONEMPTY, "name or path of the extension")
    contract: ContractBlock = required(Nested(ContractBlock), "what the extension affects and guarantees")


class RepeatBlock(Model):
    """How often a block of steps is repeated."""

    max: "int | Template" = required(IntOrTemplate(minimum=1, maximum=10_000), "maximum number of iterations")
    until: Template | None = optional(CONDITION, "stop after an iteration in which this holds")
    steps: tuple[Step, ...] | None = optional(STEPS, "the steps; also accepted next to `repeat`")


class RepeatStep(_FlowStep):
    """Run a block of steps several times."""

    type = "repeat"
    id: str = required(STEP_ID_WORD, "name of the step, unique in the runbook")
    repeat: RepeatBlock = required(Nested(RepeatBlock), "how often")
    steps: tuple[Step, ...] | None = optional(STEPS, "what is repeated")

    @property
    def body(self) -> tuple[Step, ...]:
        """The steps, in either place."""
        return self.steps if self.steps is not None else (self.repeat.steps or ())

    @property
    def body_path(self) -> Path:
        """The path of the steps."""
        return self.at("steps") if self.steps is not None else self.at("repeat", "steps")


class GroupStep(_FlowStep):
    """Run several steps in order; with `for_each`, several steps for each item."""

    type = "group"
    steps: tuple[Step, ...] = required(ListOf(StepKind(), minItems=1), "the steps")


STEP_KINDS: Final[dict[str, type[Step]]] = {
    "tool": ToolStep,
    "manual": ManualStep,
    "assert": AssertStep,
    "branch": BranchStep,
    "parallel": ParallelStep,
    "end": EndStep,
    "extension": ExtensionStep,
    "repeat": RepeatStep,
    "group": GroupStep,
}
