"""The operations of a person's editor: those of agents, and what only a person may do."""

from collections.abc import Mapping
from typing import Final

from gert.ecosystem.host.operations import editor
from gert.ecosystem.host.operations.table import OPERATIONS, Operation

_EDITOR_ROWS: Final = (
    Operation("list_runs", editor.ListRuns, editor.list_runs),
    Operation("events", editor.Events, editor.events, untrusted=("events.data",)),
    Operation("inputs", editor.Inputs, editor.inputs, untrusted=("inputs",)),
    Operation("list_approvals", editor.ListApprovals, editor.list_approvals, untrusted=("tickets",)),
    Operation("answer_approval", editor.AnswerApproval, editor.answer_approval, writes=True, repeats=False),
    Operation("advance", editor.Advance, editor.advance, writes=True, repeats=False),
    Operation("evidence", editor.GiveEvidence, editor.evidence, writes=True, repeats=False),
)
EDITOR_OPERATIONS: Final[Mapping[str, Operation]] = {**OPERATIONS, **{row.name: row for row in _EDITOR_ROWS}}
"""Operations of a person's editor: those, and what only a person may do."""
