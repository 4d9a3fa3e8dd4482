"""The catalogue of rules: every id a finding can carry, with what it asks for. Docs and SARIF come from here."""

from typing import Final

import msgspec


class RuleText(msgspec.Struct, frozen=True):
    """One rule in words."""

    id: str
    title: str
    help: str

    @property
    def phase(self) -> str:
        """The phase of validation the rule belongs to."""
        return PHASES[self.id[0]]


PHASES: Final = {"Y": "structural", "S": "structural", "J": "semantic", "D": "domain"}

_ROWS: Final = (
    (
        "Y01",
        "the document is within bounds",
        "At most 16 MiB, 64 levels and a million values after alias expansion.",
    ),
    ("Y02", "the document is UTF-8 text", "No byte order mark, no NUL byte, no invalid UTF-8."),
    ("Y03", "the document is YAML", "It parses as YAML 1.2."),
    ("Y04", "the file holds one document", "Neither none nor several."),
    ("Y05", "there are no tags", "`!!str` and its kin are refused; types come from the fields."),
    ("Y06", "keys appear once", "A repeated key would silently win or lose."),
    ("Y07", "keys are words", "A map or list cannot be a key."),
    ("Y08", "aliases name something", "An alias stands after its anchor, and not inside what it names."),
    ("Y09", "merge keys take maps", "`<<` takes a map or a list of maps."),
    ("S01", "values have the kind their field takes", "Text, number, `true` or `false`, list or map."),
    ("S02", "keys are known", "Anything else goes under `extensions`."),
    ("S03", "required keys are there", "The message names the key, the hint says what it is for."),
    ("S04", "keys belong to the type of step", "Each step type has its own keys."),
    ("S05", "the type of step is known", "tool, manual, assert, branch, parallel, end, extension, repeat."),
    ("S06", "templates parse", "See the template language."),
    ("S07", "numbers survive", "A number JSON cannot hold exactly is put in quotes."),
    ("S08", "the kind of document is known", "By `apiVersion`, by the file's name, or by its keys."),
    ("J01", "values have the form their field asks for", "Names, durations, URLs, text."),
    ("J02", "values are among those allowed", "The message lists them."),
    ("J03", "numbers are within range", "The message gives the bound."),
    ("J04", "lists and texts are not empty", "Where something is needed."),
    ("J05", "lists do not repeat themselves", "Where an item counts once."),
    ("J06", "the schema holds", "Anything else the exported JSON Schema asks for."),
    ("D01", "step ids are unique", "At every depth, in the whole runbook."),
    ("D02", "reserved names are left alone", "`step`, `scope` and `repeat` are namespaces of the language."),
    ("D03", "a name means one thing", "An input, a constant, a step or a loop's item."),
    ("D04", "loops have an id", "A loop's results are kept under the step's id."),
    ("D05", "every path ends", "Branches may rejoin; an `end` under a `when` does not count."),
    ("D06", "every step can be reached", "A step no path leads to is usually a mistake."),
    ("D07", "jumps stay in their list", "`next` goes to a step of the same list."),
    ("D08", "jumps backwards are bounded", "`max` is needed, and a constant one is checked."),
    ("D09", "branches are exhaustive", "The last arm is `default`."),
    ("D10", "`end` stands where it ends the run", "Not in a lane, and never in `finally`."),
    ("D11", "parallel blocks have lanes", "At least two, each with steps."),
    ("D12", "lanes set different names", "There is no silent precedence between lanes."),
    ("D13", "lanes do not contend", "Lanes that write what others use run one after the other."),
    ("D14", "repeated blocks are complete", "Steps in one place, and a bound."),
    ("D15", "tools are found", "The hint lists the places searched."),
    ("D16", "tools are declared", "`tools` is the list of all a runbook may use."),
    ("D17", "tools are valid", "A runbook is as sound as its tools."),
    ("D18", "actions exist", "May be left out where the tool has only one."),
    ("D19", "required inputs are given", "By `inputs` or `inputs_from`, unless there is a default."),
    ("D20", "inputs fit their types", "Text is converted where nothing is lost."),
    ("D21", "inputs are declared", "What the contract does not know is not governed."),
    ("D22", "secrets are set", "A warning for a runbook, a note for a tool: the run may be meant for another place."),
    ("D23", "declared tools are used", "Reviewers read `tools` to see what a runbook may do."),
    ("D24", "names resolve", "To an input, a constant, an earlier step's output, a scope."),
    ("D25", "names are set on every path", "Or the author says what happens when they are not."),
    ("D26", "loops are read as loops", "An item only inside, a list afterwards."),
    ("D27", "constants stay constant", "No output takes the name of a constant."),
    ("D28", "`inputs_from` spreads objects", "Their keys are inputs of the contract."),
    ("D29", "exports exist and are owned once", "By one step, under a free name."),
    ("D30", "visibility globs are well formed", "`*` one segment, `**` any depth."),
    ("D31", "steps see what they read", "Visibility is enforced, so hiding what one reads is a mistake."),
    ("D32", "contracts only tighten", "From tool to action to step."),
    ("D33", "`side_effects` is deprecated", "Declare `effects` and `writes`."),
    ("D34", "effects are declared", "Undeclared effects make the risk critical."),
    ("D35", "retries are safe", "Only idempotent contracts are tried again."),
    ("D36", "assertions can be evaluated", "Something to compare with, a pattern that compiles."),
    ("D37", "evidence can be given", "A checklist has items, names are unique."),
    ("D38", "rules are well formed", "Matchers, one verdict, and only what belongs to it."),
    ("D39", "rules can be reached", "The first match decides, so later ones may never."),
    ("D40", "groups are known", "In the policy or the project."),
    ("D41", "tools fit the platform", "A warning: the runbook may be meant for another system."),
    ("D42", "inputs are bound to known sources", "`prompt`, `env/`, `file/`, or a configured provider."),
    ("D43", "inputs keep to their own limits", "Default, `enum`, `pattern`, `min`, `max`."),
    (
        "D44",
        "guards depend on something",
        "Text outside a template makes a guard always true: an error.",
    ),
    ("D45", "policies are there and valid", "No run begins where one is missing or not understood."),
    ("D46", "policies catch what says nothing", "Otherwise leaving the contract out is the way around a policy."),
    ("D47", "scopes are paths", "Names with `/` or `.` between them, none of them empty."),
    ("D48", "effects come with writes", "A contract that has effects says what it changes, even if it is `[]`."),
    ("D49", "webhooks go where they may", "A runbook's own need a host that `webhook_hosts` of the project lists."),
    ("D50", "this installation can run it", "Transport, extension, provider. A warning; a run is refused."),
    ("D50", "actions fit their transport", "`argv` for stdio, a server for jsonrpc and mcp."),
    ("D51", "extracts fill declared outputs", "From a source that has them, with a pattern that compiles."),
    ("D52", "tool templates name declared inputs", "Anything else renders as nothing."),
    ("D53", "`argv` begins with the program", "With `binary`, its first word is dropped."),
    ("D54", "secrets stay off command lines", "Other users of a machine can read them there."),
    ("D56", "previews preview", "One command without writes, for an action that has them."),
    ("D60", "scenarios answer what is asked", "Their steps, tools and inputs exist in the runbook."),
    ("D61", "expectations can be met", "Their steps exist and do not contradict each other."),
    ("D62", "scenario inputs fit", "As the runbook declares them."),
    ("D63", "cases of policy tests can be judged", "Each has a name of its own, and a contract or a tool."),
    ("D64", "policy tests expect what can be", "Something, and nothing that contradicts itself."),
)

RULES: Final = {row[0]: RuleText(*row) for row in _ROWS}
