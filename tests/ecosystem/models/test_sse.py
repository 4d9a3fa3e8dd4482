"""Server-sent events, wherever the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gert.ecosystem.models.sse import Event, EventReader


def events(*chunks: bytes) -> list[Event]:
    reader = EventReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\n", [Event("message", b"a")], id="data alone"),
        pytest.param(b"event: x\ndata: a\n\n", [Event("x", b"a")], id="a named event"),
        pytest.param(b"data: a\ndata: b\n\n", [Event("message", b"a\nb")], id="data on several lines"),
        pytest.param(b"event: x\r\ndata: a\r\n\r\n", [Event("x", b"a")], id="lines that end as in HTTP"),
        pytest.param(b"data: a\r\rdata: b\r\r", [Event("message", b"a"), Event("message", b"b")], id="bare returns"),
        pytest.param(b": hello\n\ndata: a\n\n", [Event("message", b"a")], id="a comment is passed over"),
        pytest.param(b"data:a\n\n", [Event("message", b"a")], id="no space after the colon"),
        pytest.param(b"data:  a\n\n", [Event("message", b" a")], id="only one space is dropped"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [Event("message", b"a")], id="a byte order mark"),
        pytest.param(b"data: \xff\n\n", [Event("message", b"\xff")], id="bytes that are no text stay"),
        pytest.param(b"event: x\n\ndata: a\n\n", [Event("message", b"a")], id="a name without data names nothing"),
        pytest.param(b"id: 1\nretry: 9\nnew: x\ndata\n\n", [Event("message", b"")], id="fields without use"),
        pytest.param(b"data: a\n", [], id="an event without its empty line is none"),
        pytest.param(b"data: a", [], id="half a line is none"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_streams(stream: bytes, expected: list[Event]) -> None:
    assert events(stream) == expected
    assert events(*(stream[at : at + 1] for at in range(len(stream)))) == expected


@given(
    st.lists(st.sampled_from([b"data: a", b"data: \xc3\xa4", b"event: x", b": c", b"", b"\r", b"\n", b"\r\n"])),
    st.data(),
)
def test_where_it_is_cut_does_not_matter(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*parts) == events(stream)
