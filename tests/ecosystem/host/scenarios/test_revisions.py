"""A revision is taken out of git whole, within bounds, and goes away again."""

import os
import subprocess
from pathlib import Path

import pytest

from gert.ecosystem.host.scenarios import revisions
from gert.ecosystem.host.scenarios.revisions import extract_revision
from gert.errors import UsageError

ENVIRON = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **{f"GIT_{role}_{what}": "kim@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *words: str, given: bytes = b"") -> str:
    done = subprocess.run(["git", "-C", folder, *words], env=ENVIRON, input=given, capture_output=True, check=True)
    return done.stdout.decode().strip()


class Repository:
    """A repository in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        git(root, "init", "-q", "-b", "main")

    def write(self, **files: str) -> str:
        """Files by name, `__` for a slash; committed."""
        for name, text in files.items():
            path = self.root / (name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", "more")
        return git(self.root, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path / "repository")
    monkeypatch.chdir(made.root)
    return made


def files(folder: str) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in sorted(Path(folder).rglob("*.y*ml"))}


def test_every_document_of_the_project_is_there_as_it_was(repository: Repository) -> None:
    (repository.root / "ünder here").mkdir()
    (repository.root / "ünder here" / "tööl.yml").write_text("old\n")
    first = repository.write(**{"gert-project": "p: 1", "books__a": "a: 1\n", "tools__t__tool": "t: 1"})
    repository.write(books__a="a: 2\n")
    (repository.root / "books" / "a.yaml").write_text("a: 3\n")
    with extract_revision("books/a.yaml", "HEAD~1", ENVIRON) as taken:
        top = taken.working
        assert taken.commit == first
        assert Path(taken.runbook).read_text() == "a: 1\n"
        assert set(files(top)) == {"gert-project.yaml", "books/a.yaml", "tools/t/tool.yaml", "ünder here/tööl.yml"}
        assert os.stat(top).st_mode & 0o077 == 0
    assert not os.path.exists(top)


def test_it_goes_away_also_when_something_goes_wrong(repository: Repository) -> None:
    repository.write(a="a: 1\n")
    with pytest.raises(ZeroDivisionError), extract_revision("a.yaml", "HEAD", ENVIRON) as taken:
        raise ZeroDivisionError
    assert not os.path.exists(taken.runbook)


def test_only_the_project_is_taken(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write(**{"other__x": "x: 1", "mine__gert-project": "p: 1", "mine__books__a": "a: 1"})
    monkeypatch.chdir(repository.root / "mine" / "books")
    with extract_revision("a.yaml", "main", ENVIRON) as taken:
        assert set(files(os.path.dirname(taken.working))) == {"gert-project.yaml", "books/a.yaml"}
        assert taken.working == os.path.dirname(taken.runbook)


def test_without_a_project_what_lies_around_is_taken(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write(books__a="a: 1", tools__t="t: 1")
    with extract_revision("books/a.yaml", "main", ENVIRON) as taken:
        assert set(files(taken.working)) == {"books/a.yaml", "tools/t.yaml"}
    monkeypatch.chdir(repository.root.parent)
    with extract_revision("repository/books/a.yaml", "main", ENVIRON) as taken:
        assert set(files(taken.working)) == {"a.yaml"}


def test_links_within_the_project_lead_where_they_led(repository: Repository) -> None:
    for path, goal in (("tools/t.yaml", "../shared/t.yaml"), ("packs", "shared/deep"), ("again", "packs")):
        (repository.root / path).parent.mkdir(exist_ok=True)
        (repository.root / path).symlink_to(goal)
    repository.write(a="a: 1", shared__t="t: 1", shared__deep__u="u: 1")
    repository.write(shared__t="t: 2", shared__deep__u="u: 2")
    with extract_revision("a.yaml", "HEAD~1", ENVIRON) as taken:
        for name, text in (("tools/t.yaml", "t: 1"), ("packs/u.yaml", "u: 1"), ("again/u.yaml", "u: 1")):
            assert Path(taken.working, name).read_text() == text


@pytest.mark.parametrize(
    "links",
    [
        pytest.param({"l.yaml": "/etc/passwd"}, id="a file elsewhere"),
        pytest.param({"l": "/etc"}, id="a folder elsewhere"),
        pytest.param({"l": ".."}, id="above"),
        pytest.param({"l": "deep/../.."}, id="above, by a way down"),
        pytest.param({"deep/up": "..", "l": "deep/up/.."}, id="above, by way of another"),
        pytest.param({"l": "l"}, id="itself"),
        pytest.param({"l": "m", "m": "l"}, id="each other"),
        pytest.param({"l": "x" * 4000}, id="a name that is too long"),
    ],
)
def test_no_link_leads_out_of_a_revision(repository: Repository, links: dict[str, str]) -> None:
    repository.write(a="a: 1", deep__b="b: 1")
    entries = [("100644", "a.yaml", git(repository.root, "rev-parse", "HEAD:a.yaml"))]
    deep = [("100644", "b.yaml", git(repository.root, "rev-parse", "HEAD:deep/b.yaml"))]
    for name, goal in links.items():
        blob = git(repository.root, "hash-object", "-w", "--stdin", given=goal.encode())
        (deep if "/" in name else entries).append(("120000", name.rpartition("/")[2], blob))
    inner = git(repository.root, "mktree", given="".join(f"{m} blob {o}\t{n}\n" for m, n, o in deep).encode())
    rows = [*(f"{mode} blob {oid}\t{name}\n" for mode, name, oid in entries), f"040000 tree {inner}\tdeep\n"]
    commit = git(
        repository.root, "commit-tree", git(repository.root, "mktree", given="".join(rows).encode()), "-m", "x"
    )
    with extract_revision("a.yaml", commit, ENVIRON) as taken:
        top = os.path.realpath(taken.working)
        for where, folders, names in os.walk(top):
            for name in (*folders, *names):
                assert (os.path.realpath(os.path.join(where, name)) + os.sep).startswith(top + os.sep)
        assert files(taken.working) | {"a.yaml": "a: 1", "deep/b.yaml": "b: 1"} == files(taken.working)


def test_scenarios_links_and_other_files_are_left_where_they_are(repository: Repository) -> None:
    (repository.root / "link.yaml").symlink_to("/etc/passwd")
    (repository.root / "notes.txt").write_text("x")
    repository.write(a="a: 1", scenarios__a__one__scenario="s: 1", scenarios__a__one__test="t: 1")
    with extract_revision("a.yaml", "HEAD", ENVIRON) as taken:
        assert [each.name for each in Path(taken.working).rglob("*")] == ["a.yaml"]


@pytest.mark.parametrize("name", ["..", ".git"])
def test_a_tree_that_leads_elsewhere_is_not_followed(repository: Repository, name: str) -> None:
    repository.write(a="a: 1\n")
    blob = git(repository.root, "hash-object", "-w", "--stdin", given=b"evil: 1\n")
    inner = git(repository.root, "mktree", given=f"100644 blob {blob}\tevil.yaml\n".encode())
    good = git(repository.root, "rev-parse", "HEAD:a.yaml")
    # By hand: git itself would not make such a tree.
    entries = [("100644", "a.yaml", good), ("40000", name, inner)]
    raw = b"".join(
        f"{mode} {each}\0".encode() + bytes.fromhex(oid) for mode, each, oid in sorted(entries, key=lambda e: e[1])
    )
    tree = git(repository.root, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=raw)
    commit = git(repository.root, "commit-tree", tree, "-m", "evil")
    with extract_revision("a.yaml", commit, ENVIRON) as taken:
        assert not Path(taken.working, "..", "evil.yaml").exists()
        assert [each.name for each in Path(taken.working).rglob("*")] == ["a.yaml"]


@pytest.mark.parametrize(
    ("limit", "value", "why"),
    [
        ("MOST_FILES", 2, "more than 2 documents"),
        ("MOST_BYTES", 10, "documents or 0 MiB"),
        ("LONGEST_LISTING", 100, "too many files"),
        ("PATIENCE", 0.0, "longer than"),
    ],
)
def test_no_more_is_taken_than_a_project_can_hold(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, why: str
) -> None:
    repository.write(a="a: 1\n", b="b: 1\n", c="c: 1\n")
    monkeypatch.setattr(revisions, limit, value)
    with pytest.raises(UsageError, match=why), extract_revision("a.yaml", "HEAD", ENVIRON):
        pass


@pytest.mark.parametrize(
    ("file", "revision", "why"),
    [
        ("a.yaml", "nobody", "there is no revision `nobody`"),
        ("a.yaml", "--help", "is not a revision"),
        ("a.yaml", "^HEAD", "is not a revision"),
        ("a.yaml", " ", "is not a revision"),
        ("a.yaml", "HEAD\0", "is not a revision"),
        ("b.yaml", "HEAD", "there is no `b.yaml` at `HEAD`"),
        ("no/folder/a.yaml", "HEAD", "there is no file"),
        ("../elsewhere.yaml", "HEAD", "not in a readable git repository"),
    ],
)
def test_what_is_not_there_is_told(repository: Repository, file: str, revision: str, why: str) -> None:
    repository.write(a="a: 1\n")
    environ = {**ENVIRON, "GIT_CEILING_DIRECTORIES": str(repository.root.parent.parent)}
    with pytest.raises(UsageError, match=why.replace("^", r"\^")), extract_revision(file, revision, environ):
        pass


def test_a_hook_does_not_lead_git_to_another_repository(repository: Repository, tmp_path: Path) -> None:
    repository.write(a="a: mine\n")
    Repository(tmp_path / "other").write(a="a: other\n")
    environ = {**ENVIRON, "GIT_DIR": str(tmp_path / "other" / ".git"), "GIT_INDEX_FILE": "/nonexistent"}
    with extract_revision("a.yaml", "HEAD", environ) as taken:
        assert Path(taken.runbook).read_text() == "a: mine\n"


def test_a_project_around_the_temporary_folder_is_no_floor(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.write(a="a: 1\n")
    place = tmp_path / "temporary"
    place.mkdir()
    (place / "gert-project.yaml").write_text("name: evil\n")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with pytest.raises(UsageError, match="inside the project"), extract_revision("a.yaml", "HEAD", ENVIRON):
        pass
    assert [each.name for each in place.iterdir()] == ["gert-project.yaml"]
