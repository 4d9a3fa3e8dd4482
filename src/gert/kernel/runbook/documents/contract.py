"""The `contract` block, and the parameters it shares with a runbook's inputs."""

from typing import Any

from gert.kernel.foundation.values import coerce_if_possible
from gert.kernel.governance.contract import Declared
from gert.kernel.governance.parameter import PARAMETER_TYPES, Parameter
from gert.kernel.runbook.kinds import BOOL, DATA, IDENTIFIER, TAGS, TEXT, ListOf, MapOf, Nested, Number, Word, words
from gert.kernel.runbook.model import Model, optional
from gert.kernel.runbook.tree import Seq


class ParameterBlock(Model):
    """One named value: its type, whether it is required, and its limits."""

    type: str = optional(words(*PARAMETER_TYPES), "type of the value", default="any")
    required: bool = optional(BOOL, "whether a value is required", default=False)
    default: Any = optional(DATA, "value used when none is given")
    description: str | None = optional(TEXT, "description for people")
    enum: tuple[Any, ...] | None = optional(ListOf(DATA, minItems=1), "the only values allowed")
    pattern: str | None = optional(Word("a regular expression", minLength=1), "regular expression a text must match")
    min: float | None = optional(Number(), "smallest number, or shortest length of a text or list")
    max: float | None = optional(Number(), "largest number, or longest length of a text or list")
    secret: bool = optional(BOOL, "redact the value wherever it would be recorded", default=False)

    has_default = False
    said: frozenset[str] = frozenset()

    @classmethod
    def decode(cls, doc: Any, value: Any, path: Any) -> Any:
        """Decode, and remember which keys were given: `required: false` differs from an omitted key."""
        model = super().decode(doc, value, path)
        if model is None:
            return None
        model.said = frozenset(value)
        model.has_default = "default" in value
        if model.type == "string":
            # A default of `1.10` for a text is the text `1.10`, not the number.
            model.default = value.texts.get("default", model.default)
            if isinstance(value.get("enum"), Seq):
                model.enum = tuple(value["enum"].texts.get(i, item) for i, item in enumerate(value["enum"]))
        return model

    def parameter(self) -> Parameter:
        """Return the parameter for governance."""
        return Parameter(
            type=self.type,  # type: ignore[arg-type]
            required=self.required,
            default=coerce_if_possible(self.default, self.type),
            has_default=self.has_default,
            description=self.description,
            enum=None if self.enum is None else tuple(coerce_if_possible(choice, self.type) for choice in self.enum),
            pattern=self.pattern,
            min=self.min,
            max=self.max,
            secret=self.secret,
            optional=not self.required and ("required" in self.said or self.has_default),
        )


class InputBlock(ParameterBlock):
    """An input of the runbook: a parameter that may be bound to a source."""

    from_: str | None = optional(
        Word("a binding such as `env/NAME`", minLength=1),
        "where the value comes from: `prompt`, `env/NAME`, `file/PATH`, `provider/NAME.PATH`",
        key="from",
    )


PARAMETERS = MapOf(Nested(ParameterBlock), keys=IDENTIFIER)


class ContractBlock(Model):
    """What a step affects and guarantees. Omitted keys are inherited; inner layers only tighten."""

    inputs: dict[str, ParameterBlock] = optional(PARAMETERS, "values it takes", default={})
    outputs: dict[str, ParameterBlock] = optional(PARAMETERS, "values it produces", default={})
    effects: tuple[str, ...] | None = optional(TAGS, "external systems it touches: `network`, `kubernetes`, …")
    reads: tuple[str, ...] | None = optional(TAGS, "resources it reads, for parallel safety")
    writes: tuple[str, ...] | None = optional(TAGS, "resources it changes, for parallel safety and governance")
    deterministic: bool | None = optional(BOOL, "equal inputs give equal outputs")
    idempotent: bool | None = optional(BOOL, "running it again has no further effect")
    side_effects: bool | None = optional(BOOL, "deprecated: declare `effects` and `writes` instead")

    def declared(self) -> Declared:
        """Return the block for governance."""
        return Declared(
            effects=_tags(self.effects),
            reads=_tags(self.reads),
            writes=_tags(self.writes),
            deterministic=self.deterministic,
            idempotent=self.idempotent,
            side_effects=self.side_effects,
            inputs={name: block.parameter() for name, block in self.inputs.items()},
            outputs={name: block.parameter() for name, block in self.outputs.items()},
        )


def _tags(listed: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if listed is None else frozenset(listed)
