"""The address of a shared ledger: what may be said of it, and what may not."""

import pytest

from gert.ecosystem.host.config.dsn import Dsn, read_dsn
from gert.errors import UsageError

SECRET = "hunter2-secret"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        pytest.param(f"postgresql://kim:{SECRET}@db:5432/runs", "postgresql://kim@db:5432/runs", id="a password"),
        pytest.param(f"postgres://kim:{SECRET}@db/runs", "postgresql://kim@db/runs", id="the short scheme"),
        pytest.param("postgresql://db/runs", "postgresql://db/runs", id="no user"),
        pytest.param(
            f"postgresql://kim@/runs?host=/tmp/pg&password={SECRET}&sslmode=require",
            "postgresql://kim@/runs?host=/tmp/pg",
            id="a socket, and a password among the settings",
        ),
        pytest.param(f"postgresql://:{SECRET}@db/runs", "postgresql://db/runs", id="a password without a user"),
        pytest.param(f"postgresql://kim:a@{SECRET}@db/runs", "postgresql://kim@db/runs", id="a password with an @"),
    ],
)
def test_what_people_see_of_it(value: str, name: str) -> None:
    dsn = Dsn(value)
    assert (dsn.name, dsn.given, dsn.value) == (name, name, value)
    assert SECRET not in repr(dsn)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"cannot connect with {SECRET}", id="as it is"),
        pytest.param("cannot connect with hunter2%2Dsecret", id="as it stands in the address"),
    ],
)
def test_what_a_driver_says_is_masked(said: str) -> None:
    dsn = Dsn("postgresql://kim:hunter2%2Dsecret@db/runs")
    assert dsn.masked(said) == "cannot connect with [REDACTED]"


@pytest.mark.parametrize(
    "value",
    [SECRET, "", "mysql://h/d", f"postgresql://kim:{SECRET}@db:port/d", f"postgresql://kim:{SECRET}@[::1/d", "env"],
)
def test_what_is_no_address_is_not_repeated(value: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_dsn(value, {})
    assert SECRET not in f"{refused.value.message} {refused.value.hint}"


def test_a_variable_may_hold_it() -> None:
    dsn = read_dsn("env:LEDGER", {"LEDGER": f"postgresql://kim:{SECRET}@db/runs"})
    assert dsn.given == "env:LEDGER"
    assert dsn.value.endswith("@db/runs")


@pytest.mark.parametrize("environ", [{}, {"LEDGER": ""}, {"LEDGER": SECRET}])
def test_a_variable_that_holds_none(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as refused:
        read_dsn("env:LEDGER", environ)
    assert SECRET not in refused.value.message
