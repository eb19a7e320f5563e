"""Who takes a log, a subscription or a hub for open that nobody has opened is told how to open it, in each façade."""

import asyncio

import pytest
import trio
from facade_support import OPTIONS, open_async, open_blocking

import gossiplog
from gossiplog.errors import LocalProtocolError, NotOpened

METHODS = ("subscribe", "snapshot", "listen", "connect")


def called(log, name):
    return getattr(log, name)("ws://127.0.0.1:1") if name == "connect" else getattr(log, name)()


def assert_says(error: NotOpened, call: str, opened_by: str) -> None:
    assert str(error) == f"{call}(…) opens nothing without a block"
    assert f"write `{opened_by} {call}(…) as …:`" in (error.hint or "")


async def assert_refuses(unopened, call: str, opened_by: str) -> None:
    """Each of the ways to use it wrongly, in the syntax that users write."""
    for attribute in ("append", "heads", "query", "urls", "run"):
        with pytest.raises(NotOpened) as caught:
            getattr(unopened, attribute)
        assert_says(caught.value, call, opened_by)
    with pytest.raises(NotOpened):
        await unopened
    with pytest.raises(NotOpened):
        async for _ in unopened:
            pass
    with pytest.raises(NotOpened):
        for _ in unopened:
            pass
    with pytest.raises(NotOpened) as caught:
        if opened_by == "with":
            async with unopened:
                pass
        else:
            with unopened:
                pass
    assert_says(caught.value, call, opened_by)
    # As notebooks and debuggers ask.
    assert not hasattr(unopened, "append") and not hasattr(unopened, "_repr_html_") and isinstance(repr(unopened), str)


async def test_trio() -> None:
    await assert_refuses(gossiplog.open(":memory:", **OPTIONS), "gossiplog.open", "async with")
    async with gossiplog.open(":memory:", **OPTIONS) as log:
        for name in METHODS:
            await assert_refuses(called(log, name), f"log.{name}", "async with")
        async with log.snapshot() as snapshot, log.subscribe() as events, log.listen("127.0.0.1:0") as hub:
            assert snapshot and events and hub.port


def test_asyncio() -> None:
    async def main() -> None:
        await assert_refuses(open_async(), "gossiplog.aio.open", "async with")
        async with open_async() as log:
            for name in METHODS:
                await assert_refuses(called(log, name), f"log.{name}", "async with")

    asyncio.run(main())


def test_plain_python() -> None:
    trio.run(assert_refuses, open_blocking(), "gossiplog.blocking.open", "with")
    with open_blocking() as log:
        for name in METHODS:
            trio.run(assert_refuses, called(log, name), f"log.{name}", "with")


def test_it_is_the_callers_mistake_and_an_attribute_that_is_not_there() -> None:
    assert issubclass(NotOpened, LocalProtocolError) and issubclass(NotOpened, AttributeError)
