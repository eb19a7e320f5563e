"""A server's rules for its clients: who may connect, pull, push, post and watch, and how much each writer may bring.

They do not change what a valid log is, and do not apply to entries from a mesh or an upstream.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import trio

from ...broadcast.allowance import Quota
from ...errors import LocalProtocolError
from .proof import PROVEN, DidProof, Proofs, Refusal, is_own_name
from .toml_file import read_toml

Rights: TypeAlias = frozenset[str]

ALL: Rights = frozenset({"connect", "pull", "push", "post", "watch"})
"""The rights to an existing log: open a WebSocket; read, by sync and HTTP; bring entries on a connection; post them by HTTP; and see the
server's figures and its list of peers."""
KNOWN: Rights = ALL | {"create"}
"""`ALL` and the right to create a log, where the server allows that. Nobody has it by default."""
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_TOKEN_BYTES = 32
_DEFAULT = "default"
_NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class LogAccess:
    """The rules of one log.

    Attributes:
        anonymous: The rights of clients without a token.
        tokens: The rights of clients with a token, by the token's name.
        dids: The rights of clients that prove a did.
        allow: Authors whose entries are accepted from clients; None for all.
    """

    anonymous: Rights = ALL
    tokens: Mapping[str, Rights] = field(default_factory=dict)
    dids: Mapping[str, Rights] = field(default_factory=dict)
    allow: frozenset[str] | None = None
    quota: Quota = field(default_factory=Quota)


class Access:
    """The rules of a server, which may be replaced while it runs.

    Args:
        hashes: Hashes of tokens by the tokens' names: `sha256:` and hexadecimal digits.

    Attributes:
        proofs: Makes challenges, and tokens for dids that sign one.
        replaced: Set by the next `replace`, which puts a new event in its place.
        full: Why no log accepts anything more; empty while there is room.
    """

    def __init__(
        self, hashes: Mapping[str, str] | None = None, default: LogAccess | None = None, logs: Mapping[str, LogAccess] | None = None
    ) -> None:
        self._hashes = dict(hashes or {})
        self._default = default or LogAccess()
        self._logs = dict(logs or {})
        # The rights of members by topic and did, for logs that decide themselves who is a member. The event is set when they change.
        self._members: dict[str, Mapping[str, Rights]] = {}
        self._removed: dict[str, Mapping[str, str]] = {}
        self._members_changed = trio.Event()
        # How many servers serve each of these logs under these rules.
        self._deciding: Counter[str] = Counter()
        self.proofs = Proofs()
        self.replaced = trio.Event()
        self.full = ""

    @classmethod
    def load(cls, file: str | Path, *, allow: Collection[str] = ()) -> Access:
        """Read a file.

        Raises:
            LocalProtocolError: It cannot be read, or a rule in it is wrong.
        """
        try:
            return cls.parse(read_toml(file), allow=allow)
        except OSError as error:
            raise LocalProtocolError(f"{file}: {error.strerror or error}") from None
        except (ValueError, RecursionError, LocalProtocolError) as error:
            raise LocalProtocolError(f"{file}: {error}", hint='docs/operations.md, "Access", shows what it may say') from None

    @classmethod
    def parse(cls, table: Mapping[str, Any], *, allow: Collection[str] = ()) -> Access:
        """Make rules of a file's contents.

        Args:
            allow: Dids that every log allows, in addition to the file's.

        Raises:
            LocalProtocolError: A rule is wrong; the message names its key.
        """
        _only(table, ("tokens", _DEFAULT, "logs"), "")
        hashes = _table(table.get("tokens", {}), "tokens")
        for name, value in hashes.items():
            if not isinstance(value, str) or not _HASH.fullmatch(value):
                raise LocalProtocolError(f"tokens.{name} is no hash: `gossiplog token` makes tokens with theirs")
        places = {_DEFAULT: table.get(_DEFAULT, {})}
        places |= {f"logs.{topic}": rules for topic, rules in _table(table.get("logs", {}), "logs").items()}
        is_closed = bool(hashes) or any("dids" in rules for rules in places.values() if isinstance(rules, dict))
        parsed = {place: _rules(rules, place, hashes, allow, is_closed=is_closed) for place, rules in places.items()}
        default = parsed.pop(_DEFAULT)
        logs = {place.removeprefix("logs."): rules for place, rules in parsed.items()}
        return cls(hashes, default, logs)

    def replace(self, other: Access) -> None:
        """Use other rules from now on. A connected client keeps its rights until it reconnects."""
        self._hashes, self._default, self._logs = other._hashes, other._default, other._logs
        self.replaced.set()
        self.replaced = trio.Event()

    def of(self, topic: str) -> LogAccess:
        """Return the rules of a log."""
        return self._logs.get(topic, self._default)

    @contextmanager
    def deciding_members(self, topic: str) -> Iterator[None]:
        """Let a log decide what its members may, until the last such block ends. No member has rights until `set_members` gives some."""
        self._deciding[topic] += 1
        if self._deciding[topic] == 1:
            self.set_members(topic, {})
        try:
            yield
        finally:
            self._deciding[topic] -= 1
            if not self._deciding[topic]:
                del self._deciding[topic]
                self.set_members(topic, None)

    def set_members(self, topic: str, members: Mapping[str, Rights] | None, removed: Mapping[str, str] = _NOBODY) -> None:
        """Set the rights that a log's members have in addition to the rules.

        Args:
            members: Rights by did; None if the log has no members, or is no longer served.
            removed: Former members, each with the id of the revocation.
        """
        if members is None:
            self._members.pop(topic, None)
            self._removed.pop(topic, None)
        else:
            self._members[topic], self._removed[topic] = members, removed
        self._members_changed.set()
        self._members_changed = trio.Event()

    def removed(self, topic: str) -> Mapping[str, str]:
        """Return a log's former members, each with the id of the revocation."""
        return self._removed.get(topic, _NOBODY)

    async def wait_changed(self, topic: str, did: str, rights: Rights) -> None:
        """Wait until a did no longer has these rights, because its role in the log changed."""
        while self.rights_of_did(topic, did) == rights:
            await self._members_changed.wait()

    def lets_dids_in(self, topic: str) -> bool:
        """Whether any did has rights to a log that not everybody has."""
        return topic in self._members or bool(self.of(topic).dids)

    @property
    def names_dids(self) -> bool:
        """Whether any log lets dids in."""
        return any(rules.dids for rules in (self._default, *self._logs.values()))

    def rights(self, topic: str, token: str | None) -> Rights | Refusal:
        """Return a caller's rights by its token; a refusal if this server does not know the token."""
        rules = self.of(topic)
        if token is None or not (self._hashes or self.lets_dids_in(topic)):
            # Without rules for tokens, one changes nothing.
            return rules.anonymous
        if token.startswith(PROVEN):
            holder = self.proofs.holder(topic, token)
            return holder if isinstance(holder, Refusal) else self.rights_of_did(topic, holder)
        name = self._name(token)
        if name is None:
            return Refusal(401, "this token is not known here")
        return rules.anonymous | rules.tokens.get(name, frozenset())

    def rights_of_did(self, topic: str, did: str) -> Rights:
        """Return the rights of a did: those of everybody, of the rules for it, and of its role in the log."""
        rules = self.of(topic)
        return rules.anonymous | rules.dids.get(did, Rights()) | self._members.get(topic, {}).get(did, Rights())

    def prove(self, topic: str, proof: DidProof) -> str | Refusal:
        """Return a token for a did that is proved and let in to a log."""
        refusal = self.proofs.refusal(topic, proof)
        if refusal is not None:
            return refusal
        # Only after the proof: otherwise anybody could find out who is let in.
        if not self.knows(topic, proof.did):
            return Refusal(403, f"{proof.did} is not let in here")
        return self.proofs.token(topic, proof)

    def knows(self, topic: str, did: str) -> bool:
        """Whether the rules name a did, or the log has members and this is one, or strangers have rights there."""
        rules, members = self.of(topic), self._members.get(topic)
        return did in rules.dids or (members is not None and (did in members or bool(rules.anonymous)))

    def _name(self, token: str) -> str | None:
        """Find a token's name. All tokens are compared, each in constant time, so the time taken reveals nothing."""
        hashed = hash_token(token)
        found = None
        for name, known in self._hashes.items():
            if hmac.compare_digest(hashed, known):
                found = name
        return found


@dataclass(frozen=True, slots=True)
class Caller:
    """The rights of one client.

    Attributes:
        token: The token that the client brought, if any.
        known: Overrides the token: rights, a did that is known to be the client's, or a refusal. It comes from the application that the
            server is mounted in, or from a proof on the connection.
    """

    access: Access
    token: str | None = None
    known: Rights | Refusal | str | None = None

    def rights(self, topic: str) -> Rights | Refusal:
        """Return the caller's rights to a log."""
        if self.known is None:
            return self.access.rights(topic, self.token)
        if isinstance(self.known, str):
            return self.access.rights_of_did(topic, self.known)
        return self.known

    def did(self, topic: str) -> str | None:
        """Return the did that the caller proved, or that the application knows it by; None without one."""
        if isinstance(self.known, str):
            return self.known
        if self.known is not None or self.token is None or not self.token.startswith(PROVEN):
            return None
        holder = self.access.proofs.holder(topic, self.token)
        return holder if isinstance(holder, str) else None

    def entering(self, topic: str) -> Rights | Refusal:
        """Return the caller's rights on a connection, or why it may not connect."""
        return self.refusal(topic, "connect") or self.rights(topic)

    def refusal(self, topic: str, right: str) -> Refusal | None:
        """Return why the caller lacks a right to a log; None if it has it."""
        rights = self.rights(topic)
        if isinstance(rights, Refusal):
            return rights
        if right in rights:
            return None
        if self.known is not None:
            return Refusal(403, f"you may not {right} here")
        if self.token is None:
            how = "; a did gets one for the answer to api/challenge" if self.access.lets_dids_in(topic) else ""
            return Refusal(401, f"to {right} takes a token here: send Authorization: Bearer TOKEN, or ?token=TOKEN in the URL{how}")
        return Refusal(403, f"this token does not allow to {right}")


def make_token() -> str:
    """Make a token of 256 random bits, enough to store its hash without a salt."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return the hash under which a token is stored."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _rules(value: Any, place: str, hashes: Mapping[str, str], allow: Collection[str], *, is_closed: bool) -> LogAccess:
    table = _table(value, place)
    _only(table, ("anonymous", "tokens", "dids", "allow", "quota"), place)
    known = _table(table.get("dids", {}), f"{place}.dids")
    if wrong := [did for did in known if not is_own_name(did)]:
        raise LocalProtocolError(f"{place}.dids: {wrong[0]!r} is no did:key of an Ed25519 key, as `gossiplog key list` shows it")
    tokens = _table(table.get("tokens", {}), f"{place}.tokens")
    _only(tokens, tuple(hashes), f"{place}.tokens")
    dids = [*_strings(table.get("allow", []), f"{place}.allow"), *allow]
    if wrong := [did for did in dids if not did.startswith("did:")]:
        raise LocalProtocolError(f"{place}.allow: {wrong[0]!r} is no did")
    return LogAccess(
        anonymous=_rights(table["anonymous"], f"{place}.anonymous")
        if "anonymous" in table
        else ALL - {"watch"}
        if not is_closed
        else Rights(),
        tokens={name: _rights(rights, f"{place}.tokens.{name}") for name, rights in tokens.items()},
        dids={did: _rights(rights, f"{place}.dids.{did}") for did, rights in known.items()},
        allow=frozenset(dids) if dids or "allow" in table else None,
        quota=_quota(table.get("quota", {}), f"{place}.quota"),
    )


def _quota(value: Any, place: str) -> Quota:
    table = _table(value, place)
    _only(table, tuple(one.name for one in fields(Quota)), place)
    for name, number in table.items():
        if type(number) is not int or number < 1:
            raise LocalProtocolError(f"{place}.{name} is a whole number above 0, not {number!r}")
    return Quota(**table)


def _rights(value: Any, place: str) -> Rights:
    rights = Rights(_strings(value, place))
    if unknown := rights - KNOWN:
        raise LocalProtocolError(f"{place}: there is no right {min(unknown)!r}; there are {', '.join(sorted(KNOWN))}")
    return rights


def _strings(value: Any, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise LocalProtocolError(f"{place} is a list of strings")
    return value


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise LocalProtocolError(f"{place} is a table")
    return value


def _only(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for name in table:
        if name not in known:
            those = f"; there are {', '.join(known)}" if known else ""
            raise LocalProtocolError(f"there is no {f'{place}.' if place else ''}{name}{those}")
