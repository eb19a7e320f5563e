"""The handshakes of a fresh connection, after which a muxer can use it: multistream-select, noise, and the agreement on yamux within noise.

Source: libp2p specifications, "Connection establishment" and "Early muxer negotiation".
"""

from __future__ import annotations

from ...errors import ClosedError, ProtocolNotSupported, RemoteProtocolError
from ...pubsub.types import PeerId
from ..ground.protocol_ids import NOISE, YAMUX
from ..transport.http_head import Head, read_head
from ..transport.multistream import Offer, Proposal
from ..transport.stream import ByteStream
from ..transport.websocket import accept_websocket
from .identity import PeerKey
from .noise import NoiseStream, secure

_MUXERS = (YAMUX,)
_SECURITY = (NOISE,)
_MULTISTREAM_FIRST = 0x13
"""The first byte of multistream-select, the length of its first line. An HTTP request begins with a letter instead."""


async def read_beginning(stream: ByteStream, head_bytes_max: int) -> bytes | Head:
    """Receive the beginning of an inbound stream: the head of a request if its first byte says so, else bytes of multistream-select.

    The caller sets a deadline. Raises as `upgrade_inbound`.
    """
    begun = await _receive(stream)
    return begun if begun[0] == _MULTISTREAM_FIRST else await read_head(stream, head_bytes_max, begun)


async def upgrade_inbound(stream: ByteStream, key: PeerKey, begun: bytes | Head = b"") -> NoiseStream:
    """Do the handshakes of an inbound stream, after that of a WebSocket if it begins with the request of one.

    The caller sets a deadline, and closes the stream if this raises or is cancelled.

    Args:
        begun: What `read_beginning` returned.

    Raises:
        RemoteProtocolError: The peer broke a protocol, or does not speak noise or yamux.
        ClosedError: The stream ended.
    """
    if isinstance(begun, Head):
        stream, begun = await accept_websocket(stream, begun), b""
    rest = await _agree(stream, Offer(_SECURITY), begun)
    secured = await secure(stream, key, _MUXERS, is_initiator=False, begun=rest)
    if not _is_early(secured):
        secured.beginning = await _agree(secured, Offer(_MUXERS))
    return secured


async def upgrade_outbound(stream: ByteStream, key: PeerKey, peer: PeerId | None) -> NoiseStream:
    """Do the handshakes of a stream that we dialled, after that of a WebSocket if it has one. See `upgrade_inbound`.

    Args:
        peer: The peer that has to answer; None accepts any.
    """
    try:
        rest = await _propose(stream, _SECURITY)
    except ProtocolNotSupported:
        raise RemoteProtocolError("the other side does not speak noise, and libp2p's TLS is not spoken here") from None
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"the other side is no libp2p peer, or speaks another transport: {error}") from None
    except ClosedError as error:
        raise ClosedError(f"the other side hung up; it may be libp2p with another transport: {error}") from None
    secured = await secure(stream, key, _MUXERS, is_initiator=True, peer=peer, begun=rest)
    if not _is_early(secured):
        secured.beginning = await _propose(secured, _MUXERS)
    return secured


def _is_early(secured: NoiseStream) -> bool:
    """Whether the muxer was agreed on within noise. If the peer offered none there, multistream-select has to follow."""
    if secured.muxers and YAMUX not in secured.muxers:
        raise RemoteProtocolError(f"no muxer in common: it offers {', '.join(secured.muxers)[:80]}", peer=secured.peer)
    return bool(secured.muxers)


async def _propose(stream: ByteStream, protocols: tuple[str, ...]) -> bytes:
    proposal = Proposal(protocols)
    await stream.send_all(proposal.start())
    return await _agree(stream, proposal)


async def _agree(stream: ByteStream, negotiation: Offer | Proposal, begun: bytes = b"") -> bytes:
    """Negotiate to the end; return the bytes received after that. `begun` was received before."""
    while True:
        if answer := negotiation.receive(begun):
            await stream.send_all(answer)
        if negotiation.protocol is not None:
            return negotiation.take_rest()
        begun = await _receive(stream)


async def _receive(stream: ByteStream) -> bytes:
    data = await stream.receive_some()
    if not data:
        raise ClosedError("the stream ended during the negotiation")
    return data
