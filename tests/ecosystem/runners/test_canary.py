"""The secret is in no artifact, log, trace, ledger, error, argument, environment or core file, however it ends."""

import asyncio
import base64
import concurrent.futures.thread
import faulthandler
import json
import os
import pwd
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import CANARY, KEYS, PUBLIC, Bench, holds_canary
from tests.ecosystem.runners.trials import Trial, addresses, words
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor, forever, vendor
from tests.ecosystem.surfaces.cli.workbench import environment

from gert.ecosystem.host.config.ledger_location import ledger_of, make_ledger_folder, open_ledger
from gert.ecosystem.host.runner.one_shot import harden
from gert.ecosystem.host.runner.spend import LedgerSpend
from gert.ecosystem.runners import execution
from gert.kernel.foundation.canonical import digest

LOADED = (concurrent.futures.thread,)
"""What is loaded by chance: the Python of the tests may lie where other users cannot read."""

GREEDY = """
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["GERT_GATEWAY"])
s.sendall(b"GET /ping/echo HTTP/1.1\\r\\nhost: vendor.test\\r\\n\\r\\n")
got = b""
while block := s.recv(65536): got += block
sys.stderr.write(got.decode()); print(got.decode(), dict(os.environ)); sys.exit(3)
"""


def echo(asked: Asked, status: int = 500) -> tuple[int, dict[str, str], bytes]:
    """Repeat the secret in many forms."""
    held = asked.headers.get("authorization", "").removeprefix("Bearer ")
    forms = {"plain": held, "base64": base64.b64encode(held.encode()).decode(), "hex": held.encode().hex()}
    body = json.dumps({"error": f"invalid key {held}", "path": held, "forms": forms, held: 1}).encode()
    return status, {"x-echo": held, "set-cookie": f"a={held}", "location": f"https://vendor.test/{held}"}, body


def cut_off(asked: Asked, handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + asked.headers["authorization"].encode())
    handler.connection.close()


def no_http(asked: Asked, handler: Handler) -> None:
    handler.wfile.write(asked.headers["authorization"].encode() + b"\r\n\r\n")


ANSWERS: dict[str, Callable[[Asked, Handler], Any]] = {
    "success": lambda asked, handler: echo(asked, 200),
    "server error": lambda asked, handler: echo(asked, 500),
    "not allowed": lambda asked, handler: echo(asked, 401),
    "redirect": lambda asked, handler: echo(asked, 302),
    "compressed": lambda asked, handler: (200, {"content-encoding": "gzip"}, asked.headers["authorization"].encode()),
    "too large": forever,
    "not JSON": lambda asked, handler: (200, {}, asked.headers["authorization"].encode()),
    "cut off": cut_off,
    "no HTTP": no_http,
    "slow": lambda asked, handler: time.sleep(1.5),
    "stopped": lambda asked, handler: time.sleep(1.5),
}


def served_otherwise(bench: Bench, **runner: Any) -> None:
    bench.runner = {**bench.runner, **runner}
    bench.settle()


def with_secret(text: str) -> Callable[[Bench], object]:
    return lambda bench: bench.secret.write_text(text)


def program(bench: Bench) -> None:
    bench.write("skills/run.py", GREEDY)
    bench.skill(
        http=None, extract=None,
        program={
            "argv": ["python3", "/skill/run.py"], "files": {"run.py": digest(GREEDY.encode())},
            "headers": {"authorization": "Bearer {{ .secret.token }}"},
        },
    )  # fmt: skip


def broken_code(trial: Trial) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"a bug that shows {CANARY}")

    vars(execution)["send"] = fail


# What is different before the plan is made, and before it is run; the rest is what the vendor answers.
BEFORE: dict[str, Callable[[Bench], object]] = {
    "wrong type": lambda bench: bench.skill(extract__path__path="forms"),
    "slow": lambda bench: bench.skill(timeout="1s"),
    "wrong name": lambda bench: served_otherwise(bench, addresses={"vendor.test": "127.0.0.1:9"}),
    "private address": lambda bench: served_otherwise(bench, addresses={}, private_addresses=[]),
    "line break in the secret": with_secret(f"{CANARY}\r\nx: y"),
    "not latin": with_secret(f"{CANARY}\u20ac"),
    "control character": with_secret(f"{CANARY}\x01"),
    "program": program,
}
AFTER: dict[str, Callable[[Trial], object]] = {
    "private address": lambda trial: setattr(trial, "lookup", lambda host: addresses("10.0.0.1")),
    "a bug": broken_code,
}
KINDS = [
    *ANSWERS,
    *(kind for kind in BEFORE if kind not in ANSWERS),
    "a bug",
    "no disk",
    "no ledger",
    "killed",
    "aborted",
]
EXPECTED = {
    "success": 0, "server error": 23, "not allowed": 23, "redirect": 22, "compressed": 26, "too large": 26,
    "not JSON": 26, "cut off": 24, "no HTTP": 24, "slow": 25, "stopped": 28, "wrong type": 26, "wrong name": 24,
    "private address": 22, "line break in the secret": 20, "not latin": 20, "control character": 20, "program": 27,
    "a bug": 30, "no disk": 29, "no ledger": 29, "killed": -signal.SIGKILL, "aborted": -signal.SIGABRT,
}  # fmt: skip


MINE = "sk-mine-77c1e0a2d4f84c0b9a31"
"""Of tests that put a secret into an environment themselves; others may look at all processes meanwhile."""


def in_environments(canary: str) -> list[str]:
    """The processes that have the canary in their arguments or environment."""
    found = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                data = Path("/proc", each, name).read_bytes()
            except OSError:
                continue
            if canary.encode() in data:
                found.append(f"{each} {name}")
    return found


class Watch:
    """Answers requests of runners, and looks at all processes while one holds the secret."""

    def __init__(self, served: Vendor, canary: str = CANARY) -> None:
        self._canary = canary
        self.found: list[str] = []
        self.looked = 0
        served.answer = self.answer

    def answer(self, asked: Asked, handler: Handler) -> Any:
        self.looked += 1
        self.found += in_environments(self._canary)
        kind = asked.path.removeprefix("/ping/").replace("%20", " ")
        return ANSWERS.get(kind, ANSWERS["success"])(asked, handler)


async def execute(bench: Bench, kind: str) -> int:
    """In a process of its own: run one plan against a real ledger."""
    trial = Trial(bench, "plan-1", inputs={"word": kind}, ledger=ledger_of(str(bench.root)))
    if kind in AFTER:
        AFTER[kind](trial)
    make_ledger_folder(str(bench.root))
    async with AsyncExitStack() as held:
        ledger = await held.enter_async_context(open_ledger(ledger_of(str(bench.root)), {}))
        leases = await held.enter_async_context(AsyncExitStack())
        spend = LedgerSpend(ledger, ledger_of(str(bench.root)), leases, host="h", version="v", state=str(bench.root))
        trial.spend, trial.stop = spend, asyncio.Event()

        def observe(step: str) -> None:
            if kind == "no disk" and step == "response":
                shutil.rmtree(bench.root / "_state")
                (bench.root / "_state").write_text("no folder")
            if kind == "no ledger" and step == "report":
                (bench.root / "runs").rename(bench.root / "moved")
            if kind in ("killed", "aborted") and step == "response":
                os.kill(os.getpid(), signal.SIGKILL if kind == "killed" else signal.SIGABRT)
            if kind == "stopped" and step == "execute":
                asyncio.get_running_loop().call_later(0.2, trial.stop.set)  # type: ignore[union-attr]

        trial.observe = observe
        finished = await trial.runs()
    sys.stdout.write(f"{kind} {words(finished)} {finished}\n")
    return int(finished.exit_code)


def run(bench: Bench, kind: str) -> int:
    """Run one kind in a process that gert has hardened; what it prints is kept in the project. Gives its status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 99
    try:
        faulthandler.disable()
        out = os.open(bench.root / "printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(bench.root)
        harden()
        code = asyncio.run(execute(bench, kind))
        sys.stdout.flush()
    except BaseException as problem:
        os.write(2, f"{kind}: {problem!r}\n".encode())
    os._exit(code)


def run_all(uid: int, benches: dict[str, Bench], warm: Bench) -> dict[str, int]:
    """Run every kind as a user, and give their statuses.

    The Python that tests run with may lie where other users cannot read, so everything is loaded first.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                harden()
                asyncio.run(execute(warm, "program"))
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writing, json.dumps({kind: run(bench, kind) for kind, bench in benches.items()}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    statuses: dict[str, int] = json.loads(said)
    return statuses


@pytest.fixture
def place() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="gert-canary-"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@pytest.mark.needs("bwrap")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_secret_is_nowhere_however_an_execution_ends(place: Path, user: str) -> None:
    uid = pwd.getpwnam(user).pw_uid
    with vendor() as served:
        watch = Watch(served)
        benches = {kind: Bench(place / kind.replace(" ", "-"), served.port) for kind in KINDS}
        warm = Bench(place / "warm", served.port)
        for kind, bench in benches.items():
            if kind in BEFORE:
                BEFORE[kind](bench)
        program(warm)
        for bench in benches.values():
            for path in (bench.root, *bench.root.rglob("*")):
                os.chown(path, uid, uid)
        statuses = run_all(uid, benches, warm)
    for kind, bench in benches.items():
        assert not os.WCOREDUMP(statuses[kind]), f"{kind} left a core file"
        assert holds_canary(bench.root, but=[bench.secret]) == [], kind
        assert list(bench.root.rglob("core*")) == []
    assert {kind: os.waitstatus_to_exitcode(status) for kind, status in statuses.items()} == EXPECTED
    assert watch.found == []
    assert watch.looked >= 12, "processes were looked at while the secret was in use"


def test_a_runner_that_a_person_starts_takes_its_secret_from_the_environment(place: Path) -> None:
    """`gert-runner` as a process of its own: nothing it starts or prints has the secret."""
    import subprocess

    with vendor() as served:
        watch = Watch(served, MINE)
        bench = Bench(place / "project", served.port)
        bench.secret.unlink()
        bench.allow = [{"skills": ["S.vendor.test.*.v0.1.0"], "secret_refs": ["env://TOKEN"], "scopes": ["test:*"]}]
        bench.settle()
        file = bench.create("--secret-ref", "env://TOKEN", "--scope", "test:ping", word="success")
        bench.approve(file).ended(0)
        command = [sys.executable, "-m", "gert.ecosystem.surfaces.runner", "run", "--plan", str(file)]
        command += ["--runner-id", "local", "--secret-ref", "env://TOKEN", "--scope", "test:ping"]
        command += ["--ttl-seconds", "900"]
        ran = subprocess.run(
            command, capture_output=True, cwd=bench.root, env=environment({**PUBLIC, "TOKEN": MINE}), check=False
        )
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert MINE.encode() not in ran.stdout
    # The runner's own environment is where the person put it.
    assert all(each.endswith("environ") for each in watch.found)
    assert len({each.split()[0] for each in watch.found}) <= 1
    assert holds_canary(bench.root, MINE) == []
    assert bench.record()["scope"] == ["test:ping"]


def test_a_dispatched_runner_has_none_of_the_environment(place: Path) -> None:
    with vendor() as served:
        watch = Watch(served, MINE)
        bench = Bench(place / "project", served.port)
        file = bench.authorized(word="success")
        seen: dict[str, bytes] = {}

        def look(asked: Asked, handler: Handler) -> Any:
            for each in filter(str.isdigit, os.listdir("/proc")):
                words_ = Path("/proc", each, "cmdline").read_bytes() if Path("/proc", each).exists() else b""
                if b"gert.ecosystem.surfaces.runner" in words_ and b"--dispatched" in words_:
                    seen["environ"] = Path("/proc", each, "environ").read_bytes()
            return watch.answer(asked, handler)

        served.answer = look
        bench.execute(file, SOME_TOKEN=MINE, AWS_SECRET_ACCESS_KEY="x", **KEYS).ended(0)
    names = {each.partition(b"=")[0].decode() for each in seen["environ"].split(b"\0") if each}
    assert names <= {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "GERT_PLAN_VERIFY_KEY", "_GERT_CALL"}
    assert MINE.encode() not in seen["environ"]
    assert KEYS["GERT_PLAN_SIGNING_KEY"].encode() not in seen["environ"], "it verifies with the public half"
    assert all(each.endswith("environ") for each in watch.found), "only gert itself was started with it"
