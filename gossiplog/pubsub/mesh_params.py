"""What `gossiplog serve` runs in a mesh unless told otherwise; the simulator's attacks run the same.

Source: chosen by measurement, `python -m benchmarks.sim_attacks`; see docs/network.md, "Scores".
"""

from __future__ import annotations

from collections.abc import Mapping

from .params import EpisubParams, GossipsubParams, ScoreParams, Thresholds, TopicScoreParams

__all__ = ["MESH_PARAMS"]

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
