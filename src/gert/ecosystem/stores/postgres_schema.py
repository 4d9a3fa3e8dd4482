"""A ledger in a Postgres schema: made once however many begin at the same time, and known by its version."""

import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from gert.ecosystem.stores import sql
from gert.ecosystem.stores.postgres_faults import driver
from gert.errors import TraceError, UsageError

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}\Z")
_LOCK: Final = 0x67657274  # `gert`
# By what is in the tables: a name is looked up in a memory, which may not know yet what another one made.
_IS_THERE: Final = """
SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname = 'meta'
"""
# What a ledger of an older version lacks, by the version that has it. The first on Postgres had version 3.
_UPGRADES: Final[Mapping[int, tuple[str, ...]]] = {}


def check_name(schema: str) -> str:
    """Refuse what would have to be quoted: UsageError."""
    if not _NAME.match(schema) or schema.startswith("pg_"):
        raise UsageError(f"`{schema}` is not the name of a schema", hint="lower-case letters, digits and _ only")
    return schema


async def make_ledger(connection: Any, schema: str) -> None:
    """Make the tables where they are not there yet, and bring older ones up to this version."""
    if await _version(connection, schema) == sql.SCHEMA_VERSION:
        return
    async with connection.transaction():
        # Everybody who begins waits here for the first, and then finds it done.
        await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", _LOCK, _number(schema))
        found = await _version(connection, schema)
        if found is None:
            await _create(connection, schema)
        else:
            for version in range(found + 1, sql.SCHEMA_VERSION + 1):
                await _upgrade(connection, version)


async def check_ledger(connection: Any, schema: str) -> None:
    """Refuse a database without a ledger: nothing is made by whoever only reads."""
    found = await _version(connection, schema)
    if found is None:
        raise TraceError(f"there is no ledger in the schema `{schema}` of this database")
    if found < sql.SCHEMA_VERSION:
        raise TraceError(
            f"the ledger has version {found}, expected {sql.SCHEMA_VERSION}", hint="open it once for writing"
        )


async def _version(connection: Any, schema: str) -> int | None:
    if not await connection.fetchval(_IS_THERE, schema):
        return None
    value = await connection.fetchval(f"SELECT value FROM {schema}.meta WHERE key = 'schema_version'")  # noqa: S608
    if value is None or not value.isdecimal() or int(value) < 3:
        raise TraceError(f"the schema `{schema}` of this database does not hold a ledger of gert")
    if int(value) > sql.SCHEMA_VERSION:
        raise TraceError(
            f"the ledger was made by a newer gert: expected version {sql.SCHEMA_VERSION}, found {value}",
            hint="update gert",
        )
    return int(value)


async def _create(connection: Any, schema: str) -> None:
    # Asked first: who may not create schemas may still be given one.
    if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
        await connection.execute(f"CREATE SCHEMA {schema}")
    try:
        for statement in sql.schema("postgres"):
            await connection.execute(statement)
    except driver().DuplicateTableError as error:
        raise TraceError(
            f"the schema `{schema}` of this database holds tables of somebody else", hint="choose another schema"
        ) from error
    await connection.execute("INSERT INTO meta VALUES ('schema_version', $1)", str(sql.SCHEMA_VERSION))


async def _upgrade(connection: Any, version: int) -> None:
    for statement in _UPGRADES[version]:
        await connection.execute(statement)
    await connection.execute("UPDATE meta SET value = $1 WHERE key = 'schema_version'", str(version))


def _number(schema: str) -> int:
    """A number for a schema, as locks are known by."""
    return zlib.crc32(schema.encode()) - (1 << 31)
