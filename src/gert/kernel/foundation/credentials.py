"""Masking of what looks like a credential, in texts of strangers whose secrets nobody has named.

Errors of libraries and vendors repeat addresses, headers and keys. Where the secrets are known a `Redactor` masks them,
whatever they look like; this knows only their usual forms, and is for texts that nobody wrote for a record.
"""

import re
import string
from typing import Final

from gert.kernel.foundation.text import PLACEHOLDER, one_line

_WORD: Final = r"[A-Za-z0-9._~+/=-]"
_LETTERS: Final = string.ascii_letters + string.digits + "._~+/=-*:@"

# Each is linear: no repetition in them can match what another beside it can.
_MASKS: Final = (
    # scheme://user:password@host
    (re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#]*@"), rf"\1{PLACEHOLDER}@"),
    (re.compile(r"-----BEGIN [A-Z ]{0,40}KEY-----[^-]*(?:-----END [A-Z ]{0,40}KEY-----)?"), PLACEHOLDER),
    # A word behind these that has letters only and is not long is prose: `bearer authentication`.
    (
        re.compile(rf"(?i)\b(bearer|basic)\s+(?:(?=[a-z]{{0,15}}[0-9._~+/=-]){_WORD}{{8,}}|{_WORD}{{16,}})"),
        rf"\1 {PLACEHOLDER}",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"), PLACEHOLDER),
    (re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_*-]{8,}"), PLACEHOLDER),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AIza)[A-Za-z0-9_-]{10,}"), PLACEHOLDER),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), PLACEHOLDER),
    (
        re.compile(
            r"(?i)\b((?:x-)?api[_-]?key|(?:access|auth|refresh)[_-]token|passw(?:or)?d|pwd|(?:client[_-])?secret"
            r"|authorization)([\"']?\s{0,3}[=:]\s{0,3}[\"']?)[^\s\"'&,;]+"
        ),
        rf"\1\2{PLACEHOLDER}",
    ),
)


def without_credentials(text: str) -> str:
    """The text with credentials in URLs, headers and settings masked, and keys in the forms vendors give them."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def stranger_line(text: str, longest: int) -> str:
    """A stranger's words as a record may hold them: one line, bounded, printable, without credentials."""
    # Cut twice, first so that little is searched. Where so much was masked that this cut can be seen, what stands at it
    # may be half of a credential, and goes.
    seen = without_credentials(text[: longest * 8])
    if len(text) > longest * 8 and len(seen) <= longest:
        seen = seen.rstrip(_LETTERS)
    return one_line(seen, longest)
