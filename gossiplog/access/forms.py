"""The byte forms of control entries: the policy of a log, grants, revocations and admissions.

A control entry's payload is a map with the one key `gossiplog.access`. Each statement has exactly one form; any other payload that begins
like a control entry is refused.

Source: docs/spec/access.md, "Forms".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
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
"""From the least to the most; each includes the rights of those before it."""
_NAME = "gossiplog.access"
_HEAD = b"\xa1\x70" + _NAME.encode()
"""The first bytes, in PCF, of a map of one pair whose key is the name, and of nothing else."""
DID_CHARS = 56
"""The length of an Ed25519 key's did in its shortest form."""
_TOPIC = re.compile(r"[a-zA-Z0-9.-]+\.[0-9a-v]{51}[0g]")
"""52 digits of base32hex hold 260 bits; the last four are 0."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The founders of a log, and how many of them can remove a member by votes. The log's topic contains the policy's hash.

    Attributes:
        founders: 1 to 16 Ed25519 dids, each once; kept ascending.
        k: The number of founders' votes that remove a node: more than half of the founders, at most all. 0, the default, stands for the
            least allowed number.
        salt: 16 bytes that tell apart two logs with the same founders. Empty while it is not known; `gossiplog.open` draws one.

    Raises:
        LocalProtocolError: An attribute is out of these bounds.
    """

    founders: Sequence[str]
    k: int = 0
    salt: bytes = b""

    def __post_init__(self) -> None:
        if isinstance(self.founders, str):
            raise LocalProtocolError("one did, expected a list of dids", hint="Policy([did])")
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
            LocalProtocolError: The name has other characters than letters, digits, `.` and `-`, or more than 75.
        """
        topic = f"{name}.{base64.b32hexencode(self.hash).decode().rstrip('=').lower()}"
        if not is_topic(topic) or _TOPIC.fullmatch(topic) is None:
            raise LocalProtocolError(f"name {name[:80]!r}, expected 1 to 75 letters, digits, '.' and '-' before the policy's hash")
        return topic

    def entry(self, topic: str) -> Entry:
        """Return the policy's entry, the first entry of its log, which has the same bytes whoever makes it."""
        return sign_entry(Ed25519Signer(self.hash), topic, 1, [], pcf.encode({_NAME: self._map()}))

    def _map(self) -> dict[str, Any]:
        return {"founders": list(self.founders), "k": self.k, "salt": self.salt}


@dataclass(frozen=True, slots=True)
class Grant:
    """Makes a new node below another.

    Attributes:
        role: `read`, `write` or `admin`.
        under: The granting node, which becomes the new node's parent. A node's name is a founder's did, or a grant's id.
        device: Whether the node is another key of the same person as its parent. This does not affect rights.
    """

    did: str
    role: str
    under: str
    device: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """Removes a node with all nodes below it. Under the node itself it is a leaving, under a founder who is not above it a vote.

    Attributes:
        under: The node that signs.
        keep: Ids of entries that stay valid with all their ancestors; None for the revocation's own parents.
        adopt: Children of the node that stay members, with all nodes below them.
    """

    node: str
    under: str
    keep: tuple[str, ...] | None = None
    adopt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admit:
    """Makes data count again that revocations made void.

    Attributes:
        ids: Ids of data entries.
        under: The admitting node, an admin. For these entries, its own revocations and those signed below it are lifted.
    """

    ids: tuple[str, ...]
    under: str


Said: TypeAlias = Grant | Revoke | Admit


def has_policy(topic: str) -> bool:
    """Say whether a topic belongs to a log with members: it ends in `.` and the hash of a policy."""
    return _TOPIC.fullmatch(topic) is not None and is_topic(topic)


def is_control(entry: Entry) -> bool:
    """Say whether an entry of a log with members is a control entry; all others are data."""
    return entry.value.startswith(_HEAD, entry.envelope.payload_at)


def parse_policy(entry: Entry) -> Policy:
    """Read a log's policy from its first entry, and check that it is the one that the topic names.

    Raises:
        DecodeError: The entry is any other.
    """
    said = _said_of(entry)
    if said.keys() != {"founders", "k", "salt"} or not is_text_list(said["founders"]) or not isinstance(said["salt"], bytes):
        raise DecodeError("the policy is malformed")
    try:
        policy = Policy(tuple(said["founders"]), said["k"], said["salt"])
        topic = policy.topic(entry.topic[:-53])
    except LocalProtocolError as error:
        raise DecodeError(f"no policy: {error}") from None
    if topic != entry.topic or policy.entry(topic).value != entry.value:
        raise DecodeError("not the policy that the topic names")
    return policy


def parse_said(entry: Entry, *, is_stored: bool = False) -> Said:
    """Read the statement of a control entry other than a policy.

    Args:
        is_stored: Whether the log has the entry, so that the granted key need not be checked again.

    Raises:
        DecodeError: The entry has none of the forms.
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
    raise DecodeError("no grant, revocation or admission has this form")


def encode_said(said: Said) -> dict[str, Any]:
    """Return the payload of a control entry."""
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
    """Say whether a did can hold a node: the shortest form of an Ed25519 key in the group of the base point.

    Checking a key takes 60 µs; the last 16,384 answers are cached.
    """
    try:
        code, key = decode_did(did)
    except DecodeError:
        return False
    return code == ED25519_CODE and len(did) == DID_CHARS and ed25519.is_sound_key(key)


def find_wrong(did: str | None, role: str) -> str | None:
    """Return what is wrong with the did or the role of a grant; None if nothing is. A did of None is not checked."""
    if role not in ROLES:
        return f"role {role[:20]!r}, expected read, write or admin"
    return f"{did[:80]!r} is no did:key of an Ed25519 key" if did is not None and not may_hold(did) else None


def is_text_list(value: Any) -> bool:
    """Say whether a value is a list of distinct strings in ascending order."""
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
    """Return the ids, other than nodes, that must be among the entry's ancestors: those that are kept or admitted."""
    match said:
        case Revoke(keep=keep):
            return keep or ()
        case Admit(ids=ids):
            return ids
        case Grant():
            return ()
