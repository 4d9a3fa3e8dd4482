"""Contracts: what a step touches and promises; governance, parallelism and replay rest on them.

`Declared` is what one author wrote, where `None` means *omitted, inherit*. `Contract` is what holds once
every layer has spoken. The layers run from the tool over its action to the step, and inner layers only
tighten (kernel-v0 §4): tags are added, `deterministic` and `idempotent` go from true to false.
"""

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from gert.kernel.governance.parameter import PARAMETER_TYPES, Parameter, ParameterType, narrowed

__all__ = [
    "ASSERT_CONTRACT",
    "END_CONTRACT",
    "MANUAL_DEFAULTS",
    "NOTHING",
    "PARAMETER_TYPES",
    "UNKNOWN",
    "Conflict",
    "Contract",
    "Declared",
    "Parameter",
    "ParameterType",
    "Tags",
    "fold_tags",
    "manual_contract",
    "merge",
    "migrate",
    "resolve",
]

Tags: TypeAlias = frozenset[str]

NO_TAGS: Final[Tags] = frozenset()
TAG_FIELDS: Final = ("effects", "reads", "writes")
NO_PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType({})

UNKNOWN: Final = "unknown"
"""The effect of something that changes the world in a way nobody has named."""


def fold_tags(block: msgspec.Struct) -> None:
    """Write the tags of a contract or matcher in lower case: tags compare as people read them (DECISIONS 82)."""
    for name in TAG_FIELDS:
        tags: Tags | None = getattr(block, name)
        if tags and not all(map(str.islower, tags)):
            msgspec.structs.force_setattr(block, name, frozenset(map(str.lower, tags)))


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an author wrote in one `contract:` block; `None` means omitted, and omitted means inherit.

    `side_effects` is the deprecated spelling; `migrate` turns it into `effects`.
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


class Conflict(msgspec.Struct, frozen=True):
    """Why two contracts may not run side by side; false when they may.

    `writes_read`: the first writes what the second reads. `reads_written`: the other way round.
    """

    both_write: Tags = NO_TAGS
    writes_read: Tags = NO_TAGS
    reads_written: Tags = NO_TAGS

    def __bool__(self) -> bool:
        return bool(self.tags)

    @property
    def tags(self) -> Tags:
        """Every resource the two contend for."""
        return self.both_write | self.writes_read | self.reads_written

    def describe(self, first: str, second: str) -> str:
        """The conflict in one line, given the names of the two."""
        reasons = (
            (self.both_write, "both write"),
            (self.writes_read, f"{first} writes and {second} reads"),
            (self.reads_written, f"{second} writes and {first} reads"),
        )
        return "; ".join(f"{how} {_listed(tags)}" for tags, how in reasons if tags)


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved contract. `effects` is `None` when no layer declared any: then anything is possible.

    omits_writes: no layer says what is written, not even that nothing is
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
        """The effects rules look at: an undeclared contract has the effect `unknown`."""
        return frozenset((UNKNOWN,)) if self.effects is None else self.effects

    @property
    def has_effects(self) -> bool:
        """Whether it touches the outside; writing implies it, even where `effects` was left empty."""
        return bool(self.effect_tags or self.writes)

    @property
    def may_write(self) -> bool:
        """Whether it may change something: it says what, or it has an effect nobody can name."""
        return bool(self.writes) or UNKNOWN in self.effect_tags

    @property
    def hides_writes(self) -> bool:
        """Whether it has effects and does not promise to write nothing (D48)."""
        return self.omits_writes and bool(self.effect_tags)

    def conflicts_with(self, other: "Contract") -> Conflict:
        """What keeps the two from running in parallel: one writes what the other reads or writes."""
        return Conflict(
            both_write=self.writes & other.writes,
            writes_read=self.writes & other.reads,
            reads_written=self.reads & other.writes,
        )

    def tightened(self, layer: Declared) -> "Contract":
        """This contract with one more layer on top, never weaker than before.

        Unlike `resolve`, silence is settled here: a step cannot fill in the `effects` its tool kept quiet
        about, because undeclared already means *anything*.
        """
        inner = migrate(layer)
        return Contract(
            effects=None if self.effects is None else self.effects | (inner.effects or NO_TAGS),
            reads=self.reads | (inner.reads or NO_TAGS),
            writes=self.writes | (inner.writes or NO_TAGS),
            deterministic=self.deterministic and inner.deterministic is not False,
            idempotent=self.idempotent and inner.idempotent is not False,
            inputs=_union(self.inputs, inner.inputs),
            outputs=_union(self.outputs, inner.outputs),
            omits_writes=self.omits_writes,
        )

    def as_declared(self) -> Declared:
        """The same contract, written out in full by an author."""
        return Declared(
            effects=self.effects,
            reads=self.reads,
            writes=None if self.omits_writes else self.writes,
            deterministic=self.deterministic,
            idempotent=self.idempotent,
            inputs=self.inputs,
            outputs=self.outputs,
        )

    def summary(self) -> dict[str, Any]:
        """What governance looks at, as JSON for events and requests."""
        return {
            "effects": None if self.effects is None else sorted(self.effects),
            "reads": sorted(self.reads),
            "writes": sorted(self.writes),
            "deterministic": self.deterministic,
            "idempotent": self.idempotent,
        }

    def full(self) -> dict[str, Any]:
        """The whole contract as JSON, inputs and outputs included."""
        return self.summary() | {
            "inputs": {name: parameter.summary() for name, parameter in sorted(self.inputs.items())},
            "outputs": {name: parameter.summary() for name, parameter in sorted(self.outputs.items())},
        }


NOTHING: Final = Declared()
"""No word from the author: everything is inherited."""

MANUAL_DEFAULTS: Final = Declared(
    effects=frozenset((UNKNOWN,)), reads=NO_TAGS, writes=NO_TAGS, deterministic=False, idempotent=False
)
"""What a manual step is taken to do unless its author says otherwise (kernel-v0 §4)."""

ASSERT_CONTRACT: Final = Contract(effects=NO_TAGS, deterministic=True, idempotent=True)
"""An assertion looks at values gert already has; its contract is fixed."""


END_CONTRACT: Final = ASSERT_CONTRACT
"""An `end` touches nothing; rules that name `outcome` judge it by its category."""


def migrate(declared: Declared) -> Declared:
    """Turn the deprecated `side_effects` into `effects`; where both stand, `effects` wins."""
    if declared.side_effects is None:
        return declared
    effects = declared.effects
    if effects is None:
        effects = frozenset((UNKNOWN,)) if declared.side_effects else NO_TAGS
    return msgspec.structs.replace(declared, effects=effects, side_effects=None)


def merge(outer: Declared, inner: Declared) -> Declared:
    """Two layers as one. What neither mentions stays unsaid; the result never claims less than either."""
    outer, inner = migrate(outer), migrate(inner)
    return Declared(
        effects=_grow(outer.effects, inner.effects),
        reads=_grow(outer.reads, inner.reads),
        writes=_grow(outer.writes, inner.writes),
        deterministic=_both(outer.deterministic, inner.deterministic),
        idempotent=_both(outer.idempotent, inner.idempotent),
        inputs=_union(outer.inputs, inner.inputs),
        outputs=_union(outer.outputs, inner.outputs),
    )


def resolve(*layers: Declared) -> Contract:
    """The contract that holds, from the outermost layer to the innermost.

    What no layer declares takes the strictest value: not deterministic, not idempotent, effects unknown.
    """
    return _settle(reduce(merge, layers, NOTHING))


def manual_contract(declared: Declared = NOTHING) -> Contract:
    """The contract of a manual step: its author's words, and the defaults where there are none.

    The defaults are no parent. Only the person who wrote the step can know that it merely looks at a
    dashboard, so `effects: []` is theirs to say.
    """
    said = migrate(declared)
    chosen = {
        name: default if getattr(said, name) is None else getattr(said, name)
        for name in ("effects", "reads", "writes", "deterministic", "idempotent")
        for default in (getattr(MANUAL_DEFAULTS, name),)
    }
    return _settle(msgspec.structs.replace(said, **chosen))


def _settle(said: Declared) -> Contract:
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


def _grow(outer: Tags | None, inner: Tags | None) -> Tags | None:
    if outer is None or inner is None:
        return outer if inner is None else inner
    return outer | inner


def _both(outer: bool | None, inner: bool | None) -> bool | None:
    if outer is None or inner is None:
        return outer if inner is None else inner
    return outer and inner


def _union(outer: Mapping[str, Parameter], inner: Mapping[str, Parameter]) -> Mapping[str, Parameter]:
    if not outer or not inner:
        return outer or inner
    merged = dict(outer)
    for name, parameter in inner.items():
        merged[name] = narrowed(outer[name], parameter) if name in outer else parameter
    return merged


def _listed(tags: Tags) -> str:
    return ", ".join(f"`{tag}`" for tag in sorted(tags))
