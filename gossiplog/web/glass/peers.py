"""GET peers: the connected peers, the kind of peering, and the state of each.

Source: docs/glass.md, "Peers".
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...glass.scene import PeerLink, Scene
from ...net.service.peers import ServedPeer
from ...net.service.service import Service
from ...pubsub.router import PeerState, RouterState, ScoreParts
from ...version import VERSION


async def show_peers(service: Service, request: Request) -> Response:
    """GET peers, of one log."""
    root, heads, count = await service.log.root(), await service.log.heads(), await service.log.count()
    router = service.state().router
    known = {peer.peer: peer for peer in router.peers}
    record = {
        "me": service.me,
        "topic": service.topic,
        "router": router.router,
        "protocols": list(service.host.protocols),
        "version": VERSION,
        "now": time.time(),
        "entries": count,
        "heads": heads,
        "root": {"level": root.level, "hash": root.hash.hex()},
        "peers": [_peer_record(service, peer, known.get(peer.id), router) for peer in service.peers.values()],
        "dials": [asdict(dial) for dial in service.failed_dials.standing()],
        "bans": _bans(service),
        "refused": [
            {"peer": peer.id, "reason": reason, "count": peer.counts.get("messages refused", 0)}
            for peer in service.peers.values()
            for reason in sorted(peer.refusals)
        ],
    }
    return JSONResponse(record)


def scene_of(service: Service, trouble: str | None = None) -> Scene:
    """Show a service's peers as `why` and the doctor judge them."""
    router = service.state().router
    known = {peer.peer: peer for peer in router.peers}
    return Scene(
        service.me,
        service.topic,
        {peer.id: _link(service, peer, known.get(peer.id), router) for peer in service.peers.values()},
        {ban["peer"]: ban["reason"] for ban in _bans(service)},
        {peer.id: max(peer.refusals) for peer in service.peers.values() if peer.refusals},
        {dial.address: dial.reason for dial in service.failed_dials.standing()},
        trouble,
    )


def _link(service: Service, peer: ServedPeer, state: PeerState | None, router: RouterState) -> PeerLink:
    pubsub = service.host.peers.get(peer.id)
    return PeerLink(
        peer.id,
        peer.kind.value,
        None if pubsub is None else pubsub.protocol,
        () if state is None else tuple(state.topics),
        peering_of(router, service.topic, peer.id),
        is_pushing=peer.push is not None,
        is_heeded=service.host.shared.router.is_heeded(peer.id),
        is_syncing=peer.is_syncing,
        score=None if state is None or state.score is None else state.score.total,
        queued_bytes=0 if peer.push is None else peer.push.queued_bytes,
        dropped=peer.counts["dropped"] + (0 if state is None else state.dropped),
        rights=frozenset(peer.rights),
        refused=peer.counts["messages refused"],
    )


def peering_of(router: RouterState, topic: str, peer: str) -> str:
    """Return the kind of peering with a peer: `full`, `metadata`, `fanout` or `none`."""
    for state in router.topics:
        if state.topic == topic:
            for kind, peers in (("full", state.full_message), ("fanout", state.fan_out), ("metadata", state.metadata_only)):
                if peer in peers:
                    return kind
    return "none"


def score_record(score: ScoreParts | None) -> dict[str, float] | None:
    """Show a score: its total, and the parts that are not 0."""
    if score is None:
        return None
    return {part: round(value, 3) for part, value in asdict(score).items() if value or part == "total"}


def _peer_record(service: Service, peer: ServedPeer, state: PeerState | None, router: RouterState) -> Mapping[str, Any]:
    pubsub = service.host.peers.get(peer.id)
    connection = peer.links[0].connection if peer.links else None
    traffic: dict[str, dict[str, int]] = {}
    for link in peer.links:
        for protocol, carried in service.figures.carried(link.connection).items():
            sum_ = traffic.setdefault(protocol, {"in": 0, "out": 0})
            sum_["in"] += carried.bytes_in
            sum_["out"] += carried.bytes_out
    return {
        "peer": peer.id,
        "kind": peer.kind.value,
        "outbound": connection is not None and connection.is_outbound,
        "address": None if connection is None else connection.address,
        "protocol": None if pubsub is None else pubsub.protocol,
        "since": min((link.since for link in peer.links), default=None),
        "peering": peering_of(router, service.topic, peer.id),
        "topics": [] if state is None else list(state.topics),
        "score": None if state is None else score_record(state.score),
        "backoff_s": _left_s(None if state is None else state.backoff_until),
        "queue": {
            "bytes": 0 if peer.push is None else peer.push.queued_bytes,
            "rpcs": 0 if pubsub is None else len(pubsub.rpcs),
            "dropped": 0 if state is None else state.dropped,
        },
        "traffic": traffic,
        "syncing": peer.is_syncing,
        "counts": dict(peer.counts),
        "heeded": service.host.shared.router.is_heeded(peer.id),
        "pushing": peer.push is not None,
        "rights": sorted(peer.rights),
    }


def _left_s(until: float | None) -> float | None:
    left = 0.0 if until is None else until - trio.current_time()
    return round(left, 1) if left > 0 else None


def _bans(service: Service) -> list[dict[str, Any]]:
    now, unix = trio.current_time(), time.time()
    bans = [ban for ban in service.state().bans if ban[1] > now]
    return [{"peer": peer, "until": unix + until - now, "reason": reason} for peer, until, reason in bans]
