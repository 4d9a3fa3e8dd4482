"""The site builds from the docs, leads nowhere wrong, and loads nothing from elsewhere."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.needs("git")
sys.path.insert(0, str(ROOT))
from scripts import site  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    assert site.build(folder) == []
    return folder / "site"


def test_every_page_of_the_docs_is_in_the_site(built: Path) -> None:
    names = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    missing = [name for name in names if not (built / name.replace("README", "index")).with_suffix(".html").exists()]
    assert missing == []


def test_every_page_but_decisions_is_in_the_navigation(built: Path) -> None:
    named = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/0")} <= named


def test_pages_load_nothing_from_elsewhere(built: Path) -> None:
    loaded = re.compile(
        r"""<(?:script|img|iframe|source)[^>]+src=["']?https?://|<link[^>]+href=["']?https?://|url\(["']?https?://"""
    )
    files = [path for kind in ("html", "css", "svg") for path in built.rglob(f"*.{kind}")]
    guilty = {
        f"{path.relative_to(built)}: {found[0]}"
        for path in files
        for found in loaded.finditer(path.read_text(encoding="utf-8"))
        if "canonical" not in found[0]
    }
    assert guilty == set()


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_moved", lambda text, page: text + "\n[nowhere](nothing/there.yaml)\n")
    assert any("nothing/there.yaml" in problem for problem in site.build(tmp_path))
