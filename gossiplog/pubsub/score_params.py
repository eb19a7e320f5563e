"""The parameters of scoring; `params.py` has all others.

Source: gossipsub v1.1 specification, "Peer Scoring"; the defaults follow rust-libp2p's where it sets any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TypeAlias

from ..errors import LocalProtocolError
from .types import Topic

__all__ = ["ScoreParams", "Thresholds", "TopicScoreParams", "require"]

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
        mesh_deliveries_decay: Its decay.
        mesh_deliveries_cap: It counts at most this, ≥ the threshold.
        mesh_deliveries_threshold: Below it the deficit is squared.
        mesh_deliveries_window_s: How long after the first copy was accepted another still counts; some milliseconds.
        mesh_deliveries_activation_s: Time in the mesh before P3 counts.
        mesh_failure_weight: P3b, ≤ 0: the deficit squared is added when a link is pruned.
        mesh_failure_decay: Its decay.
        invalid_messages_weight: P4, ≤ 0, times the square of the count.
        invalid_messages_decay: Its decay.
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
        graylist: Whatever it sends is dropped unread.
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
        behaviour_decay: Its decay.
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
