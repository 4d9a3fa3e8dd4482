"""A project in a folder, and `gert` as a real process on it."""

import atexit
import hashlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests.ecosystem.surfaces.cli.json_results import fits

GERT = [sys.executable, "-m", "gert"]
ZYGOTE = Path(__file__).with_name("zygote.py")
PATIENCE = 30.0
"""How long anything here may take before it counts as hanging."""
PIPE_SIZE = 65536
"""How much a pipe holds before anyone reads from it."""

END: dict[str, Any] = {"type": "end", "outcome": {"category": "resolved", "code": "done"}}
ALLOW: dict[str, Any] = {"rules": [{"default": "allow"}]}

# Appends a word to a file of side effects: what really happened, whatever the trace says.
NOTE = 'printf "%s\\n" "$1" >> "$2"; printf "noted %s\\n" "$1"'


@dataclass(frozen=True)
class Ran:
    """A `gert` that has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    def ended(self, code: int) -> "Ran":
        """Check the exit code, showing everything where it is another."""
        assert self.code == code, f"exit {self.code}, expected {code}\n--- out\n{self.out}\n--- err\n{self.err}"
        return self


@dataclass(frozen=True)
class Recorded:
    """A run: the folder of its mirror, and its record in the ledger beside that folder."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def trace(self) -> Path:
        return self.folder / "trace.jsonl"

    @property
    def ledger(self) -> Path:
        return self.folder.parent / "ledger.db"

    def events(self) -> list[dict[str, Any]]:
        return events_in(self.trace)

    def answers(self) -> list[dict[str, Any]]:
        """The answers on record."""
        return [json.loads(line) for (line,) in self.rows("SELECT line FROM answers WHERE run_id = ?1 ORDER BY n")]

    def requests(self) -> dict[str, dict[str, Any]]:
        """The approval requests of the run, by ticket, in the order they were made."""
        rows = self.rows("SELECT ticket_id, request FROM tickets WHERE run_id = ?1 ORDER BY seq")
        return {ticket_id: json.loads(request) for ticket_id, request in rows}

    def inbox(self) -> list[dict[str, Any]]:
        """The approval responses in the inbox of the run, with the event that took each."""
        rows = self.rows("SELECT body, taken FROM inbox WHERE run_id = ?1 AND kind = 'approval' ORDER BY id")
        return [{**json.loads(body), "taken": taken} for body, taken in rows]

    def post(self, ticket_id: str, body: bytes | dict[str, Any], received_at: str | None = None) -> None:
        """Put a message into the inbox behind the back of gert."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        moment = received_at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        columns = "run_id, kind, body, ticket_id, received_at"
        self.change(f"INSERT INTO inbox ({columns}) VALUES (?1, 'approval', ?2, ?3, ?4)", data, ticket_id, moment)

    def start(self) -> dict[str, Any]:
        """What the run was started with."""
        [(line,)] = self.rows("SELECT line FROM events WHERE run_id = ?1 AND seq = 1")
        start: dict[str, Any] = json.loads(line)["data"]["start"]
        return start

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement on the ledger yields; `?1` is the id of the run."""
        with closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True, timeout=PATIENCE)) as found:
            return found.execute(statement, (self.id, *values)).fetchall()

    def change(self, statement: str, *values: Any) -> None:
        """Change the ledger behind the back of gert; `?1` is the id of the run."""
        with closing(sqlite3.connect(self.ledger, timeout=PATIENCE, isolation_level=None)) as found:
            assert found.execute(statement, (self.id, *values)).rowcount > 0, statement

    def record(self) -> list[tuple[Any, ...]]:
        """Everything the ledger has of the run but its lease, to compare."""
        kept = "count, hash, answers, answers_hash, snapshot, started_at, updated_at, seal, status, private"
        return [
            *self.rows(f"SELECT {kept} FROM runs WHERE run_id = ?1"),
            *self.rows("SELECT seq, line FROM events WHERE run_id = ?1 ORDER BY seq"),
            *self.rows("SELECT n, line FROM answers WHERE run_id = ?1 ORDER BY n"),
            *self.rows("SELECT * FROM calls WHERE run_id = ?1 ORDER BY seq"),
            *self.rows("SELECT * FROM tickets WHERE run_id = ?1 ORDER BY ticket_id"),
        ]

    def lines(self) -> list[bytes]:
        """The events of the ledger, as they are stored."""
        return [line for (line,) in self.rows("SELECT line FROM events WHERE run_id = ?1 ORDER BY seq")]


KEPT = {
    "runs": "run_id, kind, count, hash, answers, answers_hash, snapshot, started_at, updated_at, seal, status, private",
    **dict.fromkeys(("events", "answers", "calls", "tickets", "inbox", "documents"), "*"),
}
"""What the tables of a ledger say of runs; who drives a run is left out."""


def rows_of(db: Path) -> list[tuple[Any, ...]]:
    """Everything a ledger says of its runs."""
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=PATIENCE)) as found:
        try:
            return [
                row
                for table, columns in KEPT.items()
                for row in found.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2")
            ]
        except sqlite3.DatabaseError:
            return [(hashlib.sha256(db.read_bytes()).hexdigest(),)]


def events_in(trace: Path) -> list[dict[str, Any]]:
    """The events of a trace; a last line without its end is left out."""
    lines = trace.read_bytes().split(b"\n")[:-1] if trace.exists() else []
    return [json.loads(line) for line in lines]


def of_type(events: Sequence[Mapping[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [dict(event) for event in events if event["type"] in types]


def completed(events: Sequence[Mapping[str, Any]], step: str) -> dict[str, Any]:
    """What the last `step_complete` of a step says."""
    found = [event["data"] for event in events if event["type"] == "step_complete" and event["data"]["step_id"] == step]
    assert found, f"no step_complete of {step}"
    data: dict[str, Any] = found[-1]
    return data


class Project:
    """A folder with runbooks and tools, and a file of side effects."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.effects = root / "effects"
        (root / "tools").mkdir(parents=True, exist_ok=True)
        self.write("gert-project.yaml", {"name": "bench"})
        self.note_tool("note")

    def write(self, name: str, document: Any) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, indent=1))
        return path

    def tool(
        self,
        name: str,
        argv: Sequence[str],
        *,
        outputs: Mapping[str, Any] | None = None,
        extract: Mapping[str, Any] | None = None,
        contract: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        **document: Any,
    ) -> None:
        """A tool with the one action `go`; what it extracts, it declares."""
        declared = outputs if outputs is not None else {each: {"type": "any"} for each in extract or {}}
        self.write(
            f"tools/{name}.tool.yaml",
            {
                "apiVersion": "tool/v0",
                "meta": {"name": name},
                "contract": {
                    "effects": ["files"],
                    "writes": [],
                    "idempotent": True,
                    "inputs": dict(inputs or {}),
                    "outputs": dict(declared),
                    **(contract or {}),
                },
                "actions": {"go": {"argv": list(argv), "extract": dict(extract or {}), **(action or {})}},
                **document,
            },
        )

    def note_tool(self, name: str, *, before: str = "", after: str = "", **tool: Any) -> None:
        """A tool that writes down that it ran; `before` and `after` are shell around it."""
        self.tool(
            name,
            ["sh", "-c", f"{before}\n{NOTE}\n{after}", "sh", "{{ .word }}", str(self.effects)],
            inputs={"word": {"type": "string", "required": True}},
            extract={"said": {"from": "stdout", "pattern": "noted (.*)"}},
            **tool,
        )

    def script(self, name: str, source: str, **tool: Any) -> None:
        """A tool that is a shell script."""
        self.tool(name, ["sh", "-c", source, "sh"], **tool)

    def runbook(
        self,
        *steps: Mapping[str, Any],
        name: str = "book",
        file: str | None = None,
        tools: Sequence[str] = ("note",),
        governance: Mapping[str, Any] | None = None,
        after: Sequence[Mapping[str, Any]] = (),
        ends: bool = True,
        **meta: Any,
    ) -> Path:
        """A runbook of these steps, an `end` after them, and `finally` steps."""
        document: dict[str, Any] = {
            "apiVersion": "kernel/v0",
            "meta": {"name": name, "governance": dict(governance or ALLOW), **meta},
            "tools": list(tools),
            "steps": [*steps, END] if ends else list(steps),
        }
        if after:
            document["finally"] = list(after)
        return self.write(file or f"{name}.yaml", document)

    def noted(self) -> list[str]:
        """The words that tools wrote down, in order."""
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def runs(self) -> list[Recorded]:
        folder = self.root / "runs"
        return [Recorded(each) for each in sorted(folder.iterdir()) if each.is_dir()] if folder.exists() else []

    def run(self) -> Recorded:
        """The one run that was recorded."""
        (only,) = self.runs()
        return only

    def gert(self, *words: str | Path, stdin: str | bytes | None = None, **environ: str) -> Ran:
        """Run `gert` to its end, with standard input from a pipe, or without any."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if given is None or len(given) <= PIPE_SIZE:
            return called(self.root, [str(word) for word in words], environment(environ), given)
        ended = subprocess.run(
            [*GERT, *map(str, words)],
            input=given,
            capture_output=True,
            cwd=self.root,
            env=environment(environ),
            timeout=PATIENCE,
            check=False,
        )
        fits([str(word) for word in words], ended.stdout.decode())
        return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def exec(self, *words: str | Path, stdin: str | bytes | None = None, **environ: str) -> Ran:
        """`gert exec` of `book.yaml`, unless the first word names another runbook."""
        file = [] if words and str(words[0]).endswith(".yaml") else [self.root / "book.yaml"]
        return self.gert("exec", *file, *words, stdin=stdin, **environ)

    def command(self, *words: str | Path) -> list[str]:
        """How `gert exec` is called."""
        return [*GERT, "exec", *map(str, words)]

    def start(self, *words: str | Path, stdin: Path = Path(os.devnull), **environ: str) -> "subprocess.Popen[bytes]":
        """Start `gert exec` of `book.yaml` and do not wait."""
        with stdin.open("rb") as source:
            return subprocess.Popen(
                self.command(self.root / "book.yaml", *words),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.root,
                env=environment(environ),
            )

    def verifies(self, run: Recorded | None = None) -> None:
        """The record of a run is whole, and its mirror is a copy of it."""
        run = run or self.run()
        self.gert("run", "verify", run.id).ended(0)
        self.gert("trace", "verify", run.trace).ended(0)
        assert run.trace.read_bytes() == b"".join(line + b"\n" for line in run.lines())

    def kept(self) -> dict[str, Any]:
        """Everything in the folder, to compare: files by content, and what ledgers say of runs but for leases."""
        files = {name: digest for name, digest in snapshot(self.root).items() if ".db" not in Path(name).name}
        return {**files, **{str(db): rows_of(db) for db in sorted(self.root.rglob("*.db"))}}


@cache
def zygote() -> "subprocess.Popen[bytes]":
    """A loaded `gert` that starts copies of itself."""
    process = subprocess.Popen([sys.executable, str(ZYGOTE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.communicate)
    return process


def called(folder: Path, words: list[str], environ: dict[str, str], stdin: bytes | None = None) -> Ran:
    """Run `gert` in a process of its own that need not load it first; what it is given fits into a pipe."""
    process = zygote()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "out"), Path(place, "err")
        call = {"words": words, "folder": str(folder), "environment": environ, "out": str(out), "err": str(err)}
        if stdin is not None:
            Path(place, "in").write_bytes(stdin)
            call["stdin"] = str(Path(place, "in"))
        process.stdin.write(json.dumps({**call, "patience": int(PATIENCE)}).encode() + b"\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        assert code != -signal.SIGALRM, f"{words} took too long"
        if code >= 0:  # what was killed may have printed half of it
            fits(words, out.read_text())
        return Ran(code, out.read_text(), err.read_text())


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without anything of gert's, with a home of its own, and more."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GERT_")}
    return {**ours, "HOME": home().name, **(more or {})}


@cache
def home() -> "tempfile.TemporaryDirectory[str]":
    """A home that is removed when the tests end, with all that a shell or a run left there."""
    folder = tempfile.TemporaryDirectory(prefix="gert-home-")
    Path(folder.name).chmod(0o755)  # tests of several users share it
    return folder


def note(step: str, word: str | None = None, *, tool: str = "note", **more: Any) -> dict[str, Any]:
    """A step that writes a word down, its own id where none is given."""
    return {"id": step, "type": "tool", "tool": tool, "inputs": {"word": word or step}, **more}


def call(step: str, tool: str, **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": tool, **more}


def until(condition: Callable[[], Any]) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def finish(process: "subprocess.Popen[bytes]") -> Ran:
    """Wait for a process; what hangs is killed, and fails the test."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        raise
    return Ran(process.returncode, out.decode(), err.decode())


def is_alive(pid: int) -> bool:
    """Whether a process is there and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def snapshot(folder: Path) -> dict[str, str]:
    """Everything in a folder, by content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files_under(folder)
    }


def files_under(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
