"""The methods and attributes that both façades offer: a line for each, by object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..gossip_log import GossipLog
from ..log.place import LogPlace
from ..replica.presence import Presence
from ..replica.subscription import Subscription
from ..shelves import Shelf
from ..store import Reader
from .waiting import Attribute, Facade, Method, PagesMethod, inner_of, like

if TYPE_CHECKING:
    from ..net.hub.client import HubLink
    from ..net.hub.server import Hub
    from ..net.service.peers import PeerConnectionState
    from ..replica.copying import CopyReport
    from ..replica.reader import Moment
    from ..sync.refusals import Refused


async def _query_snapshot(self: Reader, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    return await self.query(statement, parameters)


class SnapshotFacade(Facade[Reader]):
    """A fixed state of the log, from which any number of plans can be answered."""

    __slots__ = ()

    query = Method(like(Reader.query)(_query_snapshot))


async def _query(self: GossipLog, sql: str, *parameters: Any, at: SnapshotFacade | Moment | None = None) -> list[tuple[Any, ...]]:
    return await self.query(sql, *parameters, at=inner_of(at) if isinstance(at, SnapshotFacade) else at)


async def _copy_from(self: GossipLog, other: LogFacade, *, on_progress: Callable[[int], None] | None = None) -> CopyReport:
    return await self.copy_from(inner_of(other), on_progress=on_progress)


class LogFacade(Facade[GossipLog]):
    """A log, except for its blocks."""

    __slots__ = ()

    topic = Attribute[str]("The log's topic.")
    location = Attribute[str]("Where the log lies, for messages to the user.")
    read_only = Attribute[bool]("Whether writing is refused.")
    has_members = Attribute[bool]("Whether the log's own entries decide who may write: its topic names a policy.")
    is_shared = Attribute[bool]("Whether another process may be writing to the log.")
    has_rules = Attribute[bool]("Whether a valid entry may be refused, because there is an access rule or the log has members.")

    append = Method(GossipLog.append)
    append_many = Method(GossipLog.append_many)
    insert = Method(GossipLog.insert)
    insert_many = Method(GossipLog.insert_many)
    insert_verified = Method(GossipLog.insert_verified)
    verify_many = Method(GossipLog.verify_many)

    get = Method(GossipLog.get)
    has = Method(GossipLog.has)
    resolve = Method(GossipLog.resolve)
    heads = Method(GossipLog.heads)
    clock = Method(GossipLog.clock)
    root = Method(GossipLog.root)
    count = Method(GossipLog.count)
    moment = Method(GossipLog.moment)
    size_bytes = Method(GossipLog.size_bytes)
    position = Method(GossipLog.position)
    is_ancestor = Method(GossipLog.is_ancestor)
    children = Method(GossipLog.children)
    iterate = PagesMethod(GossipLog.iterate)
    ancestors = PagesMethod(GossipLog.ancestors)
    to_arrow = PagesMethod(GossipLog.to_arrow)

    members = Method(GossipLog.members)
    access_log = Method(GossipLog.access_log)
    policy = Method(GossipLog.policy)
    standing = Method(GossipLog.standing)
    find_void = Method(GossipLog.find_void)
    grant = Method(GossipLog.grant)
    revoke = Method(GossipLog.revoke)
    leave = Method(GossipLog.leave)
    admit = Method(GossipLog.admit)

    quarantine = PagesMethod(GossipLog.quarantine)
    retrying = PagesMethod(GossipLog.retrying)
    retry_quarantine = Method(GossipLog.retry_quarantine)
    forget_damaged = Method(GossipLog.forget_damaged)
    set_aside = PagesMethod(GossipLog.set_aside)
    retry_set_aside = Method(GossipLog.retry_set_aside)
    publish = Method(GossipLog.publish)
    prove = Method(GossipLog.prove)
    rebuild = Method(GossipLog.rebuild)
    fsck = Method(GossipLog.fsck)
    query = Method(like(GossipLog.query)(_query))
    copy_from = Method(like(GossipLog.copy_from)(_copy_from))


class PresenceFacade(Facade[Presence]):
    """Presence, except for its iterator."""

    __slots__ = ()

    set = Method(Presence.set)
    leave = Method(Presence.leave)

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """The present states, by author's did and then by name, including our own."""
        states: dict[str, dict[str, Any]] = self._ask(lambda: self._inner.states)
        return states


class SubscriptionFacade(Facade[Subscription]):
    """A subscription, except for its iterator."""

    __slots__ = ()

    ack = Method(Subscription.ack)
    flush = Method(Subscription.flush)

    place = Attribute[LogPlace]("The place up to which entries were read from the store.")


class HubFacade(Facade[Any]):
    """A running server; made by `listen`."""

    __slots__ = ()
    _inner: Hub

    addresses = Attribute[list[tuple[str, int]]]("Host and port of each socket, as bound.")
    is_tls = Attribute[bool]("Whether the server speaks TLS.")
    port = Attribute[int]("The port of the first socket.")
    urls = Attribute[list[str]]("Where clients connect: a URL for each address and open log.")

    def urls_of(self, topic: str) -> list[str]:
        """Where clients of one log connect."""
        return self._inner.urls_of(topic)

    def links(self) -> list[PeerConnectionState]:
        """Return a snapshot of the connections of all its logs, including those that other servers and clients opened."""
        states: list[PeerConnectionState] = self._ask(self._inner.links)
        return states


def _wait(name: str, doc: str) -> Method[HubLink, [], None]:
    """Offer a link's method by its name: its class is imported only with the network."""

    async def wait(self: HubLink) -> None:
        await getattr(self, name)()

    wait.__name__, wait.__doc__ = name, doc
    return Method(wait)


class LinkFacade(Facade[Any]):
    """A connection to a hub that is kept up; made by `connect`."""

    __slots__ = ()
    _inner: HubLink

    url = Attribute[str]("The hub's URL, without a token.")
    attempts = Attribute[int]("How many attempts to connect there were.")
    error = Attribute[str | None]("Why there is no connection, after an attempt or a loss; None before and while connected.")
    is_connected = Attribute[bool]("Whether it is connected now.")

    @property
    def refused(self) -> dict[str, Refused]:
        """Our entries that the hub refused, by the rule that they break. Only hubs of this package report them."""
        return dict(self._inner.refused)

    @property
    def state(self) -> PeerConnectionState | None:
        """A snapshot of the connection; None while there is none."""
        state: PeerConnectionState | None = self._ask(lambda: self._inner.state)
        return state

    wait_connected = _wait("wait_connected", "Wait until it is connected. Use a deadline: an unreachable hub is dialled for ever.")
    wait_disconnected = _wait("wait_disconnected", "Wait until it is not connected.")
    wait_refused = _wait("wait_refused", "Wait until the hub has refused an entry; return at once if it already has.")


class ShelfFacade(Facade[Shelf]):
    """A shelf, except for its blocks."""

    __slots__ = ()
    _called = "shelf"

    topics = Method(Shelf.topics)
