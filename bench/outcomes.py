"""Outcomes: reading what runs came to, beside a bare loop that decodes every line, and how its memory grows.

GERT_BENCH_FULL=1 measures 2,000 traces of 1 GB instead of 200 of 100 MB.
"""

import gc
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import msgspec

from bench.ratio import Ratio, report, timed
from gert.ecosystem.host.runs.outcome_scan import Scan, Sources
from gert.kernel.events import runbook as says
from gert.kernel.events.chain import GENESIS
from gert.kernel.events.envelope import encode_payload
from gert.kernel.events.outcomes import OutcomeReport, Selection, distinct
from gert.kernel.events.payload import Payload
from gert.kernel.foundation.canonical import sha256_hex

FULL = bool(os.environ.get("GERT_BENCH_FULL"))
TRACES = 2_000 if FULL else 200
STEPS = 350
ROUNDS = 3 if FULL else 5
CONTRACT = {"effects": ["network"], "reads": ["host"], "writes": [], "deterministic": False, "idempotent": True}


def story() -> list[Payload]:
    """The events of one run, about 500 kB of them: each step is decided on, started and completed."""
    outcome = says.Outcome("resolved", "service_restarted", {"status_code": "200"})
    events: list[Payload] = [
        says.RunStart(
            runbook="sweep", runbook_hash="sha256:" + "a1" * 32, actor="alice", host="vm", gert_version="0", mode="real"
        )
    ]
    for n in range(STEPS):
        step = f"check_{n}"
        events += [
            says.ContractEvaluated(step_id=step, resolved_contract=CONTRACT),
            says.GovernanceDecision(step_id=step, risk_level="low", decision="allow", rule="default"),
            says.StepStart(
                step_id=step, step_type="tool", tool="http", action="get", contract_summary=CONTRACT,
                inputs={"url": f"https://srv-{n}.example.com/healthz"},
            ),
            says.StepComplete(
                step_id=step, status="success", duration="132ms", exit_code=0,
                outputs={"status_code": 200, "body": '{"status":"ok"}' * 10},
            ),
        ]  # fmt: skip
    events += [
        says.ContractViolation(step_id="check_0", kind="missing_output", message="no `code`", severity="warning"),
        says.OutcomeResolved(step_id="end", structured_outcome=outcome),
        says.RunComplete(status="completed", mode="real", duration="4.3s", outcome=outcome),
    ]
    return events


def one_trace() -> bytes:
    """A chained trace of the run `run-00000`."""
    head, lines = GENESIS, list[bytes]()
    for count, event in enumerate(story()):
        stamp = f"2026-02-28T14:30:00.{count:06d}Z"
        lines.append(encode_payload(event, count + 1, "run-00000", stamp, None, None, head))
        head = sha256_hex(lines[-1])
    return b"\n".join(lines) + b"\n"


def write(folder: Path, count: int) -> int:
    """Write so many traces that differ in their run; give their bytes."""
    text = one_trace()
    for n in range(count):
        where = folder / f"run-{n:05d}"
        where.mkdir(parents=True)
        (where / "trace.jsonl").write_bytes(text.replace(b"run-00000", b"run-%05d" % n))
    return len(text) * count


def counted(folder: Path) -> OutcomeReport:
    """What is measured: all of it but the printing."""
    counting = OutcomeReport()
    for run in distinct(Scan(Selection(mode="real")).runs(Sources((str(folder),)))):
        counting.add(run)
    return counting


def bare(folder: Path) -> int:
    """The floor: open each file, and decode each line."""
    lines = 0
    for file in sorted(folder.rglob("*.jsonl")):
        with open(file, "rb") as opened:
            for line in opened:
                msgspec.json.decode(line)
                lines += 1
    return lines


def speed(folder: Path, size: int) -> Ratio:
    """Both in turns, so that noise hits them alike."""
    assert counted(folder).runs == TRACES
    pairs = [(timed(lambda: counted(folder)), timed(lambda: bare(folder))) for _ in range(ROUNDS)]
    measured, floor = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"     {size / measured / 1e6:,.0f} MB a second; {size / floor / 1e6:,.0f} MB in a bare loop")
    return Ratio(f"outcomes of {TRACES:,} traces, {size / 1e6:,.0f} MB / bare loop", measured, floor, 1 / 0.6)


def memory(many: Path, few: Path) -> Ratio:
    """The most a process takes to read ten times as many traces."""

    def peak(folder: Path) -> float:
        gc.collect()
        child = os.fork()
        if child == 0:
            counted(folder)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        return usage.ru_maxrss / 1024

    small, large = peak(few), peak(many)
    print(f"     {small:.1f} MiB for {TRACES // 10:,} traces, {large:.1f} MiB for {TRACES:,}")
    return Ratio(f"memory of {TRACES:,} traces / of {TRACES // 10:,}", large / 1e3, small / 1e3, 1.1)


def main() -> int:
    """Measure and report."""
    folder = Path(tempfile.mkdtemp(prefix="gert-outcomes-"))
    try:
        write(folder / "few", TRACES // 10)
        size = write(folder / "many", TRACES)
        ratios = [memory(folder / "many", folder / "few"), speed(folder / "many", size)]
    finally:
        shutil.rmtree(folder)
    return report(ratios)
