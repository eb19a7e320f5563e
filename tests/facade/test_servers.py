"""A log behind real servers: FastAPI on uvicorn through the façade, and the same application on hypercorn's trio without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import trio
from facade_support import DEADLINE_S, open_blocking
from trio_websocket import open_websocket_url

pytestmark = pytest.mark.slow

SERVERS = {
    "asyncio": ["uvicorn", "served_app:app", "--port", "0", "--ws", "wsproto", "--timeout-graceful-shutdown", "5"],
    "trio": ["hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "--graceful-timeout", "5", "served_app:app"],
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server's URL. At its end it is interrupted, ends without a complaint, and the log is free and whole."""
    environment = {**os.environ, "WORLD": request.param, "LOG": str(tmp_path / "app.db")}
    command = [sys.executable, "-m", *SERVERS[request.param]]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said = ""
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if found := re.search(r"unning on (http://127\.0\.0\.1:\d+)", line):
                    break
            else:
                pytest.fail(said)
            yield found[1]
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=DEADLINE_S)[0]
        finally:
            process.kill()
    assert "Traceback" not in said, said
    assert process.returncode in (0, -signal.SIGINT), said
    with open_blocking(tmp_path / "app.db") as log:
        assert log.count() == 30
        assert log.fsck().is_clean


def follow(client: httpx.Client, cursor: str, opened: threading.Event) -> list[int]:
    """Read server-sent events until there are 30."""
    received: list[int] = []
    with client.stream("GET", f"/events/{cursor}") as response:
        for line in response.iter_lines():
            if line == ": open":
                opened.set()
            elif line.startswith("data: "):
                received.append(json.loads(line.removeprefix("data: ")))
                if len(received) == 30:
                    break
    return received


async def meet(url: str, numbers: range) -> list[int]:
    """Append by a WebSocket, and read there until there are 30."""
    with trio.fail_after(DEADLINE_S):
        async with open_websocket_url(f"{url.replace('http', 'ws')}/ws") as socket:
            for number in numbers:
                await socket.send_message(json.dumps(number))
            return [json.loads(await socket.get_message()) for _ in range(30)]


def test_browsers_of_all_kinds_see_what_is_appended(server: str) -> None:
    with httpx.Client(base_url=server, timeout=DEADLINE_S) as client, ThreadPoolExecutor() as threads:
        opened = {cursor: threading.Event() for cursor in "ab"}
        following = [threads.submit(follow, client, cursor, event) for cursor, event in opened.items()]
        assert all(event.wait(DEADLINE_S) for event in opened.values())
        ids = [client.post("/entries", json=number).json() for number in range(20)]
        assert trio.run(meet, server, range(20, 30)) == list(range(30))
        assert [each.result(DEADLINE_S) for each in following] == [list(range(30))] * 2

        assert client.get(f"/entries/{ids[7][:12]}").json() == 7
        refused = client.get("/entries/zz")
        assert refused.status_code == 400
        assert refused.json()["error"] == "DecodeError"
        assert "0-9 and a-v" in refused.json()["hint"]

        # Whoever left has left on the other side too: the name of its place is free again.
        deadline = time.monotonic() + DEADLINE_S
        for _ in range(3):
            while not reopened(client):
                assert time.monotonic() < deadline
                time.sleep(0.02)


def reopened(client: httpx.Client) -> bool:
    with client.stream("GET", "/events/a") as response:
        if response.status_code == 200:
            return next(response.iter_lines()) == ": open"
        assert json.loads(response.read())["error"] == "LocalProtocolError"
        return False
