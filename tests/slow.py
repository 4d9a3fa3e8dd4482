"""The files whose tests take longest, so that they begin first; a test that is too slow is made faster, not listed."""

from typing import Final

import pytest

# From the slowest on, below `tests/`.
SLOW: Final = (
    "ecosystem/surfaces/cli/redrive/test_resume_walks.py",
    "ecosystem/surfaces/cli/exec/test_kill.py",
    "ecosystem/host/agent/test_chaos.py",
    "test_docs_commands.py",
    "test_release.py",
    "test_demo.py",
    "test_examples.py",
    "ecosystem/ledger/test_processes.py",
    "ecosystem/surfaces/cli/approvals/test_approval_page.py",
    "ecosystem/surfaces/cli/commands/test_recorded_scenarios.py",
    "ecosystem/surfaces/cli/exec/test_postgres_runs.py",
    "ecosystem/surfaces/cli/redrive/test_resume.py",
    "ecosystem/surfaces/cli/commands/test_replay_mode.py",
    "ecosystem/surfaces/cli/exec/test_dialogues.py",
    "ecosystem/ledger/test_postgres.py",
    "ecosystem/ledger/test_postgres_every_call.py",
    "ecosystem/ledger/test_postgres_failures.py",
    "ecosystem/ledger/test_waiters.py",
    "ecosystem/ledger/test_life.py",
    "ecosystem/host/agent/test_promises_killed.py",
    "ecosystem/surfaces/cli/runs/test_run_ledger.py",
    "ecosystem/surfaces/cli/commands/test_artana.py",
    "conformance/test_wide_walks.py",
    "kernel/governance/test_laws.py",
    "ecosystem/rpc/test_faults.py",
)


def slowest_first(items: list[pytest.Item]) -> None:
    """Put the tests of slow files first, and leave the others in their order."""
    order = {file: place for place, file in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(order)))
