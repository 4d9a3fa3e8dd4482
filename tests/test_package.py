"""The package: what is installed is what is meant to be, and it works without the checkout."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "gert"
    # From a clone, so that building leaves nothing behind in the checkout the tests run in.
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True, capture_output=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_a_wheel_of_a_changed_tree_says_that_it_is_not_its_commit(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True, capture_output=True)
    with (source / "src" / "gert" / "errors.py").open("a") as file:
        file.write("# changed\n")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=source, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = tmp_path.glob("*.whl")
    assert '-dirty"' in zipfile.ZipFile(wheel).read("gert/_build.py").decode()


def test_the_source_package_holds_everything_that_its_tests_need(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True, capture_output=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=source, check=True, capture_output=True,
    )  # fmt: skip
    [package] = tmp_path.glob("*.tar.gz")
    listed = subprocess.run(["git", "ls-files"], cwd=source, capture_output=True, text=True, check=True).stdout
    with tarfile.open(package) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert set(listed.split("\n")) - names - {""} <= {".gitignore"}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "gert/py.typed" in names
    assert "gert/_build.py" in names
    assert "gert/ecosystem/runners/skills/openai.chat.skill.yaml" in names
    assert {name.split("/")[0] for name in names} == {"gert", "gert-0.2.0.dist-info"}


def test_an_unpacked_wheel_validates_and_names_its_commit(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    site = str(tmp_path / "site")
    runbook = str(ROOT / "examples" / "runbooks" / "restart-pod.yaml")
    script = f"import sys; sys.path.insert(0, {site!r}); from gert.__main__ import main; main()"

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert run("--version").strip() == f"gert 0.2.0 ({head[:12]})"
    assert run("validate", runbook).endswith("restart-pod.yaml (runbook)\n")
