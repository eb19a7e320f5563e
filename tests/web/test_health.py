"""Whether a server says how it is, and how it answers while its store does not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio
from network_support import TOPIC, Answer, eventually, fetch, memory_log

from gossiplog import GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.errors import StorageFull, StoreUnavailable
from gossiplog.net.hub.server import Hub
from gossiplog.net.service.service import service_of


@contextmanager
def stuck(log: GossipLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the store of a log not answer, for the length of a block; what waited for it then fails."""
    is_back = trio.Event()

    async def wait(plan: Any) -> Any:
        await is_back.wait()
        raise StoreUnavailable("no connection within 30 s")

    with monkeypatch.context() as patch:
        patch.setattr(log._store, "read", wait)
        patch.setattr(log._store, "write", wait)
        # As if it lay on a server.
        patch.setattr(log, "is_shared", True)
        yield
    is_back.set()


async def readiness(hub: Hub) -> tuple[int, str]:
    answer = await fetch(hub, "/readyz")
    return answer.status, answer.body.decode().strip()


async def test_a_server_is_alive_and_ready() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        assert (await fetch(hub, "/livez")).status == 200
        assert await readiness(hub) == (200, "ready")


async def test_every_answer_of_a_log_that_does_not_answer_is_503_within_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_log(1) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        body = entry_to_line(await other.append("posted"))
        post = partial(fetch, hub, "/api/messages", method="POST", headers={"content-type": "application/json"}, body=body)
        paths = ["clock", "heads", "root", "messages", "messages/count", "messages/" + "0" * 32, "ancestors/" + "0" * 32, "events"]

        async def is_refused(ask: Callable[[], Awaitable[Answer]]) -> None:
            began = trio.current_time()
            answer = await ask()
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            # A second, and what a machine with much to do takes to get there.
            assert trio.current_time() - began < 3.0

        with stuck(log, monkeypatch):
            for _ in range(2):
                async with trio.open_nursery() as nursery:
                    for ask in [post, *(partial(fetch, hub, f"/api/{path}") for path in paths)]:
                        nursery.start_soon(is_refused, ask)
            assert await readiness(hub) == (503, f"{TOPIC}: store away")
            assert (await fetch(hub, "/livez")).status == 200
            assert f'gossiplog_store_up{{topic="{TOPIC}"}} 0.0' in (await fetch(hub, "/metrics")).body.decode()
        await eventually(lambda: service_of(log).health.trouble is None)
        assert await readiness(hub) == (200, "ready")
        assert (await fetch(hub, "/api/clock")).status == 200
    assert {record.event for record in caplog.records if record.levelno >= logging.ERROR} == {"store away"}
    caplog.clear()


async def test_a_client_that_is_slow_with_its_body_does_not_make_the_store_look_away() -> None:
    async with memory_log(1) as log, memory_log(2) as other, log.listen("127.0.0.1:0") as hub:
        body = entry_to_line(await other.append("posted"))
        head = f"POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        async with await trio.open_tcp_stream("127.0.0.1", hub.port) as stream:
            await stream.send_all(head.encode() + body[:-1])
            health = service_of(log).health
            # It was looked at, as somebody waits; and it is there.
            await eventually(lambda: health._checked_at > 0)
            await stream.send_all(body[-1:])
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 201")


async def test_a_full_disk_is_not_ready_until_a_commit_goes_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:

        async def fail(plan: Any) -> Any:
            raise StorageFull("/somewhere is full")

        with monkeypatch.context() as patch:
            patch.setattr(log._store, "write", fail)
            with pytest.raises(StorageFull):
                await log.append(1)
        assert await readiness(hub) == (503, f"{TOPIC}: the disk is full")
        text = (await fetch(hub, "/metrics")).body.decode()
        assert f'gossiplog_store_errors_total{{error="StorageFull",topic="{TOPIC}"}} 1.0' in text
        await log.append(1)
        assert await readiness(hub) == (200, "ready")


async def test_a_full_disk_is_believed_in_for_half_a_minute_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom nobody sends anything, because he is not ready, would never find out."""
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub:
        monkeypatch.setattr("gossiplog.net.reports.health.FULL_S", 0.0)
        log.writer.failure = 0.0, StorageFull("full")
        assert await readiness(hub) == (200, "ready")


async def test_a_client_of_a_hub_is_ready_once_it_has_caught_up() -> None:
    async with memory_log(1) as upstream, memory_log(2) as log, log.listen("127.0.0.1:0") as hub:
        await upstream.append_many(range(300))
        async with log.connect("ws://127.0.0.1:1"):
            assert await readiness(hub) == (503, f"{TOPIC}: not caught up with any hub")
            async with upstream.listen("127.0.0.1:0") as above, log.connect(above.urls[0]):
                while (await readiness(hub))[0] != 200:
                    await trio.sleep(0.01)
                assert await log.count() == 300
            # It has fallen silent since; what is here can be served.
            assert await readiness(hub) == (200, "ready")
