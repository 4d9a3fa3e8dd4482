"""The environment of a tool: gert's own, without other secrets (DECISIONS 12, ecosystem-v0 §12)."""

from collections.abc import Iterable, Mapping
from typing import Final

from gert.kernel.events.runbook.parts import Failure
from gert.kernel.runbook.documents.tool import Tool

GERT_PREFIX: Final = "GERT_"
"""The prefix of gert's own variables; signing keys are among them."""

PARENT_RUN: Final = "GERT_PARENT_RUN_ID"
"""The run that calls a tool; the only variable of gert that a tool gets."""

LEDGER: Final = "GERT_LEDGER"
"""The ledger of the run, for the runner for agents, which is gert itself: a file, or an address."""

DEPTH: Final = "GERT_DEPTH"
"""How deep agents and runbooks have started each other."""


def environment_for(own: Iterable[str], environment: Mapping[str, str], withheld: frozenset[str]) -> dict[str, str]:
    """Return the environment that a program inherits: without gert's variables, except the run id, and others' secrets.

    own: the variables whose secrets are declared for this program
    """
    secrets = withheld.difference(own) if withheld else withheld
    return {
        name: value
        for name, value in environment.items()
        # An environment may contain a variable without a name, which not every way to start a process accepts.
        if is_name(name) and (name == PARENT_RUN or not name.startswith(GERT_PREFIX)) and name not in secrets
    }


def is_name(name: str) -> bool:
    """Whether this is a valid variable name."""
    return bool(name) and "=" not in name


def missing_secret(tool: Tool, environment: Mapping[str, str]) -> Failure | None:
    """Return a failure for the first required secret that is not set."""
    for secret in tool.all_secrets:
        if secret.required and not environment.get(secret.env):
            return Failure("missing_secret", f"tool `{tool.meta.name}` requires secret `{secret.env}`")
    return None
