"""The page about the trace format shows commands; they have to work."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.kernel.events.traces import PRIVATE_KEY, Chain, stamped, trace

from gert.ecosystem.host.runs.traces import open_trace, verify_trace
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import read_chain
from gert.kernel.events.envelope import encode
from gert.kernel.events.trace_seal import check_seal
from gert.kernel.foundation.canonical import sha256_hex
from gert.kernel.foundation.principal import Principal
from gert.kernel.foundation.signature import Keys, parse_key

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")
MAKE_KEYS, VERIFY, HMAC = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FIXTURES = Path(__file__).parent / "fixtures"
PUBLIC = str(PRIVATE_KEY.public_text)

pytestmark = pytest.mark.needs("sh", "grep", "cmp", "iconv", "sha256sum", "base64", "openssl")


def audit(folder: Path, lines: list[bytes], key: str = PUBLIC) -> subprocess.CompletedProcess[str]:
    return audit_file(folder, b"".join(line + b"\n" for line in lines), key)


def audit_file(folder: Path, content: bytes, key: str = PUBLIC) -> subprocess.CompletedProcess[str]:
    (folder / "verify.sh").write_text(VERIFY, encoding="utf-8")
    (folder / "trace.jsonl").write_bytes(content)
    return subprocess.run(
        ["sh", "verify.sh", "trace.jsonl", key], cwd=folder, capture_output=True, text=True, check=False
    )


def test_an_auditor_verifies_a_trace_without_gert(tmp_path: Path) -> None:
    lines = (FIXTURES / "ed25519.jsonl").read_bytes().splitlines()
    found = audit(tmp_path, lines)
    assert (found.stdout, found.returncode) == (
        "OK: 6 sealed events, 1 after the seal, signed by this key, which the trace calls prod-2026\n",
        0,
    ), found.stderr


LINES = trace(PRIVATE_KEY)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        pytest.param(LINES[:-1], "the trace is incomplete", id="the end is cut off"),
        pytest.param([*LINES[:3], *LINES[4:]], "the chain breaks at line 4", id="a line is missing"),
        pytest.param([*LINES, LINES[-1]], "the chain breaks at line 7", id="two ends"),
        pytest.param([*LINES[:-1], LINES[-1][:-1]], "does not end with its signature", id="the end is torn"),
        pytest.param(
            [*LINES[:-1], LINES[-1].replace(b'"completed"', b'"failed"')], "was changed", id="the status changed"
        ),
        pytest.param(trace(), "the signature does not hold", id="never signed"),
        pytest.param(
            trace(parse_key("ed25519:" + "dGhpZWYh" * 5 + "A0E=", "prod-2026")),
            "the signature does not hold",
            id="signed by another key",
        ),
    ],
)
def test_an_auditor_finds_what_gert_finds(tmp_path: Path, lines: list[bytes], why: str) -> None:
    found = audit(tmp_path, lines)
    assert found.returncode != 0
    assert why in found.stderr
    assert not check_seal(read_chain(lines), Keys([parse_key(PUBLIC, "prod-2026")])).holds


AFTER = Chain(sha256_hex(LINES[-1]), len(LINES))
SENT = encode(
    stamped(
        AFTER,
        says.WebhookSent(
            url='https://example.com/"}}é,',
            delivered=False,
            attempts=3,
            category="resolved",
            status_code=503,
            error='"type":"run_cancelled"\\',
        ),
        'an "odd" [path]',
        Principal("agent", 'x"}', model="m"),
    )
)
CANCELLED = encode(stamped(AFTER, says.RunCancelled(reason="late")))


@pytest.mark.parametrize(
    ("lines", "extent"),
    [
        pytest.param(LINES, "6 sealed events, 0 after the seal", id="nothing"),
        pytest.param([*LINES, SENT], "6 sealed events, 1 after the seal", id="a notification with odd texts"),
    ],
)
def test_an_auditor_is_told_what_is_not_sealed(tmp_path: Path, lines: list[bytes], extent: str) -> None:
    found = audit(tmp_path, lines)
    assert (found.stdout, found.returncode) == (
        f"OK: {extent}, signed by this key, which the trace calls prod-2026\n",
        0,
    ), found.stderr


def forged(old: bytes, new: bytes, line: bytes = CANCELLED) -> bytes:
    assert line.count(old) == 1
    return line.replace(old, new)


SENT_TYPE = b'"type":"webhook_sent"'
HEAD = b'"prev_hash":"' + AFTER.head.encode() + b'"'


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(CANCELLED, id="another type"),
        pytest.param(forged(b'"data":{', b'"data":{' + SENT_TYPE + b","), id="the type in the data"),
        pytest.param(
            forged(b'"data":{', b'"data" :{' + SENT_TYPE + b"," + HEAD + b',"data":{},'),
            id="the type in data that is spelled with a space",
        ),
        pytest.param(
            forged(b'"prev_hash"', b'"principal":{"kind":"system","id":"x",' + SENT_TYPE + b'},"prev_hash"'),
            id="the type in the principal",
        ),
        pytest.param(
            forged(b'"prev_hash"', b'"more":{' + SENT_TYPE + b'},"prev_hash"'), id="the type in another field"
        ),
        pytest.param(
            forged(SENT_TYPE, SENT_TYPE + b',"type":"run_cancelled"', SENT), id="a second type in the envelope"
        ),
        pytest.param(SENT[:-1] + b',"type":"run_cancelled"}', id="a second type after the data"),
        pytest.param(forged(b'"seq":7', b'"seq":8', SENT), id="another number"),
        pytest.param(forged(b"run-2026", b"run-1999", SENT), id="another run"),
        pytest.param(SENT[:-1], id="a torn line"),
    ],
)
def test_nothing_else_passes_for_a_notification(tmp_path: Path, line: bytes) -> None:
    found = audit(tmp_path, [*LINES, line])
    assert found.returncode != 0
    assert "line 7 " in found.stderr
    assert not check_seal(read_chain([*LINES, line]), Keys([parse_key(PUBLIC, "prod-2026")])).holds


def test_keys_made_with_openssl_sign_and_verify(tmp_path: Path) -> None:
    subprocess.run(["sh", "-euc", MAKE_KEYS], cwd=tmp_path, check=True)
    private = parse_key((tmp_path / "signing.pem").read_text(encoding="utf-8"), "made")
    public = parse_key((tmp_path / "verify.pem").read_text(encoding="utf-8"), "made")
    lines = trace(private)
    assert check_seal(read_chain(lines), Keys([public])).proven
    assert audit(tmp_path, lines, "verify.pem").returncode == 0


def test_a_shared_secret_is_checked_with_openssl_too() -> None:
    lines = (FIXTURES / "hmac-sha256.jsonl").read_bytes().splitlines()
    completion = read_chain(lines).completion
    assert completion is not None
    script = f'signed_head={completion.head} secret="a shared secret for tests"\n{HMAC}'
    found = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == completion.event.data["signature"]


WHOLE = b"".join(line + b"\n" for line in LINES)
PLAIN = encode(stamped(AFTER, says.WebhookSent(url="https://example.com/é", delivered=True, attempts=1)))
DATA = b'"data":{'


@pytest.mark.parametrize(
    ("content", "holds"),
    [
        pytest.param(WHOLE, True, id="the trace as it was written"),
        pytest.param(WHOLE + SENT + b"\n", True, id="with a notification"),
        pytest.param(WHOLE + PLAIN + b"\n", True, id="with a plain notification"),
        pytest.param(WHOLE[:-1], False, id="without the last line break"),
        pytest.param(WHOLE + PLAIN, False, id="a notification without its line break"),
        pytest.param(b"", False, id="an empty file"),
        pytest.param(WHOLE + b"\0", False, id="a NUL at the end"),
        pytest.param(WHOLE.replace(b'"data"', b'\0"data"', 1), False, id="a NUL in the first line"),
        pytest.param(WHOLE[:-1] + b"\0\n", False, id="a NUL in the last line"),
        pytest.param(WHOLE + forged(DATA, DATA + b"\0", PLAIN) + b"\n", False, id="a NUL in a notification"),
        pytest.param(WHOLE.replace(b"\n", b"\r\n"), False, id="line ends were converted"),
        pytest.param(WHOLE + PLAIN + b"\r\n", False, id="a carriage return after a notification"),
        pytest.param(WHOLE + forged(DATA, DATA + b"\t", PLAIN) + b"\n", False, id="a tab in a notification"),
        pytest.param(b"\xef\xbb\xbf" + WHOLE, False, id="a byte order mark"),
        pytest.param(WHOLE + b"\xef\xbb\xbf" + PLAIN + b"\n", False, id="a byte order mark before a notification"),
        pytest.param(WHOLE + b"\n", False, id="an empty line at the end"),
        pytest.param(WHOLE + b"{}\n", False, id="something else after the end"),
        pytest.param(WHOLE + CANCELLED + b"\n", False, id="another event after the end"),
        pytest.param(WHOLE + PLAIN + b" {}\n", False, id="something after a notification"),
        pytest.param(WHOLE + forged(DATA, DATA + b'"url":"x",', PLAIN) + b"\n", False, id="a key twice"),
        pytest.param(WHOLE + forged(b"}}", b',"attempts":9}}', PLAIN) + b"\n", False, id="a number twice"),
        pytest.param(WHOLE + forged(b"}}", b',"more":1}}', PLAIN) + b"\n", False, id="a field that is not known"),
        pytest.param(WHOLE + forged(b"}}", b',"more":{"a":1}}}', PLAIN) + b"\n", False, id="data inside of data"),
        pytest.param(WHOLE + forged(b":1}", b":1e999}", PLAIN) + b"\n", False, id="an infinite number"),
        pytest.param(WHOLE + forged(b":1}", b":NaN}", PLAIN) + b"\n", False, id="no number"),
        pytest.param(WHOLE + forged(b":1}", b":99999999999999999}", PLAIN) + b"\n", False, id="a huge number"),
        pytest.param(WHOLE + forged(b":1}", b":01}", PLAIN) + b"\n", False, id="a number with a zero before it"),
        pytest.param(WHOLE + forged("é".encode(), b"\xff", PLAIN) + b"\n", False, id="invalid UTF-8"),
        pytest.param(WHOLE + forged("é".encode(), b"\xed\xa0\x80", PLAIN) + b"\n", False, id="a surrogate in UTF-8"),
        pytest.param(WHOLE + forged("é".encode(), b"\\ud800", PLAIN) + b"\n", False, id="half a surrogate pair"),
        pytest.param(WHOLE + forged("é".encode(), b"\\q", PLAIN) + b"\n", False, id="an escape that JSON lacks"),
    ],
)
def test_an_auditor_and_gert_agree_about_hostile_files(tmp_path: Path, content: bytes, holds: bool) -> None:
    found = audit_file(tmp_path, content)
    trace_file = open_trace(str(tmp_path / "trace.jsonl"), None, None)
    _, seal = verify_trace(trace_file, Keys([parse_key(PUBLIC, "prod-2026")]))
    assert (found.returncode == 0, seal.proven) == (holds, holds), found.stderr
