"""What each event says to a person; the views of a running run and the timeline of a recorded one share it."""

from typing import Final

from gert.ecosystem.surfaces.cli.render import text as say
from gert.ecosystem.surfaces.cli.render.text import Subject, Wording, Words, clip, columns
from gert.ecosystem.surfaces.cli.render.wording.agent import AGENT
from gert.ecosystem.surfaces.cli.render.wording.flow import FLOW
from gert.ecosystem.surfaces.cli.render.wording.governance import GOVERNANCE
from gert.ecosystem.surfaces.cli.render.wording.run import RUN
from gert.ecosystem.surfaces.cli.render.wording.steps import STEPS
from gert.kernel.events.payload import Payload, UnknownEvent

WORDING: Final[Wording] = {**RUN, **STEPS, **FLOW, **GOVERNANCE, **AGENT}


def words_of(payload: Payload, about: Subject) -> Words:
    """Put an event into words; one that is not known is named, with its data."""
    return WORDING.get(type(payload), _unknown)(payload, about)


def _unknown(payload: Payload, _: Subject) -> Words:
    if not isinstance(payload, UnknownEvent):
        return Words(say.NOTED, clip(payload.type, say.LONGEST_NAME), say.QUIET, news=False)
    notes = (f"not readable: {clip(payload.objection)}",) if payload.objection else ()
    text = columns(clip(payload.name, say.LONGEST_NAME), say.value_text(payload.data) if payload.data else "")
    return Words(say.NOTED, text, say.QUIET, notes, news=False)
