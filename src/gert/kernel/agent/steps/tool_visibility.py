"""Which tools a tenant may use, and why the others are kept back."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.steps.question import signature_of
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent.parts import ToolSignature


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool, and whether it is offered."""

    tool: ToolDefinition
    reason: str
    allowed: bool

    def as_data(self) -> dict[str, object]:
        """How a decision is written down."""
        return {
            "tool_name": self.tool.name,
            "decision": "allowed" if self.allowed else "filtered",
            "reason": self.reason,
        }


def offer(
    tools: Sequence[ToolDefinition],
    capabilities: Mapping[str, str | None],
    held: Collection[str],
    visible: Collection[str] | None = None,
    pinned: Collection[ToolSignature] | None = None,
) -> tuple[Offered, ...]:
    """Judge every registered tool.

    capabilities: which capability each tool needs, by name
    held: those the tenant has
    visible: the names the caller wants to be offered; None for all
    pinned: the tools the run began with, where it is pinned to them
    """
    return tuple(_judged(tool, capabilities.get(tool.name), held, visible, pinned) for tool in tools)


def allowed(offered: Sequence[Offered]) -> tuple[ToolDefinition, ...]:
    """The tools that are offered, by name."""
    return tuple(sorted((each.tool for each in offered if each.allowed), key=lambda tool: tool.name))


def after_middleware(offered: Sequence[Offered], tools: Sequence[ToolDefinition]) -> tuple[Offered, ...]:
    """The same judgement where middleware has the last word: `tools` are those it left or added."""
    left = {tool.name: tool for tool in tools}
    judged = tuple(_kept(each, allowed=each.tool.name in left) for each in offered)
    known = {each.tool.name for each in offered}
    added = (Offered(tool, "added_by_middleware", allowed=True) for name, tool in left.items() if name not in known)
    return (*judged, *added)


def described(offered: Sequence[Offered], tenant: TenantContext) -> dict[str, object]:
    """What a tenant may use and why, as plain data."""
    return {
        "tenant_id": tenant.tenant_id,
        "capabilities": sorted(tenant.capabilities),
        "allowed_tools": sorted(each.tool.name for each in offered if each.allowed),
        "filtered_tools": sorted(each.tool.name for each in offered if not each.allowed),
        "tools": [each.as_data() for each in sorted(offered, key=lambda each: each.tool.name)],
    }


def _kept(judged: Offered, *, allowed: bool) -> Offered:
    if judged.allowed == allowed:
        return judged
    return replace(judged, reason="added_by_middleware" if allowed else "filtered_by_middleware", allowed=allowed)


def _judged(
    tool: ToolDefinition,
    needed: str | None,
    held: Collection[str],
    visible: Collection[str] | None,
    pinned: Collection[ToolSignature] | None,
) -> Offered:
    if needed is not None and needed not in held:
        return Offered(tool, f"missing_capability:{needed}", allowed=False)
    if visible is not None and tool.name not in visible:
        return Offered(tool, "not_visible", allowed=False)
    if pinned is not None and signature_of(tool) not in pinned:
        return Offered(tool, "not_in_pinned_tools", allowed=False)
    return Offered(tool, "no_capability_needed" if needed is None else f"has_capability:{needed}", allowed=True)
