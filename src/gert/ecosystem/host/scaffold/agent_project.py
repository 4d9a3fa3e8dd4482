"""Creating an agent project in a folder."""

import os

from gert.ecosystem.host.scaffold.agent_files import Profile, agent_files
from gert.ecosystem.host.scaffold.starter_files import name_from
from gert.ecosystem.host.scaffold.write_files import WrittenFiles, write_all
from gert.errors import UsageError
from gert.kernel.foundation.text import os_reason


def create_agent_project(
    folder: str, profile: Profile, *, name: str | None = None, force: bool = False
) -> WrittenFiles:
    """Write an agent project to an empty folder; with `force`, replace files of the same name in any folder."""
    root = os.path.normpath(folder)
    if not force and os.path.isdir(root):
        try:
            with os.scandir(root) as entries:
                taken = next(entries, None)
        except OSError as problem:
            raise UsageError(f"`{root}` cannot be read: {os_reason(problem)}") from None
        if taken is not None:
            raise UsageError(
                f"`{root}` is not empty",
                hint="choose another folder, or pass --force to replace files of the same name",
            )
    chosen = name if name is not None else name_from(os.path.basename(os.path.abspath(folder)))
    return write_all(root, agent_files(chosen, profile), yields=frozenset(), force=force)
