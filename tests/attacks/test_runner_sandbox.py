"""Attacks from inside the sandbox: a program of a skill tries to reach what the plan does not give it."""

import asyncio
import json
import os
import socket
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ecosystem.runners.bench import CANARY, Bench, holds_canary
from tests.ecosystem.runners.trials import Trial, machine, words
from tests.ecosystem.runners.vendors import Asked, Handler, Vendor, forever, vendor
from tests.needs import missing

from gert.ecosystem.runners.gateway import Exchange, Gateway
from gert.ecosystem.runners.sandbox import probe
from gert.ecosystem.runners.wire import Meter, Reach, tls_context
from gert.kernel.foundation.canonical import digest
from gert.kernel.governance.network import NetworkPolicy

# What a program tries; each prints what it got, or the error. `got` is what an attacker hopes for.
HOSTILE = r"""
import ctypes, errno, json, os, socket, sys

inputs = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def tries(name):
    def run(attempt):
        try:
            found[name] = f"got {attempt()}"
        except OSError as problem:
            found[name] = errno.errorcode.get(problem.errno, str(problem))
        except Exception as problem:
            found[name] = type(problem).__name__
    return run

def called(number, *words):
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "it"

def called_fd(number, *words):
    got = libc.syscall(number, *words)
    if got < 0:
        raise OSError(ctypes.get_errno(), "")
    return got

@tries("tcp")
def _(): return socket.create_connection(("127.0.0.1", inputs["port"]), 2)
@tries("tcp6")
def _(): return socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
@tries("udp")
def _(): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
@tries("raw")
def _(): return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
@tries("packet")
def _(): return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
@tries("netlink")
def _(): return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
@tries("vsock")
def _(): return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
@tries("bluetooth")
def _(): return socket.socket(31, socket.SOCK_STREAM)
@tries("dns")
def _(): return socket.getaddrinfo("vendor.test", 443)
@tries("interfaces")
def _():
    names = sorted(line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:])
    if names == ["lo"] or not names: raise OSError(errno.ENODEV, "")
    return names
@tries("host socket")
def _():
    s = socket.socket(socket.AF_UNIX); s.connect(inputs["unix"]); return s
@tries("abstract socket")
def _():
    s = socket.socket(socket.AF_UNIX); s.connect("\0" + inputs["abstract"]); return s
@tries("io_uring")
def _(): return called(425, 8, ctypes.create_string_buffer(256))
@tries("x32 socket")
def _(): return called(0x40000000 + 41, 2, 1, 0)
@tries("clone3")
def _(): return called(435, ctypes.create_string_buffer(88), 88)
@tries("new user namespace")
def _():
    if libc.unshare(0x10000000) < 0: raise OSError(ctypes.get_errno(), "")
    return "root"
@tries("new network namespace")
def _():
    if libc.unshare(0x40000000) < 0: raise OSError(ctypes.get_errno(), "")
    return "a network"
@tries("mount")
def _():
    if libc.mount(b"/proc", b"/tmp", b"proc", 0, None) < 0: raise OSError(ctypes.get_errno(), "")
    return "a mount"
@tries("ptrace")
def _():
    if libc.ptrace(16, 1, 0, 0) < 0: raise OSError(ctypes.get_errno(), "")
    return "process 1"
@tries("setuid")
def _(): os.setuid(0); return "root"
@tries("parent environment")
def _():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: data = open(f"/proc/{pid}/environ", "rb").read()
        except OSError: continue
        if inputs["canary"].encode() in data: return pid
    raise OSError(errno.ENOENT, "")
@tries("host processes")
def _():
    seen = [open(f"/proc/{p}/cmdline").read() for p in os.listdir("/proc") if p.isdigit()]
    if any("pytest" in each for each in seen): return seen
    raise OSError(errno.ENOENT, "")
@tries("secret file")
def _(): return open(inputs["secret"]).read()
@tries("secret by another way")
def _(): return open("/proc/1/root" + inputs["secret"]).read()
@tries("system secrets")
def _(): return open("/etc/shadow").read()
@tries("home")
def _(): return os.listdir("/root") or os.listdir("/home")
@tries("state directory")
def _(): return os.listdir(inputs["state"])
@tries("write to the system")
def _(): return open("/usr/bin/evil", "w")
@tries("write to the skill")
def _(): return open("/skill/run.py", "a")
@tries("change the gateway")
def _(): os.unlink("/run/gert/gateway.sock"); return "it"
@tries("inherited descriptors")
def _():
    kept = sorted(int(each) for each in os.listdir("/proc/self/fd"))
    links = [os.readlink(f"/proc/self/fd/{each}") for each in kept if os.path.lexists(f"/proc/self/fd/{each}")]
    more = [each for each in links[3:] if not each.startswith("/proc/")]
    if not more: raise OSError(errno.EBADF, "")
    return more
@tries("environment")
def _():
    kept = set(os.environ) - {"PATH", "LANG", "HOME", "PWD", "GERT_GATEWAY", "LC_CTYPE"}
    if not kept: raise OSError(errno.ENOENT, "")
    return kept
@tries("terminal")
def _():
    import fcntl, termios
    return fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI, b"x")
@tries("devices")
def _(): return open("/dev/mem", "rb")
@tries("kernel log")
def _(): return open("/dev/kmsg")
@tries("kernel log by a system call")
def _():
    if libc.klogctl(3, ctypes.create_string_buffer(4096), 4096) < 0: raise OSError(ctypes.get_errno(), "")
    return "it"
@tries("keyring")
def _(): return called(250, 0, -3, 1)
@tries("memory of another process")
def _(): return called(310, 1, None, 0, None, 0, 0)
@tries("descriptor of another process")
def _(): return called(438, called_fd(434, 1, 0), 0, 0)
@tries("kernel settings")
def _(): return open("/proc/sys/kernel/core_pattern", "w")
@tries("kernel keys")
def _(): return open("/proc/sysrq-trigger", "w")
@tries("system by a handle")
def _(): return called(304, 3, ctypes.create_string_buffer(128), 0)
@tries("another root")
def _(): os.chroot("/tmp"); return "it"
@tries("new mount")
def _(): return called(428, -100, b"/usr", 1)
@tries("internet pair")
def _(): return socket.socketpair(socket.AF_INET)
@tries("shared memory")
def _():
    if os.listdir("/dev/shm"): return os.listdir("/dev/shm")
    raise OSError(errno.ENOENT, "")
print(json.dumps({"found": found}))
"""

DENIED = {
    "tcp": "EAFNOSUPPORT", "tcp6": "EAFNOSUPPORT", "udp": "EAFNOSUPPORT", "raw": "EAFNOSUPPORT",
    "packet": "EAFNOSUPPORT", "netlink": "EAFNOSUPPORT", "vsock": "EAFNOSUPPORT", "bluetooth": "EAFNOSUPPORT",
    "dns": "", "interfaces": "ENODEV", "host socket": "ENOENT", "abstract socket": "ECONNREFUSED",
    "io_uring": "ENOSYS", "x32 socket": "ENOSYS", "clone3": "ENOSYS",
    "new user namespace": "EPERM", "new network namespace": "EPERM", "mount": "EPERM", "ptrace": "EPERM",
    "setuid": "", "parent environment": "ENOENT", "host processes": "ENOENT",
    "secret file": "ENOENT", "secret by another way": "", "system secrets": "ENOENT", "home": "ENOENT",
    "state directory": "ENOENT", "write to the system": "EROFS", "write to the skill": "",
    "change the gateway": "", "inherited descriptors": "EBADF", "environment": "ENOENT", "terminal": "",
    "devices": "ENOENT", "kernel log": "ENOENT", "shared memory": "ENOENT",
    "kernel log by a system call": "EPERM", "keyring": "EPERM", "memory of another process": "EPERM",
    "descriptor of another process": "EPERM", "kernel settings": "", "kernel keys": "", "system by a handle": "EPERM",
    "another root": "EPERM", "new mount": "EPERM", "internet pair": "EAFNOSUPPORT",
}  # fmt: skip
"""What each attempt gets; where it is empty, any error will do."""

GATEWAY = r"""
import json, os, socket, sys

inputs = json.load(sys.stdin)

def ask(method="GET", target="/ping/hi", host="vendor.test", headers=(), body=b"", raw=None):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(os.environ["GERT_GATEWAY"])
        lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *headers]
        lines += [f"content-length: {len(body)}"] if body else []
        s.sendall(raw if raw is not None else "\r\n".join([*lines, "", ""]).encode() + body)
        got = b""
        while block := s.recv(65536):
            got += block
    head, _, rest = got.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), rest.decode("utf-8", "replace")

"""


def sandboxed() -> str | None:
    return asyncio.run(probe()).flaw


@pytest.fixture(scope="module")
def served() -> Iterator[Vendor]:
    flaw = sandboxed()
    if flaw is not None:
        missing("a sandbox", flaw)
    with vendor() as running:
        yield running


class Programs(Bench):
    vendor: Vendor

    def program(self, source: str, **changes: Any) -> None:
        """Make the skill a program."""
        data = textwrap.dedent(source)
        self.write("skills/run.py", data)
        self.skill(
            http=None,
            program={
                "argv": ["python3", "/skill/run.py"],
                "files": {"run.py": digest(data.encode())},
                "headers": {"authorization": "Bearer {{ .secret.token }}"},
            },
            contract__inputs={"given": {"type": "object", "required": True}},
            contract__outputs={"found": {"type": "any", "required": True}},
            extract={"found": {"path": "found"}},
            networkPolicy__maxRequests=3,
            **changes,
        )

    def tried(self, source: str, given: dict[str, Any] | None = None, **changes: Any) -> tuple[str, Any]:
        """Run a program, and return how it ended and what it found."""
        self.program(source.replace("json.load(sys.stdin)", 'json.load(sys.stdin)["given"]'), **changes)
        trial = Trial(self, inputs={"given": given or {}})
        finished = trial.run()
        assert finished.record is not None, words(finished)
        assert finished.record.isolation.level == "sandbox"
        assert holds_canary(self.root, but=[self.secret]) == []
        return words(finished), finished.record.outputs.get("found")


@pytest.fixture
def programs(tmp_path: Path, served: Vendor) -> Iterator[Programs]:
    served.asked.clear()
    before = served.answer
    made = Programs(tmp_path / "project", served.port)
    made.vendor = served
    yield made
    served.answer = before


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, served: Vendor) -> dict[str, str]:
    """What the hostile program found: it runs once, and tries everything."""
    root = tmp_path_factory.mktemp("hostile")
    made = Programs(root / "project", served.port)
    made.vendor = served
    with socket.socket(socket.AF_UNIX) as there, socket.socket(socket.AF_UNIX) as abstract:
        there.bind(str(root / "s"))
        there.listen()
        abstract.bind(f"\0gert-attack-{os.getpid()}")
        abstract.listen()
        leaked = os.open(made.secret, os.O_RDONLY)
        os.set_inheritable(leaked, True)
        os.environ["GERT_TEST_CANARY"] = "1"
        try:
            given = {
                "port": served.port, "unix": str(root / "s"), "secret": str(made.secret), "state": str(made.root),
                "canary": "GERT_TEST_CANARY", "abstract": f"gert-attack-{os.getpid()}",
            }  # fmt: skip
            said, outputs = made.tried(HOSTILE, given)
        finally:
            os.close(leaked)
            del os.environ["GERT_TEST_CANARY"]
    assert said.startswith("0 "), said
    assert served.asked == []
    result: dict[str, str] = outputs
    return result


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("attempt", DENIED)
def test_a_program_in_the_sandbox_gets_nothing(found: dict[str, str], attempt: str) -> None:
    got = found[attempt]
    assert not got.startswith("got "), got
    assert DENIED[attempt] in ("", got)


def test_every_attempt_has_an_expectation(found: dict[str, str]) -> None:
    assert set(found) == set(DENIED)


@pytest.mark.needs("bwrap")
class TestGateway:
    def test_a_request_goes_out_with_the_secret_that_the_program_never_sees(self, programs: Programs) -> None:
        echo = GATEWAY + 'status, body = ask(headers=["authorization: Bearer mine"])\n'
        programs.vendor.answer = lambda asked, handler: (
            200, {"x-echo": asked.headers["authorization"]}, asked.headers["authorization"].encode()
        )  # fmt: skip
        said, found = programs.tried(echo + 'print(json.dumps({"found": [status, body]}))')
        assert said.startswith("0 ")
        (asked,) = programs.vendor.asked
        assert asked.headers["authorization"] == f"Bearer {CANARY}"
        assert found == [200, "Bearer [REDACTED]"]

    @pytest.mark.parametrize(
        ("request_", "rule"),
        [
            pytest.param('ask(host="evil.test")', "network/policy", id="another host"),
            pytest.param('ask(host="vendor.test:8443")', "network/policy", id="another port"),
            pytest.param('ask(host="127.0.0.1")', "network/policy", id="an address"),
            pytest.param('ask(host="vendor.test.")', "network/policy", id="the same name with a dot"),
            pytest.param('ask(method="DELETE")', "network/policy", id="another method"),
            pytest.param('ask(target="https://evil.test/")', "network/policy", id="a host in the target"),
            pytest.param("[ask() for _ in range(4)][-1]", "network/requests", id="more requests than allowed"),
        ],
    )
    def test_what_the_policy_does_not_allow_is_refused_and_recorded(
        self, programs: Programs, request_: str, rule: str
    ) -> None:
        source = GATEWAY + f'status, body = {request_}\nprint(json.dumps({{"found": [status, body]}}))'
        said, _ = programs.tried(source)
        assert said.startswith(f"22 {rule}")
        assert all(asked.method == "GET" and asked.headers["host"] == "vendor.test" for asked in programs.vendor.asked)
        assert len(programs.vendor.asked) == (3 if "range" in request_ else 0)

    @pytest.mark.parametrize(
        "raw",
        [
            pytest.param(b"\x00\x01\x02 nonsense\r\n\r\n", id="no HTTP"),
            pytest.param(b"GET / HTTP/1.1\r\nhost: vendor.test\r\nhost: evil.test\r\n\r\n", id="two hosts"),
            pytest.param(
                b"GET / HTTP/1.1\r\nhost: vendor.test\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", id="a huge header"
            ),
        ],
    )
    def test_what_is_no_request_gets_no_answer(self, programs: Programs, raw: bytes) -> None:
        source = GATEWAY + f"try: got = ask(raw={raw!r})\nexcept OSError: got = [0, '']\n"
        _, found = programs.tried(source + 'print(json.dumps({"found": got}))')
        assert found[0] in (0, 400)
        assert all(asked.headers.get("host") == "vendor.test" for asked in programs.vendor.asked)
        assert programs.vendor.asked == [] or b"nonsense" not in raw

    def test_a_request_with_two_lengths_is_framed_anew(self, programs: Programs) -> None:
        raw = (
            b"POST /a HTTP/1.1\r\nhost: vendor.test\r\ncontent-length: 60\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\n"
            b"DELETE /b HTTP/1.1\r\nhost: vendor.test\r\n\r\n"
        )
        programs.tried(GATEWAY + f'print(json.dumps({{"found": ask(raw={raw!r})}}))')
        (asked,) = programs.vendor.asked
        assert (asked.method, asked.path, asked.body) == ("POST", "/a", b"")
        assert "transfer-encoding" not in asked.headers

    def test_requests_at_the_same_time_are_no_more_than_allowed(self, programs: Programs) -> None:
        source = GATEWAY + (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(12) as pool: got = [each[0] for each in pool.map(lambda _: ask(), range(12))]\n"
        )
        said, _ = programs.tried(source + 'print(json.dumps({"found": got}))')
        assert said.startswith("22 network/requests")
        assert len(programs.vendor.asked) == 3

    def test_redirects_do_not_add_to_the_requests_of_a_program(self, programs: Programs) -> None:
        source = GATEWAY + 'got = [ask()[0] for _ in range(5)]\nprint(json.dumps({"found": got}))'
        said, _ = programs.tried(source, networkPolicy__redirects=True)
        assert said.startswith("22 network/requests")
        assert len(programs.vendor.asked) == 3

    @pytest.mark.parametrize("status", [204, 304, 404])
    def test_a_response_without_a_body_reaches_the_program(self, programs: Programs, status: int) -> None:
        programs.vendor.answer = lambda asked, handler: (status, {}, b"")
        said, found = programs.tried(GATEWAY + 'print(json.dumps({"found": ask()}))')
        assert (said.split()[0], found) == ("0", [status, ""])

    def test_a_part_of_a_response_cannot_be_asked_for(self, programs: Programs) -> None:
        """A vendor that repeats the secret would give it in parts, which are not recognized."""
        programs.tried(GATEWAY + 'print(json.dumps({"found": ask(headers=["Range: bytes=0-9", "If-Range: x"])}))')
        (asked,) = programs.vendor.asked
        assert not {"range", "if-range"} & set(asked.headers)

    def test_a_response_that_is_cut_in_the_secret_holds_no_part_of_it(self, programs: Programs) -> None:
        programs.vendor.answer = lambda asked, handler: (200, {}, b"x" * 4086 + CANARY.encode() * 2)
        _, found = programs.tried(GATEWAY + 'print(json.dumps({"found": ask()[1]}))')
        assert found == "x" * 4086
        assert holds_canary(programs.root, CANARY[:6], but=[programs.secret]) == []

    def test_a_request_without_an_answer_is_in_the_artifacts(self, programs: Programs) -> None:
        over = threading.Event()

        def silent(asked: Asked, handler: Handler) -> None:
            over.wait(60)

        programs.vendor.answer = silent
        try:
            said, _ = programs.tried(GATEWAY + 'ask(method="POST", target="/slow", body=b"please")', timeout="6s")
        finally:
            over.set()
        assert said.startswith("25 timeout/limit")
        (response,) = programs.root.glob("_state/runs/*/*/response.json")
        (exchange,) = json.loads(response.read_text())["exchanges"]
        assert exchange == {"method": "POST", "url": "https://vendor.test/slow", "request_body": "please"}

    def test_nothing_leaves_once_the_program_has_ended(self) -> None:
        ended: list[str] = []

        async def left() -> list[Exchange]:
            looked = asyncio.Event()

            async def lookup(host: str) -> list[str]:
                looked.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(host)
                return []

            policy = NetworkPolicy(domains=("vendor.test",), methods=("GET",), max_response_bytes=9)
            reach = Reach(context=tls_context(None), lookup=lookup)
            gateway = Gateway(policy, reach, Meter(), (), lambda data, is_cut: data)
            async with gateway.serve() as path:
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(b"GET / HTTP/1.1\r\nhost: vendor.test\r\n\r\n")
                await looked.wait()
            writer.close()
            assert ended == ["vendor.test"]
            return gateway.exchanges

        (exchange,) = asyncio.run(left())
        assert (exchange.target, exchange.received) == ("/", None)

    def test_a_response_without_end_is_cut(self, programs: Programs) -> None:
        programs.vendor.answer = forever
        said, found = programs.tried(GATEWAY + 'print(json.dumps({"found": len(ask()[1])}))')
        assert said.startswith("0 ")
        assert found == 4096


@pytest.mark.needs("bwrap")
def test_a_program_that_does_not_end_is_ended(programs: Programs) -> None:
    source = "import sys, time\nprint('asked', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    said, _ = programs.tried(source, timeout="6s")
    assert said.startswith("25 timeout/limit")
    (response,) = programs.root.glob("_state/runs/*/*/response.json")
    assert json.loads(response.read_text())["program"] == {"exit_code": None, "stdout": "", "stderr": "asked\n"}


@pytest.mark.needs("bwrap")
def test_a_program_that_prints_without_end_is_cut(programs: Programs) -> None:
    said, _ = programs.tried("import sys\nfor _ in range(400): sys.stdout.write('x' * 10000)\n")
    assert said.startswith("26 response/size")


@pytest.mark.needs("bwrap")
def test_a_program_without_a_network_has_no_gateway_either(programs: Programs) -> None:
    source = 'import json, os\nprint(json.dumps({"found": [os.environ.get("GERT_GATEWAY"), os.listdir("/run")]}))'
    programs.program(source, permissions__network="none", requiredSecrets=None)
    document = json.loads((programs.root / "skills/ping.skill.yaml").read_text())
    del document["program"]["headers"], document["networkPolicy"]
    programs.write("skills/ping.skill.yaml", document)
    finished = Trial(programs, inputs={"given": {}}, secret_ref=None).run()
    assert finished.record is not None, words(finished)
    assert (finished.record.exit_code, finished.record.isolation.level) == (0, "sandbox")
    assert finished.record.outputs["found"] == [None, []]


@pytest.mark.needs("bwrap")
def test_ending_one_program_leaves_others_alone(programs: Programs, tmp_path: Path) -> None:
    programs.program("import time\ntime.sleep(30)\n", timeout="1s")
    slow = Trial(programs, inputs={"given": {}})
    other = Programs(tmp_path / "other", programs.port)
    other.program("import time, json\ntime.sleep(2)\nprint(json.dumps({'found': 1}))\n")
    well = Trial(other, inputs={"given": {}})

    async def both() -> list[str]:
        return [words(each) for each in await asyncio.gather(slow.runs(), well.runs())]

    assert [said.split()[0] for said in asyncio.run(both())] == ["25", "0"]


def test_without_a_sandbox_an_explicit_grant_is_recorded_as_such(programs: Programs) -> None:
    programs.runner = {**programs.runner, "unsandboxed": True}
    programs.settle()
    programs.program("print('{\"found\": 1}')", permissions__network="none", networkPolicy=None, requiredSecrets=None)
    document = json.loads((programs.root / "skills/ping.skill.yaml").read_text())
    del document["program"]["headers"]
    document.pop("networkPolicy", None)
    programs.write("skills/ping.skill.yaml", document)
    trial = Trial(programs, inputs={"given": {}}, secret_ref=None, unsandboxed=True)
    trial.probe = machine("user namespaces are closed")
    finished = trial.run()
    assert finished.record is not None, words(finished)
    assert (finished.record.exit_code, finished.record.isolation.level) == (0, "none")
    assert "no network interface" in finished.record.isolation.not_enforced
