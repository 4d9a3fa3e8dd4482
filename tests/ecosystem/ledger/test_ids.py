"""Times that are written fast are the times they would be anyway."""

from datetime import UTC, datetime, timedelta

import pytest

from gert.ecosystem.ledger import ids
from gert.kernel.events.envelope import format_timestamp

NOON = datetime(2026, 2, 28, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("micros", [0, 1, 999_999, 1_000_000, 59_999_999, 86_400_000_000, 3_000_000_001])
def test_a_stamp_is_the_time_as_events_carry_it(micros: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = ids.Stamps()
    for moment in (NOON, NOON + timedelta(microseconds=micros), NOON):
        nanos = (moment - EPOCH) // timedelta(microseconds=1) * 1000 + 999
        monkeypatch.setattr(ids, "time_ns", lambda nanos=nanos: nanos)
        assert stamps.now() == format_timestamp(moment)
