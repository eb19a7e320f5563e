"""Commands that ask a server, at one that means harm: each ends, with one line that says what is wrong, and the token stays with it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from network_support import answering, make_certificate, server_tls, signer

from gossiplog.cli import asking
from gossiplog.cli.app import root
from gossiplog.cli.net.sync_all import topics_of_hub
from gossiplog.keyring import Keyring
from gossiplog.net.hub.client import parse_url

ID = "0" * 32
TOKEN = "s3cret-token"
SURROGATE = '"\\ud800"'
DEEP = "[" * 100_000 + "]" * 100_000
NESTED = "[" * 900 + "]" * 900
HUGE = "9" * 400
ANSWERS = {
    "deep": DEEP,
    "as deep as can just be read": f'{{"me":{NESTED},"topic":"t","peers":[],"topics":["t"],"clock":1,"parents":[]}}',
    "a number of 400 digits": f'{{"me":"a","topic":"t","state":"absent","cause":"x","text":"","since":{HUGE},"parents":[],"clock":{HUGE}}}',
    "a number of 5,000 digits": "9" * 5_000,
    "infinity": '{"me":"a","topic":"t","state":"absent","cause":"x","text":"","since":1e999,"parents":[],"topics":["t"]}',
    "NaN": '{"me":"a","topic":"t","state":"absent","cause":"x","text":"","since":NaN,"parents":[],"topics":["t"]}',
    "half a surrogate": f'{{"me":{SURROGATE},"topic":{SURROGATE},"state":{SURROGATE},"cause":{SURROGATE},"text":{SURROGATE},"parents":[]}}',
    "half a surrogate as a topic": f'{{"topics":[{SURROGATE}],"parents":[],"findings":[{{"severity":"ok","check":{SURROGATE}}}]}}',
    "half a surrogate as a name": f'{{{SURROGATE}:1,"parents":[],"peers":[],"me":"m","topic":"t"}}',
    "not UTF-8": "\udcff",
    "findings of anything": '{"findings":[{"severity":["ok"]},{"severity":{}},7,null],"parents":{"a":1},"topics":{}}',
    "peers of anything": '[{"peer":[]},{"peer":{},"counts":null}]',
    "parents of anything": '{"clock":1,"parents":[{}],"topics":[1],"me":[],"topic":{}}',
    "a topic that is none": '{"clock":1,"parents":[],"topics":["a b"],"me":"","topic":""}',
    "a topic that is a number": '{"clock":1,"parents":[],"topics":[7]}',
    "no topics": '{"clock":1,"parents":[],"topics":[]}',
    "the end of a line": '{"topics":["a\\nb\\u0000"],"parents":[],"clock":1}',
}


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One key, to append with, and a token."""
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    monkeypatch.setenv("GOSSIPLOG_TOKEN", TOKEN)
    Keyring.from_environment().add("mine", signer(1))


def commands(url: str) -> list[list[str]]:
    asks = [["why", url, ID], ["why", url, ID, url], ["doctor", url], ["peers", url]]
    return [*([*ask, how] for ask in asks for how in ("--json", "--table")), ["append", url, '"x"', "--key", "mine"]]


def invoke(args: list[str], code: int = 4) -> Result:
    result = CliRunner().invoke(root, args)
    assert result.exit_code == code, (args, result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr and "fault of gossiplog" not in result.stderr
    assert len(result.stderr) < 2_000
    return result


@contextmanager
def serving(answer: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """Answer each connection by a function, one after the other; give the port, and what was received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                try:
                    secure = connection if tls is None else tls.wrap_socket(connection, server_side=True)
                    with secure:
                        received.append(secure.recv(65_536))
                        answer(secure)
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("form", ANSWERS)
def test_whatever_a_server_answers_is_shown_or_refused(form: str) -> None:
    text = ANSWERS[form]
    with serving(lambda connection: connection.sendall(_http(text))) as (port, _):
        for args in commands(f"ws://127.0.0.1:{port}"):
            invoke(args)


def _http(text: str) -> bytes:
    body = text.encode("utf-8", "surrogateescape")
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ndate: x\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("is_tls", [False, True])
def test_redirect_is_told_and_takes_the_token_nowhere(status: int, is_tls: bool, tmp_path: Path) -> None:
    paths = make_certificate(tmp_path)
    with serving(lambda connection: connection.sendall(_http("{}"))) as (other, elsewhere):
        redirect = f"HTTP/1.1 {status} Moved\r\nlocation: http://127.0.0.1:{other}/\r\ncontent-length: 0\r\n\r\n".encode()
        with serving(lambda connection: connection.sendall(redirect), server_tls(paths) if is_tls else None) as (port, asked):
            scheme = "wss" if is_tls else "ws"
            for args in commands(f"{scheme}://localhost:{port}"):
                result = invoke([*args, *(["--tls-ca", str(paths[0])] if is_tls else [])])
                assert f"points to http://127.0.0.1:{other}/" in result.stderr
        assert elsewhere == []
        assert any(TOKEN.encode() in request for request in asked)


async def test_logs_are_asked_for_below_the_path_of_the_server() -> None:
    """An application mounts a shelf there, or a proxy takes the path off."""
    with serving(lambda connection: connection.sendall(_http('{"topics": ["a"]}'))) as (port, asked):
        assert await topics_of_hub(parse_url(f"ws://127.0.0.1:{port}/rooms/?room=1")) == {"a"}
        assert [request.split(b" ")[1] for request in asked] == [b"/rooms/?after="]


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{"])
def test_server_that_sends_a_byte_now_and_then_does_not_keep_a_command(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.cli.asking.ANSWER_S", 0.1)
    monkeypatch.setattr("gossiplog.cli.posting._ANSWER_S", 0.1)

    def drip(connection: socket.socket) -> None:
        connection.sendall(beginning)
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    with serving(drip) as (port, _):
        for args in commands(f"ws://127.0.0.1:{port}")[::2]:
            began = time.monotonic()
            invoke(args)
            assert time.monotonic() - began < 10


def test_answer_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "JSON_BYTES_MAX", 2**20)

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" " * 65_536)

    with serving(flood) as (port, _):
        assert "more than" in invoke(["doctor", f"ws://127.0.0.1:{port}"]).stderr


def test_append_says_which_topic_it_signs_for_where_the_server_named_it() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(_http('{"clock":1,"parents":[],"topics":["named.example"]}'))

    with serving(answer) as (port, asked_bytes):
        url = f"ws://127.0.0.1:{port}"
        told = invoke(["append", url, '"x"', "--key", "mine", "--table"], code=0)
        assert "signing for the topic named.example, which the server named" in told.stderr
        assert "named.example" in told.stdout
        quiet = invoke(["append", f"{url}/mine.example", '"x"', "--key", "mine"], code=0)
        assert quiet.stderr == ""
        asked = [request.partition(b"\r\n\r\n")[2].decode() for request in asked_bytes if request.startswith(b"POST")]
    assert [json.loads(one)["message"]["topic"] for one in asked] == ["named.example", "mine.example"]


def test_append_to_a_server_of_several_logs_asks_which() -> None:
    with answering('{"clock":1,"parents":[],"topics":["a.example","b.example"]}') as url:
        stderr = invoke(["append", url, '"x"', "--key", "mine"], code=2).stderr
    assert "2 logs: a.example, b.example" in stderr and "URL/TOPIC" in stderr
