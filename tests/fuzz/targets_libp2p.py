"""The decoders of what libp2p peers say.

Seeds are in hex: the multiaddrs, public key, record and messages of the peer whose Ed25519 seed is 32 zero bytes.
"""

import contextlib
from collections.abc import Callable

import trio

from gossiplog.codec.framing import encode_frame
from gossiplog.errors import ClosedError, DecodeError, RemoteProtocolError
from gossiplog.pubsub.types import PeerId

__all__ = ["LIBP2P_TARGETS"]

PEER = PeerId("12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN")
PUBLIC = bytes.fromhex("080112203b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29")
MULTIADDRS = (
    bytes.fromhex("04c0000201060fa1dd03"),
    bytes.fromhex("3609612e6578616d706c650601bbde03a503260024080112203b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"),
)
RECORD = bytes.fromhex(
    "0a24080112203b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29120203011a4c0a26002408011220"
    "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da2910071a0c0a0a04c0000201060fa1dd031a120a10"
    "3609612e6578616d706c650601bbde032a40a26ec0efc54d0d4cc7b5947fb3fef67e0f70851b80aa4570dc059234e2d2329c1379"
    "78cdb1628bc8c848e3343abdc1ffbe3b306a3c01bcbddef307bcf1573007"
)
IDENTIFY = b"\x0a\x24" + PUBLIC + b"\x12\x0a" + MULTIADDRS[0] + b"\x1a\x10/canvas/id/1.0.0" + b"\x32\x01a" + b"\x42\xba\x01" + RECORD
ANSWER = b"\x08\x04\x42\x34\x0a\x26\x00\x24" + PUBLIC + b"\x12\x0a" + MULTIADDRS[0]


def fuzz_multiaddr(data: bytes) -> None:
    from gossiplog.net.libp2p.addresses import Address

    for read in (Address.from_bytes, lambda data: Address.parse(data.decode("utf-8", "replace"))):
        try:
            address = read(data)
        except DecodeError:
            continue
        assert Address.parse(str(address)) == Address.from_bytes(address.to_bytes()) == address


def fuzz_public_key(data: bytes) -> None:
    from gossiplog.net.libp2p.identity import peer_of

    try:
        assert peer_of(data)
    except DecodeError:
        return


def fuzz_record(data: bytes) -> None:
    from gossiplog.net.libp2p.records import open_record

    try:
        record = open_record(data)
    except DecodeError:
        return
    # Nobody else can sign it, whatever it is wrapped in.
    assert record.peer == PEER


def fuzz_identify(data: bytes) -> None:
    from gossiplog.net.libp2p.identify import read_identity

    try:
        identity = trio.run(read_identity, Given(data), PEER)
    except RemoteProtocolError:
        return
    assert all(address.peer == PEER for address in identity.addresses)


def fuzz_kademlia(data: bytes) -> None:
    from gossiplog.net.discovery.kademlia import answer_to, read_answer

    with contextlib.suppress(DecodeError):
        for peer, addresses in read_answer(data).items():
            assert all(address.peer == peer for address in addresses)
    with contextlib.suppress(DecodeError):
        answer_to(data, PEER, lambda key: [])


class Given:
    """A stream of bytes that are all here."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def send_all(self, data: bytes) -> None:
        pass

    async def receive_some(self) -> bytes:
        data, self.data = self.data, b""
        return data

    async def aclose(self) -> None:
        pass


def fuzz_noise(data: bytes) -> None:
    from gossiplog.net.libp2p.identity import PeerKey
    from gossiplog.net.libp2p.noise import secure

    for is_initiator in (False, True):
        handshake = secure(Given(data), PeerKey(bytes(32)), ("/yamux/1.0.0",), is_initiator=is_initiator)
        try:
            handshake.send(None)
        except (RemoteProtocolError, ClosedError):
            continue
        raise AssertionError("a handshake without a peer came to an end")


LIBP2P_TARGETS: tuple[tuple[str, Callable[[bytes], None], tuple[bytes, ...]], ...] = (
    ("multiaddr", fuzz_multiaddr, (*MULTIADDRS, b"/ip4/192.0.2.1/tcp/4001/ws", f"/dns4/a.example/tcp/443/wss/p2p/{PEER}".encode())),
    ("public-key", fuzz_public_key, (PUBLIC,)),
    ("peer-record", fuzz_record, (RECORD,)),
    ("identify", fuzz_identify, (encode_frame(IDENTIFY), encode_frame(IDENTIFY[:38]) + encode_frame(IDENTIFY[38:]))),
    ("kademlia", fuzz_kademlia, (ANSWER, b"\x08\x04\x12\x04abcd")),
    ("noise", fuzz_noise, (b"\0\x20" + bytes(range(32)), b"\0\x60" + bytes(96), b"\0\0")),
)
"""Name, function and seeds of each; `targets` makes them into targets."""
