"""Events as a run emits them."""

from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload, to_data


def event(payload: Payload, path: str | None = None) -> Envelope:
    return Envelope(
        seq=1,
        run_id="run-1",
        type=payload.type,
        timestamp="2026-02-28T14:30:00.000000Z",
        path=path,
        prev_hash="0" * 64,
        data=to_data(payload),
    )
