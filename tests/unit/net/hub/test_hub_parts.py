"""Addresses, URLs and the parts of a hub that need no connection."""

from __future__ import annotations

import contextlib
import logging

import pytest
import trio

from gossiplog.cli.journal import write_journal
from gossiplog.errors import LocalProtocolError, StreamReset
from gossiplog.net.ground.journal import note
from gossiplog.net.hub.client import HubUrl, parse_url
from gossiplog.net.hub.server import parse_address
from gossiplog.net.service.sessions import TURN_S, Turns

SERVED_MAX, WAITING_MAX = 32, 256
"""Sessions that are served at a time, and that wait."""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        (":443", (None, 443)),
        ("[::1]:8080", ("::1", 8080)),
    ],
)
def test_address_is_host_and_port(text: str, address: tuple[str | None, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "8080", "host", "host:", "host:x", "host:65536", "host:-1", "::1:80", "host:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="no address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "is_tls"),
    [
        ("ws://a.example", "a.example", 80, "/", False),
        ("wss://a.example/topic%23x", "a.example", 443, "/topic%23x", True),
        ("ws://[::1]:8080/x?y=z", "::1", 8080, "/x?y=z", False),
    ],
)
def test_url_is_taken_apart(text: str, host: str, port: int, target: str, is_tls: bool) -> None:
    url = parse_url(text)
    assert isinstance(url, HubUrl)
    assert (url.url, url.host, url.port, url.target, url.is_tls) == (text, host, port, target, is_tls)


@pytest.mark.parametrize("text", ["", "http://a", "ws://", "ws:///x", "ws://a:99999", "ws://u@a", "ws://a#b", "a.db", "ws://[::1"])
def test_what_is_no_url_of_a_hub_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"not the URL of a server|that no URL has"):
        parse_url(text)


async def test_session_is_cut_short_only_while_others_wait(autojump_clock: trio.testing.MockClock) -> None:
    turns = Turns()
    with turns.limit(trio.current_time(), trio.current_time() + 10) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(10)
    started = trio.current_time()
    async with contextlib.AsyncExitStack() as served, trio.open_nursery() as nursery:
        for _ in range(SERVED_MAX):
            await served.enter_async_context(turns.taken())
        nursery.start_soon(_come_later, turns)
        with turns.limit(started, started + 10) as scope:
            await trio.sleep_forever()
        assert trio.current_time() == pytest.approx(started + TURN_S)
        assert turns.is_over(started)
        await served.aclose()
    assert not turns.is_over(started)


async def test_sessions_have_their_turns_in_the_order_in_which_they_came_and_more_than_256_do_not_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns, served = Turns(), list[int]()

    async def serve(number: int) -> None:
        async with turns.taken():
            served.append(number)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for number in range(SERVED_MAX + WAITING_MAX):
            nursery.start_soon(serve, number)
            await trio.testing.wait_all_tasks_blocked()
        assert served == [*range(SERVED_MAX)]
        with pytest.raises(StreamReset, match="too many sessions wait"):
            await serve(-1)
    for first in range(0, SERVED_MAX + WAITING_MAX, SERVED_MAX):
        assert sorted(served[first : first + SERVED_MAX]) == [*range(first, first + SERVED_MAX)]


async def _come_later(turns: Turns) -> None:
    await trio.sleep(1)
    async with turns.taken():
        pass


def test_journal_is_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("gossiplog")
    before = logger.handlers, logger.level, logger.propagate
    try:
        write_journal("text")
        note("client gone", peer="ws://1.2.3.4:5", reason="it closed it", missing=None)
        shown = capsys.readouterr().err
        assert shown[8:] == ' client gone  peer=ws://1.2.3.4:5  reason="it closed it"\n'
        write_journal("json", is_quiet=True)
        note("not shown")
        note("shown", level=logging.WARNING, number=3)
        shown = capsys.readouterr().err
        assert shown.startswith('{"time": "')
        assert shown.endswith('Z", "level": "warning", "event": "shown", "number": 3}\n')
    finally:
        logger.handlers, logger.level, logger.propagate = before
