"""What only the host knows of a call that needs approval: its program, its folder, and the values of its secrets.

A request is completed with it when it is submitted. Before an approval is used, it is looked at again: what was
approved is exactly what is started, also after a wait, a resume, or a change of a file or an input.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gert.ecosystem.tools.stdio import ProgramLocation, location_changed
from gert.errors import InputError, Refused
from gert.kernel.engine.requests import Subject
from gert.kernel.events.runbook import Failure
from gert.kernel.foundation.secret_refs import reveal
from gert.kernel.foundation.signature import keyed_digest
from gert.kernel.governance.approval import ApprovalRequest
from gert.kernel.governance.approval_rules import hash_of

Locate = Callable[[Subject], ProgramLocation | None]
Lacks = Callable[[Subject], Failure | None]
MakePlan = Callable[[ApprovalRequest, Subject], dict[str, Any] | None]

CHANGED: Final = "the runbook, the tool file, the command or an input differs from the request"


class Binding:
    """Binds requests for approval of one run.

    secrets: the values of secret inputs, by input
    key: the key of the run; HMACs of secrets are made with it, and it is kept nowhere but beside the run
    locate: finds the program of a call, and the folder it would run in
    plan: makes the plan of a call that a runner executes; given the request, it makes the one that was asked for
    lacks: finds what a call could not do without; None where another process may make it
    host: what identifies this machine
    """

    def __init__(
        self,
        *,
        secrets: Mapping[str, str],
        key: str,
        host: str,
        locate: Locate,
        plan: MakePlan | None = None,
        lacks: Lacks | None = None,
    ) -> None:
        self._secrets = secrets
        self._key = key.encode()
        self._host = host
        self._locate = locate
        self._plan = plan
        self._lacks = lacks

    def refusal(self, subject: Subject | None) -> Failure | None:
        """Why no approver needs to be asked: the call would fail for want of a secret."""
        return self._lacks(subject) if self._lacks is not None and subject is not None else None

    def complete(self, request: ApprovalRequest, subject: Subject | None) -> ApprovalRequest:
        """The request with where the program is, the HMACs of secrets, and the hash over it."""
        if subject is None:
            return request
        place = self._locate(subject)
        bound = msgspec.structs.replace(
            request,
            secrets=self._hmacs(request, subject),
            program=place.program if place is not None else None,
            folder=place.folder if place is not None else None,
            host=self._host,
            plan=self._plan(request, subject) if self._plan is not None else None,
        )
        return msgspec.structs.replace(bound, request_hash=hash_of(bound))

    def outdated(self, request: ApprovalRequest, subject: Subject | None) -> Failure | None:
        """Why an approval of this request does not cover the call as it would be made now."""
        if subject is None:
            return None
        try:
            now = self.complete(request, subject)
        except Refused as refusal:
            return Failure("approval_outdated", f"no plan can be made any more: {refusal.message}")
        reason = self._difference(request, now)
        return Failure("approval_outdated", reason) if reason is not None else None

    def here(self, request: ApprovalRequest) -> ApprovalRequest:
        """The request as a transport compares it: another host has its programs elsewhere."""
        return request if request.host == self._host else msgspec.structs.replace(request, program=None, folder=None)

    def _difference(self, asked: ApprovalRequest, now: ApprovalRequest) -> str | None:
        if now.request_hash != asked.request_hash:
            others = [name for name in now.secrets if now.secrets[name] != asked.secrets.get(name)]
            if others and hash_of(msgspec.structs.replace(now, secrets=asked.secrets)) == asked.request_hash:
                return f"the secret input {', '.join(f'`{name}`' for name in others)} differs from the request"
            return CHANGED
        if asked.host != self._host:
            return None
        place = ProgramLocation(now.program, now.folder) if now.program is not None and now.folder is not None else None
        return location_changed(asked, place)

    def _hmacs(self, request: ApprovalRequest, subject: Subject) -> dict[str, str]:
        return {
            name: keyed_digest(self._key, [name, self._revealed(subject.inputs[name])])
            for name in request.hidden
            if name in subject.inputs
        }

    def _revealed(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return reveal(value, self._secrets)
            except InputError:
                return value  # a call with it is refused
        if isinstance(value, Mapping):
            return {self._revealed(key): self._revealed(each) for key, each in value.items()}
        return [self._revealed(each) for each in value] if isinstance(value, list | tuple) else value
