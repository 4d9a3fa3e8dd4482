"""A project with a runner, a secret in a file, keys, and a vendor on this machine."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ecosystem.runners.vendors import DOMAINS, Vendor, vendor, write_ca
from tests.ecosystem.surfaces.cli.workbench import Project, Ran

from gert.kernel.foundation.signature import parse_key

CANARY = "sk-canary-4f1d0c7be2a94b6d8e55"
SEED = "ed25519:cGxhbi1rZXktb2YtdGhlLWJlbmNoLTAxMjM0NTY3ODk="
OTHER = "ed25519:YW5vdGhlci1rZXktb2Ytbm8tb25lLTAxMjM0NTY3ODk="
KEYS = {"GERT_PLAN_SIGNING_KEY": SEED}
PUBLIC = {"GERT_PLAN_VERIFY_KEY": parse_key(SEED).public_text or ""}
PING = "S.vendor.test.ping.v0.1.0"
OPENAI = "S.vendor.openai.chat.v0.1.0"

SKILL: dict[str, Any] = {
    "apiVersion": "skill/v0",
    "id": PING,
    "vendor": "test",
    "permissions": {"network": "https"},
    "networkPolicy": {"domains": ["vendor.test"], "methods": ["POST", "GET"], "maxResponseBytes": 4096},
    "requiredSecrets": [{"name": "token", "scope": ["test:ping", "test:more"]}],
    "contract": {
        "effects": ["network"],
        "writes": ["vendor"],
        "idempotent": False,
        "inputs": {"word": {"type": "string", "required": True}},
        "outputs": {"path": {"type": "string"}},
    },
    "timeout": "10s",
    "http": {
        "method": "POST",
        "url": "https://vendor.test/ping/{{ .word }}",
        "headers": {"authorization": "Bearer {{ .secret.token }}"},
        "body": {"word": "{{ .word }}"},
    },
    "extract": {"path": {"path": "path"}},
}


def changed(document: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy of a document in which keys are changed; `a__b` is `b` inside `a`, None removes."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    for key, value in changes.items():
        place = copy
        *outer, last = key.split("__")
        for name in outer:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return copy


class Bench(Project):
    """A project whose runner reaches the vendor of the test and nothing else."""

    def __init__(self, root: Path, port: int = 9) -> None:
        super().__init__(root)
        self.ca = write_ca(root)
        self.secret = root / "token"
        self.secret.write_text(CANARY + "\n")
        self.secret.chmod(0o600)
        self.ref = f"file://{self.secret}"
        self.port = port
        self.runner = {
            "vendors": ["*"],
            "domains": ["*"],
            "programs": True,
            "private_addresses": ["127.0.0.1"],
            "addresses": dict.fromkeys(DOMAINS, f"127.0.0.1:{port}"),
            "ca_file": "ca.pem",
        }
        self.allow: list[dict[str, Any]] = [
            {"skills": ["S.vendor.**"], "secret_refs": ["file:///**"], "scopes": ["**"]}
        ]
        self.policy: list[dict[str, Any]] | None = None
        self.settle()
        self.skill()

    def settle(self, **more: Any) -> None:
        """Write the project file and the secrets policy."""
        policies = {"secrets_policies": ["dev.secrets-policy.yaml"]}
        self.write("gert-project.yaml", {"name": "bench", "runners": {"local": self.runner}, **policies, **more})
        self.write(
            "dev.secrets-policy.yaml",
            {"apiVersion": "secrets-policy/v0", "meta": {"name": "dev"}, "allow": self.allow},
        )

    def skill(self, **changes: Any) -> None:
        """Write the skill, with changes."""
        self.write("skills/ping.skill.yaml", changed(SKILL, **changes))

    def create(self, *words: str, skill: str = PING, name: str = "p", **inputs: Any) -> Path:
        """Make a plan."""
        file = self.root / f"{name}.plan.json"
        given = [f"--var={key}={value}" for key, value in ({"word": "hi"} | inputs).items()] if skill == PING else []
        options = ["--secret-ref", self.ref] if "--secret-ref" not in words else []
        self.gert("plan", "create", skill, *given, *options, *words, "--out", file, **KEYS).ended(0)
        return file

    def approve(self, file: Path, *words: str) -> Ran:
        return self.gert("plan", "approve", file, *words, **KEYS)

    def authorized(self, *words: str, **more: Any) -> Path:
        """Make a plan and have it approved."""
        file = self.create(*words, **more)
        self.approve(file).ended(0)
        return file

    def execute(self, file: Path, *words: str, **environ: str) -> Ran:
        """Start the runner by gert."""
        return self.gert("runner", "run", file, *words, **{**KEYS, **environ})

    def record(self) -> dict[str, Any]:
        (file,) = self.root.glob("_state/runs/*/*/record.json")
        document: dict[str, Any] = json.loads(file.read_text())
        return document

    def artifact(self, name: str) -> Any:
        (file,) = self.root.glob(f"_state/runs/*/*/{name}")
        return json.loads(file.read_text()) if file.suffix == ".json" else file.read_text()

    def runner_tool(self, name: str = "ping", skill: str = PING, **action: Any) -> None:
        self.write(
            f"tools/{name}.tool.yaml",
            {
                "apiVersion": "tool/v0",
                "meta": {"name": name, "transport": "runner"},
                "actions": {"go": {"skill": skill, "secret_ref": self.ref, **action}},
            },
        )


def listed(ran: Ran) -> list[dict[str, Any]]:
    """The list that `--json` prints."""
    document: list[dict[str, Any]] = json.loads(ran.out)
    return document


def ping(step: str = "ping", word: str = "hi", **more: Any) -> dict[str, Any]:
    return {"id": step, "type": "tool", "tool": "ping", "inputs": {"word": word}, **more}


@contextmanager
def bench(root: Path, *names: str) -> Iterator[tuple[Bench, Vendor]]:
    with vendor(*names) as served:
        yield Bench(root, served.port), served


def holds_canary(folder: Path, canary: str = CANARY, *, but: Sequence[Path] = ()) -> list[str]:
    """The files below a folder that hold the canary in any of its usual forms."""
    import base64
    from urllib.parse import quote

    forms = {
        canary.encode(),
        base64.b64encode(canary.encode()).rstrip(b"="),
        canary.encode().hex().encode(),
        quote(canary).encode(),
    }
    found = []
    for where, _, files in os.walk(folder):
        for name in files:
            path = Path(where, name)
            if path in but or path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            if any(form in data for form in forms):
                found.append(str(path))
    return found
