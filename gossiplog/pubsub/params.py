"""Every parameter of every router, peer scores included, with its default, and the values that a mesh runs with.

The specifications' own symbols are kept (`D`, `D_lo`), so that a reader can compare. Names end in their unit: `_s` seconds, `_ticks`
heartbeats, `_bytes_max` bytes; other `_max` are counts. Ticks and maxima are at least 1 unless said otherwise. An instance is checked when
it is made, and frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeAlias

from ..errors import LocalProtocolError
from .protocol_ids import CHOKE, FLOODSUB, MESHSUB_1_0, MESHSUB_1_1, MESHSUB_1_2, MESHSUB_1_3
from .types import PeerId, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonParams:
    """The parameters that all routers have.

    Attributes:
        is_validating: Emit `Validate` and wait for the verdict; else every message is accepted at once.
        seen_ttl_s: Time for which an id is remembered after its first receipt, > 0; up to 1/8 longer in fact. Go's default, and the
            gossipsub specification's "last two minutes".
        seen_max: Ids remembered, ≥ 8; the oldest are forgotten first. About 100 bytes each.
        pending_max: Messages under validation. Further new ones are dropped without being marked as seen, so that a later copy can be
            taken.
        sources_max: Further peers noted, and reported, for a message that is pending or was ignored; mesh peers are not counted.
        topics_per_peer_max: Topics that one peer may subscribe to; further announcements are ignored.
        retry_s: Delay, > 0, before an announcement, GRAFT or PRUNE that found a full queue is sent again.
    """

    is_validating: bool = True
    seen_ttl_s: float = 120.0
    seen_max: int = 262_144
    pending_max: int = 8_192
    sources_max: int = 16
    topics_per_peer_max: int = 1_000
    retry_s: float = 1.0

    def __post_init__(self) -> None:
        require(self.seen_ttl_s > 0 and self.retry_s > 0, "seen_ttl_s, retry_s > 0")
        require(self.seen_max >= 8, "seen_max >= 8")
        require_at_least(1, self, "pending_max", "sources_max", "topics_per_peer_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodsubParams(CommonParams):
    """Floodsub has no parameters of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomsubParams(CommonParams):
    """Randomsub's parameters.

    Attributes:
        D: Peers of the topic that each message is forwarded to, ≥ 1. Go uses max(6, √network size).
    """

    D: int = 6

    def __post_init__(self) -> None:
        super(RandomsubParams, self).__post_init__()  # a slotted dataclass is a new class: bare super() fails on 3.11
        require(self.D >= 1, "D >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshsubParams(CommonParams):
    """The parameters of meshes. 0 ≤ D_lo ≤ D ≤ D_hi.

    Attributes:
        D: Target degree. A D, D_lo, D_hi and D_out of 0 make a bootstrapper, which has no mesh and names other peers in its PRUNEs.
        D_lo: Below it the heartbeat grafts up to D. Go has 5; the 2018 specification and js have 4.
        D_hi: Above it the heartbeat prunes down to D; a mesh of D_hi refuses grafts from peers that dialled us.
        D_score: Peers with the best scores that survive pruning, 0 to D.
        D_out: Links that we dialled: pruning keeps, and the heartbeat grafts, at least so many. 0, or < D_lo and ≤ D / 2.
        heartbeat_s: Period of the heartbeat, > 0.
        heartbeat_first_s: Delay of the first heartbeat after `Start`, ≥ 0.
        fanout_ttl_s: Time from the last publish until the fan-out peers of a topic are forgotten. libp2p's guide says 120.
        prune_backoff_s: Time after a PRUNE in which neither side grafts again. The PRUNE carries it in whole seconds, rounded up.
        unsubscribe_backoff_s: The same for a PRUNE because we left the topic.
        prune_backoff_max_s: The longest back-off that a remote PRUNE can ask for; a longer one is cut to this.
        graft_flood_threshold_s: A graft this soon after a prune is penalised twice.
        backoffs_max: Back-offs remembered per topic; the one refreshed longest ago is forgotten first.
        opportunistic_graft_ticks: Period of opportunistic grafting. Without scores there is none.
        opportunistic_graft_peers: Peers grafted each time, ≥ 0.
        repair_peers: Peers grafted per heartbeat because they served on request what the mesh had not brought, and mesh peers pruned
            because they bring nothing: in that case squatters hold the mesh. No specification has it; the default, 0, is gossipsub as
            specified. Needs scores.
        control_rpcs_max: RPCs with GRAFT or PRUNE that are heeded of one peer per heartbeat; each further one is ignored and counts as
            misbehaviour (P7).
        direct_peers: Peers that are sent every message and are never in a mesh; the operators of both sides agree on them.
        direct_connect_ticks: Period of the attempts to reconnect direct peers.
    """

    D: int = 6
    D_lo: int = 4
    D_hi: int = 12
    D_score: int = 4
    D_out: int = 2
    heartbeat_s: float = 1.0
    heartbeat_first_s: float = 0.1
    fanout_ttl_s: float = 60.0
    prune_backoff_s: float = 60.0
    unsubscribe_backoff_s: float = 10.0
    prune_backoff_max_s: float = 600.0
    graft_flood_threshold_s: float = 10.0
    backoffs_max: int = 4_096
    opportunistic_graft_ticks: int = 60
    opportunistic_graft_peers: int = 2
    repair_peers: int = 0
    control_rpcs_max: int = 20
    direct_peers: tuple[PeerId, ...] = ()
    direct_connect_ticks: int = 300

    def __post_init__(self) -> None:
        super(MeshsubParams, self).__post_init__()
        require(0 <= self.D_lo <= self.D <= self.D_hi, "0 <= D_lo <= D <= D_hi")
        require(0 <= self.D_score <= self.D, "0 <= D_score <= D")
        require(self.D_out == 0 or (0 < self.D_out < self.D_lo and 2 * self.D_out <= self.D), "0 <= D_out < D_lo and D_out <= D / 2")
        require(self.heartbeat_s > 0 and self.heartbeat_first_s >= 0, "heartbeat_s > 0 and heartbeat_first_s >= 0")
        require(0 <= self.unsubscribe_backoff_s <= self.prune_backoff_max_s, "unsubscribe_backoff_s <= prune_backoff_max_s")
        require(0 <= self.prune_backoff_s <= self.prune_backoff_max_s, "prune_backoff_s <= prune_backoff_max_s")
        require_at_least(0, self, "fanout_ttl_s", "graft_flood_threshold_s", "opportunistic_graft_peers", "repair_peers")
        require_at_least(1, self, "opportunistic_graft_ticks", "backoffs_max", "direct_connect_ticks", "control_rpcs_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipsubParams(MeshsubParams):
    """The parameters of gossipsub, v1.0 to v1.3.

    Attributes:
        protocols: The protocol ids to speak, the preferred first. Leave out 1.3.0 for no extensions, 1.2.0 as well to send no IDONTWANT,
            1.1.0 as well for no peer exchange, floodsub to refuse floodsub peers.
        D_lazy: The least number of peers that gossip goes to, per topic and heartbeat, ≥ 0.
        gossip_factor: The share of the peers outside the mesh that gossip goes to if that is more than D_lazy, 0 to 1.
        gossip_rotates: Send gossip to the peers that have waited longest for it, instead of drawing them: with a factor of 0.4 every peer
            outside the mesh hears of every message within the 3 heartbeats of `history_gossip`. The specification draws.
        history_length: Heartbeats for which a message can be asked for.
        history_gossip: Heartbeats for which a message is announced, 1 to `history_length`.
        mcache_max: Messages held; those of the oldest heartbeat are forgotten first.
        mcache_bytes_max: Bytes of data held.
        retransmissions: How many times one peer is sent the same message on request, ≥ 0.
        ihave_ids_max: Ids in one IHAVE that we send; also the ids that we ask one peer for, and serve it, per heartbeat.
        ihave_messages_max: RPCs with IHAVE that are heeded of one peer per heartbeat.
        iwant_follow_up_s: Time within which a message that we asked for must come; otherwise its announcer gets 1 of P7.
        promise_ids: One in so many ids of a request, drawn at random, is tracked as such a promise; ≥ 1.
        promises_max: Promises tracked; further requests are made without.
        idontwant_bytes_min: Size of a message from which on we send the mesh an IDONTWANT when it arrives.
        idontwant_ids_max: IDONTWANT ids remembered per peer.
        idontwant_ticks: Heartbeats for which such an id is heeded.
        flood_publish: Send our own messages to all peers of the topic that are not below the publish threshold.
        px_enabled: Offer peer exchange. Whether we use offers depends on `Thresholds.accept_px` alone; without scores we do.
        px_peers: Peers named in one PRUNE that we send, and dialled per heartbeat; 0 for neither.
        test_extension: Take part in the test extension, which only shows that extensions are understood.
        score: Parameters of scores; None keeps none, so that every score is 0.
    """

    protocols: tuple[str, ...] = (MESHSUB_1_3, MESHSUB_1_2, MESHSUB_1_1, MESHSUB_1_0, FLOODSUB)
    D_lazy: int = 6
    gossip_factor: float = 0.25
    gossip_rotates: bool = False
    history_length: int = 5
    history_gossip: int = 3
    mcache_max: int = 16_384
    mcache_bytes_max: int = 32 * 2**20
    retransmissions: int = 3
    ihave_ids_max: int = 5_000
    ihave_messages_max: int = 10
    iwant_follow_up_s: float = 3.0
    promise_ids: int = 500
    promises_max: int = 16_384
    idontwant_bytes_min: int = 512
    idontwant_ids_max: int = 1_000
    idontwant_ticks: int = 3
    flood_publish: bool = True
    px_enabled: bool = False
    px_peers: int = 16
    test_extension: bool = False
    score: ScoreParams | None = None

    def __post_init__(self) -> None:
        super(GossipsubParams, self).__post_init__()
        require(len(self.protocols) >= 1, "at least one protocol")
        require(self.D_lazy >= 0 and 0 <= self.gossip_factor <= 1, "D_lazy >= 0 and 0 <= gossip_factor <= 1")
        require(1 <= self.history_gossip <= self.history_length, "1 <= history_gossip <= history_length")
        require_at_least(0, self, "retransmissions", "px_peers", "iwant_follow_up_s", "idontwant_bytes_min")
        require_at_least(1, self, "mcache_max", "mcache_bytes_max", "ihave_ids_max", "ihave_messages_max")
        require_at_least(1, self, "promise_ids", "promises_max", "idontwant_ids_max", "idontwant_ticks")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChokeParams(GossipsubParams):
    """Choke's parameters. Source: vyzo/gerbil-simsub, `simsub/episub.ss`, its strategy "order-avg".

    Attributes:
        D_choke: Mesh links that stay unchoked, 1 to D_hi.
        choke_threshold: Heartbeats after `Start` before any link is choked, ≥ 1.
        choke_ticks: Period of the decisions, each based on the messages since the one before.
        choke_samples_min: Messages that a link must have brought in that time to be judged, ≥ 1.
    """

    protocols: tuple[str, ...] = (CHOKE, MESHSUB_1_3, MESHSUB_1_2, MESHSUB_1_1, MESHSUB_1_0, FLOODSUB)
    D_choke: int = 3
    choke_threshold: int = 30
    choke_ticks: int = 15
    choke_samples_min: int = 3

    def __post_init__(self) -> None:
        super(ChokeParams, self).__post_init__()
        require(1 <= self.D_choke <= self.D_hi, "1 <= D_choke <= D_hi")
        require_at_least(1, self, "choke_threshold", "choke_ticks", "choke_samples_min")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisubParams(CommonParams):
    """Episub's parameters: HyParView, Plumtree and GoCast's proximity.

    Source: "Episub" (r1, 2018-06-28), "Design Parameters for View Sizes"; HyParView (DSN 2007), section 5.1; Plumtree (SRDS 2007),
    section 4.1; GoCast (DSN 2005).

    Attributes:
        C_rand: Random links, ≥ 1; they keep the overlay in one piece.
        C_near: Near links, ≥ 0; they make it fast. The active view has A = C_rand + C_near links.
        active_max: Links accepted while joins oversubscribe the active view, ≥ A.
        passive_max: Peers in the passive view.
        join_ttl: Steps of a JOIN's random walk (ARWL), ≥ 0, as are the other times to live.
        forward_join_ttl: Steps of a FORWARDJOIN's random walk (PRWL).
        shuffle_ttl: Steps of a SHUFFLE's random walk.
        leave_ttl: Steps that a LEAVE spreads even through nodes where it removes nothing.
        k_active: Peers of the active view in a SHUFFLE (k_a).
        k_passive: Peers of the passive view in a SHUFFLE (k_p).
        alpha: A near link is swapped for a peer whose round trip is below alpha times its own; in (0, 1).
        rtt_gain: Weight of a new sample in the smoothed round trip, in (0, 1].
        heartbeat_s: Mean period of the membership's timer, > 0; each period is drawn from ± a quarter.
        links_ticks: Period of the NEIGHBOR messages that list our links; a change is sent at the next heartbeat.
        silence_ticks: A neighbour that sent no NEIGHBOR for this long is dropped.
        request_ticks: An unanswered request to become neighbours is given up after this.
        dial_ticks: An unanswered dial is given up after this.
        shuffle_ticks: Period of shuffles.
        probe_ticks: Period of probes, each of one active and one passive peer.
        improve_ticks: Period of the attempts to swap a near link.
        dials_max: Dials in progress.
        flush_s: Delay of announcements, > 0, which gathers several into one RPC.
        missing_s: Period of the one timer for missing messages, > 0: it marks a message the first time, and asks for it from the second on.
        missing_max: Missing messages tracked, a quarter of them named by one peer at most; further announcements are ignored.
        announcers_max: Announcers remembered for each missing message.
        graft_attempts: Requests for a missing message, ≥ 1, after which it is given up.
        hop_threshold: An announcement with this many hops fewer than the eager path makes its link eager too; the draft has 7.
        late_max_s: Unless it comes this much later than the message did, ≥ 0; an announcer holds a message for up to `flush_s` before it
            announces it. `benchmarks/results/routers.md` has measurements of other values.
        early_hop_threshold: As `hop_threshold`, for an announcement that came before the message.
        useful_messages: A duplicate prunes its link unless the link was of use to either end for one of this many messages, ≥ 1; 1 is
            nearly Plumtree's rule. Measured with 1,000 nodes that publish in turn, before there was `late_max_s`: 2 gave RMR 0.43 and
            17.8 hops for the last receipt; 3: 0.52, 16.4; 4: 0.64, 15.1; 5: 0.71, 14.3. With 100 nodes and 20 messages a second, 2 made
            trees fall apart (p99 1.1 s).
        cache_ticks: Heartbeats for which a message can be asked for.
        cache_max: Messages held; those of the oldest heartbeat are forgotten first.
        cache_bytes_max: Bytes of data held.
        recent_ticks: The messages of this many heartbeats, ≥ 0, are announced to a new neighbour.
        recent_max: The most, ≥ 0, that are announced to it.
        retransmissions: How many times one peer is sent the same message on request.
    """

    C_rand: int = 4
    C_near: int = 3
    active_max: int = 28
    passive_max: int = 42
    join_ttl: int = 6
    forward_join_ttl: int = 3
    shuffle_ttl: int = 6
    leave_ttl: int = 2
    k_active: int = 3
    k_passive: int = 4
    alpha: float = 0.5
    rtt_gain: float = 0.25
    heartbeat_s: float = 1.0
    links_ticks: int = 5
    silence_ticks: int = 20
    request_ticks: int = 3
    dial_ticks: int = 10
    shuffle_ticks: int = 10
    probe_ticks: int = 1
    improve_ticks: int = 10
    dials_max: int = 64
    flush_s: float = 0.1
    missing_s: float = 0.5
    missing_max: int = 16_384
    announcers_max: int = 8
    graft_attempts: int = 10
    hop_threshold: int = 6
    late_max_s: float = 0.03
    early_hop_threshold: int = 5
    useful_messages: int = 3
    cache_ticks: int = 30
    cache_max: int = 16_384
    cache_bytes_max: int = 32 * 2**20
    recent_ticks: int = 5
    recent_max: int = 1_000
    retransmissions: int = 3

    def __post_init__(self) -> None:
        super(EpisubParams, self).__post_init__()
        require(self.C_rand >= 1 and self.C_near >= 0, "C_rand >= 1 and C_near >= 0")
        require(self.C_rand + self.C_near <= self.active_max, "C_rand + C_near <= active_max")
        require(0 < self.alpha < 1 and 0 < self.rtt_gain <= 1, "0 < alpha < 1 and 0 < rtt_gain <= 1")
        require(min(self.heartbeat_s, self.flush_s, self.missing_s) > 0, "heartbeat_s, flush_s, missing_s > 0")
        require_at_least(0, self, "late_max_s", "join_ttl", "forward_join_ttl", "shuffle_ttl", "leave_ttl", "k_active", "k_passive")
        require_at_least(0, self, "hop_threshold", "early_hop_threshold", "recent_ticks", "recent_max", "retransmissions")
        require_at_least(1, self, "links_ticks", "silence_ticks", "request_ticks", "dial_ticks", "shuffle_ticks", "probe_ticks")
        require_at_least(1, self, "improve_ticks", "cache_ticks", "useful_messages", "graft_attempts")
        require_at_least(1, self, "passive_max", "dials_max", "missing_max", "announcers_max", "cache_max", "cache_bytes_max")

    @property
    def active_size(self) -> int:
        """A = C_rand + C_near."""
        return self.C_rand + self.C_near


IpNetwork: TypeAlias = IPv4Network | IPv6Network


def require(holds: bool, rule: str) -> None:
    """Raise `LocalProtocolError` with the rule, unless it holds."""
    if not holds:
        raise LocalProtocolError(f"parameters break the rule: {rule}")


def require_at_least(least: float, params: CommonParams, *names: str) -> None:
    """Raise `LocalProtocolError` for the first of these parameters that is below `least`."""
    for name in names:
        require(getattr(params, name) >= least, f"{name} >= {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScoreParams:
    """Scores in one topic. The defaults suit a quiet log: P3 and P3b, which take silence for a fault, are off.

    Source: gossipsub v1.1, "Topic Parameter Calculation and Decay"; the defaults follow rust-libp2p's where it sets any.

    Attributes:
        topic_weight: The topic's weight in the score, ≥ 0.
        time_in_mesh_weight: Weight of P1, ≥ 0.
        time_in_mesh_quantum_s: Time in the mesh that P1 counts as one, > 0.
        time_in_mesh_cap: The most that P1 counts.
        first_deliveries_weight: Weight of P2, ≥ 0.
        first_deliveries_decay: Factor per decay interval, in (0, 1), as are the other decays.
        first_deliveries_cap: The most that P2 counts.
        mesh_deliveries_weight: Weight of P3, ≤ 0; 0 switches it off.
        mesh_deliveries_decay: Factor per decay interval.
        mesh_deliveries_cap: The most deliveries that P3 counts, ≥ the threshold.
        mesh_deliveries_threshold: Deliveries, ≥ 0, below which P3 is the square of the deficit.
        mesh_deliveries_window_s: Time after the first copy was accepted in which another still counts; some milliseconds.
        mesh_deliveries_activation_s: Time in the mesh before P3 counts.
        mesh_failure_weight: Weight of P3b, ≤ 0, to which a pruned link adds the square of its deficit.
        mesh_failure_decay: Factor per decay interval.
        invalid_messages_weight: Weight of P4, ≤ 0, the square of the count.
        invalid_messages_decay: Factor per decay interval.
    """

    topic_weight: float = 0.5
    time_in_mesh_weight: float = 1.0 / 3600
    time_in_mesh_quantum_s: float = 1.0
    time_in_mesh_cap: float = 3600.0
    first_deliveries_weight: float = 1.0
    first_deliveries_decay: float = 0.5
    first_deliveries_cap: float = 2000.0
    mesh_deliveries_weight: float = 0.0
    mesh_deliveries_decay: float = 0.5
    mesh_deliveries_cap: float = 100.0
    mesh_deliveries_threshold: float = 20.0
    mesh_deliveries_window_s: float = 0.010
    mesh_deliveries_activation_s: float = 5.0
    mesh_failure_weight: float = 0.0
    mesh_failure_decay: float = 0.5
    invalid_messages_weight: float = -1.0
    invalid_messages_decay: float = 0.3

    def __post_init__(self) -> None:
        require(self.topic_weight >= 0, "topic_weight >= 0")
        require(self.time_in_mesh_weight >= 0 and self.first_deliveries_weight >= 0, "weights of P1 and P2 >= 0")
        penalties = (self.mesh_deliveries_weight, self.mesh_failure_weight, self.invalid_messages_weight)
        require(max(penalties) <= 0, "weights of P3, P3b, P4 <= 0")
        require(self.time_in_mesh_quantum_s > 0, "time_in_mesh_quantum_s > 0")
        decays = (self.first_deliveries_decay, self.mesh_deliveries_decay, self.mesh_failure_decay, self.invalid_messages_decay)
        require(all(0 < decay < 1 for decay in decays), "0 < decay < 1")
        bounds = (self.time_in_mesh_cap, self.first_deliveries_cap, self.mesh_deliveries_window_s, self.mesh_deliveries_activation_s)
        require(min(bounds) >= 0, "caps, mesh_deliveries_window_s, mesh_deliveries_activation_s >= 0")
        require(0 <= self.mesh_deliveries_threshold <= self.mesh_deliveries_cap, "mesh_deliveries_threshold <= mesh_deliveries_cap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The consequences of scores. 0 ≥ gossip ≥ publish ≥ graylist. The defaults are rust-libp2p's.

    Attributes:
        gossip: A peer below it is sent no gossip, and its gossip is ignored.
        publish: A peer below it is left out of flood publishing and fan-out.
        graylist: RPCs of a peer below it are dropped unread.
        accept_px: The peer exchange of a peer at or above it is used, ≥ 0.
        opportunistic_graft: A median score in the mesh below it makes the heartbeat graft better peers, ≥ 0.
    """

    gossip: float = -10.0
    publish: float = -50.0
    graylist: float = -80.0
    accept_px: float = 10.0
    opportunistic_graft: float = 20.0

    def __post_init__(self) -> None:
        require(0 >= self.gossip >= self.publish >= self.graylist, "0 >= gossip >= publish >= graylist")
        require(self.accept_px >= 0 and self.opportunistic_graft >= 0, "accept_px, opportunistic_graft >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreParams:
    """Scores over all topics.

    Attributes:
        topics: The parameters of topics that have their own.
        default_topic: The parameters of all other topics; None leaves those out of the score.
        topic_cap: The most that the topics' sum counts, ≥ 0; 0 for no cap.
        app_specific_weight: Weight of P5, ≥ 0, the value that the application set.
        ip_colocation_weight: Weight of P6, ≤ 0, the square of the surplus of peers at one address.
        ip_colocation_threshold: Peers that may share an address without a surplus, ≥ 1.
        ip_colocation_exempt: Addresses and networks (`10.0.0.0/8`) that do not count: loopback and known proxies.
        behaviour_weight: Weight of P7, ≤ 0, the square of the excess over `behaviour_threshold`.
        behaviour_threshold: Misbehaviour that costs nothing, ≥ 0.
        behaviour_decay: Factor per decay interval, in (0, 1).
        decay_interval_s: Time between two decays, > 0.
        decay_to_zero: A counter below it becomes 0; in (0, 1).
        retain_s: Time for which the score of a disconnected peer is kept, ≥ 0, so that reconnecting does not clear it. A positive score is
            dropped at once.
        retained_max: Disconnected peers whose scores are kept; the one that left first is forgotten first.
        thresholds: The consequences of scores.
    """

    topics: Mapping[Topic, TopicScoreParams] = field(default_factory=dict)
    default_topic: TopicScoreParams | None = field(default_factory=TopicScoreParams)
    topic_cap: float = 3600.0
    app_specific_weight: float = 10.0
    ip_colocation_weight: float = -5.0
    ip_colocation_threshold: int = 10
    ip_colocation_exempt: tuple[str, ...] = ("127.0.0.0/8", "::1")
    behaviour_weight: float = -10.0
    behaviour_threshold: float = 0.0
    behaviour_decay: float = 0.2
    decay_interval_s: float = 1.0
    decay_to_zero: float = 0.1
    retain_s: float = 3600.0
    retained_max: int = 10_000
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        require(self.topic_cap >= 0 and self.app_specific_weight >= 0, "topic_cap, app_specific_weight >= 0")
        require(self.ip_colocation_weight <= 0 and self.behaviour_weight <= 0, "weights of P6 and P7 <= 0")
        require(
            self.ip_colocation_threshold >= 1 and self.behaviour_threshold >= 0, "ip_colocation_threshold >= 1, behaviour_threshold >= 0"
        )
        require(0 < self.behaviour_decay < 1 and 0 < self.decay_to_zero < 1, "0 < decay < 1")
        require(self.decay_interval_s > 0 and self.retain_s >= 0 and self.retained_max >= 1, "decay_interval_s > 0, retained_max >= 1")
        self.exempt_networks()

    def exempt_networks(self) -> tuple[IpNetwork, ...]:
        """Return `ip_colocation_exempt` as networks; a single address is a network of one.

        Raises:
            LocalProtocolError: An item is neither an address nor a network.
        """
        networks = []
        for text in self.ip_colocation_exempt:
            try:
                networks.append(ip_network(text, strict=False))
            except ValueError:
                raise LocalProtocolError(
                    f"ip_colocation_exempt: {text!r}, expected an IP address or a network such as 10.0.0.0/8"
                ) from None
        return tuple(networks)


# The defaults of `gossiplog serve` in a mesh. The simulator's attacks run against the same values.
#
# Source: chosen by measurement, `python -m benchmarks.sim_attacks`; see docs/network.md, "Scores".
_TOPIC = TopicScoreParams(
    first_deliveries_decay=0.97,
    first_deliveries_cap=40.0,
    # P3 is off, because it penalises peers that bring nothing in a quiet log, or that are on the far side of its only writer. Its counters
    # still decide which mesh peers `repair_peers` replaces.
    mesh_deliveries_decay=0.8,
    mesh_deliveries_cap=2.0,
    mesh_deliveries_threshold=0.5,
    mesh_deliveries_window_s=0.2,
    mesh_deliveries_activation_s=4.0,
    # Without credit from P1 and P2, one invalid message makes the score −10, the gossip threshold, and three −90, below the graylist's.
    invalid_messages_weight=-20.0,
    invalid_messages_decay=0.99,
)
_SCORE = ScoreParams(
    default_topic=_TOPIC,
    behaviour_threshold=6.0,
    behaviour_decay=0.99,
    decay_to_zero=0.001,
    thresholds=Thresholds(accept_px=5.0),
)

MESH_PARAMS: Mapping[str, GossipsubParams | EpisubParams] = {
    "gossipsub": GossipsubParams(px_enabled=True, repair_peers=2, gossip_factor=0.4, gossip_rotates=True, score=_SCORE),
    "episub": EpisubParams(),
}
"""A mesh's parameters by the router's name. Episub keeps no scores."""
