"""A ledger in a Postgres schema: created once however many processes begin, and known by its version."""

import re
import zlib
from typing import Any, Final

from gert.ecosystem.ledger import sql
from gert.ecosystem.ledger.postgres.faults import driver
from gert.errors import TraceError, UsageError

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,50}\Z")
_LOCK: Final = 0x67657274  # `gert`
# By what is in the tables: a name is looked up in a memory, which may not know yet what another one made.
_IS_THERE: Final = """
SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relname = 'meta'
"""


def check_name(schema: str) -> str:
    """Refuse what would have to be quoted: UsageError."""
    if not _NAME.match(schema) or schema.startswith("pg_"):
        raise UsageError(f"`{schema}` is not the name of a schema", hint="lower-case letters, digits and _ only")
    return schema


async def make_ledger(connection: Any, schema: str) -> None:
    """Create the tables where they are not there yet."""
    if await _version(connection, schema) == sql.SCHEMA_VERSION:
        return
    async with connection.transaction():
        # Every process that begins waits here for the first one, and then finds the tables.
        await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", _LOCK, _number(schema))
        if await _version(connection, schema) is None:
            await _create(connection, schema)


async def check_ledger(connection: Any, schema: str) -> None:
    """Refuse a database without a ledger: a reader creates nothing."""
    if await _version(connection, schema) is None:
        raise TraceError(f"there is no ledger in the schema `{schema}` of this database")


async def _version(connection: Any, schema: str) -> int | None:
    if not await connection.fetchval(_IS_THERE, schema):
        return None
    value = await connection.fetchval(f"SELECT value FROM {schema}.meta WHERE key = 'schema_version'")  # noqa: S608
    if value is None or not value.isdecimal():
        raise TraceError(f"the schema `{schema}` of this database does not hold a ledger of gert")
    if int(value) != sql.SCHEMA_VERSION:
        raise TraceError(
            f"the ledger was made by another version of gert: expected version {sql.SCHEMA_VERSION}, found {value}",
            hint="choose another schema, or export its runs with the gert that wrote it",
        )
    return int(value)


async def _create(connection: Any, schema: str) -> None:
    # Looked up first: a role that may not create schemas may still be given one.
    if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
        await connection.execute(f"CREATE SCHEMA {schema}")
    try:
        for statement in sql.schema("postgres"):
            await connection.execute(statement)
    except driver().DuplicateTableError as error:
        raise TraceError(
            f"the schema `{schema}` of this database holds tables of another program", hint="choose another schema"
        ) from error
    await connection.execute("INSERT INTO meta VALUES ('schema_version', $1)", str(sql.SCHEMA_VERSION))


def _number(schema: str) -> int:
    """A number for a schema, for its advisory lock."""
    return zlib.crc32(schema.encode()) - (1 << 31)
