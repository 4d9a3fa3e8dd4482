"""The docs are true: generated pages are up to date, documents in them are valid, examples print what they show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from gert.ecosystem.host.config.workspace import Workspace
from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.runbook.document import detect, load
from gert.kernel.runbook.finding import Severity
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map, Seq

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    EXAMPLES / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks of a language; one with a title is a file of a session, which `test_docs_commands.py` plays."""
    return [
        (f"{page.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}", match[3])
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for match in BLOCK.finditer(text)
        if match[1] == language and "title=" not in match[2]
    ]


YAML_BLOCKS = blocks("yaml")


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, "-m", "scripts.generate", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


# --- documents


def whole(text: str) -> tuple[str, bytes] | None:
    """The document a block is, or is a part of, and its kind; none where it only shows how values are written."""
    root = read(text.encode()).tree.root
    keys = set(root) if isinstance(root, Map) else set()
    if kind := detect(root):
        return kind, text.encode()
    if isinstance(root, Seq):
        part = "rules" if "action:" in text else "steps"
        text, keys = f"{part}:\n{text}", {part}
    if keys == {"rules"}:
        return "policy", f"apiVersion: policy/v0\nmeta: {{name: x}}\ngovernance:\n{indent(text, '  ')}".encode()
    for kind, start, known in PARTS:
        if keys and keys <= known:
            rest = "" if {"meta", "name"} & keys or not start or kind == "test" else "meta: {name: x}\n"
            return kind, f"{start}{rest}{text}".encode()
    return None


PARTS = (
    (
        "config",
        "",
        {
            "traces",
            "ledger",
            "telemetry",
            "policies",
            "groups",
            "on_outcome",
            "notify",
            "approvals",
            "webhook_hosts",
            "providers",
            "runners",
            "skills",
            "secrets_policies",
        },
    ),
    ("project", "", {"name", "policies", "runners", "secrets_policies"}),
    ("tool", "apiVersion: tool/v0\n", {"contract", "actions", "secrets"}),
    ("runbook", "apiVersion: kernel/v0\n", {"meta", "tools", "steps"}),
    ("test", "extensions: {}\n", {"expected_commands", "expected_decisions"}),
)
VALUES = (
    "docs/running.md: confirm",
    "docs/template-language.md: url",
    "docs/template-language.md: name",
    "docs/tui.md: keys",
)
"""Evidence, data and keys of the screen, which are no documents: their first keys."""


@pytest.mark.parametrize(("place", "text"), YAML_BLOCKS, ids=[place for place, _ in YAML_BLOCKS])
def test_yaml_in_the_docs_is_valid(place: str, text: str) -> None:
    assert [finding.message for finding in read(text.encode()).findings] == []
    document = whole(text)
    if document is None:
        assert f"{place.partition(':')[0]}: {text.partition(':')[0]}" in VALUES
        return
    # What a part leaves out is missing; everything it says must be known, and where it belongs.
    kind, source = document
    said = [finding for finding in load(source, kind=kind).findings if finding.rule != "S03"]
    assert [finding.message for finding in said] == []
    if "apiVersion:" in text and not text.startswith("# yaml-language-server"):
        folder = EXAMPLES / ("policies" if kind.startswith("policy") else "runbooks")
        checked = Workspace(str(EXAMPLES)).check(str(folder / "x.yaml"), kind=kind, source=text.encode())
        # Notes are about the surroundings: a secret that is not set here, a policy that this project does not name.
        assert [finding.message for finding in checked.findings if finding.severity is not Severity.NOTE] == []


def test_what_a_step_may_not_loosen_is_said_as_the_docs_say() -> None:
    [(_, shown)] = [block for block in blocks("") if "may only grow" in block[1]]
    loose = "{idempotent: true, writes: []}"
    delete = f"{{id: d, type: tool, tool: kubectl, action: delete, inputs: {{pod: a}}, contract: {loose}}}"
    end = "{type: end, outcome: {category: resolved, code: x}}"
    made = f"apiVersion: kernel/v0\nmeta: {{name: x}}\ntools: [kubectl]\nsteps: [{delete}, {end}]\n"
    checked = Workspace(str(EXAMPLES)).check(str(EXAMPLES / "runbooks" / "x.yaml"), source=made.encode())
    assert [finding.message for finding in checked.findings] == shown.splitlines()


def test_the_pieces_of_the_first_runbook_make_one() -> None:
    pieces = {text.split(":")[0].strip(): text for place, text in YAML_BLOCKS if place.startswith("docs/runbooks.md")}
    made = "apiVersion: kernel/v0\n" + next(
        text for place, text in YAML_BLOCKS if place.startswith("docs/runbooks.md") and "name: check-service" in text
    )
    made += pieces["tools"] + pieces["- id"]
    checked = Workspace(str(EXAMPLES)).check(str(EXAMPLES / "runbooks" / "x.yaml"), source=made.encode())
    assert [finding.message for finding in checked.findings] == []


def test_the_runbook_of_the_first_page_is_the_bundled_one() -> None:
    [(_, text)] = [block for block in YAML_BLOCKS if "name: restart-pod" in block[1]]
    assert (ROOT / "examples" / "runbooks" / "restart-pod.yaml").read_text(encoding="utf-8") == text


# --- what is printed

CHECK = """apiVersion: kernel/v0
meta: { name: check, inputs: { host: { type: string, required: true } } }
steps: [{ type: end, outcome: { category: no_action, code: fine } }]
"""


def with_check(folder: Path) -> None:
    (folder / "check.yaml").write_text(CHECK)


@pytest.mark.parametrize(("language", "name"), [("python", "inventory"), ("sh", "hosts")])
def test_the_providers_of_the_docs_are_the_examples(language: str, name: str) -> None:
    shown = [text for place, text in blocks(language) if place.startswith("docs/inputs.md")]
    assert shown == [(EXAMPLES / "inputs" / name).read_text(encoding="utf-8")]


WALKED = "examples/README.md"
"""Its commands build on each other: `tests/test_examples.py` walks through them."""


def test_no_command_is_shown_with_its_output_outside_a_session() -> None:
    shown = re.compile(r"\$ gert .*\n(?s:.)*^(?!\$ ).", re.MULTILINE)
    assert [place for place, text in blocks("") if shown.match(text) and not place.startswith(WALKED)] == []


def test_the_result_has_the_keys_that_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [shown] = [
        json.loads(text) for place, text in blocks("json") if place.startswith("docs/results.md") and "run_id" in text
    ]
    monkeypatch.chdir(tmp_path)
    with_check(tmp_path)
    assert main(["exec", "check.yaml", "--var", "host=a", "--json", "--state-dir", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said) == list(shown)
    assert os.path.isabs(said["trace"])
    assert os.path.isabs(shown["trace"])


# --- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        if target.startswith(("http://", "https://")):
            continue
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or anchor in _anchors(other), f"{target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- the architecture


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(src/gert/[\w./-]+|(?:tests|conformance|examples|bench|docs)/[\w./-]*)`", text)
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []
    rooms = re.findall(r"`((?:kernel|ecosystem|host)/[\w/]*)`", text)
    assert [
        room
        for room in rooms
        if not any((ROOT / "src" / "gert" / above / room).is_dir() for above in ("", "ecosystem"))
    ] == []


def test_every_room_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "gert"
    folders = [path for above in ("kernel", "ecosystem", "ecosystem/host") for path in (source / above).iterdir()]
    rooms = [path.name for path in folders if (path / "__init__.py").exists()]
    assert [room for room in rooms if f" {room}/" not in text] == []


GLOSSARY = (
    "run, step, request, answer, event, trace, ledger, mirror, lease, fence, head, snapshot, seal, check, "
    "replay, channel, witness, ticket, response, inbox, "
    "outcome, verdict, contract, policy, floor, lane, scope, world, scenario, golden, skill, plan, runner, redrive, "
    "extension, server, peer, span"
)


def test_the_glossary_defines_every_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \*\*(\w+)\*\* \| \S", text, re.MULTILINE)) == sorted(GLOSSARY.split(", "))
