"""Tests come out the same on a busy machine, in the background, and under `nohup`."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.needs import require_programs, warn
from tests.postgres import dsn, durable_dsn, durable_postgres, own_server, postgres, used_again
from tests.slow import slowest_first
from tests.soak import examples

__all__ = ["dsn", "durable_dsn", "durable_postgres", "own_server", "postgres", "used_again"]

# A shell ignores the first two for what it starts in the background, `nohup` the third. Windows has only the first.
_STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGHUP") if hasattr(signal, name)]

# Properties are judged by what they find, not by how long that takes.
settings.register_profile(
    "gert", deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("gert")


@pytest.fixture(scope="session", autouse=True)
def every_signal_counts() -> Iterator[None]:
    """What is started inherits the signals that are ignored; then it would not stop for them, and be right."""
    ignored = [each for each in _STOPPING if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No worker is left with a slow file when the others have ended."""
    slowest_first(items)


def pytest_collection_finish() -> None:
    """Twenty thousand tests stay to the end: looking through them for garbage again and again finds none."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test begins only where its programs are."""
    require_programs(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested."""
    warn(terminalreporter)
