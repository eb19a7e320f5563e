"""Every parameter of every router, peer scores included, with its default and where that comes from, and what a mesh runs.

The specifications' own symbols are kept here (`D`, `D_lo`), so that a reader can lay the two side by side. Seconds end in `_s`,
bounds in `_max`. An instance is checked when it is made and never changes.
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
    """What all routers share.

    Attributes:
        is_validating: Emit `Validate` and wait for the verdict; else every message is accepted at once.
        seen_ttl_s: How long an id is remembered after its first receipt, at least; 1/8 longer at most. Go's default, and the
            gossipsub specification's "last two minutes".
        seen_max: Ids remembered at most; the oldest are forgotten first. About 100 bytes each.
        pending_max: Messages under validation at most; beyond it new ones are dropped without being marked seen, so that a later
            copy can be taken.
        sources_max: Other peers remembered, and told of, for a message that is pending or was ignored, beside those in its mesh.
        topics_per_peer_max: Topics that one peer may subscribe to; beyond it its announcements are ignored.
        retry_s: After how long an announcement, GRAFT or PRUNE that met a full queue is sent again.
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
        require(min(self.pending_max, self.sources_max, self.topics_per_peer_max) >= 1, "pending_max, sources_max, topics_per_peer_max > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodsubParams(CommonParams):
    """Floodsub has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomsubParams(CommonParams):
    """Randomsub's.

    Attributes:
        D: Peers of the topic that each message is forwarded to. Go uses max(6, √network size); a parameter here.
    """

    D: int = 6

    def __post_init__(self) -> None:
        super(RandomsubParams, self).__post_init__()  # a slotted dataclass is a new class: bare super() fails on 3.11
        require(self.D >= 1, "D >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshsubParams(CommonParams):
    """The mesh's.

    Attributes:
        D: Target degree. 0, as D_lo, D_hi and D_out, makes a bootstrapper: it has no mesh, and names others in its PRUNEs.
        D_lo: Below it the heartbeat grafts up to D. Go has 5; the 2018 specification and js have 4.
        D_hi: Above it the heartbeat prunes down to D; from it on a graft by a peer that dialled us is refused.
        D_score: How many of the best scored peers survive pruning.
        D_out: Links that we dialled, kept at least when pruning and topped up to; < D_lo and ≤ D / 2.
        heartbeat_first_s: The first one, after `Start`.
        fanout_ttl_s: When the fan-out peers of a topic are forgotten after the last publish. libp2p's guide says 120.
        prune_backoff_s: How long neither side grafts again after a PRUNE. Told in the PRUNE, in whole seconds, rounded up.
        unsubscribe_backoff_s: The same when we pruned because we left the topic.
        prune_backoff_max_s: What a remote PRUNE may ask for at most; more counts as this.
        graft_flood_threshold_s: A graft this soon after a prune counts twice.
        backoffs_max: Remembered (topic, peer) backoffs of peers that are not connected, a topic; the oldest goes first.
        opportunistic_graft_ticks: Heartbeats between two opportunistic grafts. Without scoring there are none.
        opportunistic_graft_peers: Peers grafted each time.
        repair_peers: Peers grafted a heartbeat because they served on request what the mesh had not brought, and mesh peers pruned that
            bring nothing: where that happens, squatters hold the mesh. No specification has it; 0, the default, is gossipsub as
            specified. Needs scores.
        control_rpcs_max: RPCs with GRAFT or PRUNE that one peer is heeded in between two heartbeats; each further one is passed over
            and is misbehaviour (P7).
        direct_peers: Always sent everything, never in a mesh; the operators on both sides agree on it.
        direct_connect_ticks: Heartbeats between two attempts to reconnect direct peers.
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
        require(self.opportunistic_graft_ticks >= 1, "opportunistic_graft_ticks >= 1")
        require(min(self.opportunistic_graft_peers, self.repair_peers) >= 0, "opportunistic_graft_peers, repair_peers >= 0")
        sizes = (self.backoffs_max, self.direct_connect_ticks, self.control_rpcs_max)
        require(min(sizes) >= 1, "backoffs_max, direct_connect_ticks, control_rpcs_max >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipsubParams(MeshsubParams):
    """Gossipsub's, v1.0 to v1.3.

    Attributes:
        protocols: Spoken, the preferred first. Leave out 1.3.0 for no extensions, 1.2.0 as well to send no IDONTWANT, 1.1.0 for no
            peer exchange, floodsub to refuse floodsub peers.
        D_lazy: Peers that gossip goes to, at least, a topic and heartbeat.
        gossip_factor: Or this share of the peers outside the mesh, if that is more.
        gossip_rotates: Gossip goes to those who have waited longest for it, instead of a new draw each heartbeat: with a factor of 0.4
            everybody outside the mesh hears of every message within `history_gossip` heartbeats, 3. The specification draws.
        history_length: Heartbeats that a message can be asked for.
        history_gossip: Heartbeats that a message is announced for, ≤ `history_length`.
        mcache_max: Messages held at most; the oldest heartbeat's go first.
        mcache_bytes_max: Bytes of data held at most.
        retransmissions: How often one peer is sent one message on request.
        ihave_ids_max: Ids announced to a peer in one IHAVE, and ids asked of one peer, a heartbeat.
        ihave_messages_max: RPCs with gossip taken from one peer a heartbeat.
        iwant_follow_up_s: An announced message we asked for must come within this; else P7 + 1 for the announcer.
        promise_ids: Of this many ids asked for at once one is tracked as such a promise, at random.
        promises_max: Requests tracked at most; beyond it requests are made and not tracked.
        idontwant_bytes_min: Messages from this size on are announced with IDONTWANT to the mesh when they arrive.
        idontwant_ids_max: Ids of one peer that are heeded at a time.
        idontwant_ticks: Heartbeats that such an id is heeded.
        flood_publish: Own messages go to all peers of the topic above the publish threshold.
        px_peers: Peers named in a PRUNE, and peers of a PRUNE that we dial; 0: no peer exchange offered.
        px_enabled: Offer peer exchange. Accepting it is a matter of `Thresholds.accept_px`, or of this without scoring.
        test_extension: Take part in the test extension, which shows that extensions are understood and does nothing else.
        score: Scoring; None: every peer's score is 0.
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
        require(self.retransmissions >= 0 and self.px_peers >= 0, "retransmissions, px_peers >= 0")
        counts = (self.mcache_max, self.promises_max, self.ihave_ids_max, self.ihave_messages_max, self.idontwant_ids_max, self.promise_ids)
        require(min(*counts, self.mcache_bytes_max) >= 1, "mcache_*max, promises_max, ihave_*_max, idontwant_ids_max, promise_ids >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChokeParams(GossipsubParams):
    """Choke's. Source: vyzo/gerbil-simsub, `simsub/episub.ss`, its strategy "order-avg".

    Attributes:
        D_choke: Mesh links that are never choked, at least.
        choke_threshold: Heartbeats after `Start` before anybody is choked.
        choke_ticks: Heartbeats between two decisions; a decision looks at the messages since the last one.
        choke_samples_min: Messages that a link must have brought meanwhile to be judged.
    """

    protocols: tuple[str, ...] = (CHOKE, MESHSUB_1_3, MESHSUB_1_2, MESHSUB_1_1, MESHSUB_1_0, FLOODSUB)
    D_choke: int = 3
    choke_threshold: int = 30
    choke_ticks: int = 15
    choke_samples_min: int = 3

    def __post_init__(self) -> None:
        super(ChokeParams, self).__post_init__()
        require(1 <= self.D_choke <= self.D_hi, "1 <= D_choke <= D_hi")
        require(min(self.choke_threshold, self.choke_ticks) >= 1, "choke_threshold, choke_ticks >= 1")
        require(self.choke_samples_min >= 1, "choke_samples_min >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisubParams(CommonParams):
    """Episub's: HyParView, Plumtree and GoCast's proximity.

    Source: "Episub" (r1, 2018-06-28), "Design Parameters for View Sizes"; HyParView (DSN 2007), section 5.1; Plumtree (SRDS 2007),
    section 4.1; GoCast (DSN 2005).

    Attributes:
        C_rand: Random links; they keep the overlay in one piece.
        C_near: Near links; they make it fast. The active view is A = C_rand + C_near.
        active_max: Links accepted at most, while joins oversubscribe the view.
        passive_max: The passive view.
        join_ttl: Steps of a JOIN's random walk (ARWL).
        forward_join_ttl: Steps of a FORWARDJOIN's (PRWL).
        shuffle_ttl: Steps of a SHUFFLE's.
        leave_ttl: How far a LEAVE spreads where it removes nobody.
        k_active: Peers of the active view in a shuffle (k_a).
        k_passive: Peers of the passive view in a shuffle (k_p).
        alpha: A near link is swapped for a peer whose round trip is below alpha times its own.
        rtt_gain: Weight of a new sample in the smoothed round trip.
        heartbeat_s: Period of the membership's timer, ± a quarter at random each time.
        links_ticks: Heartbeats between two NEIGHBOR messages that tell neighbours our links; a change is told at once.
        silence_ticks: A neighbour not heard of for this many heartbeats is dropped.
        request_ticks: An unanswered request to become neighbours is given up after this many.
        dial_ticks: A dial that nobody answered is given up after this many.
        shuffle_ticks: Heartbeats between two shuffles.
        probe_ticks: Heartbeats between two probes, each of one active and one passive peer.
        improve_ticks: Heartbeats between two attempts to swap a near link.
        dials_max: Peers that are dialled, or have messages waiting for a connection, at a time.
        flush_s: Announcements wait for company this long.
        missing_s: Period of the one timer for missing messages: marked at the first touch, asked for from the second on.
        missing_max: Missing messages tracked at most; announcements beyond it are ignored.
        announcers_max: Announcers remembered for each.
        graft_attempts: After this many requests a message is taken for lost.
        hop_threshold: An announcement that beats the eager path by this many hops or more makes its link eager too; the draft has 7.
        late_max_s: But not if it comes this much later than the message did, which its announcer had for up to `flush_s` by then. What
            other values gave is in `benchmarks/results/routers.md`.
        early_hop_threshold: The same for an announcement that came before the message.
        useful_messages: A duplicate prunes its link unless that was of use to one of its ends for one of this many messages; 1 is
            nearly Plumtree's rule. Measured with 1,000 nodes that publish in turn, before there was `late_max_s`: 2 gave RMR 0.43 and
            17.8 hops for the last receipt; 3: 0.52, 16.4; 4: 0.64, 15.1; 5: 0.71, 14.3. With 100 nodes and 20 messages a second, 2 made
            trees fall apart (p99 1.1 s).
        cache_ticks: Heartbeats that a message can be asked for.
        cache_max: Messages held at most.
        recent_ticks: A new neighbour is told of the messages of this many heartbeats.
        recent_max: And of this many at most.
        retransmissions: How often one peer is sent one message on request.
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
    recent_ticks: int = 5
    recent_max: int = 1_000
    retransmissions: int = 3

    def __post_init__(self) -> None:
        super(EpisubParams, self).__post_init__()
        require(self.C_rand >= 1 and self.C_near >= 0, "C_rand >= 1 and C_near >= 0")
        require(self.C_rand + self.C_near <= self.active_max, "C_rand + C_near <= active_max")
        require(0 < self.alpha < 1 and 0 < self.rtt_gain <= 1, "0 < alpha < 1 and 0 < rtt_gain <= 1")
        require(min(self.heartbeat_s, self.flush_s, self.missing_s) > 0, "heartbeat_s, flush_s, missing_s > 0")
        require(self.late_max_s >= 0, "late_max_s >= 0")
        require(min(self.join_ttl, self.forward_join_ttl, self.shuffle_ttl, self.leave_ttl) >= 0, "time to live >= 0")
        ticks = (
            self.links_ticks,
            self.silence_ticks,
            self.request_ticks,
            self.dial_ticks,
            self.shuffle_ticks,
            self.probe_ticks,
            self.improve_ticks,
            self.cache_ticks,
        )
        require(min(ticks) >= 1, "ticks >= 1")
        require(self.useful_messages >= 1, "useful_messages >= 1")
        sizes = (self.passive_max, self.dials_max, self.missing_max, self.announcers_max, self.graft_attempts, self.cache_max)
        require(min(sizes) >= 1, "maxima >= 1")

    @property
    def active_size(self) -> int:
        """A = C_rand + C_near."""
        return self.C_rand + self.C_near


IpNetwork: TypeAlias = IPv4Network | IPv6Network


def require(holds: bool, rule: str) -> None:
    """Raise `LocalProtocolError` with the rule, unless it holds."""
    if not holds:
        raise LocalProtocolError(f"parameters break the rule: {rule}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScoreParams:
    """Scoring in one topic. The defaults suit a quiet log: P3 and P3b are off, as they take silence for a fault.

    Source: gossipsub v1.1, "Topic Parameter Calculation and Decay"; the defaults follow rust-libp2p's where it sets any.

    Attributes:
        topic_weight: Share of the topic in the score.
        time_in_mesh_weight: P1, ≥ 0.
        time_in_mesh_quantum_s: P1 counts one for each of these.
        time_in_mesh_cap: P1 counts at most this.
        first_deliveries_weight: P2, ≥ 0.
        first_deliveries_decay: Factor a decay interval, in (0, 1); so are the other decays.
        first_deliveries_cap: P2 counts at most this.
        mesh_deliveries_weight: P3, ≤ 0; 0 switches it off.
        mesh_deliveries_cap: It counts at most this, ≥ the threshold.
        mesh_deliveries_threshold: Below it the deficit is squared.
        mesh_deliveries_window_s: How long after the first copy was accepted another still counts; some milliseconds.
        mesh_deliveries_activation_s: Time in the mesh before P3 counts.
        mesh_failure_weight: P3b, ≤ 0: the deficit squared is added when a link is pruned.
        invalid_messages_weight: P4, ≤ 0, times the square of the count.
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
        require(0 <= self.mesh_deliveries_threshold <= self.mesh_deliveries_cap, "mesh_deliveries_threshold <= mesh_deliveries_cap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a score below each of these costs. 0 ≥ gossip ≥ publish ≥ graylist. Defaults: rust-libp2p's.

    Attributes:
        gossip: No gossip to the peer, none taken from it.
        publish: Not among the recipients of flood publishing and of fan-out.
        graylist: All that it sends is dropped unread.
        accept_px: From it on its peer exchange is used, ≥ 0.
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
    """Scoring over all topics.

    Attributes:
        topics: Parameters of topics that have their own.
        default_topic: Of every other joined topic; None: those do not count.
        topic_cap: The topics' sum counts at most this; 0: no cap.
        app_specific_weight: P5, times the value the application gave.
        ip_colocation_weight: P6, ≤ 0, times the square of the surplus.
        ip_colocation_threshold: Peers that may share an address.
        ip_colocation_exempt: Addresses and networks (`10.0.0.0/8`) that do not count: loopback and named proxies.
        behaviour_weight: P7, ≤ 0, times the square of the excess.
        behaviour_threshold: P7 counts from here.
        decay_interval_s: Between two decays.
        decay_to_zero: A counter below it becomes 0.
        retain_s: How long the score of a disconnected peer is kept unless it is positive, so that reconnecting does not wash.
        retained_max: Disconnected peers whose score is kept; the oldest goes first.
        thresholds: What low scores cost.
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
        require(0 < self.behaviour_decay < 1 and 0 < self.decay_to_zero < 1, "0 < decay < 1")
        require(self.decay_interval_s > 0 and self.retain_s >= 0 and self.retained_max >= 1, "decay_interval_s > 0, retained_max >= 1")
        self.exempt_networks()

    def exempt_networks(self) -> tuple[IpNetwork, ...]:
        """Return `ip_colocation_exempt` as networks; an address is one of itself.

        Raises:
            LocalProtocolError: One of them is neither an address nor a network.
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


# What `gossiplog serve` runs in a mesh unless told otherwise; the simulator's attacks run the same.
#
# Source: chosen by measurement, `python -m benchmarks.sim_attacks`; see docs/network.md, "Scores".
_TOPIC = TopicScoreParams(
    first_deliveries_decay=0.97,
    first_deliveries_cap=40.0,
    # P3 is off: it takes for a fault that a quiet log, or the far side of its only writer, brings nothing. Its counters decide whom
    # `repair_peers` replaces.
    mesh_deliveries_decay=0.8,
    mesh_deliveries_cap=2.0,
    mesh_deliveries_threshold=0.5,
    mesh_deliveries_window_s=0.2,
    mesh_deliveries_activation_s=4.0,
    # One invalid message costs the peer its gossip, three all that it says.
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
"""By the router's name. Episub keeps no scores."""
