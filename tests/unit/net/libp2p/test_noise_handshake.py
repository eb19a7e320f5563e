"""The handshake of noise: published vectors, and what a side that lies gets."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from gossiplog.errors import RemoteProtocolError
from gossiplog.net.libp2p.noise_handshake import NONCE, NoiseHandshake

CASES = json.loads((Path(__file__).parents[3] / "vectors/noise.json").read_text())["cases"]


def key(text):
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(text))


def side(case, name):
    static, ephemeral = key(case[f"{name}_static"]), key(case[f"{name}_ephemeral"])
    return NoiseHandshake(static, is_initiator=name == "init", prologue=bytes.fromhex(case["prologue"]), ephemeral=ephemeral)


def sides(case):
    return side(case, "init"), side(case, "resp")


@pytest.mark.parametrize("case", CASES)
def test_published_vectors_are_met_by_both_sides(case):
    initiator, responder = sides(case)
    writer, reader = initiator, responder
    messages = [(bytes.fromhex(each["payload"]), bytes.fromhex(each["ciphertext"])) for each in case["messages"]]
    for payload, expected in messages[:3]:
        assert writer.write(payload) == expected
        assert reader.read(expected) == payload
        writer, reader = reader, writer
    assert initiator.is_done and responder.is_done
    assert initiator.hash == responder.hash
    assert initiator.remote_static == key(case["resp_static"]).public_key().public_bytes_raw()
    assert responder.remote_static == key(case["init_static"]).public_key().public_bytes_raw()
    (out, back), (responder_out, responder_back) = initiator.split(), responder.split()
    for (payload, expected), seal, open_ in zip(messages[3:], (out, responder_out), (responder_back, back), strict=True):
        assert seal.encrypt(NONCE.pack(0), payload, None) == expected
        assert open_.decrypt(NONCE.pack(0), expected, None) == payload


def test_a_message_that_was_changed_anywhere_ends_the_handshake():
    case = CASES[0]
    second = bytes.fromhex(case["messages"][1]["ciphertext"])
    for at in range(len(second)):
        initiator, _ = sides(case)
        initiator.write(b"")
        with pytest.raises(RemoteProtocolError):
            initiator.read(second[:at] + bytes([second[at] ^ 1]) + second[at + 1 :])


@pytest.mark.parametrize("size", [0, 31, 32, 33, 79, 80, 95])
def test_a_message_that_is_cut_short_ends_the_handshake(size):
    initiator, _ = sides(CASES[0])
    initiator.write(b"")
    with pytest.raises(RemoteProtocolError):
        initiator.read(bytes.fromhex(CASES[0]["messages"][1]["ciphertext"])[:size])


@pytest.mark.parametrize("point", ["00" * 32, "01" + "00" * 31, "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"])
def test_an_ephemeral_key_without_a_secret_is_refused(point):
    responder = NoiseHandshake(X25519PrivateKey.generate(), is_initiator=False)
    responder.read(bytes.fromhex(point))
    with pytest.raises(RemoteProtocolError, match="no secret"):
        responder.write(b"")


def test_two_handshakes_with_the_same_static_key_begin_with_different_bytes():
    static = X25519PrivateKey.generate()
    assert len({NoiseHandshake(static, is_initiator=True).write(b"") for _ in range(2)}) == 2
