"""The timeline of a recorded run: one line per event, whoever wrote the trace."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from gert.ecosystem.surfaces.cli.render.views.timeline import print_timeline
from gert.kernel.events import runbook as says
from gert.kernel.events.envelope import Envelope
from gert.kernel.events.payload import Payload, to_data
from gert.kernel.events.runbook import Failure, Outcome
from gert.kernel.foundation.principal import Principal

EVIL = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\n\u202e\x00"
UP = Outcome("resolved", "up")
START = says.RunStart(runbook="pod", runbook_hash="sha256:ab", actor="al", host="ops", gert_version="1", mode="real")
STEP = says.StepStart(step_id="s", step_type="tool", tool="curl", action="get", inputs={"url": "http://x"})
END = says.RunComplete(status="completed", mode="real", duration="2s", outcome=UP, chain_hash="f" * 64)


def raw(type_name: str, data: dict[str, Any], second: float = 0.0, **fields: Any) -> Envelope:
    moment = f"2026-02-28T14:30:{second:09.6f}Z"
    return Envelope(
        **{"seq": 1, "run_id": "run-1", "timestamp": moment, "prev_hash": "a" * 64, **fields}, type=type_name, data=data
    )


def event(payload: Payload, second: float = 0.0, path: str | None = None, **fields: Any) -> Envelope:
    return raw(payload.type, to_data(payload), second, path=path, **fields)


def lines_of(capsys: pytest.CaptureFixture[str], *events: Envelope, verbose: bool = False) -> list[str]:
    print_timeline(events, verbose=verbose)
    return capsys.readouterr().out.splitlines()


def test_a_run_reads_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    done = says.StepComplete(
        step_id="s",
        status="failed",
        duration="1s",
        failure=Failure("exit_code", "`curl` exited with 7"),
        continued=True,
    )
    assert lines_of(
        capsys,
        event(START),
        event(says.InputResolved(name="ns", source="cli", value="prod"), 0.132),
        event(says.GovernanceDecision(step_id="s", risk_level="low", decision="allow"), 0.2, "s"),
        event(STEP, 0.25, "s"),
        event(done, 1.25, "s"),
        event(says.BranchEnter(step_id="b", branch_label="x", condition=".y"), 1.5, "b/x"),
        event(END, 2),
    ) == [
        "run       run-1",
        "from      2026-02-28T14:30:00.000000Z",
        "",
        "    +0.000s  ▸ pod  real run run-1  by al on ops",
        "    +0.132s    · ns = prod (cli)",
        "    +0.200s  ✓ s: allowed, low risk",
        "    +0.250s  ▸ s  curl:get",
        "    +1.250s  ✗ s  1.0s",
        "               exit_code: `curl` exited with 7",
        "               the run continues: `continue_on_fail`",
        "    +1.500s    → b: x if .y",
        "    +2.000s  ✓ run completed  resolved: up  2.0s",
        "",
        "events    7",
        "status    completed",
        "outcome   resolved: up",
        "seal      not signed",
    ]


def test_verbose_shows_everything_an_event_holds(capsys: pytest.CaptureFixture[str]) -> None:
    by = Principal("agent", "scout", role="triage")
    text = "\n".join(lines_of(capsys, event(STEP, path="a/s", principal=by, seq=4), verbose=True))
    for expected in ("inputs.url: http://x", "tool: curl", "by: agent scout (triage)", "path: a/s", "seq: 4"):
        assert f" {expected}" in text
    assert f"prev_hash: {'a' * 64}" in text


def test_without_verbose_it_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert "http://x" not in "\n".join(lines_of(capsys, event(STEP, path="s")))


def test_contracts_are_for_those_who_want_everything(capsys: pytest.CaptureFixture[str]) -> None:
    contract = event(says.ContractEvaluated(step_id="s", resolved_contract={"writes": ["pods"]}), path="s")
    assert "contract" not in "\n".join(lines_of(capsys, contract))
    assert 'resolved_contract.writes: ["pods"]' in "\n".join(lines_of(capsys, contract, verbose=True))


def test_lanes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    fork = says.ParallelFork(step_id="fan", branch_count=2, forked_state_hash="h", branches=("a", "b"))
    lines = lines_of(capsys, event(fork, path="fan"), event(STEP, path="fan/b/s"))
    assert lines[-4] == "    +0.000s    ▸ b/s  curl:get"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        pytest.param([event(START)], "incomplete: there is no `run_complete`", id="without an end"),
        pytest.param(
            [raw("run_complete", {"status": "fine"})],
            "incomplete: its `run_complete` cannot be read",
            id="with an end that cannot be read",
        ),
        pytest.param([event(END)], "not signed", id="not signed"),
        pytest.param(
            [event(says.RunComplete(status="failed", mode="real", duration="1s", signature="x", signing_key_id="k"))],
            "signed by key `k`, not verified: run `gert trace verify`",
            id="a signature is a claim",
        ),
        pytest.param(
            [event(END), event(says.WebhookSent(url="https://x", delivered=True, attempts=1))],
            "not signed; 1 event after the seal",
            id="with events after its end",
        ),
    ],
)
def test_how_a_trace_ends(capsys: pytest.CaptureFixture[str], events: list[Envelope], said: str) -> None:
    assert lines_of(capsys, *events)[-1].endswith(said)


def test_steps_without_an_id_that_are_nested_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["branch#1", "branch#1/yes/branch#1", "branch#1/yes/branch#1/yes/branch#1", "branch#1/yes/branch#2"]
    branches = [event(says.StepStart(step_id="branch#1", step_type="branch"), path=path) for path in paths[:3]]
    other = event(says.StepStart(step_id="branch#2", step_type="branch"), path=paths[3])
    shown = [line.split() for line in lines_of(capsys, event(START), *branches, other) if line.endswith("branch")]
    assert [words[2] for words in shown] == [*paths[:3], "branch#2"]


def test_no_events_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys) == ["no events"]


@pytest.mark.parametrize(
    ("each", "line"),
    [
        pytest.param(
            raw("moon_phase", {"phase": "full"}), '    +0.000s  · moon_phase  {"phase":"full"}', id="of no known type"
        ),
        pytest.param(
            raw("step_start", {"step_id": 7}),
            '    +0.000s  · step_start  {"step_id":7}',
            id="of a known type, malformed",
        ),
        pytest.param(raw("quiet", {}), "    +0.000s  · quiet", id="without data"),
        pytest.param(raw("x", {}, timestamp="yesterday"), "          ?  · x", id="at no time"),
        pytest.param(raw("x", {}, timestamp="2026-02-28T14:30:00"), "          ?  · x", id="at a time without a zone"),
    ],
)
def test_a_malformed_event_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], each: Envelope, line: str) -> None:
    assert lines_of(capsys, each)[3] == line


def test_a_clock_that_went_back_is_shown_to_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, event(START, 2), event(END, 1.5))[4].startswith("    -0.500s")


@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_data_stays_on_its_lines(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    huge = {EVIL * 10: EVIL * 100_000, "many": {f"{EVIL}{n}": EVIL for n in range(1000)}, "list": [[EVIL] * 10_000]}
    events = [
        raw(EVIL, huge, run_id=EVIL, path=EVIL, prev_hash=EVIL, timestamp=EVIL, principal=Principal("human", EVIL)),
        raw("run_complete", {**to_data(END), "signature": EVIL, "signing_key_id": EVIL, "signature_alg": EVIL}),
        raw("x", {"n": 10**25, "deep": _deep(900)}),
    ]
    lines = lines_of(capsys, *events, verbose=verbose)
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    assert len(lines) < 100


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_each_event_is_printed_before_the_next_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    def events() -> Iterator[Envelope]:
        yield event(STEP, path="first")
        assert "curl:get" in capsys.readouterr().out
        yield event(END)

    print_timeline(events())


def test_a_trace_that_opens_blocks_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.echo", lambda *_, **__: None)
    fork = {"step_id": "f", "branch_count": 1, "forked_state_hash": "h"}
    tracemalloc.start()
    try:
        print_timeline(raw("parallel_fork", fork, path=f"{'f' * 500}{n}") for n in range(4000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
