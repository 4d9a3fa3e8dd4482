"""Write the commit a package is built from into it, so that an installed gert can name it."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "src/gert/_build.py"


class BuildCommit(BuildHookInterface[Any]):
    """Add `gert/_build.py` with the commit; an editable install reads `.git` instead."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file before anything is packed; in an unpacked source package it is there already."""
        if version == "editable" or not Path(self.root, ".git").exists():
            return
        commit = self._git("rev-parse", "--short=12", "HEAD")
        if commit is None:
            return
        # What is packed is not that commit: a changed file, or a new one that is not ignored.
        dirty = "-dirty" if self._git("status", "--porcelain") != "" else ""
        text = f'"""The commit this build came from."""\n\nCOMMIT = "{commit}{dirty}"\n'
        Path(self.root, TARGET).write_text(text, encoding="utf-8")

    def _git(self, *words: str) -> str | None:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave a checkout as it was."""
        if Path(self.root, ".git").exists():
            Path(self.root, TARGET).unlink(missing_ok=True)
