"""Attempts to get unsealed or foreign history into a sealed run, and to continue a sealed run without its key."""

import json
import signal
from collections.abc import Callable, Mapping

import pytest
from tests.attacks.attack import Attack, table
from tests.attacks.test_record import KEY, killed
from tests.ecosystem.surfaces.cli.workbench import Project, Ran, Recorded, of_type

SEALED = "with a signing key, a run without a seal continues only where an operator adopts it"
ADOPT = ["--adopt-unsealed", "moved from a laptop"]
OTHER = {"GERT_TRACE_SIGNING_KEY": "another-key-of-some-length"}
RENEWED = {**OTHER, "GERT_TRACE_SIGNING_KEY_ID": "next", "GERT_TRACE_KEY_DEFAULT": KEY["GERT_TRACE_SIGNING_KEY"]}


def resume(*more: str) -> Callable[[Recorded], list[str]]:
    return lambda run: ["resume", "--run", run.id, *more]


def rerun(*more: str) -> Callable[[Recorded], list[str]]:
    return lambda run: ["rerun", "--run", run.id, "--from", "three", *more]


def abandon(*more: str) -> Callable[[Recorded], list[str]]:
    return lambda run: ["run", "abandon", run.id, "--reason", "x", *more]


def refused(
    words: Callable[[Recorded], list[str]], code: int, *, begun: Mapping[str, str], then: Mapping[str, str]
) -> Callable[[Project], str]:
    """Continue a killed run in another environment: nothing is done and nothing is written."""

    def attempt(project: Project) -> str:
        run = killed(project, **begun)
        before, noted = run.record(), project.noted()
        said = project.gert(*words(run), **then).ended(code)
        assert (run.record(), project.noted()) == (before, noted)
        return said.err

    return attempt


def seal_removed(project: Project) -> str:
    """Edit a sealed run and take its seal off: an adoption cannot be had by default."""
    run = killed(project, **KEY)
    run.change("UPDATE runs SET seal = NULL WHERE run_id = ?1")
    return project.gert("resume", "--run", run.id, **KEY).ended(1).err


ATTACKS = [
    *(
        Attack(
            f"an unsealed run is continued with a key by `{name}`",
            why=SEALED,
            attempt=refused(words(), 1, begun={}, then=KEY),
            reason="is not sealed, and a signing key is configured",
        )
        for name, words in {"resume": resume, "rerun": rerun, "abandon": abandon}.items()
    ),
    *(
        Attack(
            f"a sealed run is continued without a key by `{name}`",
            why="a process without a signing key cannot append to a sealed run",
            attempt=refused(words(), 1, begun=KEY, then={}),
            reason="is sealed, and no signing key is configured",
        )
        for name, words in {"resume": resume, "abandon": abandon}.items()
    ),
    Attack(
        "a sealed run is continued with another key",
        why="only a key that is configured verifies the seal",
        attempt=refused(resume(), 1, begun=KEY, then=OTHER),
        reason="is invalid",
    ),
    Attack(
        "a run sealed by an unknown key is adopted",
        why="a seal that does not verify is not the lack of a seal",
        attempt=refused(resume(*ADOPT), 2, begun=KEY, then=OTHER),
        reason="is sealed: there is nothing to adopt",
    ),
    Attack(
        "a run is adopted without a signing key",
        why="an adoption that no one signs proves nothing",
        attempt=refused(resume(*ADOPT), 2, begun={}, then={}),
        reason="needs a signing key",
    ),
    Attack(
        "a run is adopted without a reason",
        why="the reason is part of the record",
        attempt=refused(resume("--adopt-unsealed", " "), 2, begun={}, then=KEY),
        reason="needs a reason",
    ),
    Attack("the seal of a run is removed", why=SEALED, attempt=seal_removed, reason="is not sealed"),
]


@pytest.mark.parametrize("attack", table(ATTACKS))
def test_attack_fails(attack: Attack, project: Project) -> None:
    attack.fails(project)


def adopted_run(project: Project, words: Callable[[Recorded], list[str]], code: int) -> tuple[Recorded, Ran]:
    run = killed(project)
    count = len(run.lines())
    head = run.rows("SELECT hash FROM runs WHERE run_id = ?1")[0][0]
    ran = project.gert(*words(run), **KEY).ended(code)
    last = project.runs()[-1]
    (event,) = of_type([json.loads(line) for line in last.lines()], "run_adopted")
    data = event["data"]
    assert (data["reason"], data["actor"]) == ("moved from a laptop", "ops")
    assert (data["events"], data["chain_hash"]) == (count, head)
    project.gert("run", "verify-ledger", last.id, "--require-signature", **KEY).ended(0)
    return last, ran


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(resume(*ADOPT, "--as", "ops"), 0, id="resume"),
        pytest.param(rerun(*ADOPT, "--as", "ops"), 0, id="rerun"),
        pytest.param(abandon(*ADOPT, "--as", "ops"), 0, id="abandon"),
    ],
)
def test_an_unsealed_run_is_adopted_with_a_reason(
    project: Project, words: Callable[[Recorded], list[str]], code: int
) -> None:
    adopted_run(project, words, code)


def test_an_adopted_run_is_resumed_again(project: Project) -> None:
    """The adoption is a host event: a second resume replays past it."""
    project.note_tool("dies", after='if [ $(wc -l < "$2") -lt 4 ]; then kill -9 $PPID; fi')
    project.runbook(*({"id": f"s{n}", "type": "tool", "tool": "dies", "inputs": {"word": f"s{n}"}} for n in range(3)),
                    tools=["dies"])  # fmt: skip
    project.exec().ended(-signal.SIGKILL)
    run = project.run()
    project.gert("resume", "--run", run.id, *ADOPT, "--as", "ops", **KEY).ended(-signal.SIGKILL)
    project.gert("resume", "--run", run.id, *ADOPT, **KEY).ended(2)
    for _ in range(3):
        ran = project.gert("resume", "--run", run.id, **KEY)
        if ran.code == 0:
            break
    assert ran.code == 0, ran.err
    assert len(of_type([json.loads(line) for line in run.lines()], "run_adopted")) == 1
    project.gert("run", "verify-ledger", run.id, **KEY).ended(0)


def test_a_retired_key_still_verifies_and_the_run_continues_under_the_new_one(project: Project) -> None:
    run = killed(project, **KEY)
    project.gert("resume", "--run", run.id, **RENEWED).ended(0)
    assert run.rows("SELECT seal FROM runs WHERE run_id = ?1")[0][0].endswith(":next")
    project.gert("run", "verify-ledger", run.id, **RENEWED).ended(0)
