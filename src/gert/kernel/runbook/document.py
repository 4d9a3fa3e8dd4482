"""Loads documents: bytes become a typed model with findings, and the content decides the kind of a file."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gert.kernel.foundation.names import listing, suggestion
from gert.kernel.foundation.text import shorten
from gert.kernel.runbook.documents import expectations, policy, policy_test, project, runbook, scenario, skill, tool
from gert.kernel.runbook.finding import Finding, Severity, error, in_order
from gert.kernel.runbook.model import Decoder, Model, describe
from gert.kernel.runbook.reader import read
from gert.kernel.runbook.tree import Map, Tree
from gert.kernel.runbook.tree_builder import DEFAULT_LIMITS, Limits


class DocumentKind(msgspec.Struct, frozen=True):
    """A kind of document: its model and how its files are recognized."""

    title: str
    model: type[Model]
    api_version: str | None = None
    file_names: tuple[str, ...] = ()
    tell_tale_keys: tuple[str, ...] = ()


DOCUMENT_KINDS: Final[Mapping[str, DocumentKind]] = {
    "runbook": DocumentKind("gert runbook", runbook.Runbook, runbook.API_VERSION),
    "tool": DocumentKind("gert tool", tool.Tool, tool.API_VERSION),
    "policy": DocumentKind("gert policy", policy.PolicyFile, policy.API_VERSION),
    "policy-test": DocumentKind("gert policy test", policy_test.PolicyTest, policy_test.API_VERSION),
    "skill": DocumentKind("gert skill", skill.Skill, skill.API_VERSION),
    "secrets-policy": DocumentKind("gert secrets policy", skill.SecretsPolicy, skill.POLICY_API_VERSION),
    "project": DocumentKind("gert project", project.Project, None, (project.PROJECT_FILE,)),
    "config": DocumentKind("gert configuration", project.Config, None, project.CONFIG_FILES),
    "scenario": DocumentKind("gert scenario", scenario.Scenario, None, ("scenario.yaml",), ("tool_responses",)),
    "test": DocumentKind(
        "gert test", expectations.Expectations, None, ("test.yaml",), ("expected_outcome", "must_reach")
    ),
}

API_VERSIONS: Final = {kind.api_version: name for name, kind in DOCUMENT_KINDS.items() if kind.api_version}


# Keys that only one kind of document has, for files without an `apiVersion`.
_TELLING: Final = {
    "steps": runbook.API_VERSION,
    "actions": tool.API_VERSION,
    "cases": policy_test.API_VERSION,
    "rules": policy.API_VERSION,
    "governance": policy.API_VERSION,
}


# Text that marks a gert document, even if it cannot be parsed.
_OURS: Final = r"(?mi)^[\"']?api[_-]?version[\"']?\s*:\s*[\"']?(?:kernel|tool|policy|policy-test|skill|secrets-policy)/"
_ONLY_OURS: Final = r"(?:^|/)(?:gert-(?:project|config)\.ya?ml|\.gert/config\.ya?ml)$"
_OUR_NAMES: Final = (
    r"\.(?:tool|policy|policy-test|skill|secrets-policy)\.ya?ml$|(?:^|/)(?:gert-project|gert-config|scenario)\.ya?ml$"
)


class Document(msgspec.Struct, frozen=True):
    """A document as far as it could be read; `model` is set only if its structure is valid."""

    kind: str
    model: Any
    tree: Tree
    findings: list[Finding]
    source: bytes = b""

    @property
    def digest(self) -> str:
        """The digest of the file's bytes, as recorded in `run_start`."""
        from gert.kernel.foundation.canonical import digest  # hashing is not needed to validate

        return digest(self.source)

    @property
    def is_sound(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.severity < Severity.ERROR for finding in self.findings)

    @property
    def is_checked(self) -> bool:
        """Whether every phase of validation was run: errors of one phase prevent the next."""
        wrong = (finding.rule[0] for finding in self.findings if finding.severity is Severity.ERROR)
        return self.model is not None and "J" not in wrong


def is_foreign(document: Document, file_name: str, *, is_expected: bool = False) -> bool:
    """Return whether a file found in a folder is not a gert document.

    A runbook that does not parse, or whose `apiVersion` is missing, must not count as foreign: a check of its folder
    would then succeed. `is_expected`: the folder is for gert documents, so only those of Kubernetes are foreign.
    """
    if document.kind != "unknown":
        return False
    if re.search(_OURS, document.tree.text) or re.search(_OUR_NAMES, file_name.replace("\\", "/")):
        return False
    root = document.tree.root
    if not isinstance(root, Map):
        return not is_expected
    if "apiVersion" in root and "kind" in root:
        return True
    return not is_expected and not ("meta" in root and any(key in root for key in _TELLING))


def detect(root: Any, file_name: str = "") -> str | None:
    """Return the kind of a document, from its `apiVersion`, its file name, or its characteristic keys."""
    said = root.get("apiVersion") if isinstance(root, Map) else None
    if isinstance(said, str) and said in API_VERSIONS:
        return API_VERSIONS[said]
    normal = file_name.replace("\\", "/")
    if isinstance(said, str) and not re.search(_ONLY_OURS, normal):
        return None
    for name, kind in DOCUMENT_KINDS.items():
        if any(normal == known or normal.endswith("/" + known) for known in kind.file_names):
            return name
    if isinstance(root, Map):
        for name, kind in DOCUMENT_KINDS.items():
            if any(key in root for key in kind.tell_tale_keys):
                return name
    return None


def load(source: bytes, *, kind: str | None = None, file_name: str = "", limits: Limits = DEFAULT_LIMITS) -> Document:
    """Read and decode a document (the structural phase). Findings have their positions and are in order."""
    reading = read(source, limits)
    tree = reading.tree
    found = list(reading.findings)
    model = None
    if not found:
        kind = kind or detect(tree.root, file_name)
        if kind is None:
            found.append(_unrecognized(tree.root))
        elif (problem := _wrong_version(tree.root, kind)) is not None:
            found.append(problem)
        else:
            decoder = Decoder()
            model = DOCUMENT_KINDS[kind].model.decode(decoder, tree.root, ())
            found += decoder.findings
    placed = in_order(tree.place(finding) for finding in found)
    if any(finding.severity is Severity.ERROR for finding in placed):
        model = None
    return Document(kind or "unknown", model, tree, placed, source)


def _wrong_version(root: Any, kind: str) -> Finding | None:
    """S08: report an unsupported version once, rather than every key that differs."""
    wanted = DOCUMENT_KINDS[kind].api_version
    said = root.get("apiVersion") if isinstance(root, Map) else None
    if wanted is None or said is None or said == wanted:
        return None
    found = API_VERSIONS.get(said) if isinstance(said, str) else None
    if found is None:
        return error("S08", ("apiVersion",), f"expected `{wanted}`, found {describe(said)}")
    hint = "`gert tool try` runs one action of a tool" if (kind, found) == ("runbook", "tool") else None
    this, other = DOCUMENT_KINDS[found].title, DOCUMENT_KINDS[kind].title
    message = f"expected `{wanted}`, found `{said}`: this is a {this}, not a {other}"
    return error("S08", ("apiVersion",), message, hint)


def _first_line(root: Map) -> str:
    """The line to write, as the other keys suggest."""
    guess = next((version for key, version in _TELLING.items() if key in root), None)
    return f"begin the file with `apiVersion: {guess}`" if guess else f"one of {listing(API_VERSIONS)}"


def _unrecognized(root: Any) -> Finding:
    """S08: report a file whose kind cannot be determined."""
    if not isinstance(root, Map):
        return error("S08", (), f"expected a gert document, found {describe(root)}", "a document is a map of keys")
    if "apiVersion" not in root:
        for key in root:
            if re.fullmatch("api[_-]?version", str(key), re.I):
                return error(
                    "S08", (key,), f"`{key}` is not `apiVersion`", f"write `apiVersion: {shorten(str(root[key]))}`"
                )
        return error("S08", (), "`apiVersion` is missing", _first_line(root))
    said = root["apiVersion"]
    if not isinstance(said, str):
        message = f"expected an apiVersion, found {describe(said)}"
        return error("S08", ("apiVersion",), message, f"one of {listing(API_VERSIONS)}")
    hint = suggestion(said, API_VERSIONS) or f"one of {listing(API_VERSIONS)}"
    return error("S08", ("apiVersion",), f"`{shorten(said)}` is not a known apiVersion", hint)
