"""What promises to raise nothing: signature schemes, sessions, what describes bytes of others, the machines, and what sends at once.

Each is given what it expects with every part replaced by every kind of value, bytes at each bound and one less and more, and bytes with
one of them changed. Routers have their own in `test_pubsub_routers`; `validate` has its own tests (`tests/unit/entry/test_bounds.py`),
and so have decoders (`tests/fuzz`).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from broadcast_support import TOPIC, Harness, insert_of
from hypothesis import given
from hypothesis import strategies as st
from muxer_support import tcp_pair

from gossiplog.archive.car import describe_foreign
from gossiplog.broadcast.events import PeerKind
from gossiplog.codec import pcf
from gossiplog.codec.cid import link_from_bytes
from gossiplog.entry import Ed25519Signer, Entry
from gossiplog.entry import schemes as schemes_module
from gossiplog.entry.ed25519 import verify_signed
from gossiplog.entry.envelope import build_value, signed_bytes
from gossiplog.entry.rules import CLOCK_MAX, NESTING_MAX, PARENTS_MAX, VALUE_BYTES_LIMIT
from gossiplog.entry.schemes import SNAPSHOT
from gossiplog.errors import DecodeError
from gossiplog.ethereum import Eip712Signer, Wallet, is_session_authorised
from gossiplog.ethereum.eip712 import verify_action, verify_session_message
from gossiplog.kit import is_yjs_text
from gossiplog.net import Connection, Stream, open_muxed
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import WebSocketStream
from gossiplog.pubsub.types import PeerId
from gossiplog.tlog.note import COSIGNATURE, VerifierKey
from gossiplog.tlog.proof import WitnessPolicy

SIGNERS = [Ed25519Signer(bytes([7]) * 32, codec=codec) for codec in ("dag-cbor", "dag-json")]
SESSION_KEY = Eip712Signer(bytes([9]) * 32)
WALLET = Wallet(bytes([8]) * 32)
DEEP: Any = 1
for _ in range(60):
    DEEP = [DEEP]
ODD = [None, True, -1, 0, 2**53 - 1, 1 - 2**53, 1.5, 1e300, "", "é", "0x", b"", bytes(19), [], ["x"], {}, {"a": {}}, DEEP]
ODD.append(link_from_bytes(b"\x01\x71\x12\x20" + bytes(32)))
ACTION = {"type": "action", "did": WALLET.did, "name": "post", "args": ["hello", 7], "context": {"timestamp": 1}}
SNAPSHOT_PAYLOAD = {"type": "snapshot", "models": {}, "effects": []}


def replaced(value: Any) -> Iterator[Any]:
    """The value with each of its parts in turn replaced by each odd one, left out, or in odd company."""
    yield from ODD
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield {other: each for other, each in value.items() if other != name}
            for other in replaced(part):
                yield {**value, name: other}
    elif isinstance(value, list):
        yield [*value, *value]
        for index, part in enumerate(value):
            for other in replaced(part):
                yield [*value[:index], other, *value[index + 1 :]]


def message_of(payload: Any) -> dict[str, Any]:
    return {"topic": "app.example.com:v1", "clock": 0, "parents": [], "payload": payload}


def session_payload() -> dict[str, Any]:
    return WALLET.authorise("app.example.com", SESSION_KEY.did, 1_700_000_000_000, 60_000)


@pytest.mark.parametrize(
    ("verify", "signature_bytes", "payload"),
    [
        (verify_action, 64, ACTION),
        (verify_session_message, 64, session_payload()),
        (SNAPSHOT.verify_signed, 0, SNAPSHOT_PAYLOAD),
        (verify_signed, 64, ACTION),
    ],
    ids=["action", "session", "snapshot", "ed25519"],
)
def test_a_scheme_gives_an_answer_about_any_message(verify: Any, signature_bytes: int, payload: Any) -> None:
    _, key = schemes_module.decode_did(SESSION_KEY.did)
    number = 0
    for message in replaced(message_of(payload)):
        number += 1
        signed = pcf.encode(message, depth_max=NESTING_MAX)
        answers = {verify(key, bytes(signature_bytes) + signed), verify(b"", signed[: number % 70])}
        assert answers <= {True, False, None}
    assert number > 100


@given(st.binary(max_size=80), st.binary(max_size=300))
def test_a_scheme_gives_an_answer_about_any_bytes(key: bytes, signed: bytes) -> None:
    for scheme in (SNAPSHOT.verify_signed, verify_signed, verify_action, verify_session_message):
        assert scheme(key, signed) in (True, False, None)
        for length in (31, 32, 33, 64, 65):
            assert scheme(key[:length].ljust(length, b"\2"), signed) in (True, False, None)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_a_scheme_gives_an_answer_about_messages_at_the_limit_of_nesting(beyond: int) -> None:
    for payload in (b"\x81" * (NESTING_MAX + beyond) + b"\x01", b"\xa1\x61a" * (NESTING_MAX + beyond) + b"\x01"):
        message = b"\xa1\x67payload" + payload
        for signature in (b"", bytes(63), bytes(64), bytes(65)):
            for scheme in (SNAPSHOT.verify_signed, verify_signed, verify_action, verify_session_message):
                assert scheme(bytes(33), signature + message) in (True, False, None)


def test_a_session_is_authorised_or_not_whatever_its_payload_is() -> None:
    siwe = WALLET.authorise("app.example.com", SIGNERS[0].did, 1_700_000_000_000, 60_000, nonce="abcdefgh")
    for payload in (siwe, session_payload()):
        assert is_session_authorised("app.example.com", payload)
        for other in replaced(payload):
            assert is_session_authorised("app.example.com", other) in (True, False)
    for time in (-(2**53), 2**53, 8_640_000_000_000_001, -62_135_596_800_001, float("inf"), float("nan")):
        for context in ({"timestamp": time}, {"timestamp": 1, "duration": time}, {"timestamp": 1, "duration": None}):
            assert is_session_authorised("app.example.com", siwe | {"context": context}) in (True, False)


@given(st.one_of(st.binary(max_size=200), st.just(ODD).flatmap(st.sampled_from)))
def test_what_is_said_of_bytes_of_others_is_said_of_any(data: Any) -> None:
    assert is_yjs_text(data, SIGNERS[0].did) in (True, False)
    if isinstance(data, bytes):
        describe_foreign(data)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_bytes_of_others_at_the_bounds_are_described(beyond: int) -> None:
    describe_foreign(b"\x41a" + bytes(64 * 1024 - 2 + beyond))
    for levels in (NESTING_MAX, 1_000, 10_000):
        for opening in (b"\x81", b"\xa1\x61a", b"\xd8\x2a"):
            describe_foreign(opening * (levels + beyond) + b"\x01")
    for head in range(256):
        describe_foreign(bytes([head]) + (2**63 - 1 + beyond).to_bytes(8) + bytes(3))


def bounded_values() -> Iterator[bytes]:
    """VALUEs at every bound, one below and one above, signed in both codecs."""
    for signer in SIGNERS:
        for beyond in (-1, 0, 1):
            payloads: list[tuple[bytes, int, tuple[bytes, ...]]] = [
                (b"\x81" * (NESTING_MAX + beyond) + b"\x01", 1, ()),
                (b"\x01", max(0, 1 + beyond), ()),
                (b"\x01", CLOCK_MAX + beyond, (b"\1" + bytes(19),)),
                (b"\x01", 2, (b"\1" + bytes(18 + beyond),)),
                (b"\x01", 2, tuple(b"\1" + number.to_bytes(19) for number in range(PARENTS_MAX + beyond))),
                (b"\x5a" + (VALUE_BYTES_LIMIT + beyond).to_bytes(4), 1, ()),
                (b"\x1b" + (2**53 - 1 + beyond).to_bytes(8), 1, ()),
            ]
            for payload, clock, parents in payloads:
                try:
                    signature = signer.sign(signed_bytes(signer.codec, TOPIC, clock, parents, payload))
                except Exception:
                    signature = bytes(64)
                try:
                    yield build_value(signer.codec, signer.did, signature, TOPIC, clock, parents, payload)
                except (OverflowError, ValueError):
                    continue


def test_a_machine_takes_entries_at_every_bound_by_every_way() -> None:
    node = Harness()
    node.connect("mesh")
    node.connect("client", PeerKind.CLIENT)
    values = list(bounded_values())
    rng = random.Random(5)
    assert len(values) > 30
    for value in values:
        changed = bytearray(value)
        changed[rng.randrange(len(changed))] ^= 1 + rng.randrange(255)
        for data in (value, bytes(changed), value[:-1], value + b"\0"):
            entry = Entry(b"\1" + bytes(19), data)
            node.push("client", insert_of(entry))
            node.receive("mesh", insert_of(entry))
    assert node.machine.state().sizes["pending"] == 0


PIECES = [0, 1, *(bound + beyond for bound in (65_519, 65_535, 2**20) for beyond in (-1, 0, 1))]


@pytest.mark.parametrize("layer", ["tcp", "websocket", "muxed"])
@pytest.mark.parametrize("state", ["open", "reset there", "closed here"])
async def test_what_sends_at_once_sends_or_says_that_it_cannot(layer: str, state: str) -> None:
    async def keep(connection: Connection, stream: Stream) -> None:
        while await stream.receive_some():
            pass

    left, right = await tcp_pair()
    below = WebSocketStream(TcpStream(left), is_client=True) if layer == "websocket" else TcpStream(left)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(left.aclose)
        stack.push_async_callback(right.aclose)
        send, flush = below.send_now, lambda: None
        if layer == "muxed":
            await stack.enter_async_context(open_muxed(TcpStream(right), is_client=False, peer=PeerId("client"), handlers={"/keep": keep}))
            connection = await stack.enter_async_context(open_muxed(below, is_client=True, peer=PeerId("server")))
            send, flush = (await connection.open_stream(["/keep"])).send_at_once, connection.flush
        if state == "reset there":
            right.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
            await right.aclose()
        elif state == "closed here":
            await below.aclose()
        answers = set()
        for size in PIECES:
            answers.add(send(bytes(size)))
            flush()
            await trio.lowlevel.checkpoint()
            flush()
        assert answers <= {True, False} and (True in answers or state != "open")


def test_a_policy_with_a_number_of_more_digits_than_python_reads_is_refused() -> None:
    text = f"witness a {VerifierKey('w', COSIGNATURE, bytes(32))}\ngroup g %s a\nquorum g\n"
    assert WitnessPolicy.parse((text % 1).encode()).quorum == "g"
    with pytest.raises(DecodeError, match="no number"):
        WitnessPolicy.parse((text % ("9" * 5_000)).encode())
