"""A log's access rule, and the entries that it has refused.

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
"""How many refused entries and descendants of them are remembered, about 200 bytes each."""

Authorize: TypeAlias = Callable[[Message, str], bool] | Callable[[Message, str, Past], bool]
"""Decides whether a did may write a message, given its past. It must depend on its arguments alone, or replicas will differ for ever."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """An access rule, and whether it asks about the past. If so, it runs in the thread that has the transaction."""

    function: Callable[..., bool]
    asks_past: bool

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def ask(self, entry: Entry, *past: Past) -> bool | Exception:
        """Ask the rule about one entry. If it raises an exception, other than the store's, that is the answer."""
        try:
            return bool(self.function(entry.message, entry.envelope.did, *past))
        except StoreError:
            raise
        except Exception as error:
            return error


class Void(dict[bytes, str]):
    """The reasons for entries that the access rule refused, and for their descendants, by key. They have no place in the log.

    Entries may be forgotten, at a restart or because there are too many. They are then decided again, with the same result.

    Attributes:
        news: Entries that the rule itself has refused since `take_news` was last called, and the reasons.
    """

    def __init__(self) -> None:
        super().__init__()
        self.news: list[tuple[Entry, str]] = []

    def complete(self, plan: Plan[T]) -> Plan[T]:
        """Let a plan that reads find void entries in the quarantine, so that it neither counts them as missing nor asks for them."""
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
        """Return and empty `news`."""
        news, self.news = self.news, []
        return news

    def add(self, key: bytes, reason: str) -> None:
        """Remember an entry. Beyond `VOID_MAX`, the oldest is forgotten."""
        self[key] = reason
        if len(self) > VOID_MAX:
            del self[next(iter(self))]
