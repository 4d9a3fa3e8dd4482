"""Options that `gert plan`, `gert skill` and `gert runner` share."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gert.ecosystem.host.config.ledger_location import database_for
from gert.ecosystem.host.runner.project import RunnerProject

_Command = TypeVar("_Command", bound=Callable[..., Any])

_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_CONFIG = click.option("--config", metavar="FILE", help="Settings file to read in addition to the project's.")
_STATE = click.option("--state-dir", metavar="DIR", help="State directory (default: the project's, or your own).")
_DB = click.option("--db", metavar="FILE", help="SQLite ledger in which plans are spent.")
_DSN = click.option("--dsn", metavar="DSN", help="Postgres ledger in which plans are spent; env:NAME names a variable.")


def project_options(command: _Command) -> _Command:
    """Add the options that choose a project's settings."""
    for option in (_JSON, _CONFIG):
        command = option(command)
    return command


def ledger_options(command: _Command) -> _Command:
    """Add the options that choose settings, a state directory and a ledger."""
    for option in (_JSON, _CONFIG, _DSN, _DB, _STATE):
        command = option(command)
    return command


def open_project(
    config: str | None = None, state_dir: str | None = None, db: str | None = None, dsn: str | None = None
) -> RunnerProject:
    """The project of the working directory."""
    database = database_for(db, dsn, os.environ)
    return RunnerProject(environ=os.environ, state=state_dir, database=database, config=config)
