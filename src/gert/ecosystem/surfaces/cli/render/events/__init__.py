"""The description of each event; the live views and the timeline share it."""

from typing import Final

from gert.ecosystem.surfaces.cli.render import text as style
from gert.ecosystem.surfaces.cli.render.events.agent import AGENT
from gert.ecosystem.surfaces.cli.render.events.flow import FLOW
from gert.ecosystem.surfaces.cli.render.events.governance import GOVERNANCE
from gert.ecosystem.surfaces.cli.render.events.run import RUN
from gert.ecosystem.surfaces.cli.render.events.runner import RUNNER
from gert.ecosystem.surfaces.cli.render.events.steps import STEPS
from gert.ecosystem.surfaces.cli.render.text import Describers, Description, Subject, clip, columns
from gert.kernel.events.payload import Payload, UnknownEvent

DESCRIBERS: Final[Describers] = {**RUN, **STEPS, **FLOW, **GOVERNANCE, **AGENT, **RUNNER}


def describe(payload: Payload, about: Subject) -> Description:
    """Describe an event; an unknown one is shown by name, with its data."""
    return DESCRIBERS.get(type(payload), _unknown)(payload, about)


def _unknown(payload: Payload, _: Subject) -> Description:
    if not isinstance(payload, UnknownEvent):
        return Description(style.NOTED, clip(payload.type, style.LONGEST_NAME), style.QUIET, news=False)
    notes = (f"not readable: {clip(payload.objection)}",) if payload.objection else ()
    text = columns(clip(payload.name, style.LONGEST_NAME), style.value_text(payload.data) if payload.data else "")
    return Description(style.NOTED, text, style.QUIET, notes, news=False)
