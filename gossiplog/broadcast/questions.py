"""Questions to our log on behalf of peers, above all which of their heads it lacks."""

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
    """The questions to our log that are not answered yet."""

    def __init__(self, emit: Callable[[SpreadingAction], None]) -> None:
        self._emit = emit
        self._asked: dict[int, tuple[PeerId | None, Callable[[Any], None]]] = {}
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, plan: Plan[Any], then: Callable[[Any], None], peer: PeerId | None) -> None:
        """Ask our log on behalf of a peer, or of none, and call `then` with the answer unless the peer has left by then."""
        self._tokens += 1
        self._asked[self._tokens] = (peer, then)
        self._emit(AskLog(self._tokens, plan))

    def on_answered(self, token: int, answer: Any) -> None:
        """Pass on an answer, if anybody still waits for it."""
        _, then = self._asked.pop(token, (None, None))
        if then is not None:
            then(answer)

    def on_left(self, peer: PeerId) -> None:
        """Forget the questions asked on behalf of a peer. O(questions)."""
        for token in [token for token, (asker, _) in self._asked.items() if asker == peer]:
            del self._asked[token]


class HeadsCheck:
    """Asks our log about the heads of each peer's latest update, one question per peer at a time.

    Args:
        rejected: Keys that are not looked up.
        want: Called with a peer and the heads that it has and we lack.
    """

    def __init__(self, rejected: RejectedIds, log: Asker, want: Callable[[PeerId, Sequence[bytes]], None]) -> None:
        self._rejected = rejected
        self._ask = log
        self._want = want

    def on_update(self, peer: LogPeer, heads: list[bytes]) -> None:
        """Check a peer's update. It replaces an earlier one that was not checked yet."""
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
