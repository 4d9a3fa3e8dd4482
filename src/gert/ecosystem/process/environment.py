"""The environment a tool sees: ours, without what is not its business (DECISIONS 12, ecosystem-v0 §12)."""

from collections.abc import Mapping
from typing import Final

from gert.kernel.events.runbook.parts import Failure
from gert.kernel.runbook.documents.tool import Tool

OURS: Final = "GERT_"
"""How gert's own variables begin; keys to traces and approvals are among them."""

PARENT_RUN: Final = "GERT_PARENT_RUN_ID"
"""The run a tool is called by; the only variable of gert that a tool gets."""


def environment_for(tool: Tool, environment: Mapping[str, str], withheld: frozenset[str]) -> dict[str, str]:
    """What a tool inherits: of gert only the id of the run, no secret of others, and nothing without a name."""
    secrets = withheld.difference(secret.env for secret in tool.all_secrets) if withheld else withheld
    return {
        name: value
        for name, value in environment.items()
        # A process can be started with a variable that has no name; not every way to start one takes it.
        if is_name(name) and (name == PARENT_RUN or not name.startswith(OURS)) and name not in secrets
    }


def is_name(name: str) -> bool:
    """Whether a variable can be called that."""
    return bool(name) and "=" not in name


def missing_secret(tool: Tool, environment: Mapping[str, str]) -> Failure | None:
    """The first secret the tool cannot do without and would not get."""
    for secret in tool.all_secrets:
        if secret.required and not environment.get(secret.env):
            return Failure("missing_secret", f"tool `{tool.meta.name}` requires secret `{secret.env}`")
    return None
