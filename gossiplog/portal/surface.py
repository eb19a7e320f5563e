"""The common part of the façades: the object behind each, and its members that need no waiting."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..gossip_log import GossipLog
from ..replica.presence import Presence
from ..replica.subscription import Subscription
from .block import BlockHost
from .call import PortalCall
from .thread import TrioThread

if TYPE_CHECKING:
    from ..log.place import LogPlace
    from ..net.hub.client import HubLink
    from ..net.hub.server import Hub
    from ..net.service.peers import PeerConnectionState
    from ..sync.refusals import Refused

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Facade(Generic[T_co]):
    """Stands for an object of the thread's."""

    __slots__ = ("_host", "_inner", "_thread")

    def __init__(self, thread: TrioThread, host: BlockHost[Any], inner: T_co) -> None:
        """Take the object, and the block for whose length it can be used."""
        self._thread = thread
        self._host = host
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._inner!r}>"

    def _ask(self, function: Callable[[], Any]) -> Any:
        """Call a function that does not wait in the thread, which takes a tenth of a millisecond where it is not busy."""

        async def call() -> Any:
            return function()

        return call_of(self, call).wait()


def call_of(facade: Facade[Any], function: Callable[[], Awaitable[T]]) -> PortalCall[T]:
    """Make the call of a function that goes with what a façade stands for, and ends with it."""
    return PortalCall(facade._thread, facade._host, function)


def inner_of(facade: Facade[T]) -> T:
    """Return what a façade stands for."""
    return facade._inner


class LogFacade(Facade[GossipLog]):
    """The part of a log that is known without asking."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The log's topic."""
        return self._inner.topic

    @property
    def location(self) -> str:
        """Where the log lies, for messages to the user."""
        return self._inner.location

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._inner.read_only

    @property
    def has_members(self) -> bool:
        """Whether the log's own entries decide who may write: its topic names a policy."""
        return self._inner.has_members

    @property
    def is_shared(self) -> bool:
        """Whether another process may be writing to the log."""
        return self._inner.is_shared

    @property
    def has_rules(self) -> bool:
        """Whether an entry that is valid may be refused: there is an access rule, or the log has members."""
        return self._inner.has_rules


class PresenceFacade(Facade[Presence]):
    """The part of presence that is known without waiting."""

    __slots__ = ()

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """What is true now: for each author, by did, what it stated, by name. Our own is among it."""
        states: dict[str, dict[str, Any]] = self._ask(lambda: self._inner.states)
        return states


class SubscriptionFacade(Facade[Subscription]):
    """The part of a subscription that is known without asking."""

    __slots__ = ()

    @property
    def place(self) -> LogPlace:
        """The place after what was read from the store so far."""
        return self._inner.place


class HubFacade(Facade[Any]):
    """A running server; made by `listen`.

    Attributes:
        addresses: Host and port of each socket, as bound.
    """

    __slots__ = ()
    _inner: Hub

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket, as bound."""
        return self._inner.addresses

    @property
    def is_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self._inner.is_tls

    @property
    def port(self) -> int:
        """The port that it listens on, the first if there are several."""
        return self._inner.port

    @property
    def urls(self) -> list[str]:
        """Where clients connect, a URL an address; with several logs, one for each of them."""
        return self._inner.urls

    def urls_of(self, topic: str) -> list[str]:
        """Where clients of one of the logs connect."""
        return self._inner.urls_of(topic)

    def links(self) -> list[PeerConnectionState]:
        """Show the connections of all its logs, whatever server or client they came by."""
        states: list[PeerConnectionState] = self._ask(self._inner.links)
        return states


class LinkFacade(Facade[Any]):
    """A connection to a hub that is kept up; made by `connect`.

    Attributes:
        url: The hub's URL.
        attempts: How often it was dialled.
        error: Why it is not connected, after an attempt or a loss; None before, and while it is.
        refused: What the hub did not take of ours, and why, by the rule that it breaks. Only hubs of this package say so.
    """

    __slots__ = ()
    _inner: HubLink

    @property
    def url(self) -> str:
        """The hub's."""
        return self._inner.url

    @property
    def attempts(self) -> int:
        """How often it was dialled."""
        return self._inner.attempts

    @property
    def error(self) -> str | None:
        """Why it is not connected, after an attempt or a loss; None before, and while it is."""
        return self._inner.error

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands now."""
        return self._inner.is_connected

    @property
    def refused(self) -> dict[str, Refused]:
        """What the hub did not take of ours, and why, by the rule that it breaks. Only hubs of this package say so."""
        return dict(self._inner.refused)

    @property
    def state(self) -> PeerConnectionState | None:
        """The connection as values; None while there is none."""
        state: PeerConnectionState | None = self._ask(lambda: self._inner.state)
        return state


def like(original: Callable[..., Any]) -> Callable[[F], F]:
    """Make the decorator that gives a function the name and the docstring of another, and the signature too if it passes all on."""

    def decorate(function: F) -> F:
        function.__doc__, function.__name__, function.__qualname__ = original.__doc__, original.__name__, original.__name__
        if function.__code__.co_flags & inspect.CO_VARKEYWORDS:
            function.__wrapped__ = original  # type: ignore[attr-defined]
        return function

    return decorate
