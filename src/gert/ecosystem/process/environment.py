"""The environment of a tool: gert's own, without other secrets (DECISIONS 12, ecosystem-v0 §12)."""

from collections.abc import Iterable, Mapping
from typing import Final

from gert.kernel.events.runbook.parts import Failure
from gert.kernel.events.started_by import NO_RUN, StartedBy
from gert.kernel.foundation.names import is_run_id
from gert.kernel.runbook.documents.tool import Tool

GERT_PREFIX: Final = "GERT_"
"""The prefix of gert's own variables; signing keys are among them."""

PARENT_RUN: Final = "GERT_PARENT_RUN_ID"
"""The run that calls a tool; with the next, the only variable of gert that a tool gets."""

ROOT_RUN: Final = "GERT_ROOT_RUN_ID"
"""The first of the runs that started each other, where it is not the run that calls the tool."""

PASSED: Final = (PARENT_RUN, ROOT_RUN)

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
        if is_name(name) and (name in PASSED or not name.startswith(GERT_PREFIX)) and name not in secrets
    }


def started_by(environment: Mapping[str, str]) -> StartedBy:
    """Return the run that started this process, as its variables say."""
    parent, root = environment.get(PARENT_RUN, ""), environment.get(ROOT_RUN, "")
    if not is_run_id(parent):
        return NO_RUN
    return StartedBy(parent, root if is_run_id(root) else parent)


def starting(environment: Mapping[str, str], run_id: str, root_run_id: str | None) -> dict[str, str]:
    """Return the environment of what a run starts: it names the run and its root."""
    others = {name: value for name, value in environment.items() if name != ROOT_RUN}
    root = {ROOT_RUN: root_run_id} if root_run_id not in (None, run_id) else {}
    return {**others, PARENT_RUN: run_id, **root}


def is_name(name: str) -> bool:
    """Whether this is a valid variable name."""
    return bool(name) and "=" not in name


def missing_secret(tool: Tool, environment: Mapping[str, str]) -> Failure | None:
    """Return a failure for the first required secret that is not set."""
    for secret in tool.all_secrets:
        if secret.required and not environment.get(secret.env):
            return Failure("missing_secret", f"tool `{tool.meta.name}` requires secret `{secret.env}`")
    return None
