"""The docs are true: generated pages are up to date, documents in them are valid, examples print what they show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gert.ecosystem.host.documents import Workspace
from gert.ecosystem.surfaces.cli.main import main
from gert.kernel.runbook.reader import read

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}", match[2])
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for match in BLOCK.finditer(text)
        if match[1] == language
    ]


YAML_BLOCKS = blocks("yaml")


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, "-m", "scripts.generate", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(("place", "text"), YAML_BLOCKS, ids=[place for place, _ in YAML_BLOCKS])
def test_yaml_in_the_docs_is_valid(place: str, text: str) -> None:
    assert [finding.message for finding in read(text.encode()).findings] == []
    if "apiVersion:" in text and "steps:" in text:
        checked = Workspace(str(ROOT / "examples")).check(str(ROOT / "examples" / "x.yaml"), source=text.encode())
        assert [finding.message for finding in checked.findings] == []


def test_the_runbook_of_the_readme_is_the_bundled_one() -> None:
    [(_, text)] = [block for block in YAML_BLOCKS if "name: restart-pod" in block[1]]
    assert (ROOT / "examples" / "runbooks" / "restart-pod.yaml").read_text(encoding="utf-8") == text


def _console(command: str) -> list[str]:
    shown = [text for place, text in blocks("") if place.startswith("README.md") and text.startswith(f"$ {command}")]
    assert len(shown) == 1
    return shown[0].splitlines()[1:]


def test_the_readme_shows_what_explain_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["explain", "examples/runbooks/restart-pod.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == _console("gert explain examples/runbooks/restart-pod.yaml")


def test_the_readme_shows_what_validate_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    runbook = tmp_path / "examples" / "runbooks" / "restart-pod.yaml"
    runbook.write_text(runbook.read_text().replace(".pod }}", ".pdo }}"))
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "examples/runbooks/restart-pod.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == _console("gert validate examples/runbooks/restart-pod.yaml")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target
