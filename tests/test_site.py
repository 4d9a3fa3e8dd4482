"""The site builds from the docs, leads nowhere wrong, and loads nothing from elsewhere."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


class Page(HTMLParser):
    """What a page of the site refers to, its anchors, its headings, and its text outside of code."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.headings: list[int] = []
        self.text: list[str] = []
        self._article = self._code = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.targets.update(value for name in ("href", "src") if (value := named.get(name)))
        self.anchors.update(value for name in ("id", "name") if (value := named.get(name)))
        self._article += tag == "article"
        self._code += tag in ("code", "script", "style")
        if self._article and re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag: str) -> None:
        self._article -= tag == "article"
        self._code -= tag in ("code", "script", "style")

    def handle_data(self, data: str) -> None:
        if self._article and not self._code:
            self.text.append(data)


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in built.rglob("*.html") if path.name != "404.html"}


def test_every_link_anchor_and_picture_of_the_site_is_there(built: Path, pages: dict[Path, Page]) -> None:
    nowhere = set()
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            other = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            other = other / "index.html" if other.is_dir() else other
            known = pages[other].anchors if other in pages else ()
            if not other.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known):
                nowhere.add(f"{path.relative_to(built)}: {target}")
    assert nowhere == set()


def test_every_page_has_one_title_and_headings_in_order(built: Path, pages: dict[Path, Page]) -> None:
    wrong = {
        f"{path.relative_to(built)}: {page.headings}"
        for path, page in pages.items()
        if page.headings[:1] != [1]
        or page.headings.count(1) != 1
        or any(below > above + 1 for above, below in zip(page.headings, page.headings[1:], strict=False))
    }
    assert wrong == set()


def test_no_page_shows_markdown_or_html_as_text(built: Path, pages: dict[Path, Page]) -> None:
    raw = re.compile(r"\*\*|\]\(|\|\s*-{3}|<!--|</?[a-z]+>|!!! |^#{1,6} |\n(?:\d+\.|[-*]) |`", re.MULTILINE)
    shown = {
        f"{path.relative_to(built)}: {text.strip()[:80]}"
        for path, page in pages.items()
        for text in page.text
        if raw.search(text)
    }
    assert shown == set()


def test_a_search_finds_pages_that_explain(built: Path) -> None:
    found = {each["location"].partition("#")[0] for each in json.loads((built / "search.json").read_bytes())["items"]}
    assert {"approvals.html", "resuming.html", "tutorial.html"} <= found
    assert {each for each in found if each in ("json.html", "operations.html") or "/scenarios/" in each} == set()


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_moved", lambda text, page: text + "\n[nowhere](nothing/there.yaml)\n")
    assert any("nothing/there.yaml" in problem for problem in site.build(tmp_path))
