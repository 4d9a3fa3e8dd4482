"""A template of supervision: one harness drafts, another reviews, a third verifies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from gert.kernel.agent.api.kernel import AgentKernel
from gert.kernel.agent.harness.base import BaseHarness
from gert.kernel.agent.harness.supervisor import CHILD, SupervisorHarness
from gert.kernel.agent.harness.types import HarnessContext
from gert.kernel.agent.loop.gates import says_passed
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.agent.types.serde import plain_model
from gert.kernel.foundation.arguments import checks_arguments

APPROVED: Final = "approved"


@dataclass(frozen=True, slots=True)
class DraftReviewVerifyResult:
    """What each of the three returned, and whether the draft is approved."""

    draft: object
    review: object
    verify: object
    approved: bool


@checks_arguments
class DraftReviewVerifySupervisor(SupervisorHarness[DraftReviewVerifyResult]):
    """Runs the three harnesses one after the other.

    What the earlier ones returned is an artifact of the run of the next: `draft`, and for the verifier also `review`.

    verify_passes: decides from the result of the verifier (default: it is true, or has a true `approved` or `passed`)
    """

    def __init__(
        self,
        *,
        kernel: AgentKernel,
        tenant: TenantContext | None = None,
        drafter: BaseHarness[object],
        reviewer: BaseHarness[object],
        verifier: BaseHarness[object],
        verify_passes: Callable[[object], bool] | None = None,
        default_model: str = "gpt-4o-mini",
    ) -> None:
        super().__init__(kernel, tenant, default_model=default_model)
        self._drafter = drafter
        self._reviewer = reviewer
        self._verifier = verifier
        self._verify_passes = verify_passes if verify_passes is not None else approves

    async def step(self, *, context: HarnessContext) -> DraftReviewVerifyResult:
        """Draft, review, verify."""
        draft = await self._child(context, "draft", self._drafter, {})
        review = await self._child(context, "review", self._reviewer, {"draft": draft})
        verify = await self._child(context, "verify", self._verifier, {"draft": draft, "review": review})
        return DraftReviewVerifyResult(draft, review, verify, bool(self._verify_passes(verify)))

    async def _child(
        self, context: HarnessContext, name: str, harness: BaseHarness[object], given: dict[str, object]
    ) -> object:
        run_id = f"{context.run_id}{CHILD}{name}"
        await self._ensure_started(run_id, context.tenant)
        for key, value in given.items():
            await self.set_artifact(key=key, value=value, step_key=f"given_{key}", run_id=run_id)
        result = await self.run_child(harness, run_id=run_id, model=context.model)
        await self.set_artifact(key=name, value=result, step_key=f"returned_{name}")
        return result


def approves(result: object) -> bool:
    """Whether the result of a verifier approves a draft; one that says nothing about it does not."""
    value = plain_model(result) if isinstance(result, BaseModel) else result
    if isinstance(value, dict) and isinstance(value.get(APPROVED), bool):
        return bool(value[APPROVED])
    return says_passed(value)
