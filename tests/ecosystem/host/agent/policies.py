"""What tests of safety policies share: a kernel under a policy, its tools, and what was decided."""

import json
from typing import Any

from tests.ecosystem.host.agent.places import TENANT, Place, call, of_type

from gert.agent import (
    ArtanaKernel,
    IntentPlanRecord,
    KernelPolicy,
    RunSummaryPayload,
    SafetyPolicyConfig,
    SafetyPolicyMiddleware,
    ToolExecutionContext,
    ToolSafetyPolicy,
    ToolTransientError,
)

FIELDS = {"tool_name", "fingerprint", "outcome", "rule_id", "reason"}


class Mailer:
    """A kernel under `enforced_v2` with a tool `send`, and what it has sent.

    fails: how often the tool says that it did not happen
    """

    def __init__(
        self,
        place: Place,
        model: Any = None,
        *,
        fails: int = 0,
        version: str = "1.0.0",
        approvals: Any = None,
        **policy: Any,
    ) -> None:
        self.place = place
        self.safety = SafetyPolicyMiddleware(config=SafetyPolicyConfig(tools={"send": ToolSafetyPolicy(**policy)}))
        self.kernel = place.kernel(
            model,
            middleware=ArtanaKernel.default_middleware_stack(safety=self.safety),
            policy=KernelPolicy.enforced_v2(),
            approvals=approvals,
        )
        self.sent: list[dict[str, Any]] = []
        self.fails = fails

        @self.kernel.tool(side_effect=True, risk_level="high", tool_version=version)
        async def send(
            artana_context: ToolExecutionContext,
            to: str = "ann@example.com",
            amount: Any = 1,
            confirmed: bool = True,
            code: str = "",
        ) -> str:
            """Send a message."""
            if self.fails:
                self.fails -= 1
                raise ToolTransientError("not now")
            self.sent.append({"to": to, "amount": amount})
            return "sent"

        @self.kernel.tool()
        async def look(what: str = "") -> str:
            """Look at something; no policy is about it."""
            return what

    async def __aenter__(self) -> "Mailer":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.kernel.close()

    async def begin(self, run_id: str = "r") -> None:
        """Start a run."""
        await self.kernel.start_run(tenant=TENANT, run_id=run_id)

    async def send(self, step_key: str = "one", run_id: str = "r", **arguments: Any) -> Any:
        """Take the tool step."""
        return await call(self.kernel, run_id, "send", arguments, step_key)

    async def plan(self, intent_id: str = "plan", run_id: str = "r", **more: Any) -> int:
        """Record an intent plan."""
        texts = dict.fromkeys(("goal", "why", "success_criteria", "assumed_state"), "…")
        intent = IntentPlanRecord.model_validate({"intent_id": intent_id, **texts, **more})
        return await self.kernel.record_intent_plan(run_id=run_id, tenant=TENANT, intent=intent)

    async def note(self, kind: str, content: Any, run_id: str = "r") -> None:
        """Record a summary."""
        await self.kernel.append_run_summary(
            run_id=run_id, tenant=TENANT, summary_type=kind, summary_json=json.dumps(content)
        )

    async def decisions(self, run_id: str = "r") -> list[dict[str, Any]]:
        """What was decided about calls, each with the key of its step."""
        return await decisions(self.kernel, run_id)

    async def rules(self, run_id: str = "r") -> list[tuple[str, str]]:
        """The outcome and the rule of each decision."""
        return [(each["outcome"], each["rule_id"]) for each in await self.decisions(run_id)]


async def decisions(kernel: ArtanaKernel, run_id: str) -> list[dict[str, Any]]:
    """What was decided about calls, each with the key of its step."""
    found = [event.payload for event in await of_type(kernel, run_id, "run_summary")]
    return [
        {**json.loads(each.summary_json), "step_key": each.step_key}
        for each in found
        if isinstance(each, RunSummaryPayload) and each.summary_type == "policy_decision"
    ]
