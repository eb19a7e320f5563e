"""Proofs that one entry is in a publisher's log, as files, and the policies by which they are judged.

Source: C2SP tlog-proof and tlog-policy; docs/spec/bucket.md, "Proofs".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..entry.message import Entry
from ..entry.rules import VALUE_BYTES_LIMIT
from ..entry.validation import validate
from ..errors import DecodeError
from .growth import leaf_of
from .merkle import is_included, leaf_hash
from .note import (
    CHECKPOINT_BYTES_MAX,
    COSIGNATURE,
    ED25519,
    Checkpoint,
    VerifierKey,
    decode_base64,
    encode_base64,
    parse_checkpoint,
    parse_hashes,
    parse_number,
)

_HEADER = "c2sp.org/tlog-proof@v1"
PROOF_BYTES_MAX = VALUE_BYTES_LIMIT * 4 // 3 + CHECKPOINT_BYTES_MAX + 8_192
_POLICY_LINES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Proof:
    """A parsed proof; nothing in it is verified.

    Attributes:
        value: VALUE, the extra data.
        index: The leaf's number in the tree, from 0.
        hashes: The proof's hashes, from the leaf's sibling up.
        checkpoint: The publisher's note, cosignatures included.
    """

    value: bytes
    index: int
    hashes: Sequence[bytes]
    checkpoint: bytes

    def to_bytes(self) -> bytes:
        """Return the bytes of a `.tlog-proof` file."""
        lines = [_HEADER, f"extra {encode_base64(self.value)}", f"index {self.index}", *map(encode_base64, self.hashes), "", ""]
        return "\n".join(lines).encode() + self.checkpoint

    @classmethod
    def parse(cls, data: bytes) -> Proof:
        """Parse a file.

        Raises:
            DecodeError: It is not a proof, or lacks the VALUE.
        """
        if len(data) > PROOF_BYTES_MAX:
            raise DecodeError(f"a proof of {len(data):,} bytes, at most {PROOF_BYTES_MAX:,} are allowed")
        head, blank, checkpoint = data.partition(b"\n\n")
        try:
            lines = head.decode().split("\n")
        except UnicodeDecodeError:
            raise DecodeError("a proof that is not UTF-8") from None
        if not blank or lines[0] != _HEADER or len(lines) < 3:
            raise DecodeError(f"not a proof: it does not begin with {_HEADER}")
        extra, index = lines[1].removeprefix("extra "), lines[2].removeprefix("index ")
        if extra == lines[1] or index == lines[2]:
            raise DecodeError("a proof that lacks VALUE or the index")
        return cls(decode_base64(extra), parse_number(index), parse_hashes(lines[3:]), checkpoint)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The contents of a proof that was checked.

    Attributes:
        entry: The entry, its own signature verified.
        index: Its leaf in the publisher's tree, from 0.
        checkpoint: The publisher, and the size of the log when the checkpoint was signed.
        witnesses: The witnesses that cosigned, by their names in the policy, each with its time in Unix seconds.
    """

    entry: Entry
    index: int
    checkpoint: Checkpoint
    witnesses: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class WitnessPolicy:
    """Which logs are accepted, and which witnesses must have seen them.

    Attributes:
        logs: The keys of accepted publishers; if empty, any publisher is accepted.
        witnesses: The witnesses' keys, by their names in the policy.
        groups: For each group the number of members that must have cosigned, and the members: witnesses or earlier groups.
        quorum: The witness or group that must have cosigned; `none` for no witness.
    """

    logs: set[VerifierKey] = field(default_factory=set)
    witnesses: dict[str, VerifierKey] = field(default_factory=dict)
    groups: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    quorum: str = ""

    @classmethod
    def parse(cls, data: bytes) -> WitnessPolicy:
        """Read a policy.

        Raises:
            DecodeError: It breaks a rule of the format; the message names the line.
        """
        policy = cls()
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        if len(lines) > _POLICY_LINES_MAX:
            raise DecodeError(f"a policy of {len(lines):,} lines, at most {_POLICY_LINES_MAX:,} are allowed")
        for number, line in enumerate(lines, 1):
            words = line.replace("\t", " ").strip(" ").split()
            if words and not words[0].startswith("#"):
                try:
                    policy._read(words)
                except DecodeError as error:
                    raise DecodeError(f"line {number} of the policy: {error}") from None
        if not policy.quorum:
            raise DecodeError("a policy without a quorum line")
        return policy

    def is_met(self, seen: frozenset[str]) -> bool:
        """Whether these witnesses are enough."""
        met = {"none", *seen}
        for name, (least, members) in self.groups.items():
            if sum(member in met for member in members) >= least:
                met.add(name)
        return self.quorum in met

    def _read(self, words: list[str]) -> None:
        match words:
            case ["log", key] | ["log", key, _]:
                self.logs.add(self._new_key(key, ED25519))
            case ["witness", name, key] | ["witness", name, key, _]:
                self._check_new(name)
                self.witnesses[name] = self._new_key(key, COSIGNATURE)
            case ["group", name, least, *members] if members:
                self._check_new(name)
                taken = {member for _, others in self.groups.values() for member in others}
                for at, member in enumerate(members):
                    if member in taken or member in members[:at] or not self._is_known(member):
                        raise DecodeError(f"{member[:80]!r} is not defined, or in a group already")
                count = {"all": len(members), "any": 1}.get(least) or parse_number(least)
                if not 1 <= count <= len(members):
                    raise DecodeError(f"{least[:80]!r} of {len(members)} members")
                self.groups[name] = count, tuple(members)
            case ["quorum", name] if not self.quorum:
                if name != "none" and not self._is_known(name):
                    raise DecodeError(f"{name[:80]!r} is not defined")
                self.quorum = name
            case _:
                raise DecodeError(f"{' '.join(words)[:80]!r} is not understood")

    def _is_known(self, name: str) -> bool:
        return name in self.witnesses or name in self.groups

    def _check_new(self, name: str) -> None:
        if name == "none" or self._is_known(name):
            raise DecodeError(f"{name[:80]!r} is defined already")

    def _new_key(self, text: str, kind: int) -> VerifierKey:
        key = VerifierKey.parse(text)
        if key.kind != kind or key.public_key in {each.public_key for each in (self.logs if kind == ED25519 else self.witnesses.values())}:
            raise DecodeError(f"{key.name[:80]} has a key of another kind, or one that is there already")
        return key


def check_proof(proof: Proof, policy: WitnessPolicy | None = None, *, schemes: frozenset[str] | None = None) -> Evidence:
    """Check everything that a proof says; takes half a millisecond, and no log.

    Args:
        policy: The accepted logs, and the witnesses that must have cosigned. None: any publisher, and no witness.
        schemes: The signature schemes that the entry may be signed with.

    Raises:
        DecodeError: The entry, the checkpoint's signature, the hashes or a cosignature is wrong; or the policy is not met.
    """
    note, checkpoint = parse_checkpoint(proof.checkpoint)
    verdict = validate(proof.value, topic=checkpoint.origin.topic, schemes=schemes)
    if not verdict.accepted or verdict.entry is None:
        raise DecodeError(f"the entry is not valid: {verdict.rule}: {verdict.reason}")
    leaf = leaf_hash(leaf_of(verdict.entry.value))
    if not is_included(leaf, proof.index, checkpoint.size, checkpoint.root, proof.hashes):
        raise DecodeError(f"entry {verdict.entry.id} is not leaf {proof.index:,} of the tree that {checkpoint.origin} signed")
    if policy is None:
        return Evidence(verdict.entry, proof.index, checkpoint)
    if policy.logs and checkpoint.origin.key not in policy.logs:
        raise DecodeError(f"{checkpoint.origin} is none of the policy's logs")
    seen = {name: time for name, key in policy.witnesses.items() if (time := note.verify(key)) is not None}
    if not policy.is_met(frozenset(seen)):
        raise DecodeError(f"cosigned by {', '.join(sorted(seen)) or 'no witness of the policy'}, which is not its quorum")
    return Evidence(verdict.entry, proof.index, checkpoint, seen)
