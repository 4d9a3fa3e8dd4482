"""Masks text that looks like a credential, for foreign texts whose secrets were never declared.

Errors of libraries and vendors quote URLs, headers and keys. A `Redactor` masks declared secrets in any form; this
module only knows the usual forms of credentials, and is for texts that were not written to be recorded.
"""

import re
import string
from typing import Final

from gert.kernel.foundation.text import PLACEHOLDER, one_line

_WORD: Final = r"[A-Za-z0-9._~+/=-]"
_LETTERS: Final = string.ascii_letters + string.digits + "._~+/=-*:@"

# Each takes linear time: no two adjacent repetitions can match the same text.
_MASKS: Final = (
    # scheme://user:password@host
    (re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#]*@"), rf"\1{PLACEHOLDER}@"),
    (re.compile(r"-----BEGIN [A-Z ]{0,40}KEY-----[^-]*(?:-----END [A-Z ]{0,40}KEY-----)?"), PLACEHOLDER),
    # A short word of letters after these is prose: `bearer authentication`.
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
    """Mask credentials in URLs, headers and settings, and keys in the formats of known vendors."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def foreign_line(text: str, longest: int) -> str:
    """Make a foreign text safe to record: one line, bounded, printable, without credentials."""
    # Cut twice, the first time to search less. If masking shortens the text so much that the first cut shows, the text
    # at the cut may be half of a credential, and is dropped.
    seen = without_credentials(text[: longest * 8])
    if len(text) > longest * 8 and len(seen) <= longest:
        seen = seen.rstrip(_LETTERS)
    return one_line(seen, longest)
