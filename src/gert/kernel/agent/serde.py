"""Results of workflow steps as text and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, JsonValue

from gert.kernel.foundation.canonical_v1 import canonical_json_dumps, loads

StepT = TypeVar("StepT")
WorkflowModelT = TypeVar("WorkflowModelT", bound=BaseModel)


# Without slots: a generic, frozen dataclass with slots cannot be made as `StepSerde[X](…)`.
@dataclass(frozen=True)
class StepSerde(Generic[StepT]):
    """How the result of a workflow step is written into the ledger, and read back when the step is replayed."""

    dump: Callable[[StepT], str]
    load: Callable[[str], StepT]


def json_step_serde() -> StepSerde[JsonValue]:
    """For steps that return plain data."""
    return StepSerde(dump=canonical_json_dumps, load=loads)


def pydantic_step_serde(model: type[WorkflowModelT]) -> StepSerde[WorkflowModelT]:
    """For steps that return instances of a pydantic model."""
    return StepSerde(dump=lambda value: value.model_dump_json(), load=model.model_validate_json)
