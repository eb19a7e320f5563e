"""Why an entry is missing at a server, or how it came there, judged from the knowledge of one or two servers (a `Scene` each).

The log's own knowledge of the entry comes first, then the facts about it, then the state of the peers that could have brought it. The last
is no proof: if no peer announced the entry, the answer can only name obstacles.

Source: docs/glass.md, "Why".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from ..entry.rules import Rule
from ..errors import DecodeError
from ..log.requests import SetAside
from .advice import advice_on, bare_reason
from .fact import Fact
from .scene import PeerLink, Scene


@dataclass(frozen=True, slots=True)
class Holding:
    """A log's knowledge of one entry.

    Attributes:
        quarantined: Rule and reason, if a repair keeps it out of the log.
        void: Why it has no effect: it is stored, but its author was removed; or it is not stored, because the log's access rule or its
            members refuse it or an ancestor of it. None if neither.
        missing: Parents that the entry waits for; empty unless it is an orphan.
        is_rejected: Whether it was rejected; if it comes again, it is refused unread.
    """

    is_stored: bool = False
    set_aside: Sequence[SetAside] = ()
    quarantined: tuple[str, str] | None = None
    void: str | None = None
    missing: Sequence[str] = ()
    is_rejected: bool = False


_VAGUE = ("here", "never-heard", "not-grafted", "partition")
"""Causes that the other side's answer may replace, because they say only that this side knows no better one."""
_QUEUED_BYTES_MUCH = 2**20
_STEPS_MAX = 50
_NAMED_MAX = 5


class _Ground(NamedTuple):
    """A cause, its sentence, and the Unix time since when it holds."""

    cause: str
    text: str
    since: float | None = None


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """The answer about one entry at one server.

    Attributes:
        state: `present` or `absent`, at that server.
        cause: One of those in docs/glass.md, "Why".
        text: One plain sentence, and advice.
        peer: The peer that was asked about; None for any.
        since: The Unix time since when the cause holds, if that is known.
        way: Facts about the entry, the oldest first: how it came, or how far it got.
    """

    entry: str
    node: str
    state: str
    cause: str
    text: str
    peer: str | None = None
    since: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    way: Sequence[Mapping[str, Any]] = ()

    def record(self) -> dict[str, Any]:
        """Return the answer for JSON, without fields that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> WhyAnswer:
        """Read the result of `record`.

        Raises:
            DecodeError: `record` is not an answer.
        """
        try:
            entry, node, state, cause, text = (str(record[name]) for name in ("entry", "node", "state", "cause", "text"))
            since, way = record.get("since"), [dict(step) for step in record.get("way", ())]
            details = dict(record.get("details", {}))
            return WhyAnswer(entry, node, state, cause, text, record.get("peer"), None if since is None else float(since), details, way)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise DecodeError(f"no answer to why: {error}") from None


def explain(entry: str, holding: Holding, facts: Sequence[Fact], scene: Scene, peer: str | None = None) -> WhyAnswer:
    """Explain how an entry came here, or why it is not here.

    Args:
        peer: The peer that should have brought the entry or, if it is here, should have got it; None for any.
    """
    details: dict[str, Any] = {"peers": len(scene.links)}
    if holding.is_stored:
        ground = _aside(holding) or _void(holding) or (_here(facts) if peer is None else _towards(peer, facts, scene))
    else:
        known = _held(holding) or _judged(holding, facts, scene)
        if known is not None:
            ground = known
        elif peer is not None:
            ground = _from(peer, facts, scene)
        else:
            causes = {id: _from(id, facts, scene).cause for id in [*scene.links, *scene.banned]}
            ground = _from_anybody(causes, facts, scene)
            details["causes"] = dict(list(causes.items())[:_NAMED_MAX])
    if holding.missing:
        details["missing"] = list(holding.missing)
    if holding.set_aside:
        details["set_aside"] = [
            {"application": aside.application, "reason": f"{aside.kind}: {aside.reason}"} for aside in holding.set_aside
        ]
    if peer is not None and peer in scene.links:
        link = scene.links[peer]
        details["link"] = {"kind": link.kind, "protocol": link.protocol, "peering": link.peering, "score": link.score}
        details["link"] |= {"queued_bytes": link.queued_bytes, "dropped": link.dropped}
    way = [_step(fact) for fact in facts[-_STEPS_MAX:]]
    state = "present" if holding.is_stored else "absent"
    return WhyAnswer(entry, scene.node, state, ground.cause, ground.text, peer, ground.since, details, way)


def with_view_of_peer(here: WhyAnswer, there: WhyAnswer | None, towards: WhyAnswer | None, topics: tuple[str, str]) -> WhyAnswer:
    """Complete the answer of a server with that of a peer.

    Args:
        there: The peer's answer about the entry; None without one.
        towards: The peer's answer about the entry and the server; None if it does not know the server.
        topics: The topic of the server's log, and that of the peer's.
    """
    if topics[0] != topics[1]:
        text = f"the logs have different topics, {topics[0]} and {topics[1]}, and exchange nothing; point both sides at the same topic"
        return replace(here, cause="other-topic", text=text)
    if there is None:
        return here
    if here.node == there.node and here.state != there.state:
        text = "both servers have the same key, so each takes the other for itself; give each its own key (--peer-key)"
        return replace(here, cause="partition", text=text)
    if here.state == "present":
        return _of_lack(here, there, towards)
    if there.state == "absent":
        text = f"{here.text}; the other peer does not have it either: {there.text}"
        return replace(here, text=text, details={**here.details, "there": there.cause})
    if towards is not None and here.cause in _VAGUE and towards.cause not in _VAGUE[:2]:
        return replace(here, cause=towards.cause, text=f"the peer that has it reports: {towards.text}", since=towards.since)
    return here


def _of_lack(here: WhyAnswer, there: WhyAnswer, towards: WhyAnswer | None) -> WhyAnswer:
    """Judge an entry that is here and may be missing at the peer, which knows best what happened to it there."""
    if there.state == "present":
        if there.cause == "set-aside" and here.cause != "set-aside":
            return replace(here, cause=there.cause, text=f"both have it; the other peer reports: {there.text}", since=there.since)
        return here if here.cause == "set-aside" else replace(here, cause="here", text="both have it", since=None)
    known = next((one for one in (there, towards) if one is not None and one.cause not in _VAGUE), None)
    if known is None:
        return here
    details = {**here.details, "there": known.cause}
    return replace(
        here, cause=known.cause, text=f"it is here; the peer that lacks it reports: {known.text}", since=known.since, details=details
    )


# The log's own knowledge


def _aside(holding: Holding) -> _Ground | None:
    if not holding.set_aside:
        return None
    first = holding.set_aside[0]
    text = f"it is here, but application {first.application} failed on it: {first.kind}: {first.reason}; fix the application, "
    text += "then `gossiplog quarantine retry`"
    return _Ground("set-aside", text, first.since)


def _void(holding: Holding) -> _Ground | None:
    if holding.void is None:
        return None
    return _Ground("void", f"it is here without effect: {holding.void}; `gossiplog access admit` by the remover makes data count again")


def _held(holding: Holding) -> _Ground | None:
    if holding.void is not None:
        return _Ground("void", f"the log's rule `access` refuses it, from any peer: {holding.void}")
    if holding.quarantined is not None:
        rule, reason = holding.quarantined
        text = f"a repair keeps it out of the log ({rule}: {reason}); `gossiplog quarantine retry` lets it in if it is whole now"
        return _Ground("rejected", text)
    if holding.missing:
        return _waiting(holding.missing)
    return None


def _waiting(missing: Sequence[str], since: float | None = None, reason: str | None = None) -> _Ground:
    several = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    what = f"its parent {missing[0]}{several}" if missing else f"a parent ({reason})" if reason else "a parent"
    text = f"it came, and waits for {what}, which no peer has sent; ask why that is not here"
    return _Ground("waiting-for-parent", text, since)


# Facts about the entry


def _judged(holding: Holding, facts: Sequence[Fact], scene: Scene) -> _Ground | None:
    """Judge by what happened when the entry came, or would happen now; None if it did not come."""
    last = next((fact for fact in reversed(facts) if fact.kind in ("verdict", "waiting")), None)
    if last is not None and last.kind == "verdict" and (last.rule is not None or last.type == "reject"):
        return _verdict(last, scene)
    if scene.trouble is not None:
        return _Ground("disk-full", f"nothing can be stored here: {scene.trouble}; make room, and it is fetched automatically")
    if holding.is_rejected:
        return _Ground("rejected", "it came before and was invalid, so it is refused unread; find out who made it")
    if last is not None and last.kind == "waiting":
        return _waiting((), last.time_s, last.reason)
    return None


def _verdict(fact: Fact, scene: Scene) -> _Ground:
    sender, reason = f"peer {fact.peer}" if fact.peer is not None else "somebody", fact.reason or "no reason was given"
    if fact.rule == Rule.STORAGE:
        why = scene.trouble or reason
        return _Ground(
            "disk-full", f"it came from {sender} and could not be stored: {why}; make room, and it is fetched again", fact.time_s
        )
    if fact.rule == Rule.ACCESS:
        return _Ground("void", f"it came from {sender}; the log's rule `access` refuses it: {reason}", fact.time_s)
    if fact.rule == Rule.QUOTA:
        text = f"it came from {sender} over its writer's quota: {reason}; it is fetched later, or raise the quota in --access FILE"
        return _Ground("refused-by-policy", text, fact.time_s)
    if fact.rule == Rule.UNWELCOME:
        text = f"it came from {sender}; this server refuses it from clients: {reason} (--access, --allow)"
        return _Ground("refused-by-policy", text, fact.time_s)
    if fact.rule == Rule.PARENTS:
        return _waiting((), fact.time_s, fact.reason)
    what = "is invalid" if fact.type == "reject" else "cannot be accepted here"
    return _Ground("rejected", f"it came from {sender} and {what} (rule {fact.rule}: {reason}); no replica accepts it", fact.time_s)


def _here(facts: Sequence[Fact]) -> _Ground:
    came = next((fact for fact in facts if fact.kind in ("deliver", "publish")), None)
    if came is None:
        return _Ground("here", "it is here; it came before the facts that this server still has")
    if came.peer is None:
        return _Ground("here", f"it is here: {_WAYS.get(came.way or '', came.way or 'it came')}", came.time_s)
    return _Ground("here", f"it is here: it came from {came.peer} by {came.way}", came.time_s)


_WAYS = {"append": "it was appended here", "http": "it was posted by HTTP", "import": "it was imported"}


# The peers that could have brought it


def _from(peer: str, facts: Sequence[Fact], scene: Scene) -> _Ground:
    """Say why a peer that may have the entry did not bring it."""
    link, barrier = scene.links.get(peer), _barrier(peer, scene)
    if barrier is not None:
        return barrier
    assert link is not None
    heard = next((fact for fact in reversed(facts) if fact.kind == "ihave" and fact.peer == peer), None)
    if link.is_syncing:
        return _Ground("syncing", f"a sync with {peer} is running and brings all that it has; wait for its end")
    if heard is not None:
        text = f"{peer} has announced it, and a sync should fetch it; if this persists, its syncs fail: look at the journal"
        return _Ground("heard-not-asked", text, heard.time_s)
    if not link.is_heeded:
        return _unheeded(link)
    if peer in scene.refused:
        text = f"messages of {peer} are refused: {scene.refused[peer]}; its program has to send messages that logs accept"
        return _Ground("refused-by-policy", text)
    if link.kind == "client" and "push" not in link.rights:
        return _Ground("refused-by-policy", f"client {peer} may not push here; give it the right in --access FILE")
    return _pubsub(link) or _Ground("never-heard", f"{peer} is connected, and has not announced it; ask there whether it has it")


def _barrier(peer: str, scene: Scene) -> _Ground | None:
    """Say what keeps us from exchanging anything with a peer; None if nothing does."""
    link = scene.links.get(peer)
    if peer in scene.banned:
        return _Ground("banned-sender", f"{peer} is banned: {scene.banned[peer]}; a ban ends after ten minutes")
    if link is None:
        reason = scene.dials.get(peer)
        if reason is None:
            text = f"there is no connection with {peer}; look at its address and the network in between; a client has to connect itself"
        else:
            text = f"there is no connection with {peer}: {bare_reason(peer, reason)}; {advice_on(reason)}"
        return _Ground("partition", text)
    if link.kind == "client" or (link.kind == "hub" and link.is_pushing):
        return None
    is_for_us = link.is_pushing or scene.topic in link.topics
    if link.kind == "hub" or (link.protocol is not None and not is_for_us):
        other = f"for another topic, {', '.join(link.topics[:_NAMED_MAX])}" if link.topics else "and does not serve this topic"
        return _Ground("other-topic", f"{peer} is connected {other}; this log's is {scene.topic}")
    if link.protocol is None:
        ways = "entries come only by syncs, later" if link.is_pushing else "nothing can come from it"
        text = f"{peer} has no pubsub protocol in common with us, so {ways}; give both the same --router, and similar versions"
        return _Ground("other-version", text)
    return None


def _pubsub(link: PeerLink) -> _Ground | None:
    """Say what keeps the router from exchanging messages with a mesh peer; None if nothing does."""
    if link.kind != "mesh":
        return None
    if not link.is_heeded:
        return _unheeded(link)
    if link.peering != "full" and link.score is not None and link.score < 0:
        text = f"{link.peer} is kept out of the mesh: its score is {link.score:,.1f}, below 0; {_SCORES}"
        return _Ground("score-below-threshold", text)
    if link.peering != "full":
        text = f"{link.peer} is connected but not grafted, so entries come later, by its announcements and syncs; see `gossiplog peers`"
        return _Ground("not-grafted", text)
    return None


def _unheeded(link: PeerLink) -> _Ground:
    score = "" if link.score is None else f" of {link.score:,.1f}"
    return _Ground("score-below-threshold", f"messages of {link.peer} are ignored: its score{score} is below the threshold; {_SCORES}")


_SCORES = "`gossiplog peers` shows the parts of scores"


def _from_anybody(causes: Mapping[str, str], facts: Sequence[Fact], scene: Scene) -> _Ground:
    heard = next((fact for fact in reversed(facts) if fact.kind == "ihave"), None)
    if not scene.links:
        dials = "; ".join(f"{address}: {reason}" for address, reason in list(scene.dials.items())[:_NAMED_MAX])
        if scene.banned and not dials:
            peer = next(iter(scene.banned))
            return _Ground("banned-sender", f"nobody else is connected, and {peer} is banned: {scene.banned[peer]}")
        text = f"nobody is connected{f' ({dials})' if dials else ''}; look at --bootstrap, --connect and the network"
        return _Ground("partition", text)
    if heard is not None and heard.peer is not None:
        return _from(str(heard.peer), facts, scene)
    running = next((id for id, link in scene.links.items() if link.is_syncing), None)
    if running is not None:
        return _from(running, facts, scene)
    if "never-heard" in causes.values():
        odd = {id: cause for id, cause in causes.items() if cause != "never-heard"}
        hint = "; ".join(f"{id}: {cause}" for id, cause in list(odd.items())[:_NAMED_MAX])
        hint = f"; others, which may have it, cannot tell us ({hint}): name one as PEER" if odd else ""
        return _Ground("never-heard", f"no peer has announced it{hint or '; ask a server that should have it'}")
    cause, _ = Counter(causes.values()).most_common(1)[0]
    return _from(next(id for id, one in causes.items() if one == cause), facts, scene)


# The peer that should have got it


def _towards(peer: str, facts: Sequence[Fact], scene: Scene) -> _Ground:
    """Say why a peer may lack an entry that is here."""
    theirs = next((fact for fact in facts if fact.peer == peer and fact.kind in ("deliver", "duplicate", "ihave")), None)
    if theirs is not None:
        return _Ground("here", f"it is here, and {peer} has it: it sent or announced it", theirs.time_s)
    barrier, link = _barrier(peer, scene), scene.links.get(peer)
    if barrier is not None or link is None:
        return barrier or _Ground("partition", f"there is no connection with {peer}")
    if link.queued_bytes > _QUEUED_BYTES_MUCH or link.dropped:
        text = f"{peer} reads too slowly: {link.queued_bytes:,} bytes wait for it, {link.dropped:,} messages were dropped; "
        return _Ground("slow-reader", text + "it is disconnected if it reads nothing for 15 s, and catches up by a sync")
    if link.kind == "client" and "pull" not in link.rights:
        return _Ground("refused-by-policy", f"client {peer} may not pull here; give it the right in --access FILE")
    sent = next((fact for fact in facts if fact.peer == peer and fact.kind == "send"), None)
    if sent is not None:
        return _Ground("here", f"it is here, and was sent to {peer}", sent.time_s)
    return _pubsub(link) or _Ground("here", f"it is here; no fact says that it was sent to {peer}, and nothing is in the way")


def _step(fact: Fact) -> dict[str, Any]:
    record = fact.record()
    return {name: record[name] for name in ("seq", "time_s", "kind", "peer", "type", "way", "rule", "reason") if name in record}
