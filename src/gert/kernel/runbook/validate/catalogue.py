"""The catalogue of rules: every id of a finding, with its requirement. Docs and SARIF are generated from it."""

from typing import Final

import msgspec


class RuleText(msgspec.Struct, frozen=True):
    """The text of one rule."""

    id: str
    title: str
    help: str

    @property
    def phase(self) -> str:
        """The validation phase of the rule."""
        return PHASES[self.id[0]]


PHASES: Final = {"Y": "structural", "S": "structural", "J": "semantic", "D": "domain"}

_ROWS: Final = (
    (
        "Y01",
        "the document is within the size limits",
        "At most 16 MiB, 64 levels and a million values after alias expansion.",
    ),
    ("Y02", "the document is UTF-8 text", "No byte order mark, no NUL byte, no invalid UTF-8."),
    ("Y03", "the document is YAML", "It parses as YAML 1.2."),
    ("Y04", "the file contains one document", "An empty file or several documents are refused."),
    ("Y05", "there are no tags", "Tags such as `!!str` are refused; types come from the fields."),
    ("Y06", "keys appear once", "A duplicate key would silently replace another or be ignored."),
    ("Y07", "keys are words", "A map or list cannot be a key."),
    ("Y08", "aliases have an anchor", "An alias comes after its anchor, and not inside the anchored node."),
    ("Y09", "merge keys take maps", "`<<` takes a map or a list of maps."),
    ("S01", "values have the kind their field takes", "Text, number, `true` or `false`, list or map."),
    ("S02", "keys are known", "Anything else goes under `extensions`."),
    ("S03", "required keys are present", "The message names the key, the hint says what it is for."),
    ("S04", "keys belong to the step type", "Each step type has its own keys."),
    ("S05", "the step type is known", "tool, manual, assert, branch, parallel, end, extension, repeat, group."),
    ("S06", "templates parse", "See the template language."),
    ("S07", "numbers are kept exactly", "Quote a number that JSON cannot represent exactly."),
    ("S08", "the kind of document is known", "By `apiVersion`, by the file's name, or by its keys."),
    ("J01", "values have the form that their field requires", "Names, durations, URLs, text."),
    ("J02", "values are among those allowed", "The message lists them."),
    ("J03", "numbers are within range", "The message gives the bound."),
    ("J04", "lists and texts are not empty", "Where something is needed."),
    ("J05", "lists have no duplicates", "Where an item counts once."),
    ("J06", "the document matches the schema", "Anything else that the exported JSON Schema requires."),
    ("D01", "step ids are unique", "At every depth, in the whole runbook."),
    ("D02", "reserved names are not used", "`step`, `scope` and `repeat` are namespaces of the language."),
    ("D03", "a name has one meaning", "An input, a constant, a step or a loop's item."),
    ("D04", "loops have an id", "A loop's results are stored under the step's id."),
    ("D05", "every path ends", "Branches may rejoin; an `end` under a `when` does not count."),
    ("D06", "every step can be reached", "An unreachable step is usually a mistake."),
    ("D07", "jumps stay in their list", "`next` goes to a step of the same list."),
    ("D08", "jumps backwards are bounded", "`max` is required, and checked if it is constant."),
    ("D09", "branches are exhaustive", "The last arm is `default`."),
    ("D10", "`end` is where it can end the run", "Not in a lane, and never in `finally`."),
    ("D11", "parallel blocks have lanes", "At least two, each with steps."),
    ("D12", "lanes set different names", "There is no silent precedence between lanes."),
    ("D13", "lanes do not conflict", "Lanes that write what others use run one after the other."),
    ("D14", "repeated blocks are complete", "Steps in one place, and `max`."),
    ("D15", "tools are found", "The hint lists the places searched."),
    ("D16", "tools are declared", "A runbook may use only the tools in `tools`."),
    ("D17", "tools are valid", "A runbook is valid only if its tools are."),
    ("D18", "actions exist", "`action` is optional if the tool has only one."),
    ("D19", "required inputs are given", "By `inputs` or `inputs_from`, unless there is a default."),
    ("D20", "inputs fit their types", "Text is converted if no information is lost."),
    ("D21", "inputs are declared", "Governance does not see inputs that the contract does not declare."),
    ("D22", "secrets are set", "A note: the run may be meant for another machine."),
    ("D23", "declared tools are used", "Reviewers read `tools` to see what a runbook may do."),
    (
        "D24",
        "names resolve",
        "To an input, a constant, an earlier step's output, a scope; a `status` to a word it can be.",
    ),
    ("D25", "names are set on every path", "Or the template has a fallback, or the step a `when`."),
    ("D26", "loop results are read as lists", "The item exists only inside the loop, the list after it."),
    ("D27", "constants stay constant", "No output has the name of a constant."),
    ("D28", "`inputs_from` spreads objects", "Their keys are inputs of the contract."),
    ("D29", "exports exist and have one owner", "One step exports a name, and nothing else has it."),
    ("D30", "visibility globs are well formed", "`*` one segment, `**` any depth."),
    ("D31", "steps see what they read", "A step cannot read what its `visibility` hides."),
    ("D32", "contracts only tighten", "From tool to action to step."),
    ("D33", "`side_effects` is deprecated", "Declare `effects` and `writes`."),
    ("D34", "effects are declared", "Undeclared effects make the risk critical."),
    ("D35", "retries are safe", "Only idempotent contracts are retried."),
    ("D36", "assertions can be evaluated", "They have a value to compare with, and patterns compile."),
    ("D37", "evidence can be given", "A checklist has items, names are unique."),
    ("D38", "rules are well formed", "Matchers, one verdict, and only the keys that belong to it."),
    ("D39", "rules can be reached", "The first match decides, so a later rule may never match."),
    ("D40", "groups are known", "In the policy or the project."),
    ("D41", "tools fit the platform", "A note: the runbook may be meant for another system."),
    ("D42", "inputs are bound to known sources", "`prompt`, `env/`, `file/`, or a configured provider."),
    ("D43", "inputs respect their own limits", "Default, `enum`, `pattern`, `min`, `max`."),
    (
        "D44",
        "guards depend on something",
        "Text outside a template makes a guard always true: an error.",
    ),
    ("D45", "policies exist and are valid", "No run begins if one is missing or invalid."),
    ("D46", "policies cover undeclared effects", "Otherwise omitting the contract is a way around the policy."),
    ("D47", "scopes are paths", "Names with `/` or `.` between them, none of them empty."),
    ("D48", "effects come with writes", "A contract with effects declares `writes`, even if it is `[]`."),
    ("D49", "webhooks go to allowed hosts", "A runbook's webhooks need a host in the project's `webhook_hosts`."),
    ("D50", "this installation can run it", "Transport, extension, provider. A warning; a run is refused."),
    ("D50", "actions fit their transport", "`argv` for stdio, a server for jsonrpc and mcp."),
    ("D51", "extracts fill declared outputs", "From a source that has them, with a pattern that compiles."),
    ("D52", "tool templates name declared inputs", "A command without what its author meant must not run."),
    ("D53", "`argv` begins with the program", "With `binary`, its first word is dropped."),
    ("D54", "secrets stay off command lines", "Other users of a machine can read them there."),
    ("D55", "policies are in force", "A note: the project names the file or its folder."),
    ("D56", "previews are well formed", "One command without writes, for an action with writes."),
    (
        "D57",
        "rules match something",
        "A tag one letter off, or of another kind: a warning. Another rule that matches nothing: a note.",
    ),
    (
        "D58",
        "secret inputs get secrets",
        "An input of the runbook that is not secret is recorded: an error. So are outputs and the file: a warning.",
    ),
    ("D60", "scenarios answer existing steps", "Their steps, tools and inputs exist in the runbook."),
    ("D61", "expectations can be met", "Their steps exist and do not contradict each other."),
    (
        "D62",
        "scenario inputs fit",
        "As declared; a required one has a value; only secrets are redacted.",
    ),
    ("D63", "cases of policy tests are complete", "Each has its own name, and a contract, a tool or an outcome."),
    ("D64", "policy tests can pass", "They expect something, without contradictions."),
    ("D65", "scripts take arguments", "A value rendered into the text of a script is run by it: `$1` is not."),
    ("D66", "declared inputs of a tool are used", "Otherwise the command does not depend on what the caller passes."),
    ("D70", "imports of MCP servers name what is called", "A tool that was not imported can change without notice."),
    ("D71", "secrets reach MCP servers safely", "From declared secrets in headers, never written in the file."),
    ("D73", "credentials of providers are not in files", "A file names the environment variable that holds one."),
    ("D74", "providers name environment variables", "`…_env` is the name of a variable, and none of gert's own."),
    ("D75", "networked skills say what they reach", "`networkPolicy.domains` and `requiredSecrets` (registry)."),
    ("D76", "skills without a network have none", "No network policy, no secret, no request."),
    ("D77", "skills act in one way", "`http` or `program`, within their network policy, with one secret at most."),
    ("D78", "requests go to a fixed host", "https, a host of `networkPolicy.domains`, no port, no user."),
    ("D79", "secrets are marked and kept apart", "`.secret.NAME` in a header or the body, whole, never in a URL."),
    ("D80", "skill templates name declared inputs", "A request without what its author meant must not be sent."),
    ("D81", "skill outputs are declared", "In `contract.outputs`, each taken from one place."),
    ("D82", "runner actions name a skill", "One that is there and valid; a plan is executed once, so no `retry`."),
    ("D83", "plans hold no secrets", "A plan is a file that people read and approve."),
    ("D84", "runners and secrets policies are specific", "Addresses that can be read, patterns that name something."),
)

RULES: Final = {row[0]: RuleText(*row) for row in _ROWS}
