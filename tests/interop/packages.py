"""MCP servers from the public registries, each version in a folder of its own, which git ignores."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.needs import missing

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".interop"


def python_packages(name: str, *packages: str) -> Path:
    """Return the folder with the programs of Python packages in an environment of their own."""
    folder = CACHE / name
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
    if uv is None:
        missing("uv")
    install = [uv, "pip", "install", "--quiet", "--python", str(folder)]
    _installed(
        folder, [[uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], [*install, *packages]]
    )
    return folder / "bin"


def npm_packages(name: str, *packages: str) -> Path:
    """Return the folder with the programs of npm packages."""
    folder = CACHE / name
    install = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder)]
    _installed(folder, [["mkdir", "-p", str(folder)], [*install, *packages]])
    return folder / "node_modules" / ".bin"


def _installed(folder: Path, commands: Sequence[Sequence[str]]) -> None:
    if (folder / ".ready").exists():
        return
    for command in commands:
        # Behind a company's proxy only the system's certificates are trusted.
        for environment in (os.environ, {**os.environ, "UV_SYSTEM_CERTS": "1"}):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
        else:
            missing(f"the registry for {folder.name}", done.stderr.strip()[-300:])
    (folder / ".ready").touch()
