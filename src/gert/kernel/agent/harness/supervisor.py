"""A harness that lets other harnesses work, each in a run of its own."""

from typing import TypeVar

from gert.kernel.agent.harness.base import BaseHarness, HarnessResultT
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.foundation.arguments import checks_arguments

ChildResultT = TypeVar("ChildResultT")

CHILD = "::child::"
"""Between the id of a run and that of a child: a child with such an id shares the budget of its parent."""


@checks_arguments
class SupervisorHarness(BaseHarness[HarnessResultT]):
    """Runs child harnesses."""

    async def run_child(
        self,
        harness: BaseHarness[ChildResultT],
        *,
        run_id: str,
        tenant: TenantContext | None = None,
        model: str | None = None,
    ) -> ChildResultT:
        """Wake a child in its own run and return its result; recorded steps of the child are replayed."""
        return await harness.run(run_id, tenant=self._tenant_of(tenant), model=model)
