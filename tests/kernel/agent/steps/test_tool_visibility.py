"""Which tools are offered, and why not the others."""

import pytest

from gert.kernel.agent.ports.model import ToolDefinition
from gert.kernel.agent.steps.question import signature_of
from gert.kernel.agent.steps.tool_visibility import allowed, visibility_of, visibility_report
from gert.kernel.agent.types.api import TenantContext

LOOK, PAY = ToolDefinition("look", "", "{}"), ToolDefinition("pay", "", "{}", schema_hash="h")
NEEDED = {"look": None, "pay": "money"}


@pytest.mark.parametrize(
    ("held", "visible", "pinned", "reasons"),
    [
        pytest.param((), None, None, ("no_capability_needed", "missing_capability:money"), id="without the capability"),
        pytest.param({"money"}, None, None, ("no_capability_needed", "has_capability:money"), id="with it"),
        pytest.param({"money"}, {"pay"}, None, ("not_visible", "has_capability:money"), id="one is asked for"),
        pytest.param((), {"pay"}, None, ("not_visible", "missing_capability:money"), id="asking is no capability"),
        pytest.param({"money"}, set(), None, ("not_visible", "not_visible"), id="none is asked for"),
        pytest.param(
            {"money"}, None, {signature_of(LOOK)}, ("no_capability_needed", "not_in_pinned_tools"), id="pinned to one"
        ),
        pytest.param({"money"}, None, set(), ("not_in_pinned_tools",) * 2, id="pinned to none"),
        pytest.param(
            {"money"},
            None,
            {signature_of(ToolDefinition("pay", "", "{}", schema_hash="other"))},
            ("not_in_pinned_tools",) * 2,
            id="pinned to another version",
        ),
        pytest.param(
            {"MONEY", "mone"}, None, None, ("no_capability_needed", "missing_capability:money"), id="spelling"
        ),
    ],
)
def test_why_a_tool_is_offered_or_not(
    held: set[str], visible: set[str] | None, pinned: set[object] | None, reasons: tuple[str, str]
) -> None:
    found = visibility_of((LOOK, PAY), NEEDED, held, visible, pinned)  # type: ignore[arg-type]
    assert tuple(each.reason for each in found) == reasons
    offered = [tool.name for tool in allowed(found)]
    assert offered == [each.tool.name for each in found if each.reason.startswith(("no_cap", "has_cap"))]
    tenant = TenantContext(tenant_id="t", capabilities=frozenset(held), budget_usd_limit=1)
    said = visibility_report(found, tenant)
    assert said["allowed_tools"] == offered
    assert sorted([*said["allowed_tools"], *said["filtered_tools"]]) == ["look", "pay"]  # type: ignore[misc]


def test_tools_come_by_name_however_they_were_registered() -> None:
    assert [tool.name for tool in allowed(visibility_of((PAY, LOOK), NEEDED, {"money"}))] == ["look", "pay"]
