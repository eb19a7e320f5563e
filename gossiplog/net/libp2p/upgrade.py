"""From a fresh connection to one that a muxer can be put on: multistream-select, noise, and the agreement on yamux within it.

Source: libp2p specifications, "Connection establishment" and "Early muxer negotiation".
"""

from __future__ import annotations

from ...errors import ClosedError, ProtocolNotSupported, RemoteProtocolError
from ...pubsub.types import PeerId
from ..ground.protocol_ids import NOISE, YAMUX
from ..transport.http_head import read_head
from ..transport.multistream import Offer, Proposal
from ..transport.stream import ByteStream
from ..transport.websocket import accept_websocket
from . import noise
from .identity import PeerKey
from .transport import ResumedStream

_MUXERS = (YAMUX,)
_SECURITY = (NOISE,)
_HEAD_BYTES_MAX = 16 * 1024
_MULTISTREAM_FIRST = 0x13
"""The first byte of multistream-select: the length of its first line. A request for a WebSocket begins with a letter."""


async def upgrade_inbound(stream: ByteStream, key: PeerKey) -> tuple[ByteStream, PeerId]:
    """Serve the handshakes of a stream that was dialled to us, raw or with a WebSocket, which its first byte tells.

    The caller sets a deadline, and closes the stream if this raises or is cancelled.

    Returns:
        What the muxer goes on, and who is on the other side.

    Raises:
        RemoteProtocolError: The other side broke a protocol, or does not speak noise or yamux.
        ClosedError: The stream ended.
    """
    first = await stream.receive_some()
    if not first:
        raise ClosedError("closed before the first byte")
    begun: ByteStream = ResumedStream(stream, first)
    if first[0] != _MULTISTREAM_FIRST:
        head = await read_head(begun, _HEAD_BYTES_MAX)
        begun = await accept_websocket(begun, head.raw)
    secured = await noise.secure(await _answer(begun, _SECURITY), key, _MUXERS, is_initiator=False)
    if _is_early(secured):
        return secured, secured.peer
    return await _answer(secured, _MUXERS), secured.peer


async def upgrade_outbound(stream: ByteStream, key: PeerKey, peer: PeerId | None) -> tuple[ByteStream, PeerId]:
    """As `upgrade_inbound`, for a stream that we dialled, after its WebSocket if it has one.

    Args:
        peer: Who has to answer; None: anybody.
    """
    try:
        negotiated = await _propose(stream, _SECURITY)
    except ProtocolNotSupported:
        raise RemoteProtocolError("the other side does not speak noise; libp2p's TLS, if it has that, is not spoken here") from None
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"what listens there is no libp2p, or one of another transport: {error}") from None
    except ClosedError as error:
        raise ClosedError(f"what listens there hung up on libp2p, which may be of another transport there: {error}") from None
    secured = await noise.secure(negotiated, key, _MUXERS, is_initiator=True, peer=peer)
    if _is_early(secured):
        return secured, secured.peer
    return await _propose(secured, _MUXERS), secured.peer


def _is_early(secured: noise.NoiseStream) -> bool:
    """Whether the muxer was agreed upon within noise; if the other side offered none there, multistream-select has to follow."""
    if secured.muxers and YAMUX not in secured.muxers:
        raise RemoteProtocolError(f"no muxer in common: it offers {', '.join(secured.muxers)[:80]}", peer=secured.peer)
    return bool(secured.muxers)


async def _answer(stream: ByteStream, protocols: tuple[str, ...]) -> ByteStream:
    offer = Offer(protocols)
    while offer.protocol is None:
        if answer := offer.receive(await _receive(stream)):
            await stream.send_all(answer)
    rest = offer.take_rest()
    return ResumedStream(stream, rest) if rest else stream


async def _propose(stream: ByteStream, protocols: tuple[str, ...]) -> ByteStream:
    proposal = Proposal(protocols)
    await stream.send_all(proposal.start())
    while proposal.protocol is None:
        answer = proposal.receive(await _receive(stream))
        if answer:
            await stream.send_all(answer)
    rest = proposal.take_rest()
    return ResumedStream(stream, rest) if rest else stream


async def _receive(stream: ByteStream) -> bytes:
    data = await stream.receive_some()
    if not data:
        raise ClosedError("the stream ended within the negotiation")
    return data
