"""The peers that were reached, on disk, so that a restart finds them again: some of them never dial by themselves."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ...codec import plain_json
from ...errors import DecodeError
from ...pubsub.types import PeerId
from ..ground.journal import note
from ..libp2p.addresses import Address

__all__ = ["KNOWN_MAX", "load_known", "save_known"]

KNOWN_MAX = 256
"""Peers in the file, those reached last."""
_ADDRESSES_MAX = 2
"""Addresses of one of them, the likelier first: nobody shall send us to many places by a restart of ours."""
_FILE_BYTES_MAX = 1024 * 1024


def load_known(path: Path) -> dict[PeerId, list[Address]]:
    """Read the file; nothing where there is none. What cannot be read is said and left out: it is no more than a hint."""
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
    """Write the file anew, whole or not at all, for its owner alone. A disk that is full or read-only is said, and no more."""
    text = json.dumps({peer: [str(address) for address in addresses[:_ADDRESSES_MAX]] for peer, addresses in known.items()}, indent=1)
    draft = path.with_name(path.name + ".partial")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        draft.replace(path)
    except OSError as error:
        note("known peers not written", level=logging.WARNING, file=str(path), reason=str(error))
