"""What our log is asked on behalf of peers, and who goes on with the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plan import Plan
from ..pubsub.types import PeerId
from .actions import AskLog, SpreadingAction


class Questions:
    """The questions that are not answered yet.

    Args:
        emit: Takes an action for the driver.
    """

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
