"""`serve` as a peer among servers."""

import json
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from cli_support import TOPIC, Run
from mesh_support import a_host

from gossiplog.codec.framing import encode_frame
from gossiplog.errors import StreamReset
from gossiplog.net import Connection, Stream
from gossiplog.net.libp2p import Address, PeerKey

MESHSUB = "/meshsub/1.1.0"


async def until_stream_ends(connection: Connection, stream: Stream) -> None:
    while await stream.receive_some():
        pass


@contextmanager
def serving(*args: str):
    """`gossiplog serve` in another process, and the first line that it prints."""
    with subprocess.Popen(["gossiplog", "serve", *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read().decode() if process.stderr else ""
            yield process, json.loads(line)
        finally:
            process.terminate()


def interrupt(process: "subprocess.Popen[bytes]") -> str:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err.decode()
    return err.decode()


def count_at(url: str) -> int:
    with urllib.request.urlopen(url.replace("ws://", "http://") + "/api/messages/count") as answer:
        count: int = json.loads(answer.read())["count"]
    return count


def test_two_servers_find_each_other_and_sync(cli: Run, warm_gossiplog: None, folder: Path) -> None:
    for name in ("one.db", "two.db"):
        cli("init", name, "--topic", TOPIC)
    appended = cli("append", "one.db", '{"n":1}').record["id"]
    with serving("one.db", "--p2p", "/ip4/127.0.0.1/tcp/0", "--p2p", "/ip4/127.0.0.1/tcp/0/ws") as (one, said):
        tcp, websocket = (Address.parse(url) for url in said["urls"])
        assert tcp.peer == websocket.peer == PeerKey.load_or_create(folder / "one.db.peer.pem").id
        assert (tcp.port, tcp.is_websocket, websocket.is_websocket) == (websocket.port, False, True)
        assert (folder / "one.db.peer.pem").stat().st_mode & 0o777 == 0o600
        with serving("two.db", "--bootstrap", str(websocket), "--log-format", "json") as (two, other):
            assert other["urls"] == []
            assert two.stderr is not None
            while "synced" not in (line := two.stderr.readline().decode()):
                assert line
            assert json.loads(line)["entries"] == 1
            interrupt(two)
        assert "connected" in interrupt(one)
    assert cli("show", "two.db", appended).record["message"]["payload"] == {"n": 1}


@pytest.mark.slow
def test_two_servers_with_two_logs_each_have_one_connection(cli: Run, warm_gossiplog: None, folder: Path) -> None:
    names = {f"{server}-{room}.db": f"{room}.example.com" for server in "ab" for room in ("kitchen", "hall")}
    for name, topic in names.items():
        cli("init", name, "--topic", topic)
    ids = {room: cli("append", f"a-{room}.db", '{"n":1}').record["id"] for room in ("kitchen", "hall")}
    port = ("--p2p", "/ip4/127.0.0.1/tcp/0", "--peer-key")
    with serving("a-kitchen.db", "a-hall.db", *port, "a.pem") as (one, said):
        bootstrap = ("--bootstrap", said["urls"][0], "--log-format", "json")
        with serving("b-kitchen.db", "b-hall.db", *port, "b.pem", *bootstrap) as (two, _):
            assert two.stderr is not None
            lines = list[str]()
            while sum("synced" in line for line in lines) < len(ids):
                lines.append(two.stderr.readline().decode())
                assert lines[-1]
            interrupt(two)
        interrupt(one)
    assert sum(json.loads(line)["event"] == "connected" for line in lines) == 1, lines
    for room, id in ids.items():
        assert cli("show", f"b-{room}.db", id).record["message"]["payload"] == {"n": 1}


def test_a_log_of_a_folder_is_in_its_mesh_while_it_is_open_and_one_that_a_hangup_adds_is(
    cli: Run, warm_gossiplog: None, folder: Path
) -> None:
    topic = "kitchen.example.com"
    (folder / "rooms").mkdir()
    for name, its in (
        (f"rooms/{topic}.db", topic),
        ("rooms/hall.example.com.db", "hall.example.com"),
        ("b.db", topic),
        ("c.db", "hall.example.com"),
    ):
        cli("init", name, "--topic", its)
    id = cli("append", f"rooms/{topic}.db", '{"n":1}').record["id"]
    port = ("--p2p", "/ip4/127.0.0.1/tcp/0", "--peer-key")
    with serving("--dir", "rooms", "--listen", "127.0.0.1:0", *port, "a.pem") as (one, said):
        assert said["logs"] == 2
        url, address = said["urls"]
        (folder / "b.toml").write_text(f'logs = ["c.db"]\nbootstrap = ["{address}"]\npeer-key = "b.pem"\nlisten = ["127.0.0.1:0"]')
        with serving("--config", "b.toml") as (two, _):
            assert two.stdout is not None
            (folder / "b.toml").write_text((folder / "b.toml").read_text().replace("c.db", "b.db"))
            two.send_signal(signal.SIGHUP)
            came = json.loads(two.stdout.readline())
            assert (came["serving"], came["entries"]) == (topic, 0)
            # The other server's is asleep, and a peer does not wake it; whoever asks there for it does.
            time.sleep(1)
            assert count_at(came["urls"][0]) == 0
            assert count_at(url.replace("TOPIC", topic)) == 1
            deadline = time.monotonic() + 30
            while not count_at(came["urls"][0]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            interrupt(two)
        interrupt(one)
    assert cli("show", "b.db", id).record["message"]["payload"] == {"n": 1}


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["app.db", "--p2p", "localhost:4001"], "not a multiaddr"),
        (["app.db", "--p2p", "/ip4/127.0.0.1/udp/4001/quic-v1"], "not a TCP address"),
        (["app.db", "--bootstrap", "/ip4/127.0.0.1/tcp/1/p2p/nobody"], "not a multiaddr"),
        (["app.db", "--p2p", "/ip4/127.0.0.1/tcp/0", "--mesh-params", "none.toml"], "No such file"),
        (["app.db", "other.db", "--p2p", "/ip4/127.0.0.1/tcp/0"], "needs --peer-key"),
        (["--dir", ".", "--p2p", "/ip4/127.0.0.1/tcp/0"], "needs --peer-key"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(cli: Run, args: list[str], complaint: str) -> None:
    for name in ("app.db", "other.db"):
        cli("init", name, "--topic", TOPIC)
    assert complaint in cli("serve", *args, code=2).err


def test_an_address_that_is_taken_is_said(cli: Run) -> None:
    cli("init", "app.db", "--topic", TOPIC)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = cli("serve", "app.db", "--p2p", f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}", "--json", code=4)
    assert ran.error["kind"] == "cannot-listen"
    assert "in use" in ran.error["message"].lower()


def test_a_peers_key_that_others_may_read_is_refused(cli: Run, folder: Path) -> None:
    cli("init", "app.db", "--topic", TOPIC)
    key = folder / "peer.pem"
    PeerKey.load_or_create(key)
    key.chmod(0o644)
    ran = cli("serve", "app.db", "--p2p", "/ip4/127.0.0.1/tcp/0", "--peer-key", str(key), "--json", code=1)
    assert ran.error["kind"] == "key"
    assert ran.error["hint"] == f"chmod 600 {key}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("score.treshold = 1", "score.treshold: unknown key"), ("D = ", "Invalid value"), ("is_validating = false", "is_validating")],
)
def test_mistake_in_the_meshs_parameters_is_named(cli: Run, folder: Path, text: str, complaint: str) -> None:
    cli("init", "app.db", "--topic", TOPIC)
    (folder / "mesh.toml").write_text(text)
    ran = cli("serve", "app.db", "--p2p", "/ip4/127.0.0.1/tcp/0", "--mesh-params", "mesh.toml", code=2)
    assert complaint in ran.err
    assert "--mesh-params-help gossipsub" in ran.err
    assert "[score.thresholds]" in cli("serve", "--mesh-params-help", "gossipsub").out


def test_scores_are_kept_by_the_files_parameters_and_shown(cli: Run, warm_gossiplog: None, folder: Path) -> None:
    cli("init", "app.db", "--topic", TOPIC)
    (folder / "mesh.toml").write_text("[score]\nbehaviour_threshold = 0.0\nbehaviour_weight = -7.0\nbehaviour_decay = 0.999999\n")
    options = ("--p2p", "/ip4/127.0.0.1/tcp/0", "--listen", "127.0.0.1:0", "--mesh-params", str(folder / "mesh.toml"))
    with serving("app.db", *options) as (process, said):
        url, place = sorted(said["urls"], reverse=True)

        async def misbehave() -> dict[str, Any]:
            async with a_host(handlers={MESHSUB: until_stream_ends}) as host:
                connection = await host.connect(None, [Address.parse(place)])
                stream = await connection.open_stream([MESHSUB])
                with suppress(StreamReset):
                    await stream.send_all(encode_frame(b"no rpc"))
                while True:
                    (link,) = (await trio.to_thread.run_sync(cli, "peers", url, "--json")).lines
                    if link["score"] and link["score"]["total"] < 0:
                        table = await trio.to_thread.run_sync(cli, "peers", url)
                        assert "-7.0" in table.out
                        return link["score"]
                    await trio.sleep(0.05)

        score = trio.run(misbehave)
        assert score == {"total": pytest.approx(-7.0, abs=0.01), "behaviour": pytest.approx(-7.0, abs=0.01)}
        with urllib.request.urlopen(url.replace("ws://", "http://") + "/metrics") as answer:
            assert f'gossiplog_mesh_scores{{score="negative",topic="{TOPIC}"}}' in answer.read().decode()
        interrupt(process)
