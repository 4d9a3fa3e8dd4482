"""Approval by whoever sits at the terminal."""

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.ecosystem.host.people import LIMIT, Stdin, a_terminal, at_terminal, piped

from gert.ecosystem.approvals.request_text import summary, whole
from gert.ecosystem.approvals.terminal import NO_INPUT, TerminalApprovals
from gert.ecosystem.host.run.world.console import Console
from gert.kernel.engine.requests import ApprovalAnswer, AwaitApproval, SubmitApproval
from gert.kernel.events.envelope import format_timestamp
from gert.kernel.events.path import item
from gert.kernel.events.runbook.parts import Failure
from gert.kernel.foundation.columns import column_count
from gert.kernel.foundation.secret_refs import secret_ref
from gert.kernel.governance.approval import ApprovalRequest, Response

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
STAMP = "2026-01-02T12:00:00.000000Z"
REQUEST = ApprovalRequest(
    run_id="r1",
    runbook="restart-service",
    step_id="restart",
    title="Restart it",
    risk_level="high",
    rule="rules[0]",
    contract={"effects": ["service"], "writes": ["service"], "idempotent": False, "inputs": {"x": {"type": "int"}}},
    target="kubectl/restart",
    inputs={"name": "web", "token": f"Bearer {secret_ref('key')}", "n": [1, {"a": None}]},
    request_hash="sha256:00",
    min_approvers=1,
    approvers=(),
    admitted=(),
    separation_of_duties=False,
    require_signed_approvals=False,
    requested_by="ann",
    approval_timeout=float(LIMIT),
)


def request(**changes: Any) -> ApprovalRequest:
    return msgspec.structs.replace(REQUEST, **changes)


def approvals(console: Console, actor: str = "ann") -> TerminalApprovals:
    return TerminalApprovals(console, actor, lambda: NOON, lambda: "t1")


def waiting(asked: ApprovalRequest) -> AwaitApproval:
    return AwaitApproval(key="k", path="restart", step_id="restart", ticket_id="t1", request=asked)


def says(approver: str, approved: bool, reason: str | None = None, method: str = "stdin") -> Response:
    return Response(
        approver=approver,
        approved=approved,
        timestamp=STAMP,
        reason=reason,
        ticket_id="t1",
        request_hash=REQUEST.request_hash,
        method=method,
    )


def test_a_ticket_is_given_at_once_and_says_until_when() -> None:
    ask = SubmitApproval(key="k", path="restart", step_id="restart", request=request(approval_timeout=90.0))
    ticket = asyncio.run(approvals(Console(None, print)).submit(ask))
    assert (ticket.ticket_id, ticket.method, ticket.expires_at) == ("t1", "stdin", "2026-01-02T12:01:30.000000Z")


TWO = {"min_approvers": 2}
APART = {"separation_of_duties": True}


LISTED = {"approvers": (("bob", "group:sre"),), "admitted": (("bob", "cyd"),)}


@pytest.mark.parametrize(
    ("changes", "said", "responses"),
    [
        pytest.param({}, b"y\n", [says("ann", True)], id="yes"),
        pytest.param({}, b"YES it is fine\n", [says("ann", True, "it is fine")], id="yes, and why"),
        pytest.param({}, b"n too late\n", [says("ann", False, "too late")], id="no, and why"),
        pytest.param({}, b"\n", [says("ann", False)], id="an empty line is no"),
        pytest.param({}, b"sure\nok\ny\n", [says("ann", True)], id="nonsense is asked about again"),
        pytest.param({}, b"what\n" * 50, [], id="nothing but nonsense is no answer"),
        pytest.param({}, b"\xff\ny\n", [], id="a line that is not UTF-8 is no answer"),
        pytest.param(TWO, b"\ny\nbob\ny\n", [says("ann", True), says("bob", True)], id="two people"),
        pytest.param(TWO, b"ann\ny\nann\nbob\ny\n", [says("ann", True), says("bob", True)], id="one is not two"),
        pytest.param(TWO, b"ann\ny\n\n\n\n\n\ny\n", [says("ann", True)], id="the second has no default"),
        pytest.param(TWO, b"ann\nn\nbob\ny\n", [says("ann", False)], id="one no is enough"),
        pytest.param(APART, b"\nann\nbob\ny\n", [says("bob", True)], id="not the person who started the run"),
        pytest.param(APART, b"ann\nann\nann\nann\nann\ny\n", [], id="not even if it is said often"),
        pytest.param(LISTED, b"bob\ny\n", [says("bob", True)], id="a listed approver"),
        pytest.param(LISTED, b"bobb\nbob\ny\n", [says("bob", True)], id="a name that is not listed is asked for again"),
    ],
)
def test_what_is_said(changes: dict[str, Any], said: bytes, responses: list[Response]) -> None:
    answer, _ = piped(lambda console: approvals(console).wait(waiting(request(**changes))), said)
    assert answer == ApprovalAnswer(responses=tuple(responses))


@pytest.mark.parametrize(
    ("changes", "said", "responses"),
    [
        pytest.param({}, b"", [], id="no person is at the terminal"),
        pytest.param({}, b"yesterday\n", [], id="a word that begins like yes is none"),
        pytest.param({}, b"\0y\n", [], id="a NUL is nonsense"),
        pytest.param(TWO, b"ann\ny\n", [says("ann", True)], id="the second never comes"),
    ],
)
def test_input_that_ends_is_the_reason(changes: dict[str, Any], said: bytes, responses: list[Response]) -> None:
    answer, _ = piped(lambda console: approvals(console).wait(waiting(request(**changes))), said)
    assert answer == ApprovalAnswer(responses=tuple(responses), failure=Failure("denied", NO_INPUT))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        pytest.param({}, ["anyone", "one"], id="any approver"),
        pytest.param(
            APART,
            ["anyone, but not the person who started the run", "one"],
            id="any approver but the person who started the run",
        ),
        pytest.param({"min_approvers": 2}, ["anyone", "2 different people"], id="two people"),
        pytest.param({"approvers": (("bob", "cyd"),)}, ["one of bob, cyd", "one"], id="a listed approver"),
    ],
)
def test_the_prompt_shows_who_may_approve(changes: dict[str, Any], shown: list[str]) -> None:
    rows = [line.strip().partition(": ") for line in summary(request(**changes))]
    assert [value.strip() for name, _, value in rows if name in ("approvers", "needed")] == shown


def test_the_terminal_cannot_sign_and_does_not_ask() -> None:
    answer, shown = piped(
        lambda console: approvals(console).wait(waiting(request(require_signed_approvals=True))), b"y\n"
    )
    assert answer.responses == ()
    assert answer.failure == Failure(
        "denied",
        "`require_signed_approvals` needs signed responses; the terminal cannot sign, add --wait",
    )
    assert shown == ""


def test_a_person_at_a_terminal_decides() -> None:
    answer, shown = at_terminal(
        lambda console: approvals(console).wait(waiting(request(min_approvers=2))),
        ("name of the approver [ann]: ", "\n"),
        ("approve? ", "hm\n"),
        ("approve? ", "y\n"),
        ("name of the approver: ", "bob\n"),
        ("approve? ", "n not now\n"),
    )
    typed = says("ann", True, method="terminal"), says("bob", False, "not now", method="terminal")
    assert answer == ApprovalAnswer(responses=typed)
    assert "approval needed for step `restart`: Restart it" in shown


@pytest.mark.parametrize("habit", ["y", "N", "yes", "no", "a", "all", "?"])
def test_a_decision_is_not_taken_for_the_name_of_an_approver(habit: str) -> None:
    answer, shown = at_terminal(
        lambda console: approvals(console).wait(waiting(request(**APART))),
        ("name of the approver: ", f"{habit}\n"),
        ("name of the approver: ", "bob\n"),
        ("approve? ", "y\n"),
    )
    assert answer == ApprovalAnswer(responses=(says("bob", True, method="terminal"),))
    assert "type the name or address of the person who decides" in shown


def test_what_is_shown_is_all_that_matters_and_nothing_secret() -> None:
    asked = request(
        title="\x1b[2Jx", approvers=(("bob",), ("group:sre", "eve")), inputs={**REQUEST.inputs, "big": "x" * 5000}
    )
    shown = "\n".join(summary(asked))
    for words in (
        "restart-service",
        "kubectl/restart",
        "high",
        "rules[0]",
        '["service"]',
        "one of bob and one of group:sre, eve",
        "sha256:00",
        "    name: web",
        "    token: Bearer [REDACTED]",
        '    n: [1,{"a":null}]',
        "… (3000 more characters",
    ):
        assert words in shown
    assert "\ufdd0" not in shown


def test_a_title_does_not_add_rows_of_its_own() -> None:
    """Whoever writes a runbook could otherwise show a low risk above the true one."""
    said: list[str] = []
    console = Console(a_terminal().reads, said.append, seen=True)
    for line in summary(request(title="Restart it\n  risk:          low\n  approvers:     anyone")):
        console.say(line)
    assert [line for line in "".join(said).splitlines() if line.startswith("  risk:")] == ["  risk:          high"]


FAKE = "approval needed for step `restart`: Look at it" + " " * 60 + "  command:       systemctl status web" + " " * 60
COMMAND = {"program": "rm", "arguments": ["-rf", "/srv"]}


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"title": FAKE * 30}, id="the title"),
        pytest.param({"description": FAKE * 30}, id="the description"),
        pytest.param({"inputs": {"path": FAKE * 30}}, id="an input"),
        pytest.param({"inputs": {FAKE * 30: "x"}}, id="the name of an input"),
        pytest.param({"preview": FAKE * 30, "preview_command": ("ls",)}, id="the preview"),
        pytest.param({"step_id": f"each[{FAKE}]", "path": "each[0]"}, id="the key of an item"),
    ],
)
def test_no_value_draws_a_row_that_looks_like_ours(
    changes: dict[str, Any], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal breaks long lines: a value of the right length would begin a row of its own."""
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    _, shown = at_terminal(
        lambda console: approvals(console).wait(waiting(request(command=COMMAND, **changes))), ("approve? ", "n\n")
    )
    rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, rows)) <= max(width, len("approve? [y/N, ? = more; a reason may follow]: n"))
    assert [row for row in rows if row.startswith("approval needed")][1:] == []
    commands = [row.split() for row in rows if row.lstrip().startswith("command:")]
    assert all(words[1:2] in ([], ["rm"]) for words in commands)
    # The command stands where the question is, however long the rest is.
    tail = rows[-24:]
    assert any("command:" in row for row in tail)


@pytest.mark.parametrize(("ago", "is_said"), [(timedelta(seconds=5), False), (timedelta(minutes=7), True)])
def test_a_preview_says_how_old_it_is(ago: timedelta, is_said: bool) -> None:
    """A resumed run shows the recorded one: what it shows may be gone, or something else."""
    asked = request(preview="4711 sleep", preview_command=("ps",))
    ask = msgspec.structs.replace(waiting(asked), created_at=format_timestamp(NOON - ago))
    _, shown = at_terminal(lambda console: approvals(console).wait(ask), ("approve? ", "n\n"))
    assert ("from 7m0s ago" in shown or "from 7m ago" in shown) is is_said


def test_an_answer_after_the_terminal_became_narrower_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal breaks the rows again, and a value could then draw rows that look like ours."""
    current = [80]

    def size(*_: int) -> os.terminal_size:
        return os.terminal_size((current[0], 24))

    monkeypatch.setattr(os, "get_terminal_size", size)

    class Shrinking(TerminalApprovals):
        async def _line(self, prompt: str) -> str:
            answer = await super()._line(prompt)
            current[0] = 40
            return answer

    asked = request(command=COMMAND)
    answer, shown = at_terminal(
        lambda console: Shrinking(console, "ann", lambda: NOON, lambda: "t1").wait(waiting(asked)),
        ("approve? ", "y\n"),
        ("approve? ", "n\n"),
    )
    assert [each.approved for each in answer.responses] == [False]
    assert "the terminal became narrower" in shown


def test_what_was_cut_can_be_seen_at_the_terminal() -> None:
    asked = request(inputs={"big": "x" * 5000 + "END"})
    _, shown = at_terminal(
        lambda console: approvals(console).wait(waiting(asked)), ("approve? ", "?\n"), ("approve? ", "n\n")
    )
    assert "more characters; ? shows them" in shown.replace("\n               │ ", "")
    assert "END" in shown


def screens(asked: ApprovalRequest, *said: str) -> list[list[str]]:
    """The last 24 rows above each question, at 80 columns."""
    _, shown = at_terminal(
        lambda console: approvals(console).wait(waiting(asked)), *(("approve? ", f"{each}\n") for each in said)
    )
    parts = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("approve? ")
    return [part.splitlines()[-24:] for part in parts[: len(said)]]


def test_more_shows_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    asked = request(command=COMMAND, preview="line 1\nline 2", preview_command=("ls",))
    _, second = screens(asked, "?", "n")
    found = [row.strip().partition(":")[0] for row in second]
    for fact in ("approval needed for step `restart`", "preview", "│ line 1", "│ line 2", "run", "target", "command"):
        assert found.count(fact) == 1, fact
    assert second[-2:] == ["  step:          `restart`: Restart it", "  command:       rm -rf /srv"]


def test_more_shows_a_long_command_whole_and_its_beginning_where_the_question_is() -> None:
    asked = request(command={"program": "echo", "arguments": ["x" * 1000, "END"]})
    shown = [line.text for line in whole(asked)]
    commands = [text for text in shown if text.startswith("  command:")]
    assert len(commands) == 2
    assert commands[0].endswith("END")
    assert commands[1].endswith("more characters; they are above)")


def test_more_shows_a_preview_that_was_cut_before_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    preview = "\n".join(f"line {number}" for number in range(300))
    asked = request(command=COMMAND, preview=preview, preview_command=("ls",))
    _, second = screens(asked, "?", "n")
    assert any(row.strip().startswith("asked by:") for row in second)
    assert "    │ line 299" in [line.text for line in whole(asked)]


def test_a_prompt_that_leaves_the_screen_repeats_the_step_and_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    asked = request(command=COMMAND, preview="x\n" * 30, preview_command=("ls",))
    [rows] = screens(asked, "n")
    assert rows[-2:] == ["  step:          `restart`: Restart it", "  command:       rm -rf /srv"]


class TestTwentyItemsOfALoop:
    """At 80 columns and 24 rows."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))

    def asked(self, *said: str, names: Sequence[object] = range(20), of: int = 20) -> tuple[list[Any], list[list[str]]]:
        """The answers, and the rows above each question."""
        asks = [
            AwaitApproval(
                key=f"k{at}",
                path=item("restart", str(name)),
                step_id="restart",
                ticket_id=f"t{at}",
                items=of,
                request=request(
                    path=item("restart", str(name)), command={"program": "rm", "arguments": [f"file-{name}"]}
                ),
            )
            for at, name in enumerate(names)
        ]

        async def every(console: Console) -> list[ApprovalAnswer]:
            port = approvals(console)
            return await asyncio.gather(*map(port.wait, asks))

        answers, shown = at_terminal(every, *(("approve? ", f"{each}\n") for each in said))
        parts = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("approve? ")
        return answers, [part.splitlines() for part in parts]

    def test_those_that_fit_are_shown_and_the_others_are_counted(self) -> None:
        _, [first, *_] = self.asked("n", *["?", "a"])
        assert len(first) < 24
        assert first[1] == "20 approvals needed for the items of `restart`"
        numbers = [int(row.split()[0]) for row in first if re.match(r"\d+ of 20: ", row)]
        assert numbers == [*range(1, numbers[-1] + 1)]
        more = f"… {20 - numbers[-1]} more; ? shows them, then `a` approves all 20"
        assert [row for row in first if row.startswith("…")] == [more]

    def test_all_are_approved_only_when_all_were_shown(self) -> None:
        answers, [first, question, *_] = self.asked("a", "a go")
        assert all([each.approved for each in answer.responses] == [True] for answer in answers)
        assert "a = all" not in question[0]
        [refused] = [
            row for row in question if row.endswith("not all of them were shown: read the others, and answer then")
        ]
        assert refused
        commands = [row.split()[-1] for row in [*first, *question] if row.startswith("  command:")]
        assert {f"file-{at}" for at in range(20)} == set(commands)
        # What `y` and `n` decide stands where the question is.
        assert question[-2:] == ["  1 of 20:       `restart[0]`: Restart it", "  command:       rm file-0"]

    def test_a_question_mark_shows_the_others_and_then_the_other_facts(self) -> None:
        answers, [_, others, facts, *_] = self.asked("?", "?", "a")
        assert len(answers) == 20
        assert any(row.startswith("20 of 20: ") for row in others)
        assert facts[0].startswith("[y/n = only 1 of 20, `restart[0]`, a = all 20, ? = more")
        assert sum(row.strip().startswith("asked by:") for row in facts) == 20

    def test_what_yes_approves_stands_last_and_is_named_by_the_question(self) -> None:
        answers, [_, facts, question, *_] = self.asked("?", "y", "n", names=["keep.log", "remove.log"], of=2)
        assert facts[-2:] == ["  1 of 2:        `restart[keep.log]`: Restart it", "  command:       rm file-keep.log"]
        assert question[0].startswith("[y/n = only 1 of 2, `restart[keep.log]`, a = all 2")
        assert [row for row in facts if row.startswith(("1 of 2: ", "2 of 2: "))] == [
            "2 of 2: `restart[remove.log]`: Restart it",
            "1 of 2: `restart[keep.log]`: Restart it",
        ]
        assert [each.responses[0].approved for each in answers] == [True, False]

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            pytest.param("/var/log/app/" + "d/" * 40 + "a.log", "restart[/v…d/d/a.log]", id="a long one"),
            pytest.param("日" * 60, "restart[日…日日日日]", id="wide characters"),
            pytest.param("a\x1b[2J\u202eb", "restart[a�[2J�b]", id="escapes"),
        ],
    )
    def test_the_name_in_the_question_is_short_and_printable(self, name: str, shown: str) -> None:
        _, parts = self.asked("n", "n", names=[name, "b"], of=2)
        question = f"approve? {parts[1][0]}"
        assert question.startswith(f"approve? [y/n = only 1 of 2, `{shown}`, a = all 2, ? = more]: "), question
        assert column_count(question) < 80

    def test_items_that_are_not_asked_about_yet_are_announced(self) -> None:
        _, [first, _, second, *_] = self.asked("?", "a", names=range(16), of=26)
        more = "  more:          up to 10 of the loop's 26 items may need approval later"
        assert more in first
        assert more not in second

    def test_the_last_items_announce_no_more(self) -> None:
        _, parts = self.asked("n", "n", names=range(2), of=2)
        assert not any(row.startswith("  more:") for part in parts for row in part)

    def test_items_that_are_asked_about_one_by_one_count_down(self) -> None:
        async def each(console: Console) -> None:
            port = approvals(console)
            for at in range(3):
                path = f"restart[{at}]"
                await port.wait(msgspec.structs.replace(waiting(request(path=path)), path=path, items=3))

        _, shown = at_terminal(each, *[("approve? ", "n\n")] * 3)
        assert re.findall(r"up to (\d) of", shown) == ["2", "1"]


class TestWrittenAnswers:
    """They meet the requests in the order of lanes, once nothing else of the run goes on."""

    def asked(self, said: bytes, rest: Sequence[Sequence[str]], **changes: Any) -> list[list[bool]]:
        """The answers to three requests that come in the order `c`, `a`, `b`; the run rests with these open."""
        asks = {
            name: AwaitApproval(
                key=name,
                path=item("restart", name),
                step_id="restart",
                ticket_id=f"t-{name}",
                items=3,
                request=request(path=item("restart", name), **changes),
            )
            for name in "cab"
        }

        async def every(console: Console) -> list[ApprovalAnswer]:
            port = TerminalApprovals(console, "ann", lambda: NOON, lambda: "t1", rests=True)
            tasks = {name: asyncio.ensure_future(port.wait(ask)) for name, ask in asks.items()}
            for keys in rest:
                await asyncio.sleep(0)
                assert not any(task.done() for task in tasks.values())
                port.rest(keys)
            return [await tasks[name] for name in "abc"]

        answers, _ = piped(every, said)
        return [[each.approved for each in answer.responses] for answer in answers]

    def test_the_order_of_lanes_counts_and_not_that_of_arrival(self) -> None:
        assert self.asked(b"y\nn\ny\n", [["a", "b", "c"]]) == [[True], [False], [True]]

    def test_no_question_is_put_while_another_request_may_lead_to_one(self) -> None:
        rest = [["a", "b", "c", "a call"], ["a", "b", "c"]]
        assert self.asked(b"y\nn\ny\n", rest) == [[True], [False], [True]]

    def test_all_may_be_approved_at_once(self) -> None:
        assert self.asked(b"a\n", [["a", "b", "c"]]) == [[True]] * 3

    def test_a_call_that_never_ends_does_not_use_up_the_time_of_the_ticket(self) -> None:
        assert self.asked(b"y\nn\ny\n", [["a", "b", "c", "a call"]], approval_timeout=4.0) == [[True], [False], [True]]


def test_a_preview_that_printed_nothing_says_so() -> None:
    asked = request(preview="", preview_command=("diff", "a", "b"))
    _, shown = at_terminal(lambda console: approvals(console).wait(waiting(asked)), ("approve? ", "n\n"))
    assert "  preview:       diff a b\n    (printed nothing)\n" in re.sub(r"\x1b\[[0-9;]*m|\r", "", shown)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("web\ufe00", "web\\ufe00"),
        ("web\u2800", "web\\u2800"),
        ("web\u202e", "web\\u202e"),
        ("a\nb", "a ⏎ b"),
        ("a ⏎ b", "a \\u23ce b"),
    ],
)
def test_values_that_look_alike_are_told_apart(value: str, seen: str) -> None:
    shown = "\n".join(summary(request(inputs={"unit": value})))
    assert f"    unit: {seen}" in shown.splitlines()


def test_an_answer_that_comes_too_late_is_none() -> None:
    stdin: Stdin = a_terminal()
    shown: list[str] = []
    console = Console(stdin.reads, shown.append, seen=True)

    async def main() -> list[ApprovalAnswer]:
        late = await approvals(console).wait(waiting(request(approval_timeout=0.02)))
        stdin.type(b"y\n")  # meant for the question that has lapsed
        stdin.arrived()
        again = await approvals(console).wait(waiting(request(approval_timeout=0.1)))
        return [late, again]

    try:
        assert asyncio.run(main()) == [ApprovalAnswer(expired=True)] * 2
    finally:
        stdin.close()


def test_the_time_of_a_ticket_runs_from_when_it_was_submitted() -> None:
    now = [NOON]
    stdin = a_terminal()
    provider = TerminalApprovals(
        Console(stdin.reads, lambda text: None, seen=True), "ann", lambda: now[0], lambda: "t1"
    )
    ask = SubmitApproval(key="k", path="p", step_id="s", request=request(approval_timeout=3600.0))
    asyncio.run(provider.submit(ask))
    now[0] += timedelta(hours=2)
    try:
        assert asyncio.run(provider.wait(waiting(request(approval_timeout=3600.0)))) == ApprovalAnswer(expired=True)
    finally:
        stdin.close()


def test_a_run_that_is_cancelled_stops_asking() -> None:
    stdin = a_terminal()

    async def main() -> None:
        asking = asyncio.create_task(
            approvals(Console(stdin.reads, lambda text: None, seen=True)).wait(waiting(REQUEST))
        )
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    try:
        asyncio.run(main())
    finally:
        stdin.close()
