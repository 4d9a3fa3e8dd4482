"""Beginning an agent project in a folder."""

import os

from gert.ecosystem.host.scaffold.agent_files import Profile, agent_files
from gert.ecosystem.host.scaffold.starter_files import name_from
from gert.ecosystem.host.scaffold.write_files import WrittenFiles, place
from gert.errors import UsageError


def create_agent_project(
    folder: str, profile: Profile, *, name: str | None = None, force: bool = False
) -> WrittenFiles:
    """Write an agent project; a folder that is not empty is refused unless forced, and nothing in it is lost then.

    With `force`, only files of the same name are replaced.
    """
    root = os.path.normpath(folder)
    if not force and os.path.isdir(root):
        try:
            with os.scandir(root) as entries:
                taken = next(entries, None)
        except OSError as problem:
            raise UsageError(f"`{root}` cannot be read: {(problem.strerror or str(problem)).lower()}") from None
        if taken is not None:
            raise UsageError(
                f"`{root}` is not empty", hint="choose another folder, or --force to replace files of the same name"
            )
    chosen = name if name is not None else name_from(os.path.basename(os.path.abspath(folder)))
    return place(root, agent_files(chosen, profile), yields=frozenset(), force=force)
