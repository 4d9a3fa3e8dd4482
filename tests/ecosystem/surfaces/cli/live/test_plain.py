"""A run in plain lines: what a log holds, how every event reads, and that no data in it can act on a terminal."""

import io
import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import pytest
from msgspec import inspect
from tests.ecosystem.surfaces.cli.live.events import event

from gert.ecosystem.surfaces.cli.live.backlog import Backlog
from gert.ecosystem.surfaces.cli.live.output_lines import LineFeed, Tail
from gert.ecosystem.surfaces.cli.live.plain import PlainView
from gert.ecosystem.surfaces.cli.live.view import make_view, writer
from gert.ecosystem.surfaces.cli.render.events import DESCRIBERS, describe
from gert.ecosystem.surfaces.cli.render.text import LONGEST_LINE, SKIPPED, Subject, duration_text, tidy, value_text
from gert.ecosystem.surfaces.cli.render.views.event_lines import StyledText
from gert.ecosystem.surfaces.cli.render.views.event_position import DEEPEST, Positions
from gert.kernel.events import agent, runner
from gert.kernel.events import runbook as says
from gert.kernel.events.path import child
from gert.kernel.events.payload import Payload, UnknownEvent
from gert.kernel.events.runbook import EVENTS, Failure, Outcome

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m[red]x[/red]\r\n\u202e\u2066\x00✓ run completed\ud800"
LONG = "x" * 1_000_000


class Log:
    """A plain view and what it wrote."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[str] = []
        self.view = PlainView(self.lines.append, **options)

    def say(self, payload: Payload, path: str | None = None) -> "Log":
        self.view.said(event(payload, path), payload)
        return self

    def start(self, path: str, kind: str = "tool", tool: str | None = None, action: str | None = None) -> "Log":
        step_id = path.rpartition("/")[2]
        return self.say(says.StepStart(step_id=step_id, step_type=kind, tool=tool, action=action), path)

    def done(self, path: str, status: Any = "success", **fields: Any) -> "Log":
        step_id = path.rpartition("/")[2]
        return self.say(says.StepComplete(step_id=step_id, status=status, duration="1.25s", **fields), path)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def test_a_run_reads_from_top_to_bottom() -> None:
    log, up = Log(), Outcome("resolved", "up", {"n": 2})
    log.say(
        says.RunStart(runbook="pod", runbook_hash="h", actor="alice", host="ops", gert_version="1", mode="real")
    ).say(says.InputResolved(name="ns", source="env/NS", value="prod"))
    log.start("check", tool="curl", action="get").done("check")
    log.done("notify", "skipped", reason="when_false")
    log.start("ok", "assert").done("ok", "failed", failure=Failure("assertion", "expected `200`, found `503`"))
    log.start("end", "end").say(says.OutcomeResolved(step_id="end", structured_outcome=up), "end")
    log.done("end")
    log.say(says.RunComplete(status="completed", mode="real", duration="62s", outcome=up))
    assert log.lines == [
        "▸ pod  real run run-1  by alice on ops",
        "  · ns = prod (env/NS)",
        "▸ check  curl:get",
        "✓ check  curl:get  1.2s",
        f"{SKIPPED} notify  skipped: its condition is false",
        "✗ ok  1.2s",
        "  assertion: expected `200`, found `503`",
        "■ end  resolved: up",
        "✓ run completed  resolved: up  1m02s",
        "  n = 2",
    ]


def test_steps_are_indented_as_they_are_nested() -> None:
    log = Log()
    log.start("triage", "branch")
    log.say(says.BranchEnter(step_id="triage", branch_label="bad", condition=".x"), "triage/bad")
    log.start("triage/bad/fix[2]").done("triage/bad/fix[2]").done("triage")
    assert log.lines == [
        "▸ triage  branch",
        "  → triage: bad if .x",
        "      ▸ fix[2]  tool",
        "      ✓ fix[2]  tool  1.2s",
        "✓ triage  branch  1.2s",
    ]


@pytest.mark.parametrize("path", [pytest.param("t", id="of the branch"), pytest.param("t/bad", id="of the arm")])
def test_an_arm_is_named_alike_whichever_path_it_carries(path: str) -> None:
    log = Log().say(says.BranchEnter(step_id="t", branch_label="bad", condition=""), path)
    assert log.lines == ["  → t: bad"]


def test_lines_of_lanes_say_whose_they_are_and_no_longer_once_the_block_is_done() -> None:
    log = Log(verbose=True)
    log.start("fan", "parallel")
    log.say(says.ParallelFork(step_id="fan", branch_count=2, forked_state_hash="h", branches=("a", "b")), "fan")
    log.start("fan/a/ping").start("fan/b/ping")
    log.view.printed("fan/b/ping", "stdout", "pong\n")
    log.done("fan/a/ping").done("fan/b/ping").done("fan").start("ping")
    log.view.printed("ping", "stdout", "pong\n")
    assert log.lines[2:] == [
        "  ▸ a/ping  tool",
        "  ▸ b/ping  tool",
        "    b/ping │ pong",
        "  ✓ a/ping  tool  1.2s",
        "  ✓ b/ping  tool  1.2s",
        "✓ fan  parallel  1.2s",
        "▸ ping  tool",
        "  │ pong",
    ]


def test_iterations_side_by_side_keep_the_name_of_their_step() -> None:
    log = Log().start("a/roll", "repeat")
    log.say(says.ForEachStart(step_id="roll", over="x", item_count=2, parallel=True, variable="v"), "a/roll")
    assert log.start("a/roll[k]/check").lines[-1] == "    ▸ roll[k]/check  tool"


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        pytest.param(
            says.ForEachStart(step_id="s", over="x", item_count=1, parallel=True, variable="v", explored=True),
            "↻ s: an unknown number of items, explored with one, in parallel",
            id="a loop over an unknown list",
        ),
        pytest.param(
            says.RepeatStart(step_id="s", max=2, until="{{ .ok }}", explored=True),
            "  ↻ s: at most an unknown number of times until {{ .ok }}, explored with two",
            id="an unknown number of times",
        ),
        pytest.param(
            says.GovernanceDecision(step_id="s", risk_level="low", decision="allow"), None, id="allowed is no news"
        ),
        pytest.param(
            says.GovernanceDecision(
                step_id="s", risk_level="high", decision="require-approval", rule="prod", min_approvers=2
            ),
            "? s: needs approval by 2 people, high risk, rule prod",
            id="approval is",
        ),
        pytest.param(
            says.GovernanceDecision(
                step_id="s", risk_level="high", decision="require-approval", approval_result="approved"
            ),
            None,
            id="but not the decision that repeats it",
        ),
        pytest.param(
            says.GovernanceDecision(step_id="s", risk_level="critical", decision="deny"),
            "⊘ s: denied, critical risk",
            id="denied is",
        ),
        pytest.param(
            says.ContractViolation(step_id="s", kind="missing_output", message="no `x`", severity="warning"),
            "  ! s: contract violation (missing_output)",
            id="a violation is",
        ),
        pytest.param(says.RedactionApplied(step_id="s", pattern_count=2), "  · s: 2 secrets masked", id="a secret is"),
        pytest.param(says.ContractEvaluated(step_id="s", resolved_contract={}), None, id="a contract is not"),
        pytest.param(
            says.StepComplete(step_id="s", status="skipped", duration="0s", reason="dry_run", assumed=True),
            f"{SKIPPED} s  not run: dry-run",
            id="a dry-run says that nothing ran",
        ),
        pytest.param(
            says.StepComplete(step_id="s", status="skipped", duration="0s", reason="approval_rejected"),
            "⊘ s  approval rejected",
            id="a refusal does not look like a condition",
        ),
        pytest.param(
            says.BranchEnter(step_id="s", branch_label="a", condition=".x", explored=True),
            "  → s: a if .x, explored: the condition is unknown",
            id="an explored arm says so",
        ),
    ],
)
def test_what_is_worth_a_line(payload: Payload, line: str | None) -> None:
    assert Log().say(payload, "s").lines[:1] == ([] if line is None else [line])


def test_a_dry_run_claims_no_outcome_and_lists_what_can_be_reached() -> None:
    reachable = tuple(Outcome("resolved", f"o{n}") for n in range(10))
    log = Log().say(says.RunComplete(status="completed", mode="dry-run", duration="1s", reachable_outcomes=reachable))
    assert log.lines[:2] == ["✓ dry-run run completed  1.0s", "  reachable: resolved: o0"]
    assert log.lines[-1] == "  … and 2 more"


def test_a_failed_run_says_where_why_and_what_finally_did() -> None:
    failed = says.RunComplete(
        status="failed",
        mode="real",
        duration="1s",
        failed_step="a/b",
        failure=Failure("exit_code", "`x` exited with 1\nmore"),
        finally_failure=Failure("timeout", "no answer"),
        break_glass=1,
    )
    assert Log().say(failed).lines == [
        "✗ run failed  1.0s",
        "  failed step: a/b",
        "  exit_code: `x` exited with 1",
        "  │ more",
        "  finally: timeout: no answer",
        "  break glass: 1 decision overridden",
    ]


# --- every event, with hostile data


def sample(kind: inspect.Type, pick: int) -> Any:
    """A value of a type: hostile where it is text, each word in turn where words are fixed."""
    match kind:
        case inspect.StrType():
            return LONG + EVIL if pick == 1 else EVIL
        case inspect.BoolType():
            return pick % 2 == 0
        case inspect.IntType():
            return pick
        case inspect.FloatType():
            return pick / 2
        case inspect.ListType(item_type=item):
            return [sample(item, pick + n) for n in range(20)]
        case inspect.LiteralType(values=values):
            return values[pick % len(values)]
        case inspect.VarTupleType(item_type=item):
            return tuple(sample(item, pick + n) for n in range(20))
        case inspect.DictType():
            return {f"{EVIL}{n}": [EVIL, {"k": 1.5}] for n in range(20)}
        case inspect.AnyType():
            return [EVIL, None, True, {EVIL: EVIL}]
        case inspect.UnionType(types=types):
            return None if pick == 3 else sample(types[0], pick)
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{field.name: sample(field.type, pick) for field in fields})
    raise AssertionError(kind)


def test_every_event_has_words() -> None:
    assert set(DESCRIBERS) == {*EVENTS, *agent.EVENTS, *runner.EVENTS}


@pytest.mark.parametrize("pick", range(6))
@pytest.mark.parametrize("kind", [*EVENTS, *agent.EVENTS], ids=lambda kind: kind.type)
def test_no_data_of_an_event_acts_on_a_terminal_or_takes_another_line(kind: type[Payload], pick: int) -> None:
    payload = sample(inspect.type_info(kind), pick)
    words = describe(payload, Subject("s"))
    assert words.icon.isprintable()
    assert len(words.icon) == 1
    assert len(words.notes) < 40
    for line in (words.text, *words.notes):
        assert line.isprintable()
        assert line.strip()
        assert len(line) < 3 * LONGEST_LINE


def test_an_unknown_event_is_named_but_is_no_news() -> None:
    unknown = UnknownEvent(name="moon_phase", data={"phase": "full"}, objection="expected `int`")
    words = describe(unknown, Subject("s"))
    assert words.text == 'moon_phase  {"phase":"full"}'
    assert words.notes == ("not readable: expected `int`",)
    assert not words.news


def test_a_hostile_step_stays_on_its_lines() -> None:
    log = Log(verbose=True)
    path = child(child(None, EVIL.rstrip("\ud800")), "x/y[z]")
    step = says.StepStart(step_id="x/y[z]", step_type="tool", tool=EVIL.rstrip("\ud800"), action="[bold]a")
    log.view.said(event(step, path), step)
    log.view.printed(path, "stdout", f"{EVIL}\n{LONG}\n")
    assert all(line.isprintable() and len(line) < 2 * LONGEST_LINE for line in log.lines)
    assert log.lines[0].startswith("  ▸ x/y[z]  ")


def test_a_message_of_many_lines_cannot_pass_for_lines_of_ours() -> None:
    fake = "oops\n✓ approved by bob\n\n" + "more\n" * 50
    lines = Log().done("s", "failed", failure=Failure("exit_code", fake)).lines
    assert lines[1:3] == ["  exit_code: oops", "  │ ✓ approved by bob"]
    assert lines[-1] == "  │ …"
    assert len(lines) < 12


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/".join("ab" * 5000), id="ten thousand deep"),
        pytest.param("///", id="only slashes"),
        pytest.param("]]", id="a bracket that was never opened"),
        pytest.param("%zz%ff%1b", id="escapes that are none"),
        pytest.param("", id="empty"),
    ],
)
def test_a_malformed_path_is_survived(path: str) -> None:
    place = Positions().of(event(says.StepStart(step_id="s", step_type="tool"), path), UnknownEvent(name="x", data={}))
    assert place.depth <= DEEPEST
    assert place.name.isprintable()


# --- what tools print


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        pytest.param(["a", "b\nc"], ["ab", "c"], id="pieces become lines"),
        pytest.param(["10%\r50%\r100%\n"], ["100%"], id="a carriage return starts the line anew"),
        pytest.param(["done\r", "\nnext\n"], ["done", "next"], id="a line break may come in two pieces"),
        pytest.param(["50%\r"], ["50%"], id="what was drawn last stands"),
        pytest.param(["\x1b[31mred\x1b[0m \x1b[2Kx\n"], ["red x"], id="colours go"),
        pytest.param(["\x1b]0;t\x07x\n"], ["�]0;t�x"], id="other sequences are defused, not hidden"),
        pytest.param(["\x1b[\x1b[31m31mx\n"], ["�[31mx"], id="a sequence in a sequence leaves none"),
        pytest.param(["a\tb\n"], ["a   b"], id="a tab is some spaces"),
        pytest.param(["\n\n"], ["", ""], id="empty lines stay"),
        pytest.param([], [], id="nothing is nothing"),
    ],
)
def test_pieces_are_put_together(pieces: list[str], lines: list[str]) -> None:
    feed = LineFeed()
    assert [line for piece in pieces for line in feed.feed(piece)] + feed.rest() == lines


def test_a_line_without_end_is_kept_in_part() -> None:
    feed = LineFeed()
    for _ in range(100):
        assert feed.feed("x" * 10_000) == []
    (line,) = feed.feed("\n")
    assert len(line) == LONGEST_LINE
    assert line.endswith("…")


def test_the_tail_holds_the_last_lines_of_both_streams() -> None:
    tail = Tail(3)
    tail.feed("stdout", "".join(f"{n}\n" for n in range(100_000)))
    tail.feed("stderr", "warn")
    assert tail.last(3) == ["99998", "99999", "warn"]
    assert tail.last(0) == []


def test_output_is_shown_only_when_asked_for_and_the_last_line_even_without_its_break() -> None:
    quiet, verbose = Log(), Log(verbose=True)
    for log in (quiet, verbose):
        log.start("s")
        log.view.printed("s", "stdout", "one\ntw")
        log.done("s")
    assert "one" not in quiet.text
    assert verbose.lines[1:3] == ["  │ one", "  │ tw"]


def test_output_of_a_step_that_never_ended_is_shown_when_the_view_closes() -> None:
    log = Log(verbose=True).start("s")
    log.view.printed("s", "stderr", "last words")
    log.view.close()
    log.view.close()
    assert log.lines[1:] == ["  │ last words"]


# --- questions


def test_nothing_is_written_into_an_answer_that_is_being_typed() -> None:
    log = Log()
    log.view.pause()
    log.view.pause()
    log.done("a")
    log.view.unpause()
    assert log.lines == []
    log.view.unpause()
    assert log.lines == ["✓ a  1.2s"]
    log.view.unpause()
    assert log.done("b").lines[1:] == ["✓ b  1.2s"]


def test_a_question_that_is_not_answered_does_not_fill_the_memory() -> None:
    held = Backlog(most=2)
    for n in range(5):
        held.add((StyledText(str(n)),))
    assert [line[0].text for line in held.take()] == ["… 3 earlier lines are only in the trace", "3", "4"]
    assert held.take() == []


# --- which view


@contextmanager
def terminal(encoding: str = "utf-8") -> Iterator[TextIO]:
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w", encoding=encoding) as stream:
            yield stream
    finally:
        os.close(ours)


def view_of(stream: TextIO) -> str:
    view = make_view(stream=stream, verbose=False, quiet=False)
    return type(view).__name__


@pytest.mark.parametrize(
    ("term", "encoding", "expected"),
    [
        pytest.param("xterm-256color", "utf-8", "LiveView", id="a terminal"),
        pytest.param("dumb", "utf-8", "PlainView", id="a dumb terminal"),
        pytest.param("", "utf-8", "PlainView", id="a terminal without a type"),
        pytest.param("xterm", "ascii", "PlainView", id="a terminal that has no ✓"),
    ],
)
def test_a_terminal_gets_what_it_can(monkeypatch: pytest.MonkeyPatch, term: str, encoding: str, expected: str) -> None:
    monkeypatch.setenv("TERM", term)
    with terminal(encoding) as stream:
        assert view_of(stream) == expected


def test_without_rich_a_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "gert.ecosystem.surfaces.cli.live.terminal", None)
    with terminal() as stream:
        assert view_of(stream) == "PlainView"


def test_a_pipe_gets_plain_lines_a_closed_stream_too_and_the_quiet_get_none() -> None:
    assert view_of(io.StringIO()) == "PlainView"
    closed = io.StringIO()
    closed.close()
    assert view_of(closed) == "PlainView"
    assert make_view(stream=io.StringIO(), verbose=True, quiet=True) is None


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_those_who_want_them(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    class Pretending(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = Pretending()
    view = make_view(stream=stream, verbose=False, quiet=False)
    assert isinstance(view, PlainView)
    payload = says.StepComplete(step_id="s", status="success", duration="1s")
    view.said(event(payload, "s"), payload)
    assert ("\x1b[32m✓" in stream.getvalue()) is coloured


def test_a_pipe_gets_no_escape_at_all() -> None:
    stream = io.StringIO()
    view = make_view(stream=stream, verbose=True, quiet=False)
    assert view is not None
    payload = says.StepComplete(step_id="s", status="failed", duration="1s", failure=Failure("timeout", "late"))
    view.said(event(payload, "s"), payload)
    assert stream.getvalue() == "✗ s  1.0s\n  timeout: late\n"


def test_a_reader_that_has_gone_does_not_end_the_run_and_is_not_written_to_again() -> None:
    class Gone(io.StringIO):
        tried = 0

        def write(self, text: str) -> int:
            self.tried += 1
            raise BrokenPipeError

    stream = Gone()
    write = writer(stream)
    write("a")
    write("b")
    assert stream.tried == 1


def test_a_stream_without_the_characters_gets_escapes_and_the_next_line_too() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write = writer(stream)
    write("✓ s")
    write("✗ t")
    assert raw.getvalue() == b"\\u2713 s\n\\u2717 t\n"


# --- phrases


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0s", "0ms"),
        ("132.4ms", "132ms"),
        ("4.29s", "4.2s"),
        ("125s", "2m05s"),
        ("1h2m3s", "1h02m"),
        ("soon", "soon"),
        ("\x1b[1m", "�[1m"),
    ],
)
def test_durations_at_a_glance(text: str, shown: str) -> None:
    assert duration_text(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("plain", "plain", id="text as it is"),
        pytest.param({"a": [1, None, True]}, '{"a":[1,null,true]}', id="the rest as JSON"),
        pytest.param(object(), "…", id="what has no form is not shown"),
        pytest.param(["x" * 500], '["' + "x" * 157 + "…", id="and all of it short"),
    ],
)
def test_values_at_a_glance(value: object, shown: str) -> None:
    assert value_text(value) == shown


def test_a_megabyte_is_cut_before_it_is_looked_at() -> None:
    assert len(tidy("\x1b[31m" * 1_000_000)) <= LONGEST_LINE
