"""A peer that speaks the protocol and sends invalid entries.

    python -m gossiplog.testnet.liar KEY ADDRESS SECONDS MULTIADDR…

It dials each MULTIADDR from ADDRESS, and every SECONDS it gossips a new entry that has the signature of another one. It keeps dialling
peers that have banned it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import trio

from ..codec import pcf
from ..entry.message import Entry
from ..entry.signing import Ed25519Signer, sign_entry
from ..errors import GossipLogError
from ..net.libp2p import Address, Host, Peering, PeerKey
from ..net.transport.muxed import Connection, Stream
from ..pubsub.rpc import Message, Rpc, Subscription
from ..pubsub.types import Topic
from ..pubsub.wire.rpc_codec import Wire
from ..sync.rpc import Insert
from ..sync.wire import encode_event
from .members import TOPIC

_PROTOCOL = "/meshsub/1.1.0"
_AGAIN_S = 2.0


def forge(signer: Ed25519Signer, number: int) -> Entry:
    """Make an entry with the signature of another one."""
    true = sign_entry(signer, TOPIC, 1, [], pcf.encode({"lie": number}))
    other = sign_entry(signer, TOPIC, 1, [], pcf.encode({"truth": number}))
    return Entry.stored(true.value.replace(true.signature.signature, other.signature.signature))


def frames(rpc: Rpc) -> bytes:
    """Encode an RPC."""
    return b"".join(Wire().encode(rpc))


async def discard(connection: Connection, stream: Stream) -> None:
    """Read and ignore what a peer sends."""
    while await stream.receive_some():
        pass


async def keep(peering: Peering) -> None:
    """Keep a connection until it ends."""
    await peering.connection.wait_ended()


async def lie(signer: Ed25519Signer, key: PeerKey, source: str, interval_s: float, target: Address, rng: Random) -> None:
    """Send forgeries to one peer until cancelled."""
    number = 0
    while True:
        try:
            async with Host(key, serve=keep, handlers={_PROTOCOL: discard}, source=source).listening(()) as host:
                connection = await host.connect(None, [target])
                stream = await connection.open_stream([_PROTOCOL])
                await stream.send_all(frames(Rpc(subscriptions=(Subscription(Topic(TOPIC), True),))))
                while True:
                    entry = forge(signer, number)
                    data = encode_event(Insert(entry.key, entry.value))
                    await stream.send_all(frames(Rpc(messages=(Message.of(Topic(TOPIC), data),))))
                    number += 1
                    await trio.sleep(interval_s)
        except GossipLogError as error:
            print(f"{target}: {error}", flush=True)
        await trio.sleep(_AGAIN_S * rng.uniform(0.5, 1.5))


async def main(key_file: str, source: str, interval_s: float, targets: Sequence[Address]) -> None:
    """Send forgeries to all peers until cancelled."""
    key, rng = PeerKey.load_or_create(Path(key_file)), Random(key_file)
    signer = Ed25519Signer.generate()
    async with trio.open_nursery() as nursery:
        for target in targets:
            nursery.start_soon(lie, signer, key, source, interval_s, target, rng)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], float(sys.argv[3]), [Address.parse(text) for text in sys.argv[4:]])
