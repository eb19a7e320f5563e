"""The façades have what GossipLog has: nothing is missing, and nothing is said or asked for differently."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gossiplog
from gossiplog import aio, blocking
from gossiplog.gossip_log import GossipLog
from gossiplog.net.hub.client import HubLink
from gossiplog.net.hub.server import Hub
from gossiplog.replica.presence import Presence
from gossiplog.replica.subscription import Subscription

GUIDE = Path(__file__).parents[3] / "docs" / "library.md"
PAIRS = [
    (original, getattr(module, original.__name__))
    for module in (aio, blocking)
    for original in (GossipLog, Presence, Subscription, Hub, HubLink)
]


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def documented(owner: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(public(owner)):
        member = getattr(owner, name)
        yield name, member


def documented_names() -> set[str]:
    """What the library's guide lists: the first words of its tables' rows."""
    cells = re.findall(r"^\| (`[^|]*) \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", cell)}
    assert {"append", "heads", "children", "snapshot"} <= names
    return names & public(GossipLog)


@pytest.mark.parametrize("module", [aio, blocking], ids=lambda module: module.__name__)
def test_everything_that_is_documented_is_there(module: ModuleType) -> None:
    missing = documented_names() - public(module.GossipLog)
    assert missing == set(), "add `append = Method(GossipLog.append)` or its like to portal/surface.py"


@pytest.mark.parametrize("module", [aio, blocking], ids=lambda module: module.__name__)
def test_subscriptions_hubs_and_links_have_what_theirs_have(module: ModuleType) -> None:
    # What else there is takes or gives what only trio can use.
    assert public(Subscription) - public(module.Subscription) == {"keep_acks", "stop_keeping"}
    assert {"addresses", "is_tls", "links", "port", "urls", "urls_of"} <= public(module.Hub)
    assert {"attempts", "error", "is_connected", "state", "url", "wait_connected", "wait_disconnected"} <= public(module.HubLink)


@pytest.mark.parametrize(("original", "facade"), PAIRS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_nothing_is_said_or_asked_for_differently(original: type, facade: type) -> None:
    assert facade.__doc__ is not None
    if original in (GossipLog, Subscription):
        assert facade.__doc__ == original.__doc__
    originals = dict(documented(original))
    for name, member in documented(facade):
        if name not in originals:
            assert f"{name}: " in (original.__doc__ or ""), f"{name} is the façade's own"
            continue
        assert inspect.getdoc(member) == inspect.getdoc(originals[name]), name
        assert isinstance(member, property) == isinstance(originals[name], property), name
        if isinstance(member, property):
            continue
        ours, theirs = inspect.signature(member).parameters, inspect.signature(originals[name]).parameters
        assert [(each.name, each.kind, each.default) for each in ours.values()] == [
            (each.name, each.kind, each.default) for each in theirs.values()
        ], name


@pytest.mark.parametrize("module", [aio, blocking], ids=lambda module: module.__name__)
def test_open_is_gossiplogs(module: ModuleType) -> None:
    assert inspect.signature(module.open).parameters == inspect.signature(gossiplog.open).parameters
    assert module.open.__doc__ == gossiplog.open.__doc__


def test_async_methods_are_async_in_asyncio_and_nowhere_else() -> None:
    for name, member in documented(aio.GossipLog):
        original = getattr(GossipLog, name, None)  # None: an attribute that an instance has
        assert inspect.iscoroutinefunction(member) == inspect.iscoroutinefunction(original), name
        assert not inspect.iscoroutinefunction(getattr(blocking.GossipLog, name)), name
