"""`serve` as a peer among servers."""

import json
import signal
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_support import TOPIC, Run
from test_cli_process import started

from gossiplog.net.libp2p import Address, PeerKey


@contextmanager
def serving(environment: dict[str, str], *args: str):
    """`serve` in a process of its own, and the first line that it prints."""
    with started(environment, "serve", *args, "--json") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read().decode() if process.stderr else ""
        yield process, json.loads(line)


def interrupt(process: "subprocess.Popen[bytes]") -> str:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err.decode()
    return err.decode()


def test_two_servers_find_each_other_and_sync(cli: Run, environment: dict[str, str], folder: Path) -> None:
    for name in ("one.db", "two.db"):
        cli("init", name, "--topic", TOPIC)
    appended = cli("append", "one.db", '{"n":1}').record["id"]
    with serving(environment, "one.db", "--p2p", "/ip4/127.0.0.1/tcp/0", "--p2p", "/ip4/127.0.0.1/tcp/0/ws") as (one, said):
        tcp, websocket = (Address.parse(url) for url in said["urls"])
        assert tcp.peer == websocket.peer == PeerKey.load_or_create(folder / "one.db.peer.pem").id
        assert (tcp.port, tcp.is_websocket, websocket.is_websocket) == (websocket.port, False, True)
        assert (folder / "one.db.peer.pem").stat().st_mode & 0o777 == 0o600
        with serving(environment, "two.db", "--bootstrap", str(websocket), "--log-format", "json") as (two, other):
            assert other["urls"] == []
            assert two.stderr is not None
            while "synced" not in (line := two.stderr.readline().decode()):
                assert line
            assert json.loads(line)["entries"] == 1
            interrupt(two)
        assert "connected" in interrupt(one)
    assert cli("show", "two.db", appended).record["message"]["payload"] == {"n": 1}


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["app.db", "--p2p", "localhost:4001"], "not a multiaddr"),
        (["app.db", "--p2p", "/ip4/127.0.0.1/udp/4001/quic-v1"], "not a TCP address"),
        (["app.db", "--bootstrap", "/ip4/127.0.0.1/tcp/1/p2p/nobody"], "not a multiaddr"),
        (["app.db", "other.db", "--p2p", "/ip4/127.0.0.1/tcp/0"], "for one log"),
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
