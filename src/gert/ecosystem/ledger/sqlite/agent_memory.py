"""The memory and the experience of agents in SQLite files of their own; a ledger is never one of them."""

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from gert.ecosystem.ledger.sqlite.file import (
    APPLICATION_ID,
    MEMORY,
    as_gert_error,
    connect,
    create,
    retried,
    roll_back,
    uri,
)
from gert.errors import InputError, TraceError
from gert.kernel.agent.loop.experience import ExperienceRule, ExperienceStore
from gert.kernel.agent.loop.memory import MemoryStore, appended, best_lines
from gert.kernel.foundation.arguments import checks_arguments

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds to wait for other processes."""

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_RULE_COLUMNS: Final = "rule_id, tenant_id, task_category, rule_type, content, success_count, fail_count"


class _Table:
    """One table in one file, used from any task; statements run on a thread, one after the other."""

    def __init__(self, db_path: str | Path, table_name: str, columns: str) -> None:
        if _TABLE.fullmatch(table_name) is None or table_name.lower().startswith("sqlite_"):
            raise InputError(f"`{table_name}` is not the name of a table", hint="letters, digits and underscores")
        self._path = os.fspath(db_path)
        self._lock = Lock()
        try:
            self._connection: sqlite3.Connection | None = _opened(self._path)
            retried(lambda: self._create(table_name, columns), time.monotonic() + PATIENCE)
        except sqlite3.Error as error:
            raise as_gert_error(self._path, error) from error

    async def read(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return await asyncio.to_thread(self._run, lambda connection: connection.execute(statement, values).fetchall())

    async def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a transaction; it is durable when this returns."""

        def transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                roll_back(connection)
                raise
            return result

        return await asyncio.to_thread(self._run, transaction)

    async def close(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._close)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            connection = self._connection
            if connection is None:
                raise TraceError(f"`{self._path}` is closed")
            try:
                return retried(lambda: work(connection), time.monotonic() + PATIENCE)
            except sqlite3.Error as error:
                raise as_gert_error(self._path, error) from error

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _create(self, table_name: str, columns: str) -> None:
        if self._connection is not None:
            self._connection.execute(f'CREATE TABLE IF NOT EXISTS "{table_name}" ({columns})')


def _opened(path: str) -> sqlite3.Connection:
    if path == MEMORY:
        return connect(MEMORY, uri=False)
    create(path)
    connection = connect(f"{uri(path)}?mode=rw")
    try:
        if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            raise InputError(f"`{path}` is a ledger", hint="keep the memory of agents in another file")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


@checks_arguments
class SQLiteMemoryStore(MemoryStore):
    """Memory in a SQLite file."""

    def __init__(self, db_path: str | Path, *, table_name: str = "agent_memory") -> None:
        self._table = _Table(db_path, table_name, "run_id TEXT PRIMARY KEY, content TEXT NOT NULL")
        self._name = table_name

    async def load(self, run_id: str) -> str:
        """Return the memory of a run; empty text if it has none."""
        rows = await self._table.read(f'SELECT content FROM "{self._name}" WHERE run_id = ?', (run_id,))  # noqa: S608
        return str(rows[0][0]) if rows else ""

    async def append(self, run_id: str, text: str) -> None:
        """Add a line to the memory of a run."""
        await self._change(run_id, lambda content: appended(content, text))

    async def replace(self, run_id: str, content: str) -> None:
        """Replace the memory of a run."""
        await self._change(run_id, lambda _: content)

    async def search(self, run_id: str, query: str, *, max_results: int = 5) -> str:
        """Return the lines of the memory of a run that match a query best."""
        return best_lines(await self.load(run_id), query, max_results)

    async def close(self) -> None:
        """Close the file."""
        await self._table.close()

    async def _change(self, run_id: str, change: Callable[[str], str]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            found = connection.execute(
                f'SELECT content FROM "{self._name}" WHERE run_id = ?',  # noqa: S608
                (run_id,),
            ).fetchone()
            connection.execute(
                f'INSERT OR REPLACE INTO "{self._name}" VALUES (?, ?)',  # noqa: S608
                (run_id, change(found[0] if found else "")),
            )

        await self._table.change(work)


@checks_arguments
class SQLiteExperienceStore(ExperienceStore):
    """Experience in a SQLite file."""

    def __init__(self, db_path: str | Path, *, table_name: str = "experience_rules") -> None:
        columns = (
            "rule_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, task_category TEXT NOT NULL, rule_type TEXT NOT NULL,"
            " content TEXT NOT NULL, success_count INTEGER NOT NULL, fail_count INTEGER NOT NULL"
        )
        self._table = _Table(db_path, table_name, columns)
        self._name = table_name

    async def get_rules(self, tenant_id: str, task_category: str, *, limit: int = 10) -> list[ExperienceRule]:
        """Return the rules of a tenant for a category, the most useful first."""
        rows = await self._table.read(
            f'SELECT {_RULE_COLUMNS} FROM "{self._name}" WHERE tenant_id = ? AND task_category = ?'  # noqa: S608
            " ORDER BY success_count - fail_count DESC, rule_id LIMIT ?",
            (tenant_id, task_category, limit),
        )
        names = _RULE_COLUMNS.split(", ")
        return [ExperienceRule.model_validate(dict(zip(names, row, strict=True))) for row in rows]

    async def save_rules(self, rules: list[ExperienceRule]) -> None:
        """Save rules; a rule that is there keeps its counts where they are higher, and its tenant."""

        def work(connection: sqlite3.Connection) -> None:
            for rule in rules:
                changed = connection.execute(
                    f'INSERT INTO "{self._name}" ({_RULE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)'  # noqa: S608
                    " ON CONFLICT (rule_id) DO UPDATE SET task_category = excluded.task_category,"
                    " rule_type = excluded.rule_type, content = excluded.content,"
                    " success_count = max(success_count, excluded.success_count),"
                    " fail_count = max(fail_count, excluded.fail_count) WHERE tenant_id = excluded.tenant_id",
                    _row(rule),
                ).rowcount
                if not changed:
                    raise InputError(f"the rule `{rule.rule_id}` belongs to another tenant")

        await self._table.change(work)

    async def reinforce_rule(self, rule_id: str, *, positive: bool) -> None:
        """Count that a rule helped, or that it did not."""
        column = "success_count" if positive else "fail_count"

        def work(connection: sqlite3.Connection) -> None:
            statement = f'UPDATE "{self._name}" SET {column} = {column} + 1 WHERE rule_id = ?'  # noqa: S608
            if not connection.execute(statement, (rule_id,)).rowcount:
                raise InputError(f"there is no rule `{rule_id}`")

        await self._table.change(work)

    async def close(self) -> None:
        """Close the file."""
        await self._table.close()


def _row(rule: ExperienceRule) -> tuple[Any, ...]:
    return (
        rule.rule_id,
        rule.tenant_id,
        rule.task_category,
        rule.rule_type.value,
        rule.content,
        rule.success_count,
        rule.fail_count,
    )
