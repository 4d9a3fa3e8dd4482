"""What is known of a run before its inputs: the program, its policies, who runs it, what must be redacted."""

import os
import secrets
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from gert.ecosystem.approvals.port import SignatureVerifier
from gert.ecosystem.host.config.dsn import Dsn
from gert.ecosystem.host.config.keys.approval_keys import approval_verifier
from gert.ecosystem.host.config.keys.trace_keys import SIGNING_KEY_ID
from gert.ecosystem.host.config.ledger_location import Database, database_for, ledger_of
from gert.ecosystem.host.config.machine.platform import host_name
from gert.ecosystem.host.config.machine.user import user_name
from gert.ecosystem.host.config.machine.version import version_line
from gert.ecosystem.host.config.policies import Floor, floor_for, require_sound
from gert.ecosystem.host.config.settings import Settings, secret_variables, settings_for, witness_place
from gert.ecosystem.host.config.state_dir import new_run_id, state_dir
from gert.ecosystem.host.config.supported import require_supported
from gert.ecosystem.host.config.workspace import Checked, Workspace
from gert.ecosystem.host.embedding.ports import Parts, ToolExecutor
from gert.ecosystem.host.run.options import MODES, RunOptions, with_trace_file
from gert.ecosystem.host.run.record.journal import now
from gert.ecosystem.process.capture import marked
from gert.ecosystem.process.environment import GERT_PREFIX, started_by
from gert.ecosystem.tools.runners import Runners
from gert.errors import DocumentError, InputError, UsageError
from gert.kernel.engine.frame import Setup
from gert.kernel.engine.inputs import ResolvedInputs
from gert.kernel.engine.run import secret_names
from gert.kernel.events.runbook import Recent, RunStart, Start
from gert.kernel.events.started_by import NO_RUN
from gert.kernel.foundation.duration import parse_duration
from gert.kernel.foundation.redaction import Redactor, credentials_of, parts_of
from gert.kernel.foundation.text import has_visible, is_plain, is_text
from gert.kernel.runbook.document import Document
from gert.kernel.runbook.program import Program

if TYPE_CHECKING:
    from gert.kernel.ledger.witness import Witness

_KEY_FORMS: Final = ("base64", "ed25519")


class Prepared:
    """Everything that is known before inputs are resolved."""

    def __init__(
        self,
        options: RunOptions,
        environ: Mapping[str, str],
        workspace: Workspace | None = None,
        parts: Parts | None = None,
    ) -> None:
        _require_sense(options)
        self.options = options
        self.parts = _checked(parts)
        self.environ = environ
        self.database: Database | None = database_for(options.db or None, options.dsn, environ)
        self.workspace = workspace = workspace or Workspace()
        self.checked: Checked = require_sound(workspace.program(options.file))
        if self.checked.program is None:
            raise DocumentError(f"`{options.file}` is not a runbook")
        self.program: Program = self.checked.program
        folder = os.path.dirname(os.path.abspath(options.file))
        self.settings: Settings = settings_for(
            workspace, folder, options.config, environ, files=workspace.files_of(options.file, self.program)
        )
        if options.witness is not None:
            witness = witness_place(workspace.working, options.witness)
            self.settings = msgspec.structs.replace(self.settings, witness=witness)
        self.floor: Floor = floor_for(workspace, options.file, self.program, options.policies, self.settings)
        self.groups = dict(self.settings.groups)
        self.state = state_dir(options.state_dir, workspace.project_root(folder), environ)
        self.actor = options.actor or (options.principal.id if options.principal is not None else user_name())
        self.hidden: frozenset[str] = frozenset()
        """Further variables that hold secrets: masked, and kept from tools that do not declare them."""
        self.approval_key = secrets.token_hex(32)
        """The key of a new run; a run that is resumed has its own."""
        if not is_plain(self.actor):
            # It would pass for another person, and that one could approve what this one started.
            raise UsageError("the name of the actor has characters that cannot be seen", hint="name a person with --as")
        if options.mode != "replay" and self.program.runbook.meta.on_outcome is not None:
            from gert.ecosystem.host.run.boundary import require_webhooks  # most runbooks have no webhook of their own

            require_webhooks(self.program.runbook.meta, self.floor.policies, self.settings, environ)
        if options.mode not in ("dry-run", "replay"):
            self._require_secrets()
        self.witness = self._witness()

    @property
    def embedded_tools(self) -> dict[str, ToolExecutor]:
        """The executors that the embedding program brings for tools of this runbook, by tool."""
        found = {name: self.parts.executor_of(name) for name in self.program.tool_names} if self.parts.tools else {}
        return {name: executor for name, executor in found.items() if executor is not None}

    def verifier(self) -> SignatureVerifier:
        """What verifies signatures on approvals; on a ledger that others can write to, only keys with an owner do."""
        if self.parts.verifier is not None:
            from gert.ecosystem.host.embedding.verifier import EmbeddedVerifier

            return EmbeddedVerifier(self.parts.verifier)
        return approval_verifier(self.environ, is_strict=isinstance(self.database, Dsn))

    @property
    def tool_hashes(self) -> dict[str, str]:
        """The digests of the tools, by entry."""
        found = self.program.lookups.items()
        return {entry: lookup.document.digest for entry, lookup in found if lookup.document is not None}

    @property
    def skill_hashes(self) -> dict[str, str]:
        """The digests of the skills that the tools name, by id."""
        return {name: lookup.document.digest for name, lookup in self.program.skills.items()}

    @property
    def ledger(self) -> Database:
        """The ledger that was named, or that of the state directory."""
        return self.database if self.database is not None else ledger_of(self.state)

    def _witness(self) -> "Witness | None":
        """Where sealed heads are appended to beside the ledger; UsageError where no key seals them."""
        if self.options.mode != "real" or not (self.settings.witness or self.settings.witness_required):
            return None
        from gert.ecosystem.host.config.witness import witness_for  # most runs have no witness

        return witness_for(self.settings, self.environ, self.ledger)

    @property
    def documents(self) -> dict[str, Document]:
        """Every document the run is started with, by path: the runbook, its tools, skills and policies."""
        found = {os.path.abspath(self.options.file): self.checked.document}
        for lookup in self.program.lookups.values():
            if lookup.document is not None and lookup.file is not None:
                found[os.path.abspath(os.path.join(self.workspace.working, lookup.file))] = lookup.document
        for skill in self.program.skills.values():
            found[os.path.abspath(skill.file)] = skill.document
        return found | {os.path.abspath(path): document for path, document in self.floor.documents.items()}

    @property
    def timeout(self) -> float | None:
        """Seconds the whole run may take: the shorter of what the caller and the runbook say."""
        declared = self.program.runbook.meta.timeout
        limits = [self.options.timeout, parse_duration(declared).total_seconds() if declared else None]
        return min((limit for limit in limits if limit is not None), default=None)

    def redactor(self, inputs: ResolvedInputs) -> Redactor:
        """Everything that must not be shown: declared secrets, secret inputs, our own keys and passwords.

        An input that holds one of our keys is an error: a tool would be given it, and could sign or approve with it.
        """
        ours = list(_our_keys(self.environ))
        keys = Redactor([form for key in ours for form in (key, key.strip())])
        for name, value in {**inputs.values, **inputs.secrets}.items():
            if keys.value(value).masked:
                raise InputError(
                    f"the input `{name}` holds one of gert's own keys", hint="keys of gert are never given to tools"
                )
        ours += [self.environ.get(name, "") for name in secret_variables(self.program.runbook.meta, self.settings)]
        if isinstance(self.database, Dsn):
            ours += self.database.passwords
        if inputs.secrets:
            ours.append(self.approval_key)
        held = (self.environ.get(name, "") for name in (*secret_names(self.program), *sorted(self.hidden)))
        declared = [part for value in held for part in credentials_of(value)]
        known = [*declared, *(part for text in inputs.secrets.values() for part in parts_of(text)), *ours]
        # Output is decoded as UTF-8 in any case: a secret that is not UTF-8 is also searched in its decoded form.
        read = [each.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for each in known]
        return Redactor([*known, *read, *map(marked, known)])

    def runners(self, working: str) -> Runners:
        """What finds the runners of extensions; programs run in the folder `working`."""
        return self.workspace.runners(os.path.dirname(os.path.abspath(self.options.file)), self.environ, working)

    def require_supported(self, working: str) -> None:
        """Refuse a runbook with a step that this installation cannot run in the folder `working`."""
        require_supported(self.program, self.runners(working), self.settings.mcp_http_hosts, self.embedded_tools)

    def begin(self) -> str:
        """A new run id; its trace is written where settings want it, unless the caller says where."""
        run_id = self.options.run_id or new_run_id(now())
        self.options = with_trace_file(self.options, self.settings, self.program.runbook.meta.name, run_id)
        return run_id

    def setup(
        self,
        inputs: ResolvedInputs,
        redactor: Redactor,
        scenario: str | None = None,
        actor: str | None = None,
        *,
        run_id: str | None = None,
        recent: Recent | None = None,
        working: str | None = None,
        parent_run_id: str | None = None,
    ) -> Setup:
        """A new run, as the engine is given it.

        actor: who started the run that a scenario was recorded from
        working: the folder tools run in, where it is not the current one
        parent_run_id: the run that this one is a rerun of
        """
        for name, value in inputs.values.items():
            if redactor.value(value).masked:
                # Masked, it would be another value than was given, and a tool would be called with that.
                raise InputError(
                    f"the input `{name}` holds a secret and is not declared as one",
                    hint=f"declare it with `secret: true` in `meta.inputs.{name}`",
                )
        # The result of a replay does not depend on the run whose tool, or whose agent, called this gert.
        caller = started_by(self.environ) if self.options.mode != "replay" else NO_RUN
        started = RunStart(
            runbook=self.program.runbook.meta.name,
            runbook_hash=self.checked.document.digest,
            actor=actor or self.actor,
            host=host_name(),
            gert_version=version_line(),
            mode=self.options.mode,
            policy_hashes=self.floor.digests,
            inputs=inputs.values,
            input_sources=inputs.sources,
            scenario=scenario,
            parent_run_id=parent_run_id or caller.parent_run_id,
            root_run_id=None if parent_run_id is not None else caller.root_run_id,
            start=self._start(inputs, recent, working) if self.options.mode == "real" else None,
            principal=self.options.principal,
            require_signed=self.options.require_signed,
        )
        return Setup(
            program=self.program,
            run_id=run_id or new_run_id(now()),
            started=started,
            policies=tuple(self.floor.policies),
            secret_inputs=frozenset(inputs.secrets),
            groups=self.groups,
            explores=self.options.mode in ("dry-run", "probe"),
            break_glass=self.options.break_glass,
            # The result of a replay does not depend on what ran today: it has no earlier runs.
            recent=Recent() if self.options.mode == "replay" else recent,
        )

    def _start(self, inputs: ResolvedInputs, recent: Recent | None, working: str | None) -> Start:
        """How the run is started, as its first event says."""
        options = self.options
        return Start(
            file=os.path.abspath(options.file),
            working=working or os.getcwd(),
            documents={path: document.digest for path, document in self.documents.items()},
            tools=self.tool_hashes,
            skills=self.skill_hashes,
            secret_inputs=tuple(sorted(inputs.secrets)),
            policies=tuple(os.path.abspath(path) for path in options.policies),
            config=os.path.abspath(options.config) if options.config else None,
            evidence=os.path.abspath(options.evidence) if options.evidence else None,
            approvals=options.approvals,
            break_glass=options.break_glass,
            max_parallel=options.max_parallel,
            timeout=options.timeout,
            trace=os.path.abspath(options.trace) if options.trace else None,
            state_dir=self.state,
            witness=self.settings.witness,
            record=os.path.abspath(options.record) if options.record else None,
            recent=recent,
        )

    def _require_secrets(self) -> None:
        for secret in self.program.runbook.meta.secrets:
            if secret.required and not self.environ.get(secret.env):
                raise InputError(
                    f"the runbook requires the secret `{secret.env}`",
                    hint=f"set the environment variable: {secret.description or secret.env}",
                )


def _our_keys(environ: Mapping[str, str]) -> Iterator[str]:
    """Our own keys, with and without what says how they are written; labels and public keys are not secret."""
    for name, value in environ.items():
        if not name.startswith(GERT_PREFIX) or "KEY" not in name or name == SIGNING_KEY_ID:
            continue
        kind, colon, rest = value.strip().partition(":")
        if kind == "ed25519-public" and colon:
            continue
        yield value
        if kind in _KEY_FORMS and colon:
            yield rest
            with suppress(ValueError):
                yield b64decode(rest, validate=True).decode("utf-8", "surrogateescape")


def _checked(parts: Parts | None) -> Parts:
    if parts is None:
        return Parts()
    from gert.ecosystem.host.embedding.calling import require_parts  # most runs bring no parts

    return require_parts(parts)


def _require_sense(options: RunOptions) -> None:
    """Refuse what contradicts itself."""
    if options.mode not in MODES:
        raise UsageError(f"`{options.mode}` is not a mode", hint=f"one of {', '.join(MODES)}")
    if sum(map(bool, (options.trace, options.db, options.dsn))) > 1:
        raise UsageError("a run is recorded in one place", hint="give only one of --trace, --db and --dsn")
    if options.mode == "replay" and not options.scenario:
        raise UsageError("a replay needs a scenario", hint="name it with --scenario, or give its folder")
    if options.scenario and options.mode != "replay":
        raise UsageError("only a replay is answered by a scenario", hint="add --mode replay")
    for flag, text in (("--record", options.record), ("--scenario", options.scenario), ("--config", options.config)):
        if text is not None and not text.strip():
            raise UsageError(f"`{flag}` needs a name")
    if options.break_glass is not None and not has_visible(options.break_glass):
        raise UsageError("`--break-glass` needs a reason", hint="it is recorded, and shown in every report")
    if options.record and options.mode != "real":
        raise UsageError(f"a {options.mode} has no answers of the world to record", hint="record a real run")
    for name, value in _caller_texts(options):
        if not is_text(value):
            raise UsageError(f"{name} is not UTF-8 text")


def _caller_texts(options: RunOptions) -> Iterator[tuple[str, str]]:
    """What the caller gave in words, by the name of its option."""
    yield "FILE", options.file
    for name in ("actor", "trace", "db", "dsn", "state_dir", "evidence", "config", "scenario", "record"):
        value = getattr(options, name)
        if value is not None:
            yield {"actor": "--as"}.get(name, f"--{name.replace('_', '-')}"), value
    yield from (("--policy", each) for each in options.policies)
