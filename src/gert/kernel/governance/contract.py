"""Contracts: what a step affects and guarantees; governance, parallelism and replay depend on them.

`Declared` is what one author wrote, where `None` means *omitted, inherit*. `Contract` is the result of
all layers. The layers run from the tool through its action to the step, and inner layers only
tighten (kernel-v0 §4): tags are added, `deterministic` and `idempotent` go from true to false.
"""

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from gert.kernel.governance.parameter import Parameter, narrowed

Tags: TypeAlias = frozenset[str]

NO_TAGS: Final[Tags] = frozenset()
TAG_FIELDS: Final = ("effects", "reads", "writes")
NO_PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType({})

UNKNOWN: Final = "unknown"
"""The effect of a change that no author has declared."""


def fold_tags(block: msgspec.Struct) -> None:
    """Convert the tags of a contract or matcher to lower case: tags compare case-insensitively (DECISIONS 82)."""
    for name in TAG_FIELDS:
        tags: Tags | None = getattr(block, name)
        if tags and not all(map(str.islower, tags)):
            msgspec.structs.force_setattr(block, name, frozenset(map(str.lower, tags)))


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an author wrote in one `contract:` block; `None` means omitted, and omitted means inherit.

    `side_effects` is deprecated; `migrate` converts it to `effects`.
    """

    effects: Tags | None = None
    reads: Tags | None = None
    writes: Tags | None = None
    deterministic: bool | None = None
    idempotent: bool | None = None
    side_effects: bool | None = None
    inputs: Mapping[str, Parameter] = NO_PARAMETERS
    outputs: Mapping[str, Parameter] = NO_PARAMETERS

    def __post_init__(self) -> None:
        fold_tags(self)


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved contract. `effects` is `None` if no layer declared any: then any effect is possible.

    omits_writes: no layer declares `writes`, not even `[]`
    """

    effects: Tags | None = None
    reads: Tags = NO_TAGS
    writes: Tags = NO_TAGS
    deterministic: bool = False
    idempotent: bool = False
    inputs: Mapping[str, Parameter] = NO_PARAMETERS
    outputs: Mapping[str, Parameter] = NO_PARAMETERS
    omits_writes: bool = False

    def __post_init__(self) -> None:
        fold_tags(self)

    @property
    def effect_tags(self) -> Tags:
        """The effects that rules match: an undeclared contract has the effect `unknown`."""
        return frozenset((UNKNOWN,)) if self.effects is None else self.effects

    @property
    def has_effects(self) -> bool:
        """Whether it has external effects; writes imply them, even if `effects` is empty."""
        return bool(self.effect_tags or self.writes)

    @property
    def may_write(self) -> bool:
        """Whether it may change something: it declares writes, or has the effect `unknown`."""
        return bool(self.writes) or UNKNOWN in self.effect_tags

    @property
    def hides_writes(self) -> bool:
        """Whether it has effects and does not declare `writes` (D48)."""
        return self.omits_writes and bool(self.effect_tags)

    def tightened(self, layer: Declared) -> "Contract":
        """Return this contract with one more layer, never weaker than before.

        Unlike in `resolve`, omitted keys are final here: a step cannot fill in the `effects` that its tool
        omits, because undeclared already means *any effect*.
        """
        inner = migrate(layer)
        return Contract(
            effects=None if self.effects is None else self.effects | (inner.effects or NO_TAGS),
            reads=self.reads | (inner.reads or NO_TAGS),
            writes=self.writes | (inner.writes or NO_TAGS),
            deterministic=self.deterministic and inner.deterministic is not False,
            idempotent=self.idempotent and inner.idempotent is not False,
            inputs=_merge_parameters(self.inputs, inner.inputs),
            outputs=_merge_parameters(self.outputs, inner.outputs),
            omits_writes=self.omits_writes,
        )

    def summary(self) -> dict[str, Any]:
        """Return the parts that governance uses, as JSON for events and requests."""
        return {
            "effects": None if self.effects is None else sorted(self.effects),
            "reads": sorted(self.reads),
            "writes": sorted(self.writes),
            "deterministic": self.deterministic,
            "idempotent": self.idempotent,
        }

    def full(self) -> dict[str, Any]:
        """Return the whole contract as JSON, with inputs and outputs."""
        return self.summary() | {
            "inputs": {name: parameter.summary() for name, parameter in sorted(self.inputs.items())},
            "outputs": {name: parameter.summary() for name, parameter in sorted(self.outputs.items())},
        }


NOTHING: Final = Declared()
"""An empty block: everything is inherited."""

MANUAL_DEFAULTS: Final = Declared(
    effects=frozenset((UNKNOWN,)), reads=NO_TAGS, writes=NO_TAGS, deterministic=False, idempotent=False
)
"""The defaults of a manual step, which its author may override (kernel-v0 §4)."""

ASSERT_CONTRACT: Final = Contract(effects=NO_TAGS, deterministic=True, idempotent=True)
"""An assertion only reads the state; its contract is fixed."""


END_CONTRACT: Final = ASSERT_CONTRACT
"""An `end` has no effects; rules that name `outcome` match it by its category."""


def migrate(declared: Declared) -> Declared:
    """Convert the deprecated `side_effects` to `effects`; if both are given, `effects` wins."""
    if declared.side_effects is None:
        return declared
    effects = declared.effects
    if effects is None:
        effects = frozenset((UNKNOWN,)) if declared.side_effects else NO_TAGS
    return msgspec.structs.replace(declared, effects=effects, side_effects=None)


def merge(outer: Declared, inner: Declared) -> Declared:
    """Merge two layers. A key omitted by both stays omitted; the result is never weaker than either."""
    outer, inner = migrate(outer), migrate(inner)
    return Declared(
        effects=_union_tags(outer.effects, inner.effects),
        reads=_union_tags(outer.reads, inner.reads),
        writes=_union_tags(outer.writes, inner.writes),
        deterministic=_and(outer.deterministic, inner.deterministic),
        idempotent=_and(outer.idempotent, inner.idempotent),
        inputs=_merge_parameters(outer.inputs, inner.inputs),
        outputs=_merge_parameters(outer.outputs, inner.outputs),
    )


def resolve(*layers: Declared) -> Contract:
    """Resolve the layers of a contract, from the outermost to the innermost.

    A key that no layer declares has the strictest value: not deterministic, not idempotent, effects unknown.
    """
    return _resolved(reduce(merge, layers, NOTHING))


def manual_contract(declared: Declared = NOTHING) -> Contract:
    """Return the contract of a manual step: what its author declares, and defaults for the rest.

    The defaults are not a parent layer. Only the author of the step knows that it merely reads a
    dashboard, so the author may declare `effects: []`.
    """
    said = migrate(declared)
    chosen = {
        name: default if getattr(said, name) is None else getattr(said, name)
        for name in ("effects", "reads", "writes", "deterministic", "idempotent")
        for default in (getattr(MANUAL_DEFAULTS, name),)
    }
    return _resolved(msgspec.structs.replace(said, **chosen))


def _resolved(said: Declared) -> Contract:
    return Contract(
        effects=said.effects,
        reads=said.reads or NO_TAGS,
        writes=said.writes or NO_TAGS,
        deterministic=said.deterministic is True,
        idempotent=said.idempotent is True,
        inputs=said.inputs,
        outputs=said.outputs,
        omits_writes=said.writes is None,
    )


def _union_tags(outer: Tags | None, inner: Tags | None) -> Tags | None:
    if outer is None or inner is None:
        return outer if inner is None else inner
    return outer | inner


def _and(outer: bool | None, inner: bool | None) -> bool | None:
    if outer is None or inner is None:
        return outer if inner is None else inner
    return outer and inner


def _merge_parameters(outer: Mapping[str, Parameter], inner: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
    if not outer or not inner:
        return outer or inner
    merged = dict(outer)
    for name, parameter in inner.items():
        merged[name] = narrowed(outer[name], parameter) if name in outer else parameter
    return merged
