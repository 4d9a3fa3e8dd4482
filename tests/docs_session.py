"""Run what a page of the docs shows, as a reader would type it.

- A block ```` ```console ```` is a session. A line that begins with `$ ` is a command; the lines below it are what it
  prints, where `…` on a line of its own stands for any number of lines. A command without such lines is only run.
- A command ends with 0 unless it says otherwise: `$ gert test    # exit code 1`.
- A block with `title="FILE"` is written to FILE of the page's folder before the next command.
- `<!-- run: … -->` runs commands that a reader does not see, such as those that copy the examples.
- `<!-- stdin: … -->` is what a reader would type at the next command, one line for each prompt.
- `<!-- stub: kubectl ssh -->` replaces programs that need a cluster or a vendor by those in tests/docs_stubs/.
- `<!-- needs: bwrap -->` names programs without which the page cannot be played.
- `<!-- postgres -->` gives the page a database: a DSN of a page is that of this database.

Everything on a page runs in one shell, in one folder that is empty at first.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STUBS = ROOT / "tests" / "docs_stubs"
PIECE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^ *```$"
    r"|<!-- (?P<mark>run|stdin|stub):(?P<said>.*?)-->",
    re.MULTILINE | re.DOTALL,
)
FOLDER = "/srv/ops"
"""How pages write the folder that a session runs in."""
LIMIT = 200
"""Seconds that a page may take, on a busy machine."""


@dataclass
class Command:
    """One command of a page, and what it prints."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)
    stdin: str = ""

    @property
    def code(self) -> int:
        """The exit code that the page says."""
        said = re.search(r"# exit code (\d+)$", self.text, re.MULTILINE)
        return int(said[1]) if said else 0


def session_of(text: str) -> tuple[list[Command], list[str]]:
    """The commands of a page in order, and the programs that are replaced."""
    commands: list[Command] = []
    stubs: list[str] = []
    stdin = ""
    for piece in PIECE.finditer(text):
        line = text[: piece.start()].count("\n") + 1
        if piece["mark"] == "stub":
            stubs += piece["said"].split()
        elif piece["mark"] == "stdin":
            stdin = piece["said"].strip("\n ") + "\n"
        elif piece["mark"] == "run":
            commands.append(Command(line, piece["said"].strip()))
        elif title := re.search(r'title="([^"]+)"', piece["rest"]):
            commands.append(Command(line, _written(title[1], _dedented(piece["text"], piece["indent"]))))
        elif piece["language"] == "console":
            found = list(_commands(_dedented(piece["text"], piece["indent"]), line))
            if found:
                found[0].stdin, stdin = stdin, ""
            commands += found
    return commands, stubs


def _dedented(text: str, indent: str) -> str:
    return re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def _written(path: str, text: str) -> str:
    assert not os.path.isabs(path), f"a page writes only to its own folder, not to {path}"
    return f"mkdir -p \"$(dirname '{path}')\" && cat > '{path}' <<'END_OF_FILE'\n{text}END_OF_FILE"


def _commands(text: str, line: int) -> Iterator[Command]:
    command: Command | None = None
    more = False
    for number, each in enumerate(text.splitlines(), line + 1):
        if more and command is not None:
            command.text += "\n" + each
        elif each.startswith("$ "):
            if command is not None:
                yield command
            command = Command(number, each[2:])
        elif command is not None:
            command.shown.append(each)
            continue
        more = each.endswith(("\\", "|"))
    if command is not None:
        yield command


def play(commands: list[Command], stubs: list[str], folder: Path, dsn: str | None = None) -> list[tuple[int, str]]:
    """Run every command in one shell; give the exit code and the output of each."""
    project, results = folder / "project", folder / "results"
    for each in (project, results, folder / "home", folder / "bin"):
        each.mkdir()
    for name in stubs:
        (folder / "bin" / name).symlink_to(STUBS / name)
    script = ["exec 3>&1"]
    for number, command in enumerate(commands):
        (results / f"{number}.in").write_text(command.stdin)
        place = f'"$RESULTS/{number}'
        text = re.sub(r"postgresql://[^ ]*", dsn, command.text) if dsn is not None else command.text
        script.append(f'{{\n{text}\n}} <{place}.in" >{place}.out" 2>&1; echo $? >{place}.code"')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GERT_", "LLM_", "XDG_"))}
    environment |= {
        "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder / "home"),
        "RESULTS": str(results),
        "ROOT": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_COLOR": "1",
        "COLUMNS": "160",
    }
    (folder / "session").write_text("\n".join(script) + "\n")
    shell = subprocess.Popen(
        ["bash", str(folder / "session")],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        shell.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        pass  # the command that hangs has no exit code
    finally:
        # What a page leaves running in the background, and the shell itself where it hangs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    return [
        (
            int((results / f"{number}.code").read_text()) if (results / f"{number}.code").exists() else -1,
            (results / f"{number}.out").read_text(errors="replace") if (results / f"{number}.out").exists() else "",
        )
        for number in range(len(commands))
    ]


# What differs from run to run, and how it is compared.
VARIES = [
    (r"/[^ ]*/project(?=[/ ,:;)]|$)", FOLDER),
    (r"\b\d{8}-\d{6}-\d{3}-[a-z0-9]{6}(-[0-9a-f]{12})?\b", "ID"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+(Z|\b)", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
    (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"\b[0-9a-f]{8,64}(…|\b)", "HEX"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\bby \S+ on \S+", "by WHO"),
    (r"\+\d+\.\d+s\b", "OFFSET"),
    (r"\(\d+m?s of it waiting\)", ""),
    (r" +[0-9.]+ ?m?s( ago)?\b", " TOOK"),
    (r" +", " "),
]


def plain(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, instead in VARIES:
        line = re.sub(pattern, instead, line)
    return line.strip()


def difference(shown: list[str], printed: str) -> str | None:
    """The first line of a page that was not printed, or that was printed and is not on the page."""
    rest = iter([plain(line) for line in printed.splitlines()])
    gap = False
    wanted = [plain(line) for line in shown]
    while wanted and wanted[-1] == "":
        wanted.pop()
    for line in wanted:
        if line == "…":
            gap = True
            continue
        found = next((each for each in rest if same(line, each)), None) if gap else next(rest, None)
        if found is None or not same(line, found):
            return f"expected `{line}`, found `{found}`"
        gap = False
    more = [] if gap else [line for line in rest if line]
    return f"the page does not show `{more[0]}`" if more else None


def same(shown: str, printed: str) -> bool:
    """Whether a line is as shown; `…` in it stands for anything."""
    if "…" not in shown:
        return shown == printed
    return re.fullmatch(".*".join(re.escape(part.strip()) for part in shown.split("…")), printed) is not None
