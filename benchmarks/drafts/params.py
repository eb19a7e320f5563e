"""The parameters of the drafts' routers."""

from __future__ import annotations

from dataclasses import dataclass

from gossiplog.pubsub.params import GossipsubParams, require

__all__ = ["LazyParams", "PreambleParams"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyParams(GossipsubParams):
    """Lazy push's.

    Attributes:
        announce_share: With what probability a mesh peer is told of a message instead of being sent it; 0 is gossipsub.
        need_timeout_s: An announcer who was asked and sent nothing for so long is passed over for the next one.
        announcers_max: Announcers remembered for a message that is asked for.
        needs_max: Messages that are asked for at a time.
    """

    announce_share: float = 0.5
    need_timeout_s: float = 0.5
    announcers_max: int = 12
    needs_max: int = 4_096

    def __post_init__(self) -> None:
        super(LazyParams, self).__post_init__()
        require(0 <= self.announce_share <= 1 and self.need_timeout_s > 0, "0 <= announce_share <= 1 and need_timeout_s > 0")
        require(min(self.announcers_max, self.needs_max) >= 1, "announcers_max, needs_max >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreambleParams(GossipsubParams):
    """Preambles'.

    Attributes:
        preamble_bytes_min: Messages from this size on are preceded by one. Source: nim-libp2p, 40 KiB.
        receive_s: How long a message is awaited that was said to come, and how long a peer is sent nothing that it said to receive.
            nim-libp2p estimates it from the peer's bandwidth.
        uplink_bytes_s: Large messages leave one after the other, at this rate, so that a copy can still be saved while others are on
            their way. nim-libp2p waits for the write; the driver here does not tell of that. 0: all at once.
        holders_max: Peers remembered who have a message that is awaited.
        awaited_max: Messages that are awaited, or that peers receive, at a time.
        line_max: Large messages that wait to leave; what is more goes at once.
    """

    preamble_bytes_min: int = 40 * 1024
    receive_s: float = 0.5
    uplink_bytes_s: float = 1.25e6
    holders_max: int = 12
    awaited_max: int = 4_096
    line_max: int = 256

    def __post_init__(self) -> None:
        super(PreambleParams, self).__post_init__()
        require(self.receive_s > 0 and self.uplink_bytes_s >= 0, "receive_s > 0 and uplink_bytes_s >= 0")
        sizes = (self.preamble_bytes_min, self.holders_max, self.awaited_max, self.line_max)
        require(min(sizes) >= 1, "preamble_bytes_min, holders_max, awaited_max, line_max >= 1")
