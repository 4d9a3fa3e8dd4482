"""Write the generated files, or with --check say which of them are out of date."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from gert.ecosystem.surfaces.cli.results import result_schema
from gert.ecosystem.surfaces.serve.service import reference
from gert.kernel.runbook.schema import SCHEMA_NAMES, schema_of
from gert.kernel.runbook.validate.catalogue import PHASES, RULES
from scripts import (
    agent_stub,
    behavior_index,
    cli_doc,
    compatibility_doc,
    events_doc,
    json_doc,
    operations_doc,
    payload_models,
    reference_doc,
    settings_doc,
)

ROOT = Path(__file__).resolve().parent.parent


def generated() -> Iterator[tuple[Path, str]]:
    """Every generated file with what it should say."""
    for kind in SCHEMA_NAMES:
        yield ROOT / "docs" / "schemas" / f"{kind}.schema.json", json.dumps(schema_of(kind), indent=2) + "\n"
    yield ROOT / "docs" / "schemas" / "result.schema.json", json.dumps(result_schema(), indent=2) + "\n"
    yield ROOT / "docs" / "validation-rules.md", "\n".join(_rules()) + "\n"
    yield ROOT / "src/gert/kernel/agent/types/payload_models.py", payload_models.page()
    yield ROOT / "src/gert/agent.pyi", agent_stub.page()
    yield ROOT / "docs" / "decisions" / "README.md", "\n".join(_decisions()) + "\n"
    yield ROOT / "docs" / "events.md", events_doc.page()
    yield ROOT / "docs" / "reference.md", reference_doc.page()
    yield ROOT / "docs" / "operations.md", operations_doc.page()
    yield ROOT / "docs" / "schemas" / "operations.json", json.dumps(reference(), indent=1) + "\n"
    yield ROOT / "docs" / "cli.md", cli_doc.page()
    yield ROOT / "docs" / "configuration.md", settings_doc.page()
    yield ROOT / "docs" / "json.md", json_doc.page()
    yield ROOT / "docs" / "kernel_behavior_index.json", behavior_index.page()
    yield ROOT / "docs" / "compatibility_matrix.md", compatibility_doc.page()


def _decisions() -> Iterator[str]:
    yield "# Decisions"
    yield ""
    yield "The reasons behind the design, one page each. A decision applies until another replaces it; then both pages"
    yield "say so."
    yield ""
    yield "| Number | Decision |"
    yield "|---|---|"
    for file in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        number, _, title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(" ")
        yield f"| [{number}]({file.name}) | {title} |"


def _rules() -> Iterator[str]:
    yield "# Validation rules"
    yield ""
    yield "Every finding of `gert validate` carries one of these ids. Validation runs in three phases; a phase runs"
    yield "only when the one before found no error, and reports everything it finds at once."
    for phase in dict.fromkeys(PHASES.values()):
        yield ""
        yield f"## {phase.capitalize()}"
        yield ""
        yield "| Rule | What it asks for | Details |"
        yield "|---|---|---|"
        for rule in RULES.values():
            if rule.phase == phase:
                yield f"| {rule.id} | {rule.title} | {rule.help} |"


def main() -> int:
    """Write, or check."""
    check = "--check" in sys.argv[1:]
    made = list(generated())
    stale = [file for file, text in made if not file.exists() or file.read_text(encoding="utf-8") != text]
    if check:
        for file in stale:
            print(f"out of date: {file.relative_to(ROOT)}; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for file, text in made:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
