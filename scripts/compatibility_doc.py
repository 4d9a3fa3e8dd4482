"""The page docs/compatibility_matrix.md: which version runs where, and reads what."""

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from gert._version import __version__
from gert.ecosystem.ledger import sql

ROOT = Path(__file__).resolve().parent.parent


class Release(NamedTuple):
    """One version: what it runs on, the schema it writes, and everything it reads."""

    version: str
    python: str
    sqlite: str
    postgres: str
    ledger: str


RELEASES = (Release("0.2.0", "3.11, 3.12, 3.13", "writes and reads 6", "writes and reads 6", "1"),)
"""Every version, the newest first. A line here is never changed once its version is out."""

PAGE = """# Compatibility

Which Python a version of gert runs on, and which databases and records it reads.

| gert | Python | SQLite schema | Postgres schema | Ledger format |
|---|---|---|---|---|
{rows}

**Schema.** A database says which schema it has, and `get_schema_info()` reads it from there. A database of another
schema is refused, and never touched. SQLite and Postgres share their tables.

**Ledger format.** The line of an event, its chain and its seal are described in the [trace format](trace-format.md).
Within one format, a ledger written by any version is read and verified by every later one; readers ignore
unknown events and fields. A change of the bytes that are hashed or signed is a new format, and the old one stays
readable.

**Python names.** What `gert.agent` exports is listed in [kernel_behavior_index.json](kernel_behavior_index.json),
with signatures, events, errors and commands; it is generated from the code and checked in CI.

gert uses the SQLite that Python was built with. It reaches Postgres through asyncpg, which the [extra](install.md)
`postgres` installs.
"""


def page() -> str:
    """Give the whole page, or say what about it is not true any more."""
    newest = RELEASES[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    if newest.version != __version__:
        sys.exit(f"scripts/compatibility_doc.py has no line for version {__version__}")
    if ", ".join(pythons) != newest.python:
        sys.exit(f"scripts/compatibility_doc.py says Python {newest.python}, pyproject.toml {', '.join(pythons)}")
    if not all(f"writes {sql.SCHEMA_VERSION}" in text.replace("and reads ", "") for text in newest[2:4]):
        sys.exit(f"scripts/compatibility_doc.py does not name schema {sql.SCHEMA_VERSION}")
    return PAGE.format(rows="\n".join(f"| {' | '.join(release)} |" for release in RELEASES))
