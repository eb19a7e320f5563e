"""The facts of all members in one stream, in which each member has one name."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from ..glass import Fact, Peerings
from ..net.reports.observer import Board
from ..web.glass.following import FollowedServer, follow
from .measure import Measure
from .members import Member


class Watching:
    """Follows members, and passes their facts on to a board, a measure and a file.

    Args:
        facts_file: Where facts are written, one JSON object per line; None: nowhere.
    """

    def __init__(self, facts_file: Path | None, measure: Measure) -> None:
        self.board = Board()
        self.peerings = Peerings()
        self.measure = measure
        self._names: dict[str, str] = {}
        self._file: IO[str] | None = None if facts_file is None else facts_file.open("w", encoding="utf-8")

    async def follow(self, member: Member) -> None:
        """Follow a server or a client, over its restarts, until cancelled."""
        followed = FollowedServer(member.url, member.name)
        self._names |= {member.host: member.node, member.door: member.node}

        def take(fact: Fact) -> None:
            if followed.node and followed.node != member.node and member.kind == "client":
                # A client has no peer id, so the id that it made up is replaced by its name.
                self._names[followed.node] = member.node
            if fact.kind == "root":
                member.root, member.entries = str(fact.message), fact.count or 0
            self.add(fact)

        await follow(followed, take, clock=time.time)

    def name(self, member: Member) -> None:
        """Register the name of a member that is not followed."""
        self._names |= {member.host: member.node, member.node: member.node}

    def add(self, fact: Fact) -> None:
        """Pass a fact on, with names for addresses and URLs."""
        told = replace(fact, node=self._known(fact.node), peer=None if fact.peer is None else self._known(fact.peer))
        self.board.add(told)
        self.measure.take(told)
        self.peerings.take(told)
        if self._file is not None:
            self._file.write(told.to_json() + "\n")

    def _known(self, name: int | str) -> int | str:
        """Return the name of a hub that is given by its URL, and of a client that is given by its address."""
        if not isinstance(name, str):
            return name
        if name.startswith(("ws://", "wss://")):
            return self._names.get(urlsplit(name).hostname or "", name)
        return self._names.get(name, name)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
