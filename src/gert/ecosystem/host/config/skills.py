"""The skills of a project: those in its folders, and the bundled ones."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gert.ecosystem.host.config.files import SKIPPED_FOLDERS
from gert.errors import Refused
from gert.kernel.runbook.document import Document, load
from gert.kernel.runbook.documents.skill import SKILL_SUFFIX, Skill
from gert.kernel.runbook.program import SkillLookup
from gert.kernel.runbook.validate import validate

SKILLS: Final = "skills"
BUNDLED: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "runners", SKILLS)
_MOST: Final = 10_000


def skill_files(folders: Iterable[str]) -> Iterator[str]:
    """Every skill file below the folders, each once, in a stable order."""
    seen: set[str] = set()
    for folder in folders:
        for where, below, files in os.walk(folder):
            below[:] = sorted(name for name in below if not name.startswith(".") and name not in SKIPPED_FOLDERS)
            for name in sorted(files):
                path = os.path.realpath(os.path.join(where, name))
                if name.endswith(SKILL_SUFFIX) and path not in seen:
                    seen.add(path)
                    yield os.path.join(where, name)
                if len(seen) > _MOST:
                    raise Refused("registry/size", f"there are more than {_MOST} skills in `{folder}`")


def load_skills(files: Iterable[str], read: Callable[[str], bytes]) -> dict[str, SkillLookup]:
    """Load skills by id; two files with one id are refused, because a plan names a skill by its id."""
    found: dict[str, SkillLookup] = {}
    for file in files:
        document = load_skill(read(file), file)
        model = document.model
        if not isinstance(model, Skill):
            continue  # without an id nothing can name it; `gert skill check` reports why it cannot be read
        if model.id in found:
            raise Refused(
                "registry/duplicate",
                f"the skill `{model.id}` is defined in `{found[model.id].file}` and in `{file}`",
                hint="give one of them another version",
            )
        found[model.id] = SkillLookup(model.id, file, document)
    return found


def load_skill(source: bytes, file: str) -> Document:
    """Load and validate one skill."""
    return validate(load(source, kind="skill", file_name=file))
