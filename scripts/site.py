"""Build the site from docs/, the examples and the changelog; broken links fail.

Pages link to each other as files do in a checkout, so that they also work where a repository is read in a browser.
In the site docs/ is the root, and everything beside it moves below.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("examples", "CHANGELOG.md", "CONTRIBUTING.md", "Containerfile", "scripts/demo_service.py")
"""What pages link to outside docs/. A page for the start of a repository is none of the site: docs/index.md is."""

REFERENCES = ("docs/json.md", "docs/operations.md")
"""Pages with many short sections: a search would show them before the pages that explain."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"

LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)]*)?\))")
PIPE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def stage(target: Path) -> list[str]:
    """Copy every page and file to its place in the site, with links to match; give links that lead nowhere."""
    shutil.rmtree(target, ignore_errors=True)
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "docs", *BESIDE],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, tracked.stdout.decode().split("\0")):
        source = ROOT / name
        if not source.is_file():
            continue
        copy = target / in_site(Path(name))
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = _moved(source.read_text(encoding="utf-8"), Path(name))
            # The navigation has no single decisions: a reader who finds one by searching goes on from here.
            back = "\n[All decisions](README.md)\n" if re.match(r"docs/decisions/\d", name) else ""
            front = UNSEARCHED if name in REFERENCES else ""
            copy.write_text(front + text + back, encoding="utf-8")
        else:
            shutil.copyfile(source, copy)
    for folder in [path for path in (target / "examples").rglob("*") if path.is_dir()]:
        _list_files(folder)
    return [
        f"{page.relative_to(target)}: {link}"
        for page in sorted(target.rglob("*.md"))
        for _, link, _ in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
        if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists()
    ]


def _list_files(folder: Path) -> None:
    """Give a folder without a page one that lists its files, because a site has no listings."""
    if (page := folder / "README.md").exists():
        return
    rows = [
        f"- [`{each.name}`]({each.name}{'/README.md' if each.is_dir() else ''})" for each in sorted(folder.iterdir())
    ]
    listing = "\n".join([f"# {folder.name}\n", *rows, "\n[Up](../README.md)\n"])
    page.write_text(UNSEARCHED + listing, encoding="utf-8")


def in_site(path: Path) -> Path:
    """The place of a file of the checkout in the site."""
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def _moved(text: str, page: Path) -> str:
    """The text of a page with links that hold in the site; blocks of code are left as they are."""
    parts = BLOCK.split(text)
    for number in range(0, len(parts), 2):
        parts[number] = LINK.sub(lambda found: found[1] + _link(found[2], page) + found[3], parts[number])
        parts[number] = PIPE.sub(_code_with_pipes, parts[number])
    return "".join(parts)


def _code_with_pipes(found: re.Match[str]) -> str:
    """Code in a table whose pipes are escaped, as a repository's pages need it; the site would show the escapes."""
    return f"<code>{html.escape(found[1]).replace(chr(92) + '|', '&#124;')}</code>"


def _link(target: str, page: Path) -> str:
    if "://" in target or target.startswith("mailto:"):
        return target
    named = (ROOT / page.parent / target).resolve()
    if not named.is_relative_to(ROOT):
        return target
    path = named.relative_to(ROOT)
    if named.is_dir():
        path = path / "README.md"
    if path == Path("README.md"):
        path = Path("docs/index.md")
    return os.path.relpath(in_site(path), in_site(page).parent)


def build(folder: Path) -> list[str]:
    """Build the site into `site/` of a folder; give what is wrong with it."""
    if nowhere := stage(folder / "site-source"):
        return [f"a link leads nowhere: {each}" for each in nowhere]
    shutil.rmtree(folder / "site", ignore_errors=True)
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    (folder / "zensical.toml").write_text(settings, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [done.stdout + done.stderr.partition("Traceback")[0]]


def main() -> int:
    """Build into build/site."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    if problems := build(folder):
        print("\n".join(f"error: {each}" for each in problems), file=sys.stderr)
        return 1
    print(f"✓ {sum(1 for _ in (folder / 'site').rglob('*.html'))} pages in build/site")
    return 0


if __name__ == "__main__":
    sys.exit(main())
