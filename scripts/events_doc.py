"""The page docs/events.md, from the catalogue of events."""

import inspect
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from gert.kernel.events import agent, runbook, runner, vocabulary
from gert.kernel.events.agent import parts
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.principal import Principal
from scripts.tables import table

HEADER = """# Events

Every event that a trace can contain. This page is generated from the catalogue in
`gert.kernel.events` by `make docs`.

An event is one line of JSON; what surrounds its `data` is described in the
[trace format](trace-format.md). Fields that are not required are left out when they have nothing to say.
Readers ignore unknown events and fields. Agent runs also have the `approval_…` events of runbook runs.
"""

CATALOGUES = {
    "Runbook runs": runbook.EVENTS,
    # The events of approvals are the same in both.
    "Agent runs": tuple(event for event in agent.EVENTS if event not in runbook.EVENTS),
    "Runner executions": runner.EVENTS,
}
PARTS = (
    runbook.Failure,
    runbook.Start,
    runbook.Outcome,
    runbook.BranchOutcome,
    runbook.DeniedStep,
    runbook.Recent,
    parts.Message,
    parts.MessageCall,
    parts.FunctionOf,
    parts.ToolSignature,
    parts.ToolCallOf,
    parts.ContextVersionOf,
)
WORDS = {
    name: value
    for module in (vocabulary, parts)
    for name, value in vars(module).items()
    if get_origin(value) is Literal and not name.startswith("_")
}


def page() -> str:
    """Give the whole page."""
    sections = [HEADER]
    for title, events in CATALOGUES.items():
        sections.append(f"## {title}\n\n{index(events)}")
        sections += [section(event.type, event) for event in events]
    sections.append("## Parts\n")
    sections += [section(part.__name__, part) for part in PARTS]
    sections.append("## Words\n\n" + words())
    return "\n".join(sections)


def index(events: tuple[type[Payload], ...]) -> str:
    """List the events with the sentence that says when each is written."""
    rows = [f"| [`{event.type}`](#{event.type}) | {explained(event)[0]} |" for event in events]
    return "\n".join(["| Event | Written when |", "|---|---|", *rows, ""])


def section(title: str, kind: type[msgspec.Struct]) -> str:
    """Describe one class: its sentence and a table of its fields."""
    sentence, notes = explained(kind)
    hints = get_type_hints(kind)
    rows = []
    for field in msgspec.structs.fields(kind):
        note = notes.pop(field.encode_name, notes.pop(field.name, ""))
        required = "yes" if field.required else ""
        rows.append((f"`{field.encode_name}`", shown(hints[field.name]), required, note))
    if notes:
        raise SystemExit(f"{kind.__name__} explains fields it does not have: {', '.join(notes)}")
    return f"### {title}\n\n{sentence}\n\n{table(('Field', 'Type', 'Required', 'Meaning'), rows)}"


def explained(kind: type) -> tuple[str, dict[str, str]]:
    """Read a docstring: the sentence, and the explanations of fields."""
    sentence, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    notes = dict(re.findall(r"^(\w+): (.+)$", rest, re.MULTILINE))
    return " ".join(sentence.split()), {name: text.replace("|", "\\|") for name, text in notes.items()}


def shown(hint: Any) -> str:
    """Show a type in the words of JSON."""
    for name, value in WORDS.items():
        if hint == value:
            return f"[{name}](#words)"
    if hint in PARTS:
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    origin = get_origin(hint)
    if origin in (tuple, list):
        return f"list of {shown(arguments[0])}"
    if origin is Literal:
        return " or ".join(f"`{word}`" for word in arguments)
    if origin is dict:
        return "object" if arguments[1] is Any else f"object of {shown(arguments[1])}"
    if arguments:
        return shown(arguments[0])
    if hint is Principal:
        return "principal"
    return {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any"}[hint]


def words() -> str:
    """List the fixed words."""
    source = inspect.getsource(vocabulary) + inspect.getsource(parts)
    rows = []
    for name, value in WORDS.items():
        said = re.search(rf'^{name} = Literal\[[^\]]*\]\n"""(.*?)"""', source, re.MULTILINE)
        listed = ", ".join(f"`{word}`" for word in get_args(value))
        rows.append((name, listed, said.group(1) if said else ""))
    return table(("Name", "Words", "Meaning"), rows)
