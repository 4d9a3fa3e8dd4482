"""Runs: every case says exactly the events it lists, ends as it says, and can be driven again from its answers."""

from pathlib import Path

import msgspec
import pytest
from tests.conformance.runs import (
    RUNS,
    Case,
    Refusing,
    cases,
    events_of,
    execute,
    expected_events,
    holds,
    setup_of,
    shown,
    world_of,
)

from gert.kernel.events.chain import read_chain
from gert.kernel.events.payload import UnknownEvent


@pytest.mark.parametrize("file", cases(), ids=lambda file: file.relative_to(RUNS).as_posix())
def test_a_run_says_what_it_should_and_can_be_driven_again(file: Path) -> None:
    case = Case(file)
    setup = setup_of(case)
    most = case.get("max_parallel", 16)
    result, lines, answers = execute(setup, world_of(case, setup), max_parallel=most)
    events = events_of(lines)

    # The trace is sound, and every event is one of the catalogue.
    assert read_chain(lines).intact
    assert not [event.type for event in events if isinstance(event.payload, UnknownEvent)]

    listed = list(expected_events(case))
    found = shown(events, {kind for kind, _, _ in listed})
    if listed:
        told = "\n".join(f"{event.type} {event.path or ''} {event.data}" for event in found)
        assert [(kind, path) for kind, path, _ in listed] == [(event.type, event.path or "") for event in found], told
        for (kind, path, fields), event in zip(listed, found, strict=True):
            whole = {**event.data, "principal": msgspec.to_builtins(event.by)}
            assert holds(fields, whole), f"{kind} {path}: expected {fields}, found {whole}"

    expect = case.expect
    ended = msgspec.to_builtins(result)
    for key, name in (("outcome", "outcome"), ("failure", "failure"), ("failed_step", "failed_step"),
                      ("finally_failure", "finally_failure"), ("reachable", "reachable_outcomes")):  # fmt: skip
        if key in expect:
            found_value = list(ended[name]) if key == "reachable" else ended[name]
            assert holds(expect[key], found_value), f"{key}: expected {expect[key]}, found {found_value}"
    assert result.status == expect["status"], ended

    # Driven again from its answers alone, it writes the same bytes.
    again, lines_again, answers_again = execute(setup, Refusing(), recorded=answers, max_parallel=most)
    assert (again, lines_again, answers_again) == (result, lines, answers)
