import re
from random import Random

import pytest
from broadcast_support import TOPIC, Harness, chain, forged, insert_of, message_of

from gossiplog.broadcast.actions import EntryDecided, InsertEntry
from gossiplog.broadcast.events import Connected, Disconnected, LogAnswered, PeerKind, PushClosed, PushDropped, PushOpened
from gossiplog.entry.message import Entry
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.pubsub.events import RpcReceived, SendFailed, TimerFired
from gossiplog.pubsub.params import GossipsubParams, ScoreParams
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Control, IHave, Rpc, Subscription
from gossiplog.sync.result import Ending, SyncResult
from gossiplog.sync.rpc import Update
from gossiplog.sync.wire import encode_event

ENTRIES = chain(30)
BAD = [forged(entry) for entry in ENTRIES]
PEERS = [f"p{number}" for number in range(12)]


def anything(random: Random) -> bytes:
    """A message as a hostile peer may send it: valid, malformed, mislabelled or invented."""
    entry, other = random.choice(ENTRIES), random.choice(ENTRIES)
    data = random.choice(
        (
            insert_of(entry),
            insert_of(random.choice(BAD)),
            insert_of(Entry(entry.key, other.value)),
            encode_event(Update([random.choice((entry.key, random.randbytes(20))) for _ in range(random.choice((0, 1, 5)))])),
            random.randbytes(random.randrange(60)),
        )
    )
    return data if random.random() < 0.8 else data[: random.randrange(len(data) + 1)]


def event_of(random: Random, node: Harness) -> object:
    peer = random.choice(PEERS)
    match random.randrange(16):
        case 0 | 1 | 2:
            return Connected(peer, random.choice(list(PeerKind)), random.random() < 0.5, random.choice((None, "/meshsub/1.1.0")))
        case 3:
            return Disconnected(peer)
        case 4 | 5 | 6:
            return RpcReceived(
                peer, Rpc(tuple(message_of(anything(random)) for _ in range(random.randrange(3))), (Subscription(TOPIC, True),))
            )
        case 7:
            control = Control(ihave=(IHave(TOPIC, (random.randbytes(32),)),), graft=(TOPIC,))
            return RpcReceived(peer, Rpc(control=control))
        case 8:
            return random.choice((PushOpened, PushClosed, PushDropped))(peer)
        case 9:
            return TimerFired(random.choice(["heartbeat", "retry", "broadcast.sync", "broadcast.push", "?", *node.timers]))
        case 10:
            entries = random.randrange(2)
            return ("finish", peer, SyncResult(ending=random.choice(list(Ending)), entries=entries, rejected_keys=(random.randbytes(20),)))
        case 11:
            return random.choice(
                (
                    LogAnswered(random.randrange(99), []),
                    EntryDecided(InsertEntry(random.randrange(99), b"", b"", peer), Verdict(Outcome.REJECT, "size", "big")),
                )
            )
        case 12:
            return SendFailed(peer, Rpc())
        case _:
            return ("push", peer, anything(random))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_peers_do_nothing_raises_and_every_container_keeps_its_maximum(seed):
    random = Random(seed)
    node = Harness()
    node.begin(Gossipsub(GossipsubParams(score=ScoreParams()), Random(seed)))
    for _ in range(2_000):
        node.now += random.choice((0.0, 0.01, 1.0, 30.0))
        node.holds = random.random() < 0.2
        match event_of(random, node):
            case ("push", peer, data):
                node.push(peer, data)
            case ("finish", peer, result):
                node.finish(peer, result)
            case event:
                node.tell(event)
    node.sizes()
    held = {entry.key for entry in BAD}
    assert not held & {leaf.key for leaf in node.log.state.tree.leaves()}


def test_same_events_give_the_same_actions():
    def run() -> list[str]:
        random, node = Random(9), Harness()
        log = []
        for _ in range(300):
            match event_of(random, node):
                case ("push", peer, data):
                    log.append(repr(node.push(peer, data)))
                case ("finish", peer, result):
                    log.append(repr(node.finish(peer, result)))
                case event:
                    log.append(repr(node.tell(event)))
        return [re.sub(" at 0x[0-9a-f]+", "", line) for line in log]

    assert run() == run()
