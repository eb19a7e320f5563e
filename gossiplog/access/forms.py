"""The byte forms of control entries: the policy of a log, grants, revocations and admissions.

A control entry's payload is a map with the one key `gossiplog.access`. Each thing said has exactly one form; everything else that begins
as a control entry does is refused.

Source: docs/spec/access.md, "Forms".
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

from ..codec import pcf
from ..codec.did import ED25519_CODE, decode_did
from ..entry import ed25519
from ..entry.message import Entry
from ..entry.message_id import is_id
from ..entry.rules import is_topic
from ..entry.signing import Ed25519Signer, sign_entry
from ..errors import DecodeError, LocalProtocolError

FOUNDERS_MAX = 16
IDS_MAX = 1_024
"""Ids in one list of a revocation or an admission."""
SALT_BYTES = 16
ROLES = ("read", "write", "admin")
"""From the least to the most; each may do what those before it may."""
_NAME = "gossiplog.access"
_HEAD = b"\xa1\x70" + _NAME.encode()
"""A map of one pair whose key is the name; in PCF nothing else begins so."""
DID_CHARS = 56
"""Of the shortest did of an Ed25519 key; a padded one has more."""
_TOPIC = re.compile(r"[a-zA-Z0-9.-]+\.[0-9a-v]{51}[0g]")
"""52 digits of base32hex hold 260 bits, of which the last four are 0."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Who founded a log, and how many founders remove a member together. The log's topic names its hash.

    Attributes:
        founders: 1 to 16 Ed25519 dids, each once; kept ascending.
        k: How many founders' votes remove a node: more than half of them, at most all. 0, the default, takes the least that is allowed.
        salt: 16 bytes that tell apart two logs with the same founders. Empty where it is not known yet; `gossiplog.open` draws one.

    Raises:
        LocalProtocolError: One of them is not as it should be.
    """

    founders: tuple[str, ...]
    k: int = 0
    salt: bytes = b""

    def __post_init__(self) -> None:
        founders = tuple(sorted(set(self.founders)))
        object.__setattr__(self, "founders", founders)
        if not 1 <= len(founders) <= FOUNDERS_MAX:
            raise LocalProtocolError(f"{len(founders)} founders, expected 1 to {FOUNDERS_MAX}")
        for did in founders:
            if not may_hold(did):
                raise LocalProtocolError(f"founder {did!r}, expected a did:key of an Ed25519 key")
        if self.k == 0:
            object.__setattr__(self, "k", len(founders) // 2 + 1)
        if type(self.k) is not int or not len(founders) < 2 * self.k <= 2 * len(founders):
            raise LocalProtocolError(f"k {self.k!r} of {len(founders)} founders, expected more than half and at most all")
        if len(self.salt) not in (0, SALT_BYTES):
            raise LocalProtocolError(f"a salt of {len(self.salt)} bytes, expected {SALT_BYTES}")

    @property
    def hash(self) -> bytes:
        """SHA-256 of the policy's bytes, 32 bytes."""
        return sha256(pcf.encode(self._map())).digest()

    def topic(self, name: str) -> str:
        """Return the topic of a log with this policy: `NAME.` and 52 digits of base32hex.

        Raises:
            LocalProtocolError: The name is not of letters, digits, `.` and `-`, or has more than 75 characters.
        """
        topic = f"{name}.{base64.b32hexencode(self.hash).decode().rstrip('=').lower()}"
        if not is_topic(topic) or _TOPIC.fullmatch(topic) is None:
            raise LocalProtocolError(f"name {name[:80]!r}, expected 1 to 75 letters, digits, '.' and '-' before the policy's hash")
        return topic

    def entry(self, topic: str) -> Entry:
        """Return the policy's entry, the first one of its log: the same bytes whoever makes it."""
        return sign_entry(Ed25519Signer(self.hash), topic, 1, [], pcf.encode({_NAME: self._map()}))

    def _map(self) -> dict[str, Any]:
        return {"founders": list(self.founders), "k": self.k, "salt": self.salt}


@dataclass(frozen=True, slots=True)
class Grant:
    """Makes a new node below another.

    Attributes:
        role: `read`, `write` or `admin`.
        under: The node that grants, which becomes the new one's parent. Nodes are named by a founder's did, or by a grant's id.
        device: Whether the node is another key of the same person as its parent. It changes nobody's rights.
    """

    did: str
    role: str
    under: str
    device: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """Removes a node with all below it; of the node itself it is a leaving, of a node in another founder's branch a founder's vote.

    Attributes:
        keep: Ids that stay with all their ancestors; None for the entry's parents.
        adopt: Children of the node that go on with all below them.
    """

    node: str
    under: str
    keep: tuple[str, ...] | None = None
    adopt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admit:
    """Makes data count that revocations had made void.

    Attributes:
        ids: Of data entries.
        under: The node that admits: an admin, whose own revocations and those from below it are lifted for these entries.
    """

    ids: tuple[str, ...]
    under: str


Said: TypeAlias = Grant | Revoke | Admit


def has_policy(topic: str) -> bool:
    """Say whether a topic is that of a log with members: it ends in `.` and the hash of a policy."""
    return _TOPIC.fullmatch(topic) is not None and is_topic(topic)


def is_control(entry: Entry) -> bool:
    """Say whether an entry of a log with members is about members; anything else is data."""
    return entry.value.startswith(_HEAD, entry.envelope.payload_at)


def parse_policy(entry: Entry) -> Policy:
    """Read a log's policy from its first entry, and check that it is the one entry that the topic allows.

    Raises:
        DecodeError: It is any other entry.
    """
    said = _said_of(entry)
    if said.keys() != {"founders", "k", "salt"} or not is_text_list(said["founders"]) or not isinstance(said["salt"], bytes):
        raise DecodeError("no policy has this form")
    try:
        policy = Policy(tuple(said["founders"]), said["k"], said["salt"])
        topic = policy.topic(entry.topic[:-53])
    except LocalProtocolError as error:
        raise DecodeError(f"no policy: {error}") from None
    if topic != entry.topic or policy.entry(topic).value != entry.value:
        raise DecodeError("not the policy that the topic names")
    return policy


def parse_said(entry: Entry, *, is_stored: bool = False) -> Said:
    """Read what a control entry says, other than a policy.

    Args:
        is_stored: Whether the log has it, so that its key was looked at before.

    Raises:
        DecodeError: It has none of the forms.
    """
    said = _said_of(entry)
    match said:
        case {"grant": str(did), "role": str(role), "under": str(under), **rest} if rest in ({}, {"device": True}):
            if (wrong := find_wrong(None if is_stored else did, role)) is not None:
                raise DecodeError(wrong)
            return Grant(did, role, under, bool(rest))
        case {"revoke": str(node), "under": str(under), **rest} if rest.keys() <= {"keep", "adopt"}:
            keep = _ids(rest["keep"], 0) if "keep" in rest else None
            return Revoke(node, under, keep, _ids(rest["adopt"], 1) if "adopt" in rest else ())
        case {"admit": list(ids), "under": str(under), **rest} if not rest:
            return Admit(_ids(ids, 1), under)
    raise DecodeError("neither a grant nor a revocation nor an admission has this form")


def encode_said(said: Said) -> dict[str, Any]:
    """Return the entry's payload."""
    body: dict[str, Any]
    match said:
        case Grant():
            body = {"grant": said.did, "role": said.role, **({"device": True} if said.device else {})}
        case Revoke():
            body = {"revoke": said.node, **({} if said.keep is None else {"keep": sorted(set(said.keep))})}
            body |= {"adopt": sorted(set(said.adopt))} if said.adopt else {}
        case Admit():
            body = {"admit": sorted(set(said.ids))}
    return {_NAME: {**body, "under": said.under}}


@lru_cache(maxsize=16_384)
def may_hold(did: str) -> bool:
    """Say whether a did can be granted anything: the shortest form of an Ed25519 key in the group of the base point.

    Looking at a key takes 60 µs; the last 16,384 answers are remembered.
    """
    try:
        code, key = decode_did(did)
    except DecodeError:
        return False
    return code == ED25519_CODE and len(did) == DID_CHARS and ed25519.is_sound_key(key)


def find_wrong(did: str | None, role: str) -> str | None:
    """Say what is wrong with what a grant names, if anything is; a did of None is not looked at."""
    if role not in ROLES:
        return f"role {role[:20]!r}, expected read, write or admin"
    return f"{did[:80]!r} is no did:key of an Ed25519 key" if did is not None and not may_hold(did) else None


def is_text_list(value: Any) -> bool:
    """Say whether something is a list of distinct texts in ascending order."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and sorted(set(value)) == value


def _said_of(entry: Entry) -> dict[str, Any]:
    said = entry.payload[_NAME] if is_control(entry) else None
    if not isinstance(said, dict):
        raise DecodeError("not about members")
    return said


def _ids(value: Any, least: int) -> tuple[str, ...]:
    if not is_text_list(value) or not least <= len(value) <= IDS_MAX or not all(map(is_id, value)):
        raise DecodeError(f"a list of ids, expected {least} to {IDS_MAX}, ascending, each once")
    return tuple(value)


def named_in(said: Said) -> tuple[str, ...]:
    """Return the ids that must be among the ancestors beside the nodes: what is kept, and what is admitted."""
    match said:
        case Revoke(keep=keep):
            return keep or ()
        case Admit(ids=ids):
            return ids
        case Grant():
            return ()
