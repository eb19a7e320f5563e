"""The one thread with trio that serves callers who are not in trio: asyncio's tasks, and plain synchronous code."""

from .block import BlockHost
from .call import PortalCall
from .iteration import Iteration
from .surface import Facade, HubFacade, LinkFacade, LogFacade, PresenceFacade, SubscriptionFacade, call_of, inner_of, like
from .thread import TrioThread, trio_thread

__all__ = [
    "BlockHost",
    "Facade",
    "HubFacade",
    "Iteration",
    "LinkFacade",
    "LogFacade",
    "PortalCall",
    "PresenceFacade",
    "SubscriptionFacade",
    "TrioThread",
    "call_of",
    "inner_of",
    "like",
    "trio_thread",
]
