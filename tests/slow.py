"""The files whose tests take longest, so that they begin first; a test that is too slow is made faster, not listed."""

from typing import Final

import pytest

# From the slowest on, below `tests/`.
SLOW: Final = (
    "ecosystem/exec/test_resume_walks.py",
    "ecosystem/exec/test_kill.py",
    "ecosystem/host/agent/test_chaos.py",
    "test_demo.py",
    "test_examples.py",
    "ecosystem/stores/test_ledger_processes.py",
    "ecosystem/exec/test_approval_page.py",
    "ecosystem/exec/test_recorded_scenarios.py",
    "ecosystem/exec/test_postgres_runs.py",
    "ecosystem/exec/test_resume.py",
    "ecosystem/exec/test_replay_mode.py",
    "ecosystem/exec/test_dialogues.py",
    "ecosystem/stores/test_postgres_store.py",
    "ecosystem/stores/test_postgres_every_call.py",
    "ecosystem/stores/test_postgres_failures.py",
    "ecosystem/stores/test_ledger_waiting.py",
    "ecosystem/stores/test_ledger_life.py",
    "ecosystem/stores/test_crash.py",
    "ecosystem/host/agent/test_promises_killed.py",
    "ecosystem/surfaces/cli/test_run_ledger.py",
    "ecosystem/surfaces/test_artana.py",
    "conformance/test_wide_walks.py",
    "kernel/governance/test_laws.py",
)


def slowest_first(items: list[pytest.Item]) -> None:
    """Put the tests of slow files first, and leave the others in their order."""
    order = {file: place for place, file in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(order)))
