"""Capturing a stream: however its bytes are cut, the text is the same, and no longer than the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.ecosystem.process.capture import Capture, size_text
from gert.kernel.foundation.redaction import Redactor

SECRET = "s3cret-wörd"
REDACTOR = Redactor([SECRET])


def fed(chunks: list[bytes], limit: int = 1000) -> tuple[Capture, str]:
    heard: list[str] = []
    capture = Capture(REDACTOR, limit, heard.append, keeps_raw=True)
    for chunk in chunks:
        capture.feed(chunk)
    capture.close()
    return capture, "".join(heard)


@given(st.lists(st.binary(max_size=20) | st.sampled_from([SECRET.encode(), SECRET.encode()[:8], b"\n"]), max_size=8))
def test_cuts_make_no_difference(chunks: list[bytes]) -> None:
    capture, heard = fed(chunks)
    whole, _ = fed([b"".join(chunks)])
    assert capture.text == whole.text
    assert capture.logged == heard == whole.logged
    assert capture.masked == whole.masked
    assert capture.fed == len(b"".join(chunks))
    assert SECRET not in capture.text


@given(st.integers(0, 50))
def test_no_limit_leaves_half_a_secret(limit: int) -> None:
    capture, heard = fed([b"before ", SECRET.encode(), b" after ", SECRET.encode(), b" and a little more"], limit)
    assert capture.is_truncated
    for text in (capture.kept, capture.logged, heard):
        assert "s3c" not in text
        assert "rd" not in text
    assert capture.raw == ""
    assert len(capture.kept) <= limit + len("[REDACTED]")


@given(st.text(), st.integers(0, 5))
def test_what_is_cut_is_a_beginning(text: str, limit: int) -> None:
    capture, _ = fed([text.encode()], limit)
    assert capture.is_truncated == (len(text.encode()) > limit)
    assert text.replace("\ufdd0", "\ufffd").replace("\ufdd1", "\ufffd").startswith(capture.kept)


def test_nothing_is_an_empty_text() -> None:
    capture, heard = fed([])
    assert (capture.text, heard, capture.raw, capture.masked) == ("", "", "", 0)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1000, "1000 bytes"), (10 << 20, "10 MiB"), (1 << 20, "1 MiB")]
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert size_text(size) == text
