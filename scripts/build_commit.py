"""Write the commit a wheel was built from into the wheel, so an installed gert can name it."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "src/gert/_build.py"


class BuildCommit(BuildHookInterface[Any]):
    """Add `gert/_build.py` with the commit; an editable install reads `.git` instead."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file before a standard wheel is packed."""
        if version == "editable":
            return
        described = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        commit = described.stdout.strip() if described.returncode == 0 else ""
        Path(self.root, TARGET).write_text(
            f'"""The commit this build came from."""\n\nCOMMIT = "{commit}"\n', encoding="utf-8"
        )
        build_data["artifacts"].append(TARGET)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave the checkout as it was."""
        Path(self.root, TARGET).unlink(missing_ok=True)
