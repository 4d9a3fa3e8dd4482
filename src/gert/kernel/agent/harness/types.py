"""What harnesses work with: their context, tasks, and the results of tests."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from gert.kernel.agent.types.api import TenantContext

TraceLevel: TypeAlias = Literal["minimal", "stage", "verbose"]
"""How much a harness notes beside its steps: nothing, its stages and cost, or also each model and tool step."""

TaskState: TypeAlias = Literal["pending", "in_progress", "done"]


@dataclass(frozen=True, slots=True)
class HarnessContext:
    """What a harness works on.

    run_created: the run did not exist before
    """

    run_id: str
    tenant: TenantContext
    model: str
    run_created: bool


SanityCheckHook: TypeAlias = Callable[[HarnessContext], Awaitable[Any] | Any]
"""Checks the world before a harness works on its next task; False or an exception stops it."""


class TaskUnit(BaseModel):
    """One task of a harness."""

    model_config = ConfigDict(frozen=True)

    id: str
    description: str
    state: TaskState = "pending"


class TaskProgressSnapshot(BaseModel):
    """The tasks of a run, as they are recorded."""

    model_config = ConfigDict(frozen=True)

    units: list[TaskUnit] = Field(default_factory=list)


class ExecuteTestArgs(BaseModel):
    """The arguments of the tool that runs tests."""

    command: str


class TestAdjudication(BaseModel):
    """What a model says about the output of tests."""

    __test__: ClassVar[bool] = False  # not a test of pytest

    passed: bool
    reasoning: str
