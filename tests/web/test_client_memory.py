"""What clients hold together is bounded, wherever it is: the oldest gives way, and what is shared counts once."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio
from network_support import PATIENCE_S, eventually, fetch, memory_log, open_stream

from gossiplog.net.hub.server import listen
from gossiplog.web import make_http
from gossiplog.web.glass import GlassSettings
from gossiplog.web.http import asgi, client_memory
from gossiplog.web.http.client_memory import Budget, GaveWay, Holder, Memory


async def test_what_is_shared_counts_once_and_until_the_last_lets_go() -> None:
    budget, data = Budget(1_000), b"x" * 600
    with budget.hold(data):
        with budget.hold(data):
            assert budget.size == 600
        assert budget.size == 600
    assert budget.size == 0


async def test_oldest_gives_way_and_the_last_one_may_have_more() -> None:
    budget = Budget(1_000)
    gone: list[int] = []

    async def hold(number: int, task_status: trio.TaskStatus[None]) -> None:
        try:
            with budget.hold(b"x" * (600 + number)):
                task_status.started()
                await trio.sleep_forever()
        except GaveWay:
            gone.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            await nursery.start(hold, number)
        await eventually(lambda: gone == [0, 1])
        assert budget.size == 602
        with budget.hold() as holder:
            holder.take(5_000)
            assert budget.size == 5_000
            await eventually(lambda: gone == [0, 1, 2])
        nursery.cancel_scope.cancel()
    assert budget.size == 0


@pytest.mark.parametrize("path", ["/api/messages?limit=64", "/api/graph?text=1&after="])
async def test_answers_wait_within_one_budget_whatever_makes_them(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Memory] = []

    def make() -> Memory:
        made.append(Memory())
        return made[-1]

    let_go, gone = Budget._let_go, set[Holder]()

    def note(self: Budget, holder: Holder) -> None:
        gone.update([holder] if holder in self._holders else [])
        let_go(self, holder)

    monkeypatch.setattr(Budget, "_let_go", note)
    monkeypatch.setattr(client_memory, "_ANSWERS_BYTES_MAX", 2**20)
    monkeypatch.setattr(asgi, "Memory", make)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(memory_log(1, value_bytes_max=2**20))
        await log.append_many([{"n": n, "bulk": "x" * 500_000} for n in range(5)])
        await log.append_many({"n": n, "bulk": "x" * 200} for n in range(1_000))
        serve_http = partial(make_http, glass=GlassSettings(has_page=True))
        hub = await stack.enter_async_context(listen([log], "127.0.0.1:0", make_http=serve_http))
        for number in range(8):
            # Each asks for something of its own: what is shared counts once.
            asked = f"{path}{number}" if path.endswith("=") else path
            stream = await stack.enter_async_context(await open_stream(hub))
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4_096)  # type: ignore[attr-defined]
            await stream.send_all(f"GET {asked} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        (memory,) = made[-1:]
        with trio.fail_after(PATIENCE_S):
            # Nobody reads, so whoever holds nothing any more gave way.
            while not gone:
                assert memory.answers.size <= 2**20 or len(memory.answers._holders) == 1
                await trio.sleep(0.01)
        assert (await fetch(hub, asked)).status == 200
