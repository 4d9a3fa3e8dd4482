"""The variables of gert that the runner for agents needs: it is gert itself, and its run is recorded beside this one.

They are sent with the call, and are in no environment that a process is started with (DECISIONS 12).
"""

import os
from typing import Final

from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys import approval_keys, plan_keys, trace_keys
from gert.ecosystem.host.config.settings import POLICY, TRACES_DIR
from gert.ecosystem.host.config.state_dir import STATE_DIR
from gert.ecosystem.host.config.telemetry import telemetry_variables
from gert.ecosystem.host.run.prepare import Prepared
from gert.ecosystem.process.environment import DEPTH, LEDGER

PASSED: Final = (
    DEPTH,  # limits how deep agents and runbooks start each other
    POLICY,  # the floor of its calls
    TRACES_DIR,  # where runs of its runbooks have their mirrors
    trace_keys.SIGNING_KEY,  # seals its run
    trace_keys.SIGNING_KEY_ID,
    plan_keys.SIGNING_KEY,  # authorizes the skills it calls
    plan_keys.VERIFY_KEY,
)
"""Variables that are passed as they are."""

PREFIXES: Final = (trace_keys.NAMED_KEY, plan_keys.NAMED_KEY)
"""Verification keys, by the beginning of their names."""


def agent_variables(prepared: Prepared) -> dict[str, str]:
    """The variables that the runner for agents is given, and no others: with approvals it can only verify."""
    environ = prepared.environ
    ledger = prepared.ledger
    return {
        **{name: value for name, value in environ.items() if name in PASSED or name.startswith(PREFIXES)},
        **approval_keys.verify_variables(environ),
        **telemetry_variables(prepared.settings.telemetry, environ),
        STATE_DIR: prepared.state,
        LEDGER: ledger.value if isinstance(ledger, Dsn) else os.path.abspath(ledger),
    }
