"""Finding peers, and staying connected with enough of them.

    bootstrap list      is dialled at the start, and whenever we are alone
    peers               tell of others: addresses in identify, signed records in the router's peer exchange, answers of Kademlia
    Kademlia            keeps the buckets filled, by searches for our own place and for one place in each bucket
    the target          while we have fewer connections, known peers are dialled, from the buckets in which we have fewest

The hash table itself is not served: the log stores nothing in it. Every peer shall be connected with some peers at every distance, which
keeps the mesh in one piece and its diameter small.

Source: docs/spec/libp2p.md, "kad-dht"; the GossipLog post, "Server-to-server p2p mesh".
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from random import Random

import trio

from ...errors import DecodeError, GossipLogError
from ...limits import TokenBucket
from ...pubsub.events import ConnectFailed, Probed
from ...pubsub.types import PeerId
from ..ground.journal import note
from ..ground.protocol_ids import kad_protocol
from ..libp2p.addresses import Address, Teller
from ..libp2p.host import OURSELVES, Host, Peering
from ..libp2p.identify import measure_ping
from ..libp2p.records import open_record
from ..service.pubsub_host import PubsubHost
from ..transport.muxed import Handler
from .book import KNOWN_MAX, AddressBook, load_known, save_known
from .kademlia import answer_closer, ask_closer
from .table import BUCKET_SIZE, RoutingTable, Walk

_TICK_S = 1.0
_DIALS_MAX = 4
"""Peers that are dialled at the same time to reach the target."""
_ASKED_DIALS_MAX = 64
"""Peers that the router may make us dial at the same time."""
_SEARCH_S = 30.0
_SAVE_S = 60.0
_WALK_DIALS_MIN = 2
"""New connections that the searches of one round may make when we have enough; else they may make as many as are missing."""
_YOUNG_S = 60.0
_SHORT_S = 5.0
"""A connection that ends sooner counts as a failure to connect."""


class Discovery:
    """Keeps one host connected. Its caller reports the host's connections. Also the `Dialler` of the router.

    Args:
        bootstrap: Addresses to start with, with or without a peer id.
        target: How many connections to look for, counting inbound ones.
        walk_s: Seconds between searches once the target is reached.
        known_file: Where peers that were reached are remembered; None for nowhere.

    Attributes:
        walks: How many searches were made.
    """

    def __init__(
        self,
        pubsub: PubsubHost,
        bootstrap: Sequence[Address],
        *,
        target: int,
        walk_s: float,
        rng: Random,
        known_file: Path | None = None,
    ) -> None:
        self._pubsub = pubsub
        self._bootstrap = {address: address.peer for address in bootstrap}
        self._target = target
        self._walk_s = walk_s
        self._rng = rng
        self._host: Host
        self._nursery: trio.Nursery
        self._dialling: set[PeerId | Address] = set()
        self._asked = 0
        self._walk_dials = 0
        self._rounds = 0
        self._changed = trio.Event()
        self._readers = trio.CapacityLimiter(1)
        self._troubles = pubsub.failed_dials
        self.table = RoutingTable(pubsub.me)
        self.book = AddressBook(rng)
        self.walks = 0
        # What each peer may still ask us.
        self._askers: OrderedDict[PeerId, TokenBucket] = OrderedDict()
        # The protocol ids of Kademlia, one for each topic, and those that each reached peer speaks.
        self._protocols: list[str] = []
        self._spoken: dict[PeerId, set[str]] = {}
        for address in bootstrap:
            if address.peer is not None:
                self.book.learn(address.peer, [address], teller=None)
        self._known_file = known_file
        self._saved: dict[PeerId, tuple[Address, ...]] = {}
        for peer, addresses in (load_known(known_file) if known_file is not None else {}).items():
            self.book.learn(peer, addresses, teller=None)

    # Topics

    def join(self, topic: str) -> Mapping[str, Handler]:
        """Look for peers of one more topic; return the handlers for that, by protocol id."""
        protocol = kad_protocol(topic)
        self._protocols.append(protocol)
        self._changed.set()

        def closest(key: bytes) -> list[tuple[PeerId, tuple[Address, ...]]]:
            return [(peer, self.book.of(peer)) for peer in self._known_by(protocol, key)]

        return {protocol: partial(answer_closer, closest, self._askers)}

    def leave(self, topic: str) -> None:
        """Stop looking for peers of a topic."""
        self._protocols.remove(kad_protocol(topic))

    def _note_spoken(self, peer: PeerId, protocols: Iterable[str]) -> None:
        if self.table.add(peer):
            self._spoken[peer] = {*protocols}
        if len(self._spoken) > 2 * len(self.table) + 64:
            self._spoken = {known: spoken for known, spoken in self._spoken.items() if known in self.table}

    def _known_by(self, protocol: str, key: bytes) -> list[PeerId]:
        known = self.table.closest(key, len(self.table))
        return [peer for peer in known if protocol in self._spoken.get(peer, ())][:BUCKET_SIZE]

    def _lonely(self) -> set[str]:
        """Return the protocol ids of the topics of which no peer is connected."""
        return set(self._protocols).difference(*(self._spoken.get(peer, ()) for peer in self._host.peers))

    # For the host

    def on_ready(self, peering: Peering) -> None:
        """Note that a connection is ready."""
        peer = peering.connection.peer
        self.on_identity(peering)
        self.book.on_reached(peer, peering.dialled)
        self._troubles.on_reached(peer)
        for address, known in self._bootstrap.items():
            if known is None and peering.dialled == address:
                self._bootstrap[address] = peer
            if self._bootstrap[address] == peer:
                self._troubles.on_reached(str(address))
        self._changed.set()

    def on_identity(self, peering: Peering) -> None:
        """Note where a peer says that it listens, and which protocols it speaks."""
        peer, identity = peering.connection.peer, peering.identity
        teller = Teller.at(peering.connection.address, peer)
        self.book.learn(peer, identity.addresses, teller=teller, is_own_word=identity.record is not None)
        spoken = [protocol for protocol in self._protocols if protocol in identity.protocols]
        if spoken:
            self._note_spoken(peer, spoken)

    def on_closed(self, peering: Peering) -> None:
        """Note that a connection that was ready has closed."""
        now = trio.current_time()
        if now - peering.opened_at < _SHORT_S:
            self.book.on_failed(peering.connection.peer, now)
        self._changed.set()

    async def run(self, host: Host) -> None:
        """Find and connect for ever."""
        self._host = host
        self._tell_of_ourselves()
        async with trio.open_nursery() as self._nursery:
            self._pubsub.dialler = self
            try:
                self._nursery.start_soon(self._stay_connected)
                self._nursery.start_soon(self._keep_walking)
                while True:
                    await trio.sleep(_SAVE_S)
                    self._save()
            finally:
                self._pubsub.dialler = None
                self._save()

    def _tell_of_ourselves(self) -> None:
        """Report bootstrap addresses with our own peer id where we do not listen: they are not dialled; our key may have been copied."""
        ours = {address.of(None) for address in (*self._host.addresses, *self._host.announced)}
        for address, peer in self._bootstrap.items():
            if peer == self._host.id and address.of(None) not in ours:
                self._troubles.on_listed_failed(str(address), OURSELVES)

    def _save(self) -> None:
        known = self.book.reached(KNOWN_MAX)
        # If we reached nobody, the file stays as it is.
        if self._known_file is not None and known and known != self._saved:
            save_known(self._known_file, known)
            self._saved = known

    # For the router

    def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
        """Dial a peer at the addresses in our book, or in its signed record."""
        is_possible = (peer in self.book or record is not None) and self._asked < _ASKED_DIALS_MAX
        if is_possible and self.book.may_try(peer, trio.current_time()) and self._pubsub.banned_until(peer) is None:
            self._nursery.start_soon(self._connect_for_router, peer, record, self._teller_of(source or peer))
        else:
            self._pubsub.tell(ConnectFailed(peer))

    def disconnect(self, peer: PeerId) -> None:
        """Close the connections with a peer that the router does not need, if we have more peers than the target."""
        if len(self._host.peers) > self._target:
            for peering in self._host.peerings:
                if peering.connection.peer == peer:
                    self._nursery.start_soon(peering.connection.aclose)

    def probe(self, peer: PeerId) -> None:
        """Measure the round trip to a peer."""
        self._nursery.start_soon(self._probe, peer)

    async def _connect_for_router(self, peer: PeerId, record: bytes | None, teller: Teller) -> None:
        self._asked += 1
        try:
            if record is not None:
                await self._read_record(peer, record, teller)
            if peer not in self.book or not await self._try(peer):
                self._pubsub.tell(ConnectFailed(peer))
        finally:
            self._asked -= 1

    async def _read_record(self, peer: PeerId, record: bytes, teller: Teller) -> None:
        try:
            # Checking a signature and sixteen addresses takes most of a millisecond, and sixteen records come at once.
            opened = await trio.to_thread.run_sync(open_record, record, limiter=self._readers)
            if opened.peer == peer:
                self.book.learn(peer, opened.addresses, teller=teller, is_own_word=True)
        except DecodeError as error:
            note("bad peer record", level=logging.DEBUG, peer=peer, reason=str(error))

    async def _probe(self, peer: PeerId) -> None:
        rtt_s = None
        try:
            connection = await self._host.connect(peer, self.book.of(peer))
            rtt_s = await measure_ping(connection)
        except (GossipLogError, trio.TooSlowError) as error:
            note("no answer to a ping", level=logging.DEBUG, peer=peer, reason=str(error))
        self._pubsub.tell(Probed(peer, rtt_s))

    # Staying connected

    async def _stay_connected(self) -> None:
        while True:
            for candidate in self._candidates():
                self._nursery.start_soon(self._dial_one, candidate)
            for peering in self._surplus():
                self._nursery.start_soon(peering.connection.aclose)
            if self._changed.is_set():
                self._changed = trio.Event()
            with trio.move_on_after(inf if self._has_enough() else _TICK_S * self._rng.uniform(0.8, 1.2)):
                await self._changed.wait()
                # Several changes come together.
                await trio.sleep(_TICK_S / 10)

    def _has_enough(self) -> bool:
        """Whether there is nothing to dial or to close until a connection comes or goes."""
        return len(self._host.peers) >= self._target and self._surplus_count() <= 0 and not (len(self._protocols) > 1 and self._lonely())

    def _surplus_count(self) -> int:
        return len(self._host.peerings) - self._host.connections_max * 3 // 4

    def _candidates(self) -> list[PeerId | Address]:
        """Choose what to dial now: the bootstrap list while we are alone, then peers from the buckets in which we have fewest."""
        connected = set(self._host.peers)
        lonely, places = self._lonely(), _DIALS_MAX - len(self._dialling)
        wanted = min(self._target - len(connected) - len(self._dialling), places)
        if wanted <= 0 and not (lonely and places > 0 and len(self._protocols) > 1):
            return []
        now = trio.current_time()

        def is_free(candidate: PeerId) -> bool:
            is_busy = candidate in connected or candidate in self._dialling or candidate == self._host.id
            return not is_busy and self.book.may_try(candidate, now) and self._pubsub.banned_until(candidate) is None

        # A topic of which no peer is connected is worth a connection beyond the target.
        alone: list[PeerId | Address] = []
        alone += [peer for peer, spoken in self._spoken.items() if lonely & spoken and is_free(peer)][:places]
        if wanted <= 0:
            return alone
        listed: list[PeerId | Address] = []
        for address, peer in self._bootstrap.items():
            if peer is None and address not in self._dialling and self.book.may_try(PeerId(str(address)), now):
                listed.append(address)
            elif peer is not None and is_free(peer):
                listed.append(peer)
        others: list[PeerId | Address] = []
        if connected or not listed:
            buckets = [bucket for bucket in self.table.buckets() if bucket]
            # The bucket in which we have fewest first. Within a bucket at random, so that not everybody dials the same peers.
            buckets.sort(key=lambda bucket: sum(peer in connected for peer in bucket))
            chosen = [[peer for peer in bucket if is_free(peer)] for bucket in buckets]
            for free in chosen:
                self._rng.shuffle(free)
            rounds = max((len(free) for free in chosen), default=0)
            others = [free[index] for index in range(rounds) for free in chosen if index < len(free)]
            others += [peer for peer in self.book.peers()[: 4 * self._target] if peer not in self.table and is_free(peer)]
        return list(dict.fromkeys([*listed, *(alone if connected else ()), *others]))[:wanted]

    def _surplus(self) -> list[Peering]:
        """Choose connections to close, so that newcomers have room: none that is younger than 60 s, and none that the router uses."""
        surplus = self._surplus_count()
        if surplus <= 0:
            return []
        used = {peer for topic in self._pubsub.shared.router.state().topics for peer in topic.full_message}
        old = trio.current_time() - _YOUNG_S
        free = [peering for peering in self._host.peerings if peering.opened_at < old and peering.connection.peer not in used]
        return self._rng.sample(free, min(surplus, len(free)))

    async def _dial_one(self, candidate: PeerId | Address) -> None:
        self._dialling.add(candidate)
        try:
            await self._try(candidate)
        finally:
            self._dialling.discard(candidate)

    async def _try(self, candidate: PeerId | Address) -> bool:
        """Connect with a peer; return whether that worked. If not, the peer is removed from the table, and tried again later."""
        peer = PeerId(str(candidate))
        try:
            if isinstance(candidate, Address):
                await self._host.connect(None, [candidate])
            else:
                await self._host.connect(peer, self.book.of(peer))
        except GossipLogError as error:
            listed = [str(address) for address, known in self._bootstrap.items() if peer in (known, str(address))]
            for address in listed:
                self._troubles.on_listed_failed(address, _reason(error, address))
            if not listed:
                self._troubles.on_failed(peer, str(error))
                note("cannot connect", level=logging.DEBUG, peer=peer, reason=str(error))
            self.book.on_failed(peer, trio.current_time())
            self.table.remove(peer)
            return False
        return True

    # Kademlia

    async def _keep_walking(self) -> None:
        pause_s = _TICK_S
        while True:
            while not len(self.table) or not self._protocols:
                await self._changed.wait()
                await trio.sleep(_TICK_S / 10)
            await trio.sleep(pause_s * self._rng.uniform(0.8, 1.2))
            self._walk_dials = max(_WALK_DIALS_MIN, self._target - len(self._host.peers))
            if not self._protocols:
                continue  # The last log has left meanwhile.
            # The topics take turns.
            protocol = self._protocols[self._rounds % len(self._protocols)]
            self._rounds += 1
            for key in self.table.targets(self._rng):
                with trio.move_on_after(_SEARCH_S):
                    await self._search(protocol, key)
                    self.walks += 1
            # With too few connections search again soon, but less and less often: there may be no more peers.
            has_enough = len(self._host.peers) >= self._target
            pause_s = self._walk_s if has_enough else min(self._walk_s, pause_s * 2)

    async def _search(self, protocol: str, key: bytes) -> None:
        walk = Walk(key, self._host.id, self._known_by(protocol, key))
        progress = trio.Event()

        async def ask(peer: PeerId) -> None:
            nonlocal progress
            try:
                connection = await self._host.connect(peer, self.book.of(peer))
                closer = await ask_closer(connection, protocol, key)
            except (GossipLogError, trio.TooSlowError) as error:
                note("no answer to a search", level=logging.DEBUG, peer=peer, reason=str(error))
                if self._host.connection_with(peer) is None:
                    self.table.remove(peer)
                    self.book.on_failed(peer, trio.current_time())
                walk.on_failure(peer)
            else:
                teller = self._teller_of(peer)
                for other, addresses in closer.items():
                    self.book.learn(other, addresses, teller=teller)
                walk.on_answer(peer, [other for other in closer if other in self.book])
                self._note_spoken(peer, [*self._spoken.get(peer, ()), protocol])
            progress.set()
            progress = trio.Event()

        async with trio.open_nursery() as nursery:
            while not walk.is_over:
                waiting = progress
                peer = walk.next()
                if peer is None:
                    await waiting.wait()
                elif self._host.connection_with(peer) is not None or self._may_dial_for_search(peer):
                    nursery.start_soon(ask, peer)
                else:
                    walk.on_failure(peer)

    def _may_dial_for_search(self, peer: PeerId) -> bool:
        if self._walk_dials <= 0 or not self.book.may_try(peer, trio.current_time()) or self._pubsub.banned_until(peer) is not None:
            return False
        self._walk_dials -= 1
        return True

    def _teller_of(self, peer: PeerId) -> Teller:
        connection = self._host.connection_with(peer)
        return Teller.at(None if connection is None else connection.address, peer)


def _reason(error: GossipLogError, address: str) -> str:
    """Return why an address was not reached, without the address itself."""
    return str(error).removeprefix(f"{address}: ")
