"""Reads a YAML 1.2 document into a tree, within limits; every problem is a finding."""

import msgspec

from gert.kernel.runbook.finding import Finding, Severity
from gert.kernel.runbook.tree import Tree
from gert.kernel.runbook.tree_builder import DEFAULT_LIMITS, Limits, Refusal, TreeBuilder


class ReadResult(msgspec.Struct, frozen=True):
    """The result of reading: the tree, and findings if it is missing or damaged."""

    tree: Tree
    findings: list[Finding]


def read(source: bytes, limits: Limits = DEFAULT_LIMITS) -> ReadResult:
    """Read one document; every problem is a finding."""
    tree = Tree(None, "")
    builder = TreeBuilder(tree, limits)
    try:
        _decode(source, tree, limits)
        tree.root = builder.build()
    except Refusal as refusal:
        builder.say(refusal.rule, refusal.message, refusal.hint, refusal.index)
    findings = []
    for rule, path, message, hint, index in builder.said:
        line, column = tree.line_column(index)
        findings.append(
            Finding(
                rule=rule,
                severity=Severity.ERROR,
                path=path,
                message=message,
                hint=hint,
                line=line,
                column=column,
            )
        )
    return ReadResult(tree, findings)


def _decode(source: bytes, tree: Tree, limits: Limits) -> None:
    """Set the text of the tree."""
    if len(source) > limits.size:
        raise Refusal("Y01", f"the document is larger than {limits.size // (1024 * 1024)} MiB", "split it up", index=0)
    if source.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Refusal(
            "Y02",
            "the document begins with a byte order mark",
            "save it as UTF-8 without a mark (BOM)",
            index=0,
        )
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as problem:
        tree.text = source.decode("utf-8", "replace")
        raise Refusal(
            "Y02",
            f"the document is not UTF-8: it contains the byte 0x{source[problem.start]:02x}",
            "save it as UTF-8",
            index=len(source[: problem.start].decode("utf-8")),
        ) from None
    tree.text = text
    if (nul := text.find("\0")) >= 0:
        raise Refusal("Y02", "the document contains a NUL byte", "is this a text file?", index=nul)
