"""What gert says where a command cannot do what it is asked for."""

from typing import Literal, NotRequired, TypedDict

from gert.ecosystem.host.shapes.documents import Finding


class FoundInFile(Finding):
    """A finding of validation, and its file."""

    file: str


class InputProblemRow(TypedDict):
    """An input that has no usable value.

    kind: `unknown_input`, `no_value`, `invalid_value`, `denied`, or a failure of its source
    source: where its value was to come from
    """

    input: str
    kind: str
    message: str
    source: str | None
    hint: str | None


class ErrorDocument(TypedDict):
    """The command did nothing, or could not go on.

    message: for people
    hint: what to do
    exit_code: of the process
    findings: all findings, if a document is invalid
    inputs: every input that has no usable value
    """

    code: Literal[
        "usage",
        "invalid_inputs",
        "invalid_document",
        "integrity",
        "refused",
        "in_doubt",
        "busy",
        "unavailable",
        "ledger",
        "engine",
        "system",
        "interrupted",
        "internal",
    ]
    message: str
    hint: str | None
    exit_code: int
    findings: NotRequired[list[FoundInFile]]
    inputs: NotRequired[list[InputProblemRow]]


class ErrorResult(TypedDict):
    """An error of any command."""

    error: ErrorDocument
