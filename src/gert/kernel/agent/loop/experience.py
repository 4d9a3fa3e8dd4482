"""What agents learn from their runs: rules that later runs of the same kind see in their context."""

from abc import ABC, abstractmethod
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.canonical_v1 import canonical_json_dumps


class RuleType(StrEnum):
    """The kind of a rule: what works, what fails, or a fact."""

    WIN_PATTERN = "win_pattern"
    ANTI_PATTERN = "anti_pattern"
    FACT = "fact"


class ExperienceRule(BaseModel):
    """A rule of one tenant for one category of tasks, and how often it helped."""

    model_config = ConfigDict(frozen=True)

    rule_id: str
    tenant_id: str
    task_category: str
    rule_type: RuleType
    content: str
    success_count: int = 0
    fail_count: int = 0


class ReflectionResult(BaseModel):
    """What a model learned from a run."""

    extracted_rules: list[ExperienceRule] = Field(default_factory=list)


class ExperienceStore(ABC):
    """Keeps rules by tenant and category of tasks."""

    @abstractmethod
    async def get_rules(self, tenant_id: str, task_category: str, *, limit: int = 10) -> list[ExperienceRule]:
        """Return the rules of a tenant for a category, the most useful first."""

    @abstractmethod
    async def save_rules(self, rules: list[ExperienceRule]) -> None:
        """Save rules; saving a rule twice has no further effect."""

    @abstractmethod
    async def reinforce_rule(self, rule_id: str, *, positive: bool) -> None:
        """Count that a rule helped, or that it did not."""

    @abstractmethod
    async def close(self) -> None:
        """Release the resources of the store."""


def owned_rule(rule: ExperienceRule, tenant_id: str, task_category: str) -> ExperienceRule:
    """Return a rule that a model extracted as a new rule of this tenant and category.

    A model chooses only its type and content: with an id, tenant or counts of its choice it could replace the rules of
    others.
    """
    named = sha256_hex(canonical_json_dumps([tenant_id, task_category, rule.rule_type.value, rule.content]).encode())
    return ExperienceRule(
        rule_id=f"rule_{named[:24]}",
        tenant_id=tenant_id,
        task_category=task_category,
        rule_type=rule.rule_type,
        content=rule.content,
    )


def rules_text(rules: list[ExperienceRule]) -> str:
    """Return rules as lines of text."""
    return "\n".join(f"- {rule.rule_type.value}: {rule.content}" for rule in rules)
