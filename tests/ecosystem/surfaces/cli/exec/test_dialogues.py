"""People: approvals, evidence and inputs, at a terminal, through a pipe, and from files."""

import json
import re
from typing import Any

import pytest
from tests.ecosystem.surfaces.cli.terminal import END_OF_FILE, INTERRUPT, Terminal
from tests.ecosystem.surfaces.cli.workbench import Project, completed, note, of_type

ASK = {"rules": [{"name": "ask first", "effects": ["restart"], "action": "require-approval"}, {"default": "allow"}]}
RESTART = {"effects": ["files", "restart"]}
WRITES = {"effects": ["files"], "writes": ["pods"]}
LOOK: dict[str, Any] = {
    "id": "look",
    "type": "manual",
    "title": "Look",
    "instructions": "look at the lamp",
    "contract": {"effects": []},
    "required_evidence": [
        {"kind": "text", "name": "seen", "description": "What colour it has"},
        {"kind": "checklist", "name": "checks", "items": ["it is on", "it is warm"]},
    ],
}
INPUTS = {
    "host": {"type": "string", "required": True, "from": "prompt"},
    "port": {"type": "int", "required": True, "from": "prompt", "max": 99},
}


def asking(project: Project) -> None:
    project.runbook(note("restart", contract=RESTART), note("after"), governance=ASK)


def looking(project: Project) -> None:
    project.runbook(LOOK, note("after", "saw {{ .seen }}"))


def everything(project: Project) -> None:
    """Two inputs, then an approval, then evidence, then another approval."""
    project.runbook(
        note("restart", "{{ .host }}:{{ .port }}", contract=RESTART),
        LOOK,
        note("again", "{{ .seen }}", contract=RESTART),
        inputs=INPUTS,
        governance=ASK,
    )


# --- at a terminal


def test_a_person_approves(project: Project) -> None:
    asking(project)
    with Terminal(project, "--as", "kim") as terminal:
        terminal.expect("approval needed for step `restart`")
        terminal.expect("word: restart")
        assert project.noted() == []
        terminal.answer("approve?", "y it is quiet")
        terminal.ended(0)
    assert project.noted() == ["restart", "after"]
    events = project.run().events()
    (response,) = of_type(events, "approval_response")
    assert response["data"]["approver_id"] == "kim"
    assert response["data"]["reason"] == "it is quiet"
    order = [event["type"] for event in events]
    assert order.index("approval_submitted") < order.index("approval_response") < order.index("approval_resolved")
    project.verifies()


def test_the_prompt_is_compact_and_has_the_rest_on_request(project: Project) -> None:
    asking(project)
    with Terminal(project, "--as", "kim") as terminal:
        terminal.expect("approval needed for step `restart`")
        for part in (
            "command:",
            " ⏎ printf",
            "inputs:",
            "word: restart",
            "because:",
            "rule: runbook rule 1 `ask first`",
        ):
            terminal.expect(part)
        terminal.expect("approve?")
        compact = terminal.screen[terminal.screen.index("approval needed") :]
        assert "sha256:" not in compact
        assert len(compact.splitlines()) <= 8
        terminal.type("?\n")
        for part in ("risk:", "asked by:", "kim", "request:", "sha256:"):
            terminal.expect(part)
        terminal.answer("approve?", "y")
        terminal.ended(0)
    assert project.noted() == ["restart", "after"]


def test_the_lines_of_a_diff_are_coloured_in_the_preview(project: Project) -> None:
    action = {"argv": ["true"], "preview": {"argv": ["printf", "%s\\n", "-old", "+new", " same"]}}
    tool = {"apiVersion": "tool/v0", "meta": {"name": "apply"}, "contract": WRITES, "actions": {"go": action}}
    project.write("tools/apply.tool.yaml", tool)
    asks = {"rules": [{"writes": ["pods"], "action": "require-approval"}, {"default": "allow"}]}
    project.runbook({"id": "restart", "type": "tool", "tool": "apply"}, tools=["apply"], governance=asks)
    with Terminal(project, environ={"TERM": "xterm"}) as terminal:
        terminal.expect("\x1b[31m    │ -old\x1b[0m")
        terminal.expect("\x1b[32m    │ +new\x1b[0m")
        terminal.expect("\n    │  same")
        terminal.answer("approve?", "y")
        terminal.ended(0)


class TestTheItemsOfALoop:
    def looping(self, project: Project, **rule: Any) -> None:
        governance = {"rules": [{**ASK["rules"][0], **rule}, {"default": "allow"}]}  # type: ignore[dict-item]
        each = note("restart", "{{ .pod }}", contract=RESTART)
        each["for_each"] = {"over": ["a", "b", "c"], "as": "pod", "parallel": True}
        project.runbook(each, governance=governance)

    def test_all_that_are_open_and_shown_are_approved_at_once_each_with_its_own_record(self, project: Project) -> None:
        self.looping(project)
        with Terminal(project, "--as", "kim") as terminal:
            approved = 0
            while approved < 3:
                terminal.expect("approve?")
                # On a slow machine an item may ask later; then it is not in this dialogue.
                shown = re.findall(r"a = all (\d)", terminal.screen[terminal.screen.rindex("approve?") - 1 :])
                asked = len(set(re.findall(r"word: ([abc])", terminal.screen)))
                terminal.type("a all of them\n" if asked - approved > 1 else "y alone\n")
                approved = asked
                assert shown or asked
            terminal.ended(0)
        assert sorted(project.noted()) == ["a", "b", "c"]
        responses = of_type(project.run().events(), "approval_response")
        assert len({each["data"]["ticket_id"] for each in responses}) == 3
        assert len({each["data"]["request_hash"] for each in responses}) == 3
        assert {each["data"]["approver_id"] for each in responses} == {"kim"}
        project.verifies()

    def test_yes_approves_only_the_first(self, project: Project) -> None:
        self.looping(project)
        with Terminal(project) as terminal:
            terminal.answer("approve?", "y")
            terminal.answer("approve?", "n")
            terminal.answer("approve?", "n")
            terminal.ended(3)
        first = re.findall(r"approve\? \[y/n = only (1 of \d), `(restart\[\d\])`", terminal.screen)
        assert [name for _, name in first] == [f"restart[{at}]" for at in range(len(first))]
        assert len(first) + terminal.screen.count("approve? [y/N") == 3
        noted = {
            each["path"] for each in of_type(project.run().events(), "approval_response") if each["data"]["approved"]
        }
        assert noted == {"restart[0]"}

    @pytest.mark.parametrize("rule", [{"min_approvers": 2}, {"approvers": ["kim"]}, {"separation_of_duties": True}])
    def test_where_particular_people_have_to_approve_each_item_is_asked_about(
        self, project: Project, rule: dict[str, Any]
    ) -> None:
        self.looping(project, **rule)
        with Terminal(project, "--as", "kim") as terminal:
            terminal.answer("approver", "lee" if "approvers" not in rule else "kim")
            terminal.expect("approve?")
            assert "a = all" not in terminal.screen
            terminal.type(INTERRUPT)
            terminal.ended(130)

    @pytest.mark.parametrize("places", [3, 2], ids=["all at once", "two at a time"])
    def test_written_answers_meet_the_items_in_their_order_whichever_asks_first(
        self, project: Project, places: int
    ) -> None:
        # The previews of the others wait for that of `b`, which asks first, and long before.
        shown = 'case $0 in b) ;; *) while [ ! -e b.seen ]; do sleep 0.01; done; sleep 0.3 ;; esac; : > "$0.seen"'
        action = {"argv": ["true"], "preview": {"argv": ["sh", "-c", shown, "{{ .pod }}"]}}
        contract = {**RESTART, "inputs": {"pod": {"type": "string", "required": True}}}
        tool = {"apiVersion": "tool/v0", "meta": {"name": "apply"}, "contract": contract, "actions": {"go": action}}
        project.write("tools/apply.tool.yaml", tool)
        step = {"id": "restart", "type": "tool", "tool": "apply", "inputs": {"pod": "{{ .pod }}"}}
        step |= {"for_each": {"over": ["z", "b", "c"], "as": "pod", "key": "{{ .pod }}", "parallel": True}}
        project.runbook(step, tools=["apply"], governance=ASK)
        project.exec("--max-parallel", str(places), stdin="y\nn\ny\n").ended(3)
        responses = of_type(project.run().events(), "approval_response")
        said = [(each["path"], each["data"]["approved"]) for each in responses]
        assert said == [("restart[z]", True), ("restart[b]", False), ("restart[c]", True)]


def test_a_rejection_is_printed_once(project: Project) -> None:
    asking(project)
    with Terminal(project) as terminal:
        terminal.answer("approve?", "n not in the freeze")
        terminal.ended(3)
    # Once as it was typed, and once as it was recorded.
    assert terminal.screen.count("not in the freeze") == 2
    assert project.gert("trace", "show", "last").out.count("not in the freeze") == 1


@pytest.mark.parametrize("answer", ["n", "N not now", "no", ""])
def test_a_person_rejects(project: Project, answer: str) -> None:
    asking(project)
    with Terminal(project) as terminal:
        terminal.answer("approve?", answer)
        terminal.ended(3)
    assert project.noted() == []
    assert completed(project.run().events(), "restart")["reason"] == "approval_rejected"


def test_the_end_of_file_is_no_approval(project: Project) -> None:
    asking(project)
    with Terminal(project) as terminal:
        terminal.expect("approve?")
        terminal.type(END_OF_FILE)
        terminal.ended(3)
    assert project.noted() == []


def test_words_that_mean_nothing_are_asked_about_again(project: Project) -> None:
    asking(project)
    with Terminal(project) as terminal:
        terminal.answer("approve?", "perhaps")
        terminal.answer("approve?", "yes")
        terminal.ended(0)
    assert project.noted() == ["restart", "after"]


def test_what_was_typed_before_the_question_does_not_approve(project: Project) -> None:
    ready = project.root / "ready"
    project.note_tool("slow", before=f": > {ready}; while [ ! -e {ready}.go ]; do sleep 0.01; done")
    project.runbook(
        note("slow", tool="slow"), note("restart", contract=RESTART), tools=["note", "slow"], governance=ASK
    )
    with Terminal(project) as terminal:
        terminal.expect("slow")
        terminal.type("y\ny\ny\n")
        terminal.expect("y")
        (project.root / "ready.go").touch()
        terminal.expect("approve?")
        terminal.type(END_OF_FILE)
        terminal.ended(3)
    assert project.noted() == ["slow"]


def test_a_person_gives_evidence(project: Project) -> None:
    looking(project)
    with Terminal(project, "--as", "kim") as terminal:
        terminal.expect("look at the lamp")
        terminal.answer("done?", "y")
        terminal.expect("What colour it has")
        terminal.answer("seen:", "")
        terminal.answer("seen:", "grün")
        terminal.answer("it is on [y/n]", "y")
        terminal.answer("it is warm [y/n]", "y")
        terminal.ended(0)
    assert project.noted() == ["saw grün"]
    done = next(event for event in project.run().events() if event["type"] == "step_complete")
    assert done["data"]["evidence"] == {"seen": "grün", "checks": ["it is on", "it is warm"]}
    assert done["principal"]["id"] == "kim"


def test_a_person_rejects_a_manual_step(project: Project) -> None:
    looking(project)
    with Terminal(project) as terminal:
        terminal.answer("done?", "reject the lamp is gone")
        terminal.ended(3)
    failure = completed(project.run().events(), "look")["failure"]
    assert failure == {"kind": "rejected", "message": "the lamp is gone"}


def test_a_secret_that_is_typed_is_not_shown(project: Project) -> None:
    project.runbook(
        note("one"), inputs={"token": {"type": "string", "required": True, "secret": True, "from": "prompt"}}
    )
    with Terminal(project) as terminal:
        terminal.expect("token: ")
        assert not terminal.is_echoing()
        terminal.type("canary-typed\n")
        terminal.expect("one")
        assert terminal.is_echoing()
        terminal.ended(0)
    assert "canary-typed" not in terminal.screen


def test_a_value_that_does_not_fit_is_asked_for_again(project: Project) -> None:
    project.runbook(note("one", "{{ .port }}"), inputs={"port": INPUTS["port"]})
    with Terminal(project) as terminal:
        terminal.answer("port: ", "many")
        terminal.answer("port: ", "100")
        terminal.answer("port: ", "80")
        terminal.ended(0)
    assert project.noted() == ["80"]


@pytest.mark.parametrize(
    ("write", "question"), [(asking, "approve?"), (looking, "done?")], ids=["for approval", "for evidence"]
)
def test_ctrl_c_at_a_question_cancels_the_run(project: Project, write: Any, question: str) -> None:
    write(project)
    with Terminal(project) as terminal:
        terminal.expect(question)
        terminal.type(INTERRUPT)
        terminal.ended(130)
    last = project.run().events()[-1]
    assert (last["type"], last["data"]["status"]) == ("run_complete", "cancelled")
    project.verifies()


def test_ctrl_c_at_a_question_for_an_input_leaves_no_run(project: Project) -> None:
    project.runbook(note("one"), inputs=INPUTS)
    with Terminal(project) as terminal:
        terminal.expect("host: ")
        terminal.type(INTERRUPT)
        terminal.ended(130)
    assert "Traceback" not in terminal.screen
    assert project.runs() == []


# --- through a pipe


def test_one_stream_answers_every_question_in_turn(project: Project) -> None:
    everything(project)
    stdin = "srv1\n80\ny go\ny\ngreen\ny\ny\ny again\n"
    ran = project.exec("--json", stdin=stdin).ended(0)
    assert project.noted() == ["srv1:80", "green"]
    assert ran.said["status"] == "completed"
    reasons = [event["data"]["reason"] for event in of_type(project.run().events(), "approval_response")]
    assert reasons == ["go", "again"]


def test_a_stream_that_ends_early_stops_where_it_ends(project: Project) -> None:
    everything(project)
    said = project.exec("--json", stdin="srv1\n80\ny\ny\ngreen\n").ended(3).said
    assert (said["failed_step"], said["failure"]["kind"]) == ("look", "evidence")
    assert project.noted() == ["srv1:80"]


def test_the_last_line_may_do_without_its_end(project: Project) -> None:
    asking(project)
    project.exec(stdin="y").ended(0)


@pytest.mark.parametrize(
    "stdin",
    [
        pytest.param("", id="nothing"),
        pytest.param("n\n", id="a no"),
        pytest.param("\n", id="an empty line"),
        pytest.param(b"\xff\xfey\n", id="what is not UTF-8"),
        pytest.param("y" * 70_000, id="a line that is too long"),
        pytest.param("ja\nsi\noui\nda\ntak\n", id="other words"),
    ],
)
def test_anything_but_a_yes_is_no_approval(project: Project, stdin: str | bytes) -> None:
    asking(project)
    project.exec(stdin=stdin).ended(3)
    assert project.noted() == []


def test_questions_do_not_get_into_the_result(project: Project) -> None:
    everything(project)
    ran = project.exec("--json", "--quiet", stdin="a\n1\ny\ny\nb\ny\ny\ny\n").ended(0)
    assert json.loads(ran.out)["status"] == "completed"
    assert "approve?" in ran.err


def test_missing_inputs_are_told_all_at_once_and_nothing_is_left(project: Project) -> None:
    project.runbook(
        note("one"),
        inputs={name: {"type": "string", "required": True} for name in ("alpha", "beta", "gamma")},
    )
    ran = project.exec("--var", "beta=x").ended(2)
    assert "alpha" in ran.err
    assert "gamma" in ran.err
    assert (project.runs(), project.noted()) == ([], [])


# --- from a file


@pytest.mark.parametrize(
    ("evidence", "code", "kind"),
    [
        pytest.param({"look": {"seen": "red", "checks": True}}, 0, None, id="all of it"),
        pytest.param({"look": {"seen": "red", "checks": ["it is warm", "it is on"]}}, 0, None, id="item by item"),
        pytest.param({"look": {"reject": "broken"}}, 3, "rejected", id="a rejection"),
        pytest.param({"look": {"reject": True}}, 3, "rejected", id="a rejection without a reason"),
        pytest.param({"look": {"seen": "red", "checks": ["it is on"]}}, 3, "rejected", id="an item not done"),
        pytest.param({"look": {"seen": "red"}}, 3, "evidence", id="a piece missing"),
        pytest.param({"look": {"seen": "red", "checks": True, "sen": 1}}, 3, "evidence", id="a piece too much"),
        pytest.param({"look": None}, 3, "evidence", id="nothing"),
    ],
)
def test_evidence_from_a_file(project: Project, evidence: Any, code: int, kind: str | None) -> None:
    looking(project)
    said = project.exec("--json", "--evidence", project.write("evidence.yaml", evidence)).ended(code).said
    assert said.get("failure", {}).get("kind") == kind
    assert project.noted() == (["saw red"] if code == 0 else [])


def test_evidence_for_a_step_that_is_not_there_is_told_before_anything_runs(project: Project) -> None:
    looking(project)
    ran = project.exec("--evidence", project.write("evidence.yaml", {"lok": {"seen": "red"}})).ended(1)
    assert "did you mean `look`?" in ran.err
    assert project.runs() == []


def test_evidence_from_a_file_says_who_gave_it(project: Project) -> None:
    looking(project)
    entry = {"seen": "red", "checks": True, "by": "sam"}
    project.exec("--as", "kim", "--evidence", project.write("evidence.yaml", {"look": entry})).ended(0)
    done = next(event for event in project.run().events() if event["type"] == "step_complete")
    assert done["principal"] == {"kind": "human", "id": "sam"}


def test_a_file_and_a_pipe_answer_together(project: Project) -> None:
    everything(project)
    evidence = project.write("evidence.yaml", {"look": {"seen": "blue", "checks": True}})
    project.exec("--evidence", evidence, "--var", "host=h", stdin="81\ny\ny\n").ended(0)
    assert project.noted() == ["h:81", "blue"]
