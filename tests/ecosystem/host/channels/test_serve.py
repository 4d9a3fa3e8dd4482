"""`gert approvals serve`: a process of its own that serves whatever is open, until it is told to end."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.ecosystem.approvals.asking import Clock, Store, opened
from tests.ecosystem.surfaces.cli.workbench import GERT, PATIENCE, environment

from gert.ecosystem.host.run.record.journal import now


@contextmanager
def served(folder: Path, *words: str, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*GERT, "approvals", "serve", "--state-dir", str(folder), *words],
        cwd=folder, env=environment(environ), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "a signal to end"])
def test_open_tickets_are_served_until_it_ends(tmp_path: Path, number: int) -> None:
    store = Store(tmp_path, Clock(now()))
    file = opened(store)
    with served(tmp_path, "--listen", "127.0.0.1:0", "--json") as process:
        first, second = json.loads(line(process)), json.loads(line(process))
        assert re.fullmatch(r"127\.0\.0\.1:\d+", first["listening"])
        assert second["ticket_id"] == file.id
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = opener.open(second["page_url"], timeout=PATIENCE).read().decode()
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
        body = urlencode({**fields, "approver": "bob", "verdict": "approve"}).encode()
        told = opener.open(second["page_url"].partition("?")[0], body, timeout=PATIENCE).read().decode()
        assert "Your approval was received" in told
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, "", "")
    assert store.now(file.id).status == "approved"


def test_a_ticket_that_is_opened_later_is_shown_too(tmp_path: Path) -> None:
    with served(tmp_path, "--listen", "127.0.0.1:0") as process:
        assert line(process).startswith("serving approvals at http://127.0.0.1:")
        file = opened(Store(tmp_path, Clock(now())), title="bad \x1b[2J title")
        assert line(process) == "bad \ufffd[2J title"
        assert f"/t/{file.id}?k=" in line(process)


def test_an_address_that_others_reach_is_warned_about(tmp_path: Path) -> None:
    with served(tmp_path, "--listen", "0.0.0.0:0") as process:
        assert line(process).startswith("serving approvals at http://127.0.0.1:")
        assert process.stderr is not None
        assert "others can reach 0.0.0.0:0 over plain http" in process.stderr.readline()


@pytest.mark.parametrize(
    ("words", "config", "code", "why"),
    [
        pytest.param(["--listen", "nonsense"], {}, 2, "is not an address to listen at", id="no address"),
        pytest.param(["--listen", "203.0.113.7:80"], {}, 2, "nobody can listen at", id="not an address of ours"),
        pytest.param([], {"slack": {"webhook": "${A}", "signing_secret": "${B}"}}, 2, "`B` is not set", id="no secret"),
        pytest.param([], {"listen": "0.0.0.0:80"}, 1, "127.0.0.1:8765", id="a file that opens it to others"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path: Path, words: list[str], config: object, code: int, why: str) -> None:
    (tmp_path / "gert-config.yaml").write_text(json.dumps({"approvals": config}))
    with served(tmp_path, *words) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert why in err
    assert "Traceback" not in out + err
