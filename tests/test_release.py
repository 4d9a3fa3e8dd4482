"""What is released: the bill of materials, checksums, and the commands of the container file and of the pipeline."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import yaml

from gert import __version__

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.needs("bash", "git", "sha256sum")
sys.path.insert(0, str(ROOT))
from scripts import dist, sbom  # noqa: E402


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make dist` leaves it, from a clone, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "gert"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True, capture_output=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    dist.sign_off(folder)
    return folder


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what gert depends on and without gert: installing it needs no network."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder / "environment", with_pip=True)
    [packages] = (folder / "environment").glob("lib/python*/site-packages")
    here = next(Path(path) for path in sys.path if (Path(path) / "click").is_dir())
    (folder / "packages").mkdir()
    for each in here.iterdir():
        if not re.match(r"_?gert|_editable|pip\b|.*\.pth$", each.name):
            (folder / "packages" / each.name).symlink_to(each)
    (packages / "gert-depends.pth").write_text(f"{folder / 'packages'}\n")
    return folder / "environment"


def run(command: str, folder: Path, python: Path, **more: str) -> str:
    path = f"{python / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GERT_", "PYTHON"))}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**kept, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PATH": path, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_bill_of_materials_lists_what_an_installation_needs_and_nothing_else() -> None:
    bill = sbom.bill(__version__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {component["name"] for component in bill["components"]}
    assert {re.split(r"[>=\[]", each)[0] for each in wanted} <= names
    assert names.isdisjoint({"pytest", "ruff", "mypy", "zensical", "gert"})
    refs = {component["bom-ref"] for component in bill["components"]}
    assert {ref for relation in bill["dependencies"] for ref in relation["dependsOn"]} <= refs
    assert all(reference["hashes"] for each in bill["components"] for reference in each["externalReferences"])
    assert sbom.bill(__version__) == bill


def test_the_checksums_are_those_of_the_files(released: Path) -> None:
    out = run("sha256sum --check --strict SHA256SUMS", released, Path(sys.executable).parent.parent)
    assert sorted(line.split(":")[0] for line in out.splitlines()) == sorted(
        path.name for path in released.iterdir() if path.name != "SHA256SUMS"
    )
    bill = json.loads((released / f"gert-{__version__}.cdx.json").read_text(encoding="utf-8"))
    assert bill["metadata"]["component"]["version"] == __version__


def test_the_smoke_test_names_commands_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert {command[0] for command in dist.SMOKE} <= set(scripts)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(dist.EXTRAS.split(",")) == set(extras)


def test_the_commands_of_the_pipeline_pass_with_the_wheel(released: Path, empty_python: Path, tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
    project = tmp_path / "project"
    subprocess.run([sys.executable, "-m", "gert", "init", str(project)], check=True, capture_output=True)
    shutil.copytree(released, project / "vendor")
    git = "git -c user.name=a -c user.email=a@example.com"
    run(
        f"git init -q -b main && git add . && {git} commit -qm first && git update-ref refs/remotes/origin/main HEAD",
        project,
        empty_python,
    )
    more = {"GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert len(commands) == 7
    for command in commands:
        run(command, project, empty_python, **more)
    assert run("gert version", project, empty_python).startswith(f"gert {__version__} (")
    assert "check-disk" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (project / "gert-report.xml").exists()


def test_findings_of_the_pipeline_are_uploaded_also_if_validation_fails() -> None:
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    [report] = [step for step in steps if "gert.sarif" in step.get("run", "")]
    [upload] = [step for step in steps if step.get("with", {}).get("sarif_file") == "gert.sarif"]
    assert steps.index(report) < steps.index(upload)
    assert report["if"].startswith("always()")
    assert upload["if"].startswith("always()")
    assert workflow["permissions"]["security-events"] == "write"


def test_the_commands_of_the_container_file_work(released: Path, empty_python: Path, tmp_path: Path) -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.partition(" ")[::2] for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in lines} == {
        "FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "VOLUME", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    # Everything that the file names is below one folder here, and no user is added to this machine.
    (tmp_path / "opt").mkdir()
    shutil.copytree(released, tmp_path / "opt" / "dist")
    (tmp_path / "bin").mkdir()
    for name in ("useradd", "chown"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{empty_python / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # A new environment would have to ask a package index; this one has the dependencies already.
    (tmp_path / "opt" / "gert").symlink_to(empty_python)
    for word, rest in lines:
        if word == "RUN":
            command = rest.replace("/opt/", f"{tmp_path}/opt/").replace("/srv/", f"{tmp_path}/srv/")
            run(command.replace("python -m venv", "test -d"), tmp_path, empty_python, PATH=path)
    given = {word: json.loads(rest) for word, rest in lines if word in ("ENTRYPOINT", "CMD")}
    help_text = run(shlex.join([*given["ENTRYPOINT"], *given["CMD"]]), tmp_path, empty_python)
    assert "Governed execution" in help_text
