"""Which tools a model step offers, and why it leaves out the others."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.steps.question import signature_of
from gert.kernel.agent.types.api import TenantContext
from gert.kernel.events.agent.parts import ToolSignature


@dataclass(frozen=True, slots=True)
class ToolVisibility:
    """Whether a step offers a tool, and why."""

    tool: ToolDefinition
    reason: str
    allowed: bool

    def as_data(self) -> dict[str, object]:
        """Return the decision as plain data."""
        return {
            "tool_name": self.tool.name,
            "decision": "allowed" if self.allowed else "filtered",
            "reason": self.reason,
        }


def visibility_of(
    tools: Sequence[ToolDefinition],
    capabilities: Mapping[str, str | None],
    held: Collection[str],
    visible: Collection[str] | None = None,
    pinned: Collection[ToolSignature] | None = None,
) -> tuple[ToolVisibility, ...]:
    """Decide for every registered tool whether a step offers it.

    capabilities: which capability each tool needs, by name
    held: the capabilities of the tenant
    visible: the names the caller asks for; None for all
    pinned: the tools the run is pinned to, if it is
    """
    return tuple(_visibility(tool, capabilities.get(tool.name), held, visible, pinned) for tool in tools)


def allowed(visibility: Sequence[ToolVisibility]) -> tuple[ToolDefinition, ...]:
    """Return the tools that are offered, sorted by name."""
    return tuple(sorted((each.tool for each in visibility if each.allowed), key=lambda tool: tool.name))


def after_middleware(
    visibility: Sequence[ToolVisibility], tools: Sequence[ToolDefinition]
) -> tuple[ToolVisibility, ...]:
    """Return the decisions after middleware, which left or added `tools`."""
    left = {tool.name: tool for tool in tools}
    decided = tuple(_overridden(each, allowed=each.tool.name in left) for each in visibility)
    known = {each.tool.name for each in visibility}
    added = (
        ToolVisibility(tool, "added_by_middleware", allowed=True) for name, tool in left.items() if name not in known
    )
    return (*decided, *added)


def visibility_report(visibility: Sequence[ToolVisibility], tenant: TenantContext) -> dict[str, object]:
    """Return which tools a tenant may use and why, as plain data."""
    return {
        "tenant_id": tenant.tenant_id,
        "capabilities": sorted(tenant.capabilities),
        "allowed_tools": sorted(each.tool.name for each in visibility if each.allowed),
        "filtered_tools": sorted(each.tool.name for each in visibility if not each.allowed),
        "tools": [each.as_data() for each in sorted(visibility, key=lambda each: each.tool.name)],
    }


def _overridden(decided: ToolVisibility, *, allowed: bool) -> ToolVisibility:
    if decided.allowed == allowed:
        return decided
    return replace(decided, reason="added_by_middleware" if allowed else "filtered_by_middleware", allowed=allowed)


def _visibility(
    tool: ToolDefinition,
    needed: str | None,
    held: Collection[str],
    visible: Collection[str] | None,
    pinned: Collection[ToolSignature] | None,
) -> ToolVisibility:
    if needed is not None and needed not in held:
        return ToolVisibility(tool, f"missing_capability:{needed}", allowed=False)
    if visible is not None and tool.name not in visible:
        return ToolVisibility(tool, "not_visible", allowed=False)
    if pinned is not None and signature_of(tool) not in pinned:
        return ToolVisibility(tool, "not_in_pinned_tools", allowed=False)
    return ToolVisibility(tool, "no_capability_needed" if needed is None else f"has_capability:{needed}", allowed=True)
