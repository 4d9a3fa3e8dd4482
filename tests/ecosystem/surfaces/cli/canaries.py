"""Secrets that sing: planted wherever a secret can be, spilled by tools in every form, and looked for everywhere."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from tests.ecosystem.surfaces.cli.workbench import PATIENCE, Project, Ran, environment, files_under

CANARIES = {
    "TOOL_KEY": "tQ7/tool+canary=Zx9&1",  # declared by the tool, in the environment
    "BOOK_KEY": "bK3 book canary: ü/€ 'quoted' \"twice\"",  # declared by the runbook, in the environment
    "given": "gV5+given/canary==%41",  # secret inputs from here on: --var
    "from_env": "eN1\\env\\canary<&>",
    "from_file": "-----BEGIN CANARY-----\nfL2filecanary\n-----END CANARY-----",
    "asked": "pR6 prompt canary",
    "pin": "4815162342108",
}
# Set, but nobody declares it: no secret, so it may be seen. What finds the others has to find this one.
DECOY = "dC0/decoy+canary"

# How a reference to a secret begins; it says nothing, but it is not for eyes either.
REFERENCE = "\ufdd0".encode()

# Reads what it is given, proves it, and then lets it out the way it is told.
SPILL = """
import base64, hashlib, json, os, re, sys, time
from urllib.parse import quote, quote_plus
way, vault, argument = sys.argv[1:4]
got = {
    "TOOL_KEY": os.environ.get("TOOL_KEY", ""), "BOOK_KEY": os.environ.get("BOOK_KEY", ""),
    "given": os.environ.get("IN_GIVEN", ""), "from_env": os.environ.get("IN_FROM_ENV", ""),
    "from_file": sys.stdin.read(), "asked": argument, "pin": os.environ.get("IN_PIN", ""),
}
with open(os.path.join(vault, "got-" + way), "w") as proof:
    json.dump({name: hashlib.sha256(value.encode()).hexdigest() for name, value in got.items()}, proof)
texts = list(got.values())
def low(text):
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)
def forms(text):
    data = text.encode()
    yield from (text, "x" + text + "y", text * 2, repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False))
    for pad in (b"", b"a", b"ab"):
        yield base64.b64encode(pad + data + b"tail").decode()
        yield base64.urlsafe_b64encode(pad + data).decode()
    yield from (quote(text), quote(text, safe=""), quote_plus(text), low(quote(text, safe="")), data.hex())
    yield data.hex().upper()
everything = [form for text in texts for form in forms(text)]
if way in ("text", "fail", "slow"):
    for form in everything:
        print(form)
        print(form, file=sys.stderr)
    for text in texts:  # a byte at a time, so that no read has a whole one
        for at in range(len(text)):
            sys.stdout.write(text[at]); sys.stdout.flush()
        print()
if way == "fail":
    sys.exit("cannot log in with " + " and ".join(texts[i].replace("\\n", " ") for i in (0, 1, 2, 3, 5, 6)))
if way == "slow":
    sys.stdout.write(texts[0]); sys.stdout.flush(); sys.stderr.flush()
    time.sleep(60)
if way == "json":
    print(json.dumps({
        "all": everything, "keys": {form: 1 for form in everything}, "number": int(got["pin"] or 1),
        "float": float(got["pin"] or 1), "negative": -int(got["pin"] or 1),
        "deep": [[[{"a": [{got["given"]: [got["TOOL_KEY"], {"b": got["asked"]}]}]}]]],
    }))
if way == "halves":
    print(got["given"][:8]); print(got["given"][8:])
"""


def forms(secret: str) -> Iterator[bytes]:
    """What must not be found anywhere."""
    data = secret.encode()
    yield data
    yield json.dumps(secret)[1:-1].encode()
    yield json.dumps(secret, ensure_ascii=False)[1:-1].encode()
    yield json.dumps(json.dumps(secret)[1:-1])[1:-1].encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for pad in range(3):
            # Only the characters that are made of the secret alone.
            encoded = encode(b"\0" * pad + data)
            yield encoded[(0, 2, 3)[pad] : len(encoded) - 4]
    for quoted in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        yield quoted.encode()
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted).encode()
    yield data.hex().encode()
    yield data.hex().upper().encode()


def found_in(data: bytes, secrets: dict[str, str] | None = None) -> list[tuple[str, bytes]]:
    """The canaries that sing in some bytes."""
    wanted = CANARIES if secrets is None else secrets
    return [(name, form) for name, secret in wanted.items() for form in forms(secret) if form in data]


class Cage:
    """A project whose tools spill everything, and a vault beside it where canaries may be."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder / "project")
        self.vault = folder / "vault"
        self.vault.mkdir()
        (self.vault / "spill.py").write_text(SPILL)
        (self.vault / "secret.txt").write_text(CANARIES["from_file"] + "\n")
        self.environ = {
            "TOOL_KEY": CANARIES["TOOL_KEY"],
            "BOOK_KEY": CANARIES["BOOK_KEY"],
            "CANARY_FROM_ENV": CANARIES["from_env"],
            "DECOY": DECOY,
        }

    @property
    def inputs(self) -> dict[str, Any]:
        secret = {"type": "string", "required": True, "secret": True}
        return {
            "given": secret,
            "from_env": {**secret, "from": "env/CANARY_FROM_ENV"},
            "from_file": {**secret, "from": "file/../vault/secret.txt"},
            "asked": {**secret, "from": "prompt"},
            "pin": secret,
            "open": {"type": "string", "default": "nothing"},
        }

    @property
    def words(self) -> list[str]:
        return ["--var", f"given={CANARIES['given']}", "--var", f"pin={CANARIES['pin']}"]

    def spill_tool(self, name: str, way: str, *, extract: dict[str, Any]) -> None:
        """A tool that is handed everything, and lets it out."""
        self.project.tool(
            name,
            [sys.executable, "-S", str(self.vault / "spill.py"), way, str(self.vault), "{{ .asked }}"],
            inputs={each: {"type": "any", "required": True} for each in self.inputs},
            secrets=[{"env": "TOOL_KEY"}, {"env": "BOOK_KEY"}],
            action={
                "stdin": "{{ .from_file }}",
                "env": {"IN_GIVEN": "{{ .given }}", "IN_FROM_ENV": "{{ .from_env }}", "IN_PIN": "{{ .pin }}"},
                "extract": extract,
            },
            outputs={each: {"type": "any"} for each in "abc"},
        )

    def handed(self) -> dict[str, str]:
        return {name: f"{{{{ .{name} }}}}" for name in self.inputs}

    def run(self, *words: str | Path, stdin: str, **environ: str) -> Ran:
        """`gert exec`, as a process that was loaded for this alone."""
        ended = subprocess.run(
            [sys.executable, "-m", "gert", "exec", "book.yaml", *self.words, *map(str, words)],
            input=stdin.encode(),
            capture_output=True,
            cwd=self.project.root,
            env=environment({**self.environ, **environ}),
            timeout=PATIENCE,
            check=False,
        )
        return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def got(self, way: str) -> set[str]:
        """The canaries that really reached the tool, told by their digests."""
        proof = json.loads((self.vault / f"got-{way}").read_text())
        return {name for name, text in CANARIES.items() if proof[name] == hashlib.sha256(text.encode()).hexdigest()}

    def silent(self, ran: Ran) -> None:
        """No canary sings: not in any file of the project, not in what gert printed."""
        for where, data in (("stdout", ran.out.encode()), ("stderr", ran.err.encode())):
            assert not found_in(data), (where, found_in(data), data)
            assert REFERENCE not in data, (where, data)
        files = list(files_under(self.project.root))
        assert files
        for path in files:
            assert not found_in(path.read_bytes()), (path, found_in(path.read_bytes()))
            assert REFERENCE not in path.read_bytes(), (path, path.read_text())
