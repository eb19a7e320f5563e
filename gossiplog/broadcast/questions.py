"""What our log is asked on behalf of peers: who goes on with the answers, and which of the heads that peers announce it lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..plan import Plan
from ..pubsub.types import PeerId
from .actions import AskLog, SpreadingAction
from .offences import RejectedIds
from .peers import LogPeer
from .wanted_syncs import Asker, missing


class Questions:
    """The questions that are not answered yet."""

    def __init__(self, emit: Callable[[SpreadingAction], None]) -> None:
        self._emit = emit
        self._asked: dict[int, tuple[PeerId | None, Callable[[Any], None]]] = {}
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, plan: Plan[Any], then: Callable[[Any], None], peer: PeerId | None) -> None:
        """Ask our log on behalf of a peer, and go on with the answer unless the peer has left by then; None: of nobody."""
        self._tokens += 1
        self._asked[self._tokens] = (peer, then)
        self._emit(AskLog(self._tokens, plan))

    def on_answered(self, token: int, answer: Any) -> None:
        """Take an answer; one that nobody waits for any more is harmless."""
        _, then = self._asked.pop(token, (None, None))
        if then is not None:
            then(answer)

    def on_left(self, peer: PeerId) -> None:
        """Forget what was asked on behalf of a peer. O(questions)."""
        for token in [token for token, (asker, _) in self._asked.items() if asker == peer]:
            del self._asked[token]


class HeadsCheck:
    """Ask our log about the heads of each peer's latest update, one question a peer at a time.

    Args:
        rejected: Keys that nobody asks for again.
        want: Told of the keys that a peer has and we lack.
    """

    def __init__(self, rejected: RejectedIds, log: Asker, want: Callable[[PeerId, Sequence[bytes]], None]) -> None:
        self._rejected = rejected
        self._ask = log
        self._want = want

    def on_update(self, peer: LogPeer, heads: list[bytes]) -> None:
        """Take a peer's update; what it said before and was not looked at yet is no more of interest."""
        peer.update = heads
        self._check(peer)

    def _check(self, peer: LogPeer) -> None:
        if peer.is_checking or peer.update is None:
            return
        heads = [key for key in dict.fromkeys(peer.update) if key not in self._rejected]
        peer.update = None
        if heads:
            peer.is_checking = True
            self._ask(missing(heads), lambda absent: self._on_checked(peer, absent), peer.id)

    def _on_checked(self, peer: LogPeer, absent: list[bytes]) -> None:
        peer.is_checking = False
        if absent:
            self._want(peer.id, absent)
        self._check(peer)
