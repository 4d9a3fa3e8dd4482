"""What a process knows of the lines it wrote itself."""

import pytest

from gert.kernel.agent import trail as module
from gert.kernel.agent.compose import Entry, compose
from gert.kernel.agent.ledger import Head
from gert.kernel.agent.trail import Trail
from gert.kernel.events.agent import ModelFailed, ModelRequested, RunStarted, RunSummary
from gert.kernel.events.payload import Payload

ASKED = ModelRequested(model="m", prompt="q", step_key="k", input_hash="h")
ENDED = ModelFailed(request_seq=2, model="m", reason="failed")
NOISE = RunSummary(summary_type="x", summary_json="{}")
NAMES = (2, "model:k")


def heads(*payloads: Payload, known: Trail, skipped: int = -1) -> list[Head]:
    """The ends of a run after each of these events; one of them was written by somebody else."""
    found = [Head("r")]
    for number, payload in enumerate(payloads):
        batch = compose(found[-1], "2030-01-01T00:00:00.000000Z", "acme", [Entry(payload)])
        if number != skipped:
            known.made(found[-1].hash, batch)
        found.append(batch.head)
    return found


@pytest.mark.parametrize(
    ("payloads", "skipped", "unchanged"),
    [
        pytest.param([], -1, True, id="nothing was written"),
        pytest.param([NOISE, NOISE], -1, True, id="other things were written here"),
        pytest.param([NOISE, ENDED], -1, False, id="the call was ended"),
        pytest.param([ASKED], -1, False, id="the same was asked again"),
        pytest.param([ENDED, NOISE, NOISE], -1, False, id="the call was ended some time ago"),
        pytest.param([NOISE, NOISE], 2, False, id="somebody else wrote first"),
        pytest.param([NOISE, NOISE], 3, False, id="somebody else wrote last"),
    ],
)
def test_what_may_have_changed(payloads: list[Payload], skipped: int, unchanged: bool) -> None:
    trail = Trail()
    found = heads(RunStarted(), ASKED, *payloads, known=trail, skipped=skipped)
    assert trail.unchanged(found[2].hash, found[-1].hash, NAMES) is unchanged


def test_what_was_made_and_never_written_leads_nowhere() -> None:
    trail = Trail()
    found = heads(RunStarted(), ASKED, known=trail)
    lost = compose(found[-1], "2030-01-01T00:00:00.000000Z", "acme", [Entry(ENDED)])
    trail.made(found[-1].hash, lost)
    foreign = compose(found[-1], "2030-01-01T00:00:01.000000Z", "acme", [Entry(ENDED)])
    assert not trail.unchanged(found[-1].hash, foreign.head.hash, NAMES)


def test_what_was_forgotten_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENDS", 2)
    trail = Trail()
    found = heads(RunStarted(), *[NOISE] * 9, known=trail)
    assert trail.unchanged(found[-2].hash, found[-1].hash, NAMES)
    assert not trail.unchanged(found[-1].hash, found[2].hash, NAMES)
    monkeypatch.setattr(module, "MOST_NAMES", 3)
    found = heads(RunStarted(), *[NOISE] * 9, known=trail)
    assert not trail.unchanged(found[1].hash, found[-1].hash, NAMES)
