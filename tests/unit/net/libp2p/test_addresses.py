"""Multiaddrs of other transports."""

from __future__ import annotations

import pytest

from gossiplog.errors import DecodeError
from gossiplog.net.libp2p import Address


@pytest.mark.parametrize("text", ["/ip4/203.0.113.7/udp/4001/quic-v1", "/ip4/1.2.3.4/udp/4001/webrtc-direct", "/unix/tmp/x"])
def test_transport_that_is_not_spoken_is_named(text: str) -> None:
    with pytest.raises(DecodeError, match=r"is not a TCP address: (udp|unix) is not spoken here, but TCP is"):
        Address.parse(text)
