"""Where peers listen, and when to try them again: the book of one process, and its copy on disk."""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random

from ...codec import plain_json
from ...errors import DecodeError
from ...limits import Backoff, keep_newest
from ...pubsub.types import PeerId
from ..ground.journal import note
from ..libp2p.addresses import Address, Teller, reach_of
from ..libp2p.records import ADDRESSES_MAX

BOOK_MAX = 4_096
"""Peers in the book; the one that was heard of longest ago is dropped first."""


class AddressBook:
    """Addresses by peer, and the back-off of peers that were not reached: 1 to 300 s, with jitter."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._addresses: OrderedDict[PeerId, tuple[Address, ...]] = OrderedDict()
        self._failed: OrderedDict[PeerId, tuple[Backoff, float]] = OrderedDict()
        self._reached: OrderedDict[PeerId, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._addresses

    def learn(self, peer: PeerId, addresses: Iterable[Address], *, teller: Teller | None, is_own_word: bool = False) -> None:
        """Note where a peer listens.

        Args:
            teller: The peer that says so. It cannot send us where it cannot go itself: from the world into our network, or from there to
                our loopback. None for our operator, who may name any address.
            is_own_word: The peer says so itself, which replaces what others said.
        """
        usable = [address.of(peer).told_by(teller) for address in addresses if teller is None or _may_tell(teller, address)]
        if not is_own_word:
            usable = [*self._addresses.get(peer, ()), *usable]
        if not usable:
            return
        keep_newest(self._addresses, peer, tuple(dict.fromkeys(usable))[:ADDRESSES_MAX], BOOK_MAX)

    def of(self, peer: PeerId) -> tuple[Address, ...]:
        """Return where a peer may listen, the likeliest address first; empty if nothing is known."""
        return self._addresses.get(peer, ())

    def peers(self) -> list[PeerId]:
        """Return the peers in the book, the one heard of last first."""
        return list(reversed(self._addresses))

    def on_reached(self, peer: PeerId, address: Address | None) -> None:
        """Note that a peer was reached: at this address, or None if it dialled us."""
        self._failed.pop(peer, None)
        keep_newest(self._reached, peer, None, BOOK_MAX)
        if address is not None:
            others = (known for known in self._addresses.get(peer, ()) if known != address.of(peer))
            self._addresses[peer] = (address.of(peer).told_by(None), *others)[:ADDRESSES_MAX]

    def reached(self, count: int) -> dict[PeerId, tuple[Address, ...]]:
        """Return the addresses of the `count` peers that were reached last, the latest first."""
        peers = [peer for peer in reversed(self._reached) if peer in self._addresses]
        return {peer: self._addresses[peer] for peer in peers[:count]}

    def on_failed(self, peer: PeerId, now: float) -> None:
        """Note that a peer was not reached, or left at once."""
        backoff, _ = self._failed.pop(peer, (Backoff(self._rng), 0.0))
        keep_newest(self._failed, peer, (backoff, now + backoff.next()), BOOK_MAX)

    def may_try(self, peer: PeerId, now: float) -> bool:
        """Whether a peer's back-off is over."""
        failed = self._failed.get(peer)
        return failed is None or now >= failed[1]


def _may_tell(teller: Teller, address: Address) -> bool:
    """Whether a teller may name an address. A domain name is checked when it is dialled."""
    return address.family not in ("ip4", "ip6") or reach_of(address.host) >= teller.reach


# The file has the peers that were reached, so that we find them after a restart: some of them never dial.
KNOWN_MAX = 256
"""Peers in the file: those reached last."""
_ADDRESSES_MAX = 2
"""Addresses of each peer in the file, the likeliest first. Few, so that no peer can make us dial many places after a restart."""
_FILE_BYTES_MAX = 1024 * 1024


def load_known(path: Path) -> dict[PeerId, list[Address]]:
    """Read the file; empty if there is none. If it is damaged that is logged, and the peers before the damage are returned."""
    known: dict[PeerId, list[Address]] = {}
    try:
        with path.open("rb") as file:
            found = plain_json.decode(file.read(_FILE_BYTES_MAX))
        for peer, texts in list(found.items())[:KNOWN_MAX]:
            addresses = [Address.parse(text) for text in texts[:_ADDRESSES_MAX]]
            if any(address.peer != peer for address in addresses):
                raise DecodeError(f"an address that is not of peer {peer}")
            known[PeerId(peer)] = addresses
    except FileNotFoundError:
        pass
    except (OSError, AttributeError, TypeError, DecodeError) as error:
        note("known peers not read", level=logging.WARNING, file=str(path), reason=str(error))
    return known


def save_known(path: Path, known: Mapping[PeerId, tuple[Address, ...]]) -> None:
    """Replace the file atomically, readable by its owner only. A failure is logged and not raised."""
    text = json.dumps({peer: [str(address) for address in addresses[:_ADDRESSES_MAX]] for peer, addresses in known.items()}, indent=1)
    draft = path.with_name(path.name + ".partial")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        draft.replace(path)
    except OSError as error:
        note("known peers not written", level=logging.WARNING, file=str(path), reason=str(error))
