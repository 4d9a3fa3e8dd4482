"""The attack table: one row per attempt, with what is tried, why it must fail and the reason gert gives.

A file of this folder holds the attempts on one theme::

    ATTACKS = [
        Attack(
            "a preview under `binary: rm` deletes the file in a dry run",
            why="a preview is a command of its own (DECISIONS 64)",
            attempt=preview_deletes,
            reason="would run `stat",
        ),
    ]

    @pytest.mark.parametrize("attack", table(ATTACKS))
    def test_attack_fails(attack: Attack, project: Project) -> None:
        attack.fails(project)

`attempt` carries the attack out, asserts that it did no harm, and returns what gert said.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.workbench import Project


@dataclass(frozen=True)
class Attack:
    """One attempt to get around a promise."""

    what: str
    why: str
    attempt: Callable[[Project], str]
    reason: str

    def fails(self, project: Project) -> None:
        """Carry the attempt out: it does no harm, and gert says why."""
        said = self.attempt(project)
        assert self.reason in said, f"{self.why}; expected `{self.reason}` in:\n{said}"


def table(attacks: Iterable[Attack]) -> list[Any]:
    """The attacks as test parameters; their ids are what is tried."""
    rows = list(attacks)
    assert len({attack.what for attack in rows}) == len(rows), "two rows try the same"
    return [pytest.param(attack, id=attack.what) for attack in rows]
