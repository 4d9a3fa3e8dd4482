"""Build what is released into dist/, and prove that it installs: wheel, source package, bill of materials, checksums.

Each Python of 3.11 to 3.13 on this machine gets an empty environment with every extra, and must pass a smoke test. One
that is missing is named at the end.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gert import __version__
from scripts import sbom

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = "terminal,postgres,mcp,tui,otel,vault"
SMOKE = (
    ("gert", "version"),
    ("gert", "init", "first"),
    ("gert", "validate", "first", "--strict"),
    ("gert", "test", "first", "--coverage"),
    ("gert", "exec", "first/runbooks/check-disk.yaml", "--var", "limit=100", "--quiet"),
    ("gert", "trace", "verify", "last", "--state-dir", "first"),
    ("gert-tui", "--help"),
    ("gert-mcp", "--help"),
)


def build(target: Path) -> list[Path]:
    """Build a wheel and a source package of the checkout."""
    for kind in ("sdist", "wheel"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return sorted(target.glob(f"gert-{__version__}*"))


def sign_off(target: Path) -> None:
    """Write the bill of materials and the checksums of everything in a folder."""
    bill = json.dumps(sbom.bill(__version__), indent=2) + "\n"
    (target / f"gert-{__version__}.cdx.json").write_text(bill, encoding="utf-8")
    files = sorted(path for path in target.iterdir() if path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (target / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")


def python_of(version: str) -> str | None:
    """A Python of this version that starts, also where a manager of versions puts a stand-in on PATH."""
    found = [shutil.which(f"python{version}"), *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))]
    for each in filter(None, found):
        says = subprocess.run(
            [each, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False
        )
        if says.stdout.startswith(f"{version}."):
            return each
    return None


def smoke(python: str, package: Path, extras: str = EXTRAS) -> None:
    """Install a package into an empty environment, and use it there."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
        quiet = {"stdout": subprocess.DEVNULL}
        subprocess.run([uv, "venv", "--quiet", "--python", python, str(environment)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(environment), f"{package}[{extras}]"]
        subprocess.run(install, check=True, **quiet)  # type: ignore[call-overload]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GERT_", "PYTHON"))}
        clean["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        clean["HOME"] = folder
        for command in SMOKE:
            done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"error: `{' '.join(command)}` failed\n{done.stdout}{done.stderr}")


def main() -> int:
    """Build, prove, sign off."""
    shutil.rmtree(DIST, ignore_errors=True)
    packages = build(DIST)
    missing = []
    for version in PYTHONS:
        python = python_of(version)
        if python is None:
            missing.append(version)
            continue
        for package in packages:
            smoke(python, package)
            print(f"✓ Python {version}: {package.name} installs with every extra, and works")
    sign_off(DIST)
    for line in (DIST / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        print(line)
    if missing:
        print(f"NOT TRIED: Python {', '.join(missing)} is not on this machine", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
