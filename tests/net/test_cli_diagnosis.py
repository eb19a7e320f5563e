"""`why` and `doctor` as commands, beside a server of this process over a real socket."""

import json
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result
from glass_support import seen_log
from network_support import TOPIC, answering, eventually, make_certificate, memory_log, server_tls, signer, until_has

import gossiplog
from gossiplog.cli.app import root

NOBODYS = "0" * 32


async def command(*args: str, code: int) -> Result:
    """Run a command beside the event loop."""
    result = await trio.to_thread.run_sync(lambda: CliRunner().invoke(root, args, prog_name="gossiplog"))
    assert result.exit_code == code, f"{result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr
    return result


async def record(*args: str, code: int) -> Any:
    return json.loads((await command(*args, "--json", code=code)).stdout)


async def test_why_names_the_cause_in_a_table_in_json_and_alone() -> None:
    async with seen_log(1) as log, memory_log(2) as client, log.listen("127.0.0.1:0") as hub:
        url = hub.urls[0]
        absent = await record("why", url, NOBODYS, code=7)
        assert (absent["state"], absent["cause"]) == ("absent", "partition")
        assert "nobody is connected" in (await command("why", url, NOBODYS, "--table", code=7)).stdout
        assert (await command("why", url, NOBODYS, "-q", code=7)).stdout == "partition\n"
        async with client.connect(url):
            await eventually(lambda: hub.links() and hub.links()[0].is_pushing)
            entry = await client.append("pushed")
            await until_has(log, [entry])
            here = await command("why", url, entry.id, "--table", code=0)
            assert "by push" in here.stdout and "deliver" in here.stdout
            client_id = hub.links()[0].peer
            assert (await record("why", url, NOBODYS, client_id, code=7))["cause"] == "never-heard"


async def test_why_asks_both_servers_and_names_what_only_both_know() -> None:
    async with (
        seen_log(1) as log,
        seen_log(2) as other,
        memory_log(3, "other.example.com") as foreign,
        log.listen("127.0.0.1:0") as hub,
        other.listen("127.0.0.1:0") as second,
        foreign.listen("127.0.0.1:0") as third,
    ):
        entry = await other.append("there alone")
        apart = await record("why", hub.urls[0], entry.id, second.urls[0], code=7)
        assert (apart["cause"], apart["state"]) == ("partition", "absent")
        assert (await record("why", hub.urls[0], entry.id, third.urls[0], code=7))["cause"] == "other-topic"
        nowhere = await record("why", hub.urls[0], NOBODYS, second.urls[0], code=7)
        assert nowhere["details"]["there"] == "partition"


async def test_why_brings_each_server_its_own_token_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {}
    for name in ("here", "there"):
        files[name] = tmp_path / name
        files[name].write_text(f"secret-of-{name}")
    heard: list[bytes] = []
    async with seen_log(1) as log, log.listen("127.0.0.1:0") as hub, trio.open_nursery() as nursery:

        async def answer(stream: trio.SocketStream) -> None:
            heard.append(bytes(await stream.receive_some()))
            await stream.send_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await stream.aclose()

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        peer = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
        args = ("why", hub.urls[0], NOBODYS, peer)
        alone = await record(*args, "--token-file", str(files["here"]), code=7)
        assert "the peer could not be asked" in alone["text"] and len(heard) == 1
        monkeypatch.setenv("GOSSIPLOG_TOKEN", "secret-of-the-environment")
        await record(*args, code=7)
        await record(*args, "--token-file", str(files["here"]), "--peer-token-file", str(files["there"]), code=7)
        assert len(heard) == 3 and not any(b"secret" in each for each in heard[:2])
        assert b"Authorization: Bearer secret-of-there" in heard[2] and b"secret-of-here" not in heard[2]
        nursery.cancel_scope.cancel()


async def test_doctor_exits_by_what_it_found(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with gossiplog.open(path, topic=TOPIC, signer=signer(1)) as log:
        await log.append_many(range(200))
        async with log.listen("127.0.0.1:0") as hub:
            url = hub.urls[0]
            found = [json.loads(line) for line in (await command("doctor", url, "--json", code=0)).stdout.splitlines()]
            assert {"version", "clock", "tree", "peers"} <= {finding["check"] for finding in found}
            assert "agrees" in (await command("doctor", url, "--table", code=0)).stdout
            assert (await command("doctor", url, "-q", code=0)).stdout == ""
    await command("doctor", str(path), code=0)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE gossiplog_leaves SET hash = zeroblob(16)")
    db.close()
    assert (await command("doctor", str(path), "-q", code=3)).stdout == "tree\n"


async def test_doctor_says_when_the_certificate_ends(tmp_path: Path) -> None:
    paths = make_certificate(tmp_path)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(memory_log(1))
        hub = await stack.enter_async_context(log.listen("127.0.0.1:0", tls=server_tls(paths)))
        args = ("doctor", f"wss://localhost:{hub.port}", "--tls-ca", str(paths[0]), "--json")
        lines = (await command(*args, code=7)).stdout.splitlines()
        (certificate,) = [finding for finding in map(json.loads, lines) if finding["check"] == "certificate"]
        assert (certificate["severity"], certificate["details"]["name"]) == ("error", "localhost")
        untrusted = await command(*args[:2], code=4)
        assert "not trusted" in untrusted.stderr and "trust its CA" in untrusted.stderr
        elsewhere = await stack.enter_async_context(log.listen("127.0.0.2:0", tls=server_tls(paths)))
        other_name = await command("doctor", f"wss://127.0.0.2:{elsewhere.port}", "--tls-ca", str(paths[0]), code=4)
        assert "for another name: write that name in the URL" in other_name.stderr and "its CA" not in other_name.stderr


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (("why", "ws://127.0.0.1:1", "0k5v"), 2, "give all 32"),
        (("why", "app.db", NOBODYS), 2, "not the URL of a server"),
        (("why", "ws://[", NOBODYS), 2, "not the URL of a server"),
        (("why", "ws://127.0.0.1:1", NOBODYS), 4, "is the server running"),
        (("doctor", "ws://127.0.0.1:1"), 4, "is the server running"),
        (("doctor", "nothing.db"), 1, "no log at nothing.db"),
    ],
)
async def test_what_cannot_be_asked_is_said(args: tuple[str, ...], code: int, complaint: str) -> None:
    assert complaint in (await command(*args, code=code)).stderr


@pytest.mark.parametrize(
    "answer",
    [
        "7",
        "[]",
        "{",
        '{"state":"absent"}',
        '{"me":1,"topic":2,"state":"absent","cause":"here","text":"","way":[7]}',
        '{"me":1,"topic":2,"entry":"","node":"","state":"absent","cause":"x","text":"","since":1e99,"peers":{},"findings":{}}',
        '{"findings":[{"severity":"dreadful"}],"cause":"x","state":"y","text":"z","since":[]}',
    ],
)
def test_server_that_answers_something_else_is_said_to(answer: str) -> None:
    with answering(answer) as url:
        for args in (["why", url, NOBODYS], ["why", url, NOBODYS, url], ["doctor", url]):
            result = CliRunner().invoke(root, [*args, "--json"])
            assert result.exit_code == 4, (args, result.stdout)
            assert json.loads(result.stderr)["error"]["kind"] in ("protocol", "cannot-connect")
