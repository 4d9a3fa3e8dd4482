"""Whether a run is the one that was written: each way to tamper with it fails the check that is there for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from gert.errors import IntegrityError
from gert.kernel.events.agent import HarnessStage
from gert.kernel.events.trace_seal import CheckReport
from gert.kernel.foundation.signature import Keys, parse_key
from gert.kernel.ledger import run_checks
from gert.kernel.ledger.build_batch import Entry, build_batch
from gert.kernel.ledger.head_seal import encode_snapshot, read_seal, seal_head
from gert.kernel.ledger.record import Call, Event, Head, TicketRow
from gert.kernel.ledger.run_checks import Recomputed, Stored

NO_KEYS = Keys()
KEY = parse_key("a secret that is long enough", "main")
COLON = parse_key("a secret that is long enough", "a:b:c")
OTHER = parse_key("another secret, long enough too", "main")
BATCH = build_batch(
    Head("run"), "2026-02-28T12:00:00.000000Z", "acme", [Entry(HarnessStage(stage=str(n))) for n in range(4)]
)
EVENTS = list(BATCH.events)
HEAD = structs.replace(BATCH.head, seal=seal_head(BATCH.head, KEY))
# A genuine seal of an earlier end.
EARLIER = build_batch(
    Head("run"), "2026-02-28T12:00:00.000000Z", "acme", [Entry(HarnessStage(stage=str(n))) for n in range(3)]
).head
OLD_SEAL = seal_head(EARLIER, KEY)


def check_run(events: Sequence[Event], head: Head | None, keys: Keys = NO_KEYS, **demands: Any) -> CheckReport:
    """Verify events against a head, without calls, tickets and answers."""
    found = Recomputed("run")
    found.add_events(events)
    status, snapshot = (None, None) if head is None else (head.status, encode_snapshot(head))
    return run_checks.check_run(found, Stored(head, status, (), (), snapshot), keys, **demands)


Change = Callable[[Head], Head | None]


def with_(**changes: object) -> Change:
    return lambda head: structs.replace(head, **changes)


@pytest.mark.parametrize(
    ("report", "change", "keys", "failing"),
    [
        pytest.param(EVENTS, with_(), Keys([KEY]), [], id="as it was written"),
        pytest.param(EVENTS, with_(), Keys(), [], id="without a key the seal is not checked"),
        pytest.param(EVENTS, with_(seal=None), Keys(), [], id="not sealed, and no key demands it"),
        pytest.param(EVENTS, with_(seal=None), Keys([KEY]), ["seal"], id="the seal was taken off"),
        pytest.param(EVENTS, with_(seal="x"), Keys([KEY]), ["seal"], id="a seal that cannot be read"),
        pytest.param(EVENTS, with_(seal="none:x:main"), Keys([KEY]), ["seal"], id="an unknown algorithm"),
        pytest.param(EVENTS, with_(seal=OLD_SEAL), Keys([KEY]), ["seal"], id="the seal of an earlier end"),
        pytest.param(EVENTS, with_(), Keys([OTHER]), ["seal"], id="sealed with another key"),
        pytest.param(EVENTS[:3], with_(), Keys([KEY]), ["count", "head", "derived", "seal"], id="the end was cut off"),
        pytest.param(
            EVENTS[:3],
            lambda head: structs.replace(EARLIER, seal=head.seal),
            Keys([KEY]),
            ["seal"],
            id="the end was cut off, and the head put back",
        ),
        pytest.param(
            EVENTS[:3],
            lambda _: structs.replace(EARLIER, seal=OLD_SEAL),
            Keys([KEY]),
            [],
            id="an earlier state of everything cannot be told from that time",
        ),
        pytest.param([], with_(), Keys([KEY]), ["chain", "count", "head", "derived", "seal"], id="all of it is gone"),
        pytest.param([EVENTS[0], *EVENTS[2:]], with_(), Keys(), ["chain", "count"], id="one line is gone"),
        pytest.param([*EVENTS, EVENTS[-1]], with_(), Keys(), ["chain", "count"], id="a line is there twice"),
        pytest.param(
            [*EVENTS, EVENTS[-1]._replace(seq=5, line=b"{")], with_(), Keys(), ["chain", "head"], id="half a line more"
        ),
        pytest.param(EVENTS, with_(count=3), Keys(), ["count"], id="the count was changed"),
        pytest.param(EVENTS, with_(hash="0" * 64), Keys(), ["head"], id="the head was changed"),
        pytest.param(
            EVENTS, lambda _: None, Keys(), ["answers", "count", "head", "derived", "seal"], id="the end was removed"
        ),
        pytest.param([], with_(run_id="other"), Keys(), ["chain", "count", "head", "derived"], id="another run"),
        pytest.param(EVENTS, with_(tenant="evil"), Keys(), ["derived"], id="the tenant was changed"),
        pytest.param(EVENTS, with_(snapshot=None), Keys(), ["derived"], id="the snapshot was removed"),
        pytest.param(EVENTS, with_(started_at=""), Keys(), ["derived"], id="a time was changed"),
        pytest.param(EVENTS, with_(answers=1), Keys(), ["answers"], id="an answer was removed"),
        pytest.param([EVENTS[0]._replace(type="x"), *EVENTS[1:]], with_(), Keys(), ["derived"], id="a column changed"),
    ],
)
def test_what_fails(report: list[Event], change: Change, keys: Keys, failing: list[str]) -> None:
    found = check_run(report, change(HEAD), keys)
    assert [check.name for check in found.failures] == failing
    assert [check.number for check in found.checks] == [1, 2, 3, 4, 5, 6]
    assert found.holds is not bool(failing)
    if failing:
        with pytest.raises(IntegrityError, match=r".+"):
            found.require()
    else:
        found.require()


def test_a_seal_proves_who_sealed_it() -> None:
    found = check_run(EVENTS, HEAD, Keys([KEY]))
    assert (found.proven, found.signed_by, found.events) == (True, "main", 4)
    assert not check_run(EVENTS, HEAD).proven


def test_a_seal_is_demanded_by_who_says_so() -> None:
    for demand in ({"require_seal": True}, {"key_id": "main"}):
        found = check_run(EVENTS, structs.replace(HEAD, seal=None), **demand)
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
    assert check_run(EVENTS, HEAD, keys, key_id=key_id).holds is holds


def test_the_name_of_a_key_may_hold_anything() -> None:
    head = structs.replace(HEAD, seal=seal_head(HEAD, COLON))
    assert head.seal is not None
    assert read_seal(head.seal).key_id == "a:b:c"
    assert check_run(EVENTS, head, Keys([COLON])).signed_by == "a:b:c"


def test_one_runs_seal_is_not_anothers() -> None:
    seal = seal_head(structs.replace(HEAD, run_id="other"), KEY)
    found = check_run(EVENTS, structs.replace(HEAD, seal=seal), Keys([KEY]))
    assert [check.name for check in found.failures] == ["seal"]


@pytest.mark.parametrize("kind", ["calls", "tickets", "status"])
def test_what_no_event_led_to_is_found(kind: str) -> None:
    stored = Stored(HEAD, HEAD.status, (), (), encode_snapshot(HEAD))
    rows = {
        "calls": stored_with(stored, calls=[Call("run", 2, "tool", "k", "n", "acme", "")]),
        "tickets": stored_with(stored, tickets=[TicketRow("t", "run", 2, "s", "")]),
        "status": stored_with(stored, status="completed"),
    }
    found = Recomputed("run")
    found.add_events(EVENTS)
    assert [check.name for check in run_checks.check_run(found, rows[kind], Keys([KEY])).failures] == ["derived"]
    assert run_checks.check_run(found, stored, Keys([KEY])).proven


def stored_with(stored: Stored, **changes: Any) -> Stored:
    return replace(stored, **changes)
