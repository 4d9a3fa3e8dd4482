"""The files of a new project: a working runbook, its tool, a policy, scenarios, and a CI workflow."""

import unicodedata
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from gert.ecosystem.host.config.files import SCENARIOS
from gert.ecosystem.host.scenarios.folders import SCENARIO_FILE, TEST_FILE
from gert.kernel.foundation.names import MAX_NAME, is_safe_name
from gert.kernel.runbook.documents.project import PROJECT_FILE

RUNBOOK: Final = "runbooks/check-disk.yaml"
FALLBACK_NAME: Final = "runbooks"
_NAME: Final = "@NAME@"
_CASES: Final = ("enough-space", "space-freed", "still-full", "deleting-refused")
_BELOW: Final = f"runbooks/{SCENARIOS}/check-disk"

STARTER: Final[Mapping[str, str]] = {
    "README.md": "readme.md",
    ".gitignore": "gitignore",
    ".github/workflows/gert.yml": "workflow.yml",
    "policies/floor.policy.yaml": "floor.policy.yaml",
    "tools/disk.tool.yaml": "disk.tool.yaml",
    RUNBOOK: "runbook.yaml",
    **{
        f"{_BELOW}/{case}/{file}": f"{case}.{file}"  # answers and expectations
        for case in _CASES
        for file in (SCENARIO_FILE, TEST_FILE)
    },
    # Last: a folder becomes a project only when everything else is in it.
    PROJECT_FILE: "project.yaml",
}
"""The path of each file and its template."""

OPTIONAL_FILES: Final = frozenset({"README.md", ".gitignore"})
"""Files that are never replaced: an existing one is kept."""


def starter_files(name: str) -> dict[str, bytes]:
    """The files of a new project, by path."""
    folder = files(__package__).joinpath("starter")
    texts = {path: folder.joinpath(source).read_text(encoding="utf-8") for path, source in STARTER.items()}
    return {path: text.replace(_NAME, name).encode() for path, text in texts.items()}


def name_from(folder: str) -> str:
    """Derive a project name from the name of a folder."""
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    words = "".join(char if char.isalnum() or char in "._" else "-" for char in plain)
    parts = [part for part in words.split("-") if part]
    name = "-".join(parts)[:MAX_NAME].strip("-.")
    return name if is_safe_name(name) else FALLBACK_NAME
