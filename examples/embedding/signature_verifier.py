"""A signature verifier: approvals are signed by people, and the program says which keys are theirs.

Run it: python examples/embedding/signature_verifier.py
"""

import asyncio
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from tool_executor import RUNBOOK, Cluster

import gert


class Directory:
    """The public keys of people, as a company directory has them."""

    def __init__(self, keys: dict[str, Ed25519PublicKey]) -> None:
        self._keys = keys

    def verify(self, response: gert.SignedResponse) -> bool:
        """Whether the approver's own key signed exactly this message."""
        key = self._keys.get(response.approver_id)
        if key is None or response.signature_alg != "ed25519" or response.key_id != response.approver_id:
            return False
        try:
            key.verify(b64decode(response.signature, validate=True), response.message)
        except (InvalidSignature, ValueError):
            return False
        return True


def sign(message: bytes, approver: str, key: Ed25519PrivateKey) -> tuple[str, str, str]:
    """What the approver's own program does: the signature, its algorithm, and the id of the key."""
    return b64encode(key.sign(message)).decode(), "ed25519", approver


class SignedDesk:
    """Asks one person, whose program signs the response."""

    def __init__(self, approver: str, key: Ed25519PrivateKey) -> None:
        self._approver = approver
        self._key = key

    def submit(self, request: gert.ApprovalRequest) -> gert.ApprovalTicket:
        """Return a ticket."""
        return gert.ApprovalTicket(ticket_id=f"desk-{request.step_id}")

    def wait(self, ticket: gert.ApprovalTicket) -> gert.ApprovalResponse:
        """Approve, with a signature over what gert says an approval covers."""
        response = gert.ApprovalResponse(
            ticket_id=ticket.ticket_id, approver_id=self._approver, approved=True, timestamp=ticket.created
        )
        return response.signed(*sign(response.message_for(ticket), self._approver, self._key))


async def restart(signer: str, policies: tuple[str, ...], state: str) -> gert.Executed:
    """Restart a pod; only a response that `bob@example.com` signed counts."""
    keys = {name: Ed25519PrivateKey.generate() for name in ("bob@example.com", "mallory@example.com")}
    parts = gert.Parts(
        approvals=SignedDesk("bob@example.com", keys[signer]),
        tools={"kubectl": Cluster("web-1", "web-2")},
        verifier=Directory({"bob@example.com": keys["bob@example.com"].public_key()}),
    )
    given = {"pod": gert.GivenInput("web-1", "api")}
    options = gert.RunOptions(file=str(RUNBOOK), given=given, policies=policies, state_dir=state)
    return await gert.execute(options, parts=parts)


def main() -> None:
    """Run it with a genuine and with a forged signature."""
    with tempfile.TemporaryDirectory() as state:
        policy = Path(state) / "signed.policy.yaml"
        policy.write_text(
            "apiVersion: policy/v0\n"
            "meta: { name: signed }\n"
            "governance: { require_signed_approvals: true, rules: [{ default: allow }] }\n",
            encoding="utf-8",
        )
        for signer in ("bob@example.com", "mallory@example.com"):
            executed = asyncio.run(restart(signer, (str(policy),), state))
            print(signer, executed.status)


if __name__ == "__main__":
    main()
