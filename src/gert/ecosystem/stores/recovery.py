"""What a file of lines still holds after a process died while writing it: whole lines, and maybe a torn one."""

from dataclasses import dataclass

import msgspec

from gert.ecosystem.stores.append_file import AppendFile, read_lines
from gert.ecosystem.stores.batch import MAX_ANSWER_BYTES
from gert.errors import IntegrityError, TraceError
from gert.kernel.events.chain import ChainReader
from gert.kernel.events.envelope import MAX_LINE_BYTES, decode


@dataclass(frozen=True, slots=True)
class Whole:
    """How many whole lines there are, where the last of them ends, and what stands after that."""

    count: int
    end: int
    torn: bytes
    run_id: str | None = None

    def set_aside(self, file: AppendFile) -> bytes | None:
        """Move what is torn to a file of its own; give it, if there was anything."""
        if not self.torn:
            return None
        file.set_aside(self.end, self.torn)
        return self.torn


def whole_events(file: AppendFile) -> Whole:
    """Read a trace that is to be continued; anything but a torn last line is refused."""
    reader, last, end, torn = ChainReader(), b"", 0, b""
    with file.reader() as lines:
        for line in read_lines(lines, MAX_LINE_BYTES):
            _check_length(file, line, MAX_LINE_BYTES)
            if not line.endswith(b"\n"):
                torn = line
                break
            if end == 0 and _seq(line) == 0:
                raise _not_to_continue(file, "it does not number its events")
            reader.add(line)
            last, end = line, end + len(line)
    report = reader.report()
    if report.breaks:
        first = report.breaks[0]
        raise _not_to_continue(file, f"the chain breaks at line {first.line}: {first.message}")
    if report.torn is not None:
        end, torn = end - len(last), last + torn
    return Whole(report.events, end, torn, report.run_id)


def whole_answers(file: AppendFile) -> Whole:
    """Read a log of answers that is to be continued."""
    count, last, end, torn = 0, b"", 0, b""
    with file.reader() as lines:
        for line in read_lines(lines, MAX_ANSWER_BYTES):
            _check_length(file, line, MAX_ANSWER_BYTES)
            if not line.endswith(b"\n"):
                torn = line
                break
            count, last, end = count + 1, line, end + len(line)
    # After a loss of power the end of a line may be there, and zeros in place of its beginning.
    if count and not is_json(last):
        count, end, torn = count - 1, end - len(last), last + torn
    return Whole(count, end, torn)


def is_taken(file: AppendFile) -> TraceError:
    """Say what a file holds that should be new."""
    with file.reader() as lines:
        first = next(read_lines(lines, MAX_LINE_BYTES), b"")
        lines.seek(-1, 2)
        torn = "" if lines.read() == b"\n" else ", and its last line was not written whole"
    try:
        what = f"already holds run `{decode(first).run_id}`"
    except TraceError:
        what = "is not empty"
    return TraceError(f"`{file.path}` {what}{torn}", hint="choose another file, or resume the run it belongs to")


def _check_length(file: AppendFile, line: bytes, longest: int) -> None:
    if len(line.removesuffix(b"\n")) > longest:
        raise _not_to_continue(file, "it has a line that is too long")


def _seq(line: bytes) -> int | None:
    try:
        return decode(line).seq
    except TraceError:
        return None  # the chain says why


def is_json(line: bytes) -> bool:
    """Whether a line was written whole."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def _not_to_continue(file: AppendFile, why: str) -> IntegrityError:
    return IntegrityError(f"`{file.path}` cannot be continued: {why}", hint="`gert trace verify` says more")
