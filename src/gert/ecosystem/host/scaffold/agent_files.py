"""The files of a new agent project: an agent that runs as it is, and a README."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final, Literal, NamedTuple

Profile = Literal["enforced", "dev"]
PROFILES: Final[tuple[Profile, ...]] = ("enforced", "dev")

FILES: Final[Mapping[str, str]] = {"app.py": "app.py.txt", "README.md": "readme.md"}
"""The path of each file and its template."""


class _Parts(NamedTuple):
    """What differs between profiles."""

    imports: str
    kernel: str
    tenant: str
    about: str


_PARTS: Final[Mapping[Profile, _Parts]] = {
    "enforced": _Parts(
        "    KernelPolicy,\n",
        "        middleware=ArtanaKernel.default_middleware_stack(),\n        policy=KernelPolicy.enforced(),\n",
        "Without the capability the tool is refused; beyond the budget no model is called.",
        "The kernel is **enforced**: personal data never reaches the model, which sees `[EMAIL_1]` where the tool sees"
        "\nthe address; the budget of the tenant applies to the run and to every run started from it; tools need"
        "\ncapabilities. A kernel without one of these guards does not start.",
    ),
    "dev": _Parts(
        "",
        "",
        "A permissive kernel still requires the capability of a tool; it enforces no budget.",
        "The kernel is **permissive**: the model sees exactly what you wrote, and no budget is enforced. Before others"
        "\nuse it, look at the project that `gert init --profile enforced` creates.",
    ),
}


def agent_files(name: str, profile: Profile) -> dict[str, bytes]:
    """The files of a new agent project, by path."""
    parts = _PARTS[profile]
    words = {
        "@NAME@": name,
        "@PROFILE@": profile,
        "@IMPORTS@": parts.imports,
        "@KERNEL@": parts.kernel,
        "@TENANT@": parts.tenant,
        "@ABOUT@": parts.about,
    }
    folder = files(__package__).joinpath("agent")
    made = {}
    for path, source in FILES.items():
        text = folder.joinpath(source).read_text(encoding="utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        made[path] = text.encode()
    return made
