"""The access rule of a log, and what it has refused.

Source: docs/spec/applications.md, "Who may write".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ..entry.message import Entry, Message
from ..errors import StoreError
from ..plan import Plan
from .past import Past
from .requests import Aside, ReadQuarantined

T = TypeVar("T")

VOID_MAX = 65_536
"""Refused entries, and what builds on them, that are remembered: about 200 bytes each."""

Authorize: TypeAlias = Callable[[Message, str], bool] | Callable[[Message, str, Past], bool]
"""Who may write: may this did say this, after what it came after? A function of its arguments alone, or replicas will differ for ever."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An access rule, and whether it asks about the past. If so, it runs in the thread that has the transaction."""

    function: Callable[..., bool]
    asks_past: bool

    @property
    def name(self) -> str:
        """What the function is called, for messages."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def ask(self, entry: Entry, *past: Past) -> bool | Exception:
        """Ask the rule about one entry. An exception that it raises, unless it is the store's, is the answer."""
        try:
            return bool(self.function(entry.message, entry.envelope.did, *past))
        except StoreError:
            raise
        except Exception as error:
            return error


class Void:
    """Entries that the access rule refused, and those that descend from them: they have no place in the log, whoever brings them.

    Entries that are forgotten, at a restart or because there are too many, are decided anew, with the same result.

    Attributes:
        news: What the rule itself refused, and why, since `take_news` was last called.
    """

    def __init__(self) -> None:
        self.news: list[tuple[Entry, str]] = []
        self._reasons: dict[bytes, str] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._reasons

    def __getitem__(self, key: bytes) -> str:
        return self._reasons[key]

    def __len__(self) -> int:
        return len(self._reasons)

    def complete(self, plan: Plan[T]) -> Plan[T]:
        """Have a plan that reads find what is void in the quarantine, so that it is neither missed nor asked for."""
        try:
            request = next(plan)
            while True:
                answer = yield request
                if isinstance(request, ReadQuarantined):
                    answer = {**answer, **{key: Aside("access", self[key], 0.0) for key in request.keys if key in self}}
                request = plan.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            plan.close()

    def take_news(self) -> list[tuple[Entry, str]]:
        """Return what was refused since the last call."""
        news, self.news = self.news, []
        return news

    def add(self, key: bytes, reason: str) -> None:
        """Remember an entry; the oldest makes room."""
        self._reasons[key] = reason
        if len(self._reasons) > VOID_MAX:
            del self._reasons[next(iter(self._reasons))]
