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
        command = ["git", "rev-parse", "--short=12", "HEAD"]
        found = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if found.returncode != 0:
            return
        text = f'"""The commit this build came from."""\n\nCOMMIT = "{found.stdout.strip()}"\n'
        Path(self.root, TARGET).write_text(text, encoding="utf-8")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave a checkout as it was."""
        if Path(self.root, ".git").exists():
            Path(self.root, TARGET).unlink(missing_ok=True)
