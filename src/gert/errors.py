"""Every deliberate exception of gert, drawn as a tree.

    GertError
    ├── UsageError              the command was called wrongly
    ├── DocumentError           a file cannot be read as the document it should be
    ├── TemplateError           a `{{ }}` template
    │   ├── TemplateSyntaxError     does not parse
    │   └── TemplateEvalError       parses, and fails or exceeds its budget when evaluated
    ├── PatternError            a regular expression that does not compile
    ├── InputError              a value is missing or does not fit what was declared
    ├── CanonicalError          a value that has no canonical JSON form
    ├── TraceError              a line that cannot be written or read as an event
    │   └── Busy                    another process writes the record
    ├── IntegrityError          a chain, seal or signature does not hold
    └── InDoubt                 a call may have happened, and only the operator can say

Messages are lower case, one line, without a final period; the user's words stand in backticks.
"""


class GertError(Exception):
    """A failure gert foresaw; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GertError):
    """The command was called wrongly."""


class DocumentError(GertError):
    """A file cannot be read as the document it should be."""


class TemplateError(GertError):
    """A template is wrong; `offset` is the character in its source where."""

    def __init__(self, message: str, *, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset


class TemplateSyntaxError(TemplateError):
    """A template does not parse."""


class TemplateEvalError(TemplateError):
    """A template parsed, and failed or exceeded its budget when evaluated."""


class PatternError(GertError):
    """A regular expression does not compile."""


class InputError(GertError):
    """A value is missing or does not fit what was declared."""


class CanonicalError(GertError):
    """A value has no canonical JSON form."""


class TraceError(GertError):
    """A line cannot be written or read as an event."""


class Busy(TraceError):
    """Another process writes the record."""


class IntegrityError(GertError):
    """A chain, seal or signature does not hold."""


class InDoubt(GertError):
    """A call may have happened, and only the operator can say."""
