"""Attacks on the floor: ways to run a runbook without the policies that hold for it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.attack import Attack, table
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, note

from gert.ecosystem.host.config.policies import read_policies
from gert.ecosystem.host.config.workspace import Workspace
from gert.errors import DocumentError

NEVER_MISSING = "a floor never goes missing: what cannot be read or is not understood stops the command"
DENY = '{"apiVersion": "policy/v0", "meta": {"name": "floor"}, "governance": {"rules": [{"default": "deny"}]}}'
ALLOW = DENY.replace('"floor"', '"extra"').replace('"deny"', '"allow"')


def floored(project: Project, *, at: str = "policies/deny.yaml") -> Path:
    """A project whose folder `policies` is the floor, with a policy that denies everything somewhere in it."""
    project.write("gert-project.yaml", {"name": "bench", "policies": ["policies"]})
    project.write("policies/allow.yaml", ALLOW)
    project.write(at, DENY)
    return project.runbook(note("go"), file="runbooks/book.yaml")


def refused(project: Project, ran: Ran) -> str:
    assert ran.code != 0
    assert project.noted() == []
    return ran.out + ran.err


def reached(way: Callable[[Project, Path], Path]) -> Callable[[Project], str]:
    """Name the runbook in another way."""

    def attempt(project: Project) -> str:
        return refused(project, project.exec(way(project, floored(project))))

    return attempt


def by_a_linked_folder(project: Project, book: Path) -> Path:
    link = project.root.parent / "elsewhere"
    link.symlink_to(book.parent)
    return link / book.name


def by_a_linked_file(project: Project, book: Path) -> Path:
    link = project.root.parent / "copy.yaml"
    link.symlink_to(book)
    return link


def by_a_linked_project(project: Project, book: Path) -> Path:
    other = project.root.parent / "other"
    other.mkdir()
    (other / "in").symlink_to(project.root)
    return other / "in" / "runbooks" / book.name


def in_another_project(project: Project, book: Path) -> Path:
    other = project.root.parent / "other"
    other.mkdir()
    (other / "gert-project.yaml").write_text("name: other")
    (other / "tools").symlink_to(project.root / "tools")
    (other / "books").symlink_to(book.parent)
    return other / "books" / book.name


def in_a_project_inside(project: Project, book: Path) -> Path:
    (book.parent / "gert-project.yaml").write_text("name: mine")
    shutil.copytree(project.root / "tools", book.parent / "tools")
    return book


def by_dots_behind_a_link(project: Project, book: Path) -> Path:
    (project.root.parent / "away").mkdir()
    (project.root.parent / "away" / "link").symlink_to(project.root / "tools")
    return project.root.parent / "away" / "link" / ".." / "runbooks" / book.name


def outside(project: Project) -> Path:
    """Another project, with a copy of the project's runbook and of its tools."""
    other = project.root.parent / "outside"
    shutil.copytree(project.root / "tools", other / "tools")
    (other / "gert-project.yaml").write_text("name: outside")
    shutil.copy(project.root / "runbooks" / "book.yaml", other)
    return other


def by_a_link_in_the_project(project: Project, book: Path) -> Path:
    """A link leads to a link in the project, which leads out of it again."""
    other = outside(project)
    (book.parent / "link.yaml").symlink_to(other / "book.yaml")
    (other / "first.yaml").symlink_to(book.parent / "link.yaml")
    return other / "first.yaml"


def by_a_linked_folder_in_the_project(project: Project, book: Path) -> Path:
    other = outside(project)
    (book.parent / "link").symlink_to(other)
    (other / "first").symlink_to(os.path.relpath(book.parent / "link", other))
    return other / "first" / "book.yaml"


def with_tools_of_the_working_folder(project: Project, book: Path) -> Path:
    """The runbook lies outside, and its tools are found in the project that gert is called in."""
    other = outside(project)
    shutil.rmtree(other / "tools")
    return other / "book.yaml"


def with_tools_by_a_link(project: Project, book: Path) -> Path:
    other = with_tools_of_the_working_folder(project, book).parent
    (other / "tools").symlink_to(project.root / "tools")
    return other / "book.yaml"


def hidden(at: str) -> Callable[[Project], str]:
    """The policy that denies lies somewhere in the folder of policies."""

    def attempt(project: Project) -> str:
        return refused(project, project.exec(floored(project, at=at)))

    return attempt


def broken(change: Callable[[Path], object]) -> Callable[[Project], str]:
    """Something else in the folder of policies, where the policy that denies was."""

    def attempt(project: Project) -> str:
        book = floored(project)
        (project.root / "policies" / "deny.yaml").unlink()
        change(project.root / "policies")
        return refused(project, project.exec(book))

    return attempt


def project_file(change: Callable[[Path], object]) -> Callable[[Project], str]:
    """The file of the project is not what it was."""

    def attempt(project: Project) -> str:
        book = floored(project)
        file = project.root / "gert-project.yaml"
        file.unlink()
        change(file)
        return refused(project, project.exec(book))

    return attempt


def linked(project: Project) -> str:
    """The policy that denies is behind a link, and the folder holds a link to itself."""
    book = floored(project, at="elsewhere/deny.yaml")
    (project.root / "policies" / "more").symlink_to(project.root / "elsewhere")
    (project.root / "elsewhere" / "round").symlink_to(project.root / "policies")
    return refused(project, project.exec(book))


def config_gone(project: Project) -> str:
    """The folder of the configuration leads nowhere."""
    project.write("gert-project.yaml", {"name": "bench"})
    (project.root / ".gert").symlink_to(project.root / "gone")
    return refused(project, project.exec(project.runbook(note("go"))))


def named(*words: str, **environ: str) -> Callable[[Project], str]:
    """A floor that the call names holds a file that is not understood."""

    def attempt(project: Project) -> str:
        project.write("floor/allow.yaml", ALLOW)
        project.write("floor/deny.yaml.disabled", DENY)
        return refused(project, project.exec(project.runbook(note("go")), *words, **environ))

    return attempt


def dots_in_the_environment(project: Project) -> str:
    """`GERT_POLICY` goes through a link and up again: what is above is where the link leads."""
    project.write("real/inner/allow.yaml", ALLOW)
    project.write("real/floor/deny.yaml", DENY)
    project.write("floor/allow.yaml", ALLOW)
    (project.root / "link").symlink_to(project.root / "real" / "inner")
    return refused(project, project.exec(project.runbook(note("go")), GERT_POLICY="link/../floor"))


def judged_by(*words: str) -> Callable[[Project], str]:
    """Another command that judges, on a runbook that is reached by a link."""

    def attempt(project: Project) -> str:
        book = by_a_linked_folder(project, floored(project))
        ran = project.gert(words[0], book, *words[1:])
        assert project.noted() == []
        return ran.out + ran.err

    return attempt


def resumed(project: Project) -> str:
    """The floor was there when the run began, and its folder is broken when it is resumed."""
    project.write("gert-project.yaml", {"name": "bench", "policies": ["policies"]})
    project.write("policies/ask.yaml", DENY.replace('"deny"', '"require-approval"'))
    project.runbook(note("go"))
    project.exec("--detach").ended(0)
    (project.root / "policies" / "ask.yaml").rename(project.root / "policies" / "ask.yaml.bak")
    project.write("policies/allow.yaml", ALLOW)
    return refused(project, project.gert("resume", "--run", project.run().folder.name, "--allow-changed"))


def rerun(project: Project) -> str:
    book = floored(project)
    deny = project.root / "policies" / "deny.yaml"
    deny.rename(project.root / "deny.yaml")
    project.exec(book).ended(0)
    project.effects.unlink()
    (project.root / "deny.yaml").rename(deny.with_suffix(".YAML"))
    run = project.run().folder.name
    return refused(project, project.gert("rerun", "--run", run, "--from", "go", "--allow-changed"))


def asked_of_a_group(project: Project) -> Path:
    """The floor asks the group `sre`, which is alice, about a runbook of a project inside the project."""
    project.write("gert-project.yaml", {"name": "outer", "policies": ["policies"], "groups": {"sre": ["alice"]}})
    asking = {"default": "require-approval", "approvers": ["group:sre"]}
    project.write("policies/ask.yaml", {**json.loads(DENY), "governance": {"rules": [asking]}})
    project.write("team/gert-project.yaml", {"name": "inner"})
    shutil.copytree(project.root / "tools", project.root / "team" / "tools")
    return project.runbook(note("go"), file="team/book.yaml", governance={"rules": [asking]})


def approved(project: Project, person: str) -> Ran:
    (ticket,) = json.loads(project.gert("approvals", "list", "--json", "--state-dir", "team").out)
    return project.gert("approve", ticket["ticket_id"], "--as", person, "--state-dir", "team")


def regrouped(file: str, *people: str) -> Callable[[Project], str]:
    """A file of the project inside says who is in the group that the floor asks."""

    def attempt(project: Project) -> str:
        book = asked_of_a_group(project)
        named = {"name": "inner"} if "project" in file else {}
        project.write(file, {**named, "groups": {"sre": people}})
        ran = project.exec(book, "--detach", "--as", "bob")
        return refused(project, approved(project, "mallory") if ran.code == 0 else ran)

    return attempt


def in_a_policy_test(project: Project) -> str:
    """A policy test does not pass over what is in the folder it tests."""
    project.write("policies/allow.yaml", ALLOW)
    project.write("policies/deny.conf", DENY)
    case = {"name": "allowed", "contract": {}, "expect": {"decision": "allow"}}
    test = {"apiVersion": "policy-test/v0", "policies": ["policies"], "cases": [case]}
    return refused(project, project.gert("policy", "test", project.write("t.policy-test.yaml", test)))


ROW: list[tuple[str, Callable[[Project], str], str]] = [
    ("a runbook by a linked folder", reached(by_a_linked_folder), "denied by floor rule 1"),
    ("a runbook by a linked file", reached(by_a_linked_file), "floor"),
    ("a runbook by a linked project", reached(by_a_linked_project), "denied by floor rule 1"),
    ("a runbook that is linked into another project", reached(in_another_project), "denied by floor rule 1"),
    ("a project inside the project", reached(in_a_project_inside), "denied by floor rule 1"),
    ("dots behind a link", reached(by_dots_behind_a_link), "denied by floor rule 1"),
    ("a link in the project that leads out again", reached(by_a_link_in_the_project), "denied by floor rule 1"),
    ("a linked folder that leads out again", reached(by_a_linked_folder_in_the_project), "denied by floor rule 1"),
    ("tools of the working folder", reached(with_tools_of_the_working_folder), "denied by floor rule 1"),
    ("tools of another project by a link", reached(with_tools_by_a_link), "denied by floor rule 1"),
    ("a policy called .YAML", hidden("policies/deny.YAML"), "denied by floor rule 1"),
    ("a policy called .Yml", hidden("policies/deny.Yml"), "denied by floor rule 1"),
    ("a hidden policy", hidden("policies/.deny.yaml"), "denied by floor rule 1"),
    ("a policy in a hidden folder", hidden("policies/.more/deny.yaml"), "denied by floor rule 1"),
    ("a policy in a folder that searches pass over", hidden("policies/node_modules/deny.yaml"), "denied by"),
    ("a policy with another ending", hidden("policies/deny.json"), "is in a policy folder but is not a policy"),
    ("a policy without an ending", hidden("policies/deny"), "is in a policy folder but is not a policy"),
    ("a policy in a folder called like a text", hidden("policies/notes.md/deny.yaml"), "denied by floor rule 1"),
    ("a policy behind a link, and a link that goes round", linked, "denied by floor rule 1"),
    ("an empty policy", broken(lambda at: (at / "deny.yaml").write_text("")), "deny.yaml:1:1"),
    ("a folder of policies that was removed", broken(shutil.rmtree), "there is no policy at"),
    ("a policy that leads nowhere", broken(lambda at: (at / "deny.yaml").symlink_to("gone")), "there is no file"),
    ("a folder that leads nowhere", broken(lambda at: (at / "more").symlink_to("gone")), "but is not a policy"),
    ("a link to itself", broken(lambda at: (at / "deny.yaml").symlink_to("deny.yaml")), "cannot be read"),
    ("a policy that is a pipe", broken(lambda at: os.mkfifo(at / "deny.yaml")), "is not a regular file"),
    ("a pipe of any name", broken(lambda at: os.mkfifo(at / "deny")), "but is not a policy"),
    ("a policy that was disabled", broken(lambda at: (at / "deny.yaml~").write_text(DENY)), "but is not a policy"),
    ("a project file that leads nowhere", project_file(lambda at: at.symlink_to("gone")), "there is no file"),
    ("a project file that is a folder", project_file(lambda at: at.mkdir()), "is not a regular file"),
    ("a project file that is a pipe", project_file(os.mkfifo), "is not a regular file"),
    ("a project file that is empty", project_file(lambda at: at.touch()), "gert-project.yaml:1:1"),
    ("a project file called .yml", project_file(lambda at: at.with_suffix(".yml").touch()), "rename it to"),
    ("a configuration that leads nowhere", config_gone, "there is no file"),
    ("--policy with a file that is not understood", named("--policy", "floor"), "but is not a policy"),
    ("GERT_POLICY with a file that is not understood", named(GERT_POLICY="floor"), "but is not a policy"),
    ("GERT_POLICY through a link and up again", dots_in_the_environment, "denied by floor rule 1"),
    ("a dry run by a linked folder", judged_by("exec", "--mode", "dry-run"), "denied by floor rule 1"),
    ("a probe by a linked folder", judged_by("exec", "--mode", "probe"), "denied by floor rule 1"),
    ("a watch by a linked folder", judged_by("watch", "--count", "1", "--interval", "1s"), "denied by floor rule 1"),
    ("an explanation by a linked folder", judged_by("explain"), "floor rule 1"),
    ("a resume after a policy was disabled", resumed, "but is not a policy"),
    ("a rerun after a policy was renamed", rerun, "nothing is asked from `go` on"),
    ("a group that an inner project changes", regrouped("team/gert-project.yaml", "mallory"), "team/gert-project"),
    ("a group that an inner project adds to", regrouped("team/gert-project.yaml", "alice", "mallory"), "other people"),
    ("a group that an inner configuration changes", regrouped("team/gert-config.yaml", "mallory"), "other people"),
    ("a policy test of a folder with more in it", in_a_policy_test, "but is not a policy"),
]

ATTACKS = [Attack(what, NEVER_MISSING, attempt, reason) for what, attempt, reason in ROW]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def test_a_folder_that_cannot_be_read_stops_the_command(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    floored(project, at="policies/more/deny.yaml")
    listdir = os.listdir

    def no_more(folder: str) -> list[str]:
        if folder.endswith("more"):
            raise PermissionError(13, "Permission denied")
        return listdir(folder)

    # As root, who reads everything, no mode of a folder would do.
    monkeypatch.setattr(os, "listdir", no_more)
    with pytest.raises(DocumentError, match=r"cannot read the policies in `.*more`: permission denied"):
        read_policies(Workspace(), [str(project.root / "policies")])


def test_a_folder_above_that_cannot_be_read_is_not_taken_for_a_project_file_called_yml(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = floored(project)
    lstat = os.lstat

    def not_there(path: str) -> os.stat_result:
        if os.path.dirname(path) == str(project.root):
            raise PermissionError(13, "Permission denied")
        return lstat(path)

    monkeypatch.setattr(os, "lstat", not_there)
    # It counts as a project, so that reading its file says why it cannot be read.
    assert Workspace().project_roots(str(book.parent)) == (str(project.root),)


def test_a_runbook_with_tools_of_its_own_is_not_under_the_project_it_is_called_in(project: Project) -> None:
    floored(project)
    project.exec(outside(project) / "book.yaml").ended(0)


def test_what_belongs_beside_policies_may_be_there(project: Project) -> None:
    book = floored(project)
    (project.root / "policies" / "deny.yaml").unlink()
    for name in ("README.md", "notes.txt", ".gitkeep", ".git/config"):
        project.write(f"policies/{name}", "text")
    project.exec(book).ended(0)


def test_a_project_inside_another_knows_its_groups_and_may_repeat_them(project: Project) -> None:
    book = asked_of_a_group(project)
    assert "no group" not in project.gert("validate", book).ended(0).out
    project.write("team/gert-project.yaml", {"name": "inner", "groups": {"sre": ["alice"], "dev": ["bob"]}})
    project.exec(book, "--detach", "--as", "bob").ended(0)
    approved(project, "alice").ended(0)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        pytest.param("policies/base.yaml.bak", DENY, "is in a policy folder but is not a policy", id="a backup"),
        pytest.param("policies/notes.yaml", "a: 1", "`policies/notes.yaml` is not a valid policy", id="no policy"),
        pytest.param("policies/broken.yaml", "{", "`policies/broken.yaml` is not a valid policy", id="a broken policy"),
        pytest.param("policies/.git/config", "", None, id="what version control leaves"),
    ],
)
@pytest.mark.parametrize("named", [".", "gert-project.yaml"])
def test_validate_reports_what_every_run_would_be_refused_for(
    project: Project, file: str, text: str, why: str | None, named: str
) -> None:
    book = floored(project, at="policies/deny.yaml")
    project.write("policies/deny.yaml", ALLOW.replace("extra", "more"))
    project.write(file, text)
    assert (project.exec(book).code == 0) is (why is None)
    ran = project.gert("validate", named, "--json").ended(0 if why is None else 1)
    found = next(each for each in ran.said["files"] if each["kind"] == "project")["findings"]
    assert [(each["rule"], why in each["message"]) for each in found if why] == ([("D45", True)] if why else [])


def test_validate_reports_an_empty_folder_of_policies(project: Project) -> None:
    floored(project)
    for each in (project.root / "policies").iterdir():
        each.unlink()
    assert "there are no policies in" in project.gert("validate", "gert-project.yaml").ended(1).out
