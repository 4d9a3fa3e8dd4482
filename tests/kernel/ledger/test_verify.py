"""Whether a run is the one that was written: each way to tamper with it fails the check that is there for it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from gert.errors import IntegrityError
from gert.kernel.events.agent import HarnessStage
from gert.kernel.events.chain import ChainReport, read_chain
from gert.kernel.foundation.signature import Keys, parse_key
from gert.kernel.ledger.compose import Entry, compose
from gert.kernel.ledger.record import Head
from gert.kernel.ledger.seal import read_seal, seal_head
from gert.kernel.ledger.verify import check_run

KEY = parse_key("a secret that is long enough", "main")
COLON = parse_key("a secret that is long enough", "a:b:c")
OTHER = parse_key("another secret, long enough too", "main")
BATCH = compose(
    Head("run"), "2026-02-28T12:00:00.000000Z", "acme", [Entry(HarnessStage(stage=str(n))) for n in range(4)]
)
LINES = [row.line for row in BATCH.rows]
REPORT = read_chain(LINES)
HEAD = structs.replace(BATCH.head, seal=seal_head(BATCH.head, KEY))
# A genuine seal of an earlier end.
EARLIER = Head("run", count=3, hash=read_chain(LINES[:3]).head)
OLD_SEAL = seal_head(EARLIER, KEY)

Change = Callable[[Head], Head | None]


def with_(**changes: object) -> Change:
    return lambda head: structs.replace(head, **changes)


@pytest.mark.parametrize(
    ("report", "change", "keys", "failing"),
    [
        pytest.param(REPORT, with_(), Keys([KEY]), [], id="as it was written"),
        pytest.param(REPORT, with_(), Keys(), [], id="without a key nobody asks for the seal"),
        pytest.param(REPORT, with_(seal=None), Keys(), [], id="not sealed, and nobody demands it"),
        pytest.param(REPORT, with_(seal=None), Keys([KEY]), ["seal"], id="the seal was taken off"),
        pytest.param(REPORT, with_(seal="x"), Keys([KEY]), ["seal"], id="a seal nobody can read"),
        pytest.param(REPORT, with_(seal="none:x:main"), Keys([KEY]), ["seal"], id="an algorithm nobody knows"),
        pytest.param(REPORT, with_(seal=OLD_SEAL), Keys([KEY]), ["seal"], id="the seal of an earlier end"),
        pytest.param(REPORT, with_(), Keys([OTHER]), ["seal"], id="sealed by somebody else"),
        pytest.param(read_chain(LINES[:3]), with_(), Keys([KEY]), ["count", "head", "seal"], id="the end was cut off"),
        pytest.param(
            read_chain(LINES[:3]),
            lambda head: structs.replace(EARLIER, seal=head.seal),
            Keys([KEY]),
            ["seal"],
            id="the end was cut off, and the head put back",
        ),
        pytest.param(
            read_chain(LINES[:3]),
            lambda _: structs.replace(EARLIER, seal=OLD_SEAL),
            Keys([KEY]),
            [],
            id="nobody can tell an earlier state of everything from that time",
        ),
        pytest.param(read_chain([]), with_(), Keys([KEY]), ["chain", "count", "head", "seal"], id="all of it is gone"),
        pytest.param(read_chain([LINES[0], *LINES[2:]]), with_(), Keys(), ["chain", "count"], id="one line is gone"),
        pytest.param(read_chain([*LINES, LINES[-1]]), with_(), Keys(), ["chain", "count"], id="a line is there twice"),
        pytest.param(read_chain([*LINES, b"{"]), with_(), Keys(), ["chain", "head"], id="half a line more"),
        pytest.param(REPORT, with_(count=3), Keys(), ["count"], id="the count was changed"),
        pytest.param(REPORT, with_(hash="0" * 64), Keys(), ["head"], id="the head was changed"),
        pytest.param(REPORT, lambda _: None, Keys(), ["count", "head", "seal"], id="the end was removed"),
        pytest.param(replace(REPORT, run_id="other"), with_(), Keys(), ["chain"], id="the lines of another run"),
    ],
)
def test_what_fails(report: ChainReport, change: Change, keys: Keys, failing: list[str]) -> None:
    found = check_run(report, change(HEAD), keys, run_id="run")
    assert [check.name for check in found.failures] == failing
    assert [check.number for check in found.checks] == [1, 2, 3, 4]
    assert found.holds is not bool(failing)
    if failing:
        with pytest.raises(IntegrityError, match=r".+"):
            found.require()
    else:
        found.require()


def test_a_seal_proves_who_sealed_it() -> None:
    found = check_run(REPORT, HEAD, Keys([KEY]), run_id="run")
    assert (found.proven, found.signed_by, found.events) == (True, "main", 4)
    assert not check_run(REPORT, HEAD, run_id="run").proven


def test_a_seal_is_demanded_by_who_says_so() -> None:
    for demand in ({"require_seal": True}, {"key_id": "main"}):
        found = check_run(REPORT, structs.replace(HEAD, seal=None), run_id="run", **demand)
        assert [check.name for check in found.failures] == ["seal"]


@pytest.mark.parametrize(
    ("keys", "key_id", "holds"),
    [
        pytest.param(Keys([KEY]), "main", True, id="by the key that was named"),
        pytest.param(Keys([KEY]), "other", False, id="by another one than was named"),
        pytest.param(Keys([], default=KEY), "main", False, id="the default key answers to no name"),
        pytest.param(Keys([], default=KEY), None, True, id="by the default key"),
    ],
)
def test_a_key_may_be_named(keys: Keys, key_id: str | None, holds: bool) -> None:
    assert check_run(REPORT, HEAD, keys, run_id="run", key_id=key_id).holds is holds


def test_the_name_of_a_key_may_hold_anything() -> None:
    head = structs.replace(HEAD, seal=seal_head(HEAD, COLON))
    assert head.seal is not None
    assert read_seal(head.seal).key_id == "a:b:c"
    assert check_run(REPORT, head, Keys([COLON]), run_id="run").signed_by == "a:b:c"


def test_one_runs_seal_is_not_anothers() -> None:
    seal = seal_head(structs.replace(HEAD, run_id="other"), KEY)
    found = check_run(REPORT, structs.replace(HEAD, seal=seal), Keys([KEY]), run_id="run")
    assert [check.name for check in found.failures] == ["seal"]
