import base64
import json
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gossiplog.codec.framing import encode_frame
from gossiplog.errors import DecodeError, KeyFileError
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.identity import peer_of, read_public_key
from gossiplog.net.libp2p.noise import _Reader
from gossiplog.net.libp2p.records import ADDRESSES_MAX, RECORD_BYTES_MAX, open_record, read_addresses, seal_record
from gossiplog.net.libp2p.transport import local_addresses
from gossiplog.pubsub.types import peer_id_bytes

KEY, OTHER = PeerKey(bytes(range(32))), PeerKey(b"\1" * 32)
PLACES = [Address.parse("/ip4/192.0.2.1/tcp/4001/ws"), Address.parse("/dns4/peer.example.com/tcp/443/wss")]


def test_a_peer_id_is_that_of_the_specification():
    # From the test vectors of "Peer Ids and Keys": an Ed25519 key, public half in protobuf.
    public = bytes.fromhex("080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
    assert peer_of(public) == "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


# The message and the id of one key of each type, as go-libp2p 0.51 gives them.
KEYS = json.loads((Path(__file__).parents[3] / "vectors/peer-keys.json").read_text())["cases"]


@pytest.mark.parametrize("case", KEYS, ids=lambda case: case["type"])
def test_keys_of_all_types_have_the_ids_and_signatures_of_go(case):
    key = read_public_key(bytes.fromhex(case["public"]))
    data, signature = bytes.fromhex(case["data"]), bytes.fromhex(case["signature"])
    assert key.peer == case["peer"]
    assert key.is_signature(signature, data)
    assert not key.is_signature(signature, data + b"x")
    for at in range(len(signature)):
        assert not key.is_signature(signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :], data)
    for length in range(len(signature)):
        assert not key.is_signature(signature[:length], data)


def test_a_secp256k1_key_that_is_not_compressed_has_the_id_of_the_compressed_one():
    case = next(case for case in KEYS if case["type"] == "secp256k1")
    point = bytes.fromhex(case["public"])[4:]
    long = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), point).public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    assert peer_of(b"\x08\x02\x12\x41" + long) == case["peer"]


@pytest.mark.parametrize("bits", [1024, 2040, 2048])
def test_short_rsa_keys_are_refused(bits):
    der = rsa.generate_private_key(65537, bits).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    message = b"\x08\x00" + b"\x12" + encode_frame(der)
    if bits >= 2048:
        assert peer_of(message).startswith("Qm")
    else:
        with pytest.raises(DecodeError, match=f"an RSA key of {bits} bits"):
            peer_of(message)


def test_keys_of_other_kinds_in_the_place_of_rsa_and_ecdsa_are_refused():
    others = [ec.generate_private_key(ec.SECP224R1()), x25519.X25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256K1())]
    for der in (other.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for other in others):
        for type in (0, 3):
            with pytest.raises(DecodeError, match="not a public key"):
                peer_of(bytes([8, type]) + b"\x12" + encode_frame(der))


def test_a_key_file_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path):
    path = tmp_path / "app.db.peer.pem"
    first = PeerKey.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert PeerKey.load_or_create(path).id == first.id
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="0640"):
        PeerKey.load_or_create(path)


def test_a_key_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(KeyFileError):
        PeerKey.load_or_create(tmp_path / "nowhere" / "peer.pem")
    assert list(tmp_path.iterdir()) == []


def test_a_key_shows_its_id_and_nothing_else():
    assert repr(KEY) == f"<PeerKey {KEY.id}>"
    with pytest.raises(TypeError):
        pickle.dumps(KEY)


@pytest.mark.parametrize("data", [b"", b"\x08\x01", b"\x08\x01\x12\x02ab", b"\x08\x09\x12\x00", b"x" * 3000, b"\x08\x00\x12\x03abc"])
def test_what_is_no_public_key_is_refused(data):
    with pytest.raises(DecodeError):
        peer_of(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/ip4/192.0.2.1/tcp/4001", Address("ip4", "192.0.2.1", 4001)),
        ("/ip6/::1/tcp/1/ws", Address("ip6", "::1", 1, is_websocket=True)),
        ("/dns4/a.example/tcp/443/wss", Address("dns4", "a.example", 443, is_websocket=True, is_tls=True)),
        ("/dns/a.example/tcp/443/tls/ws", Address("dns", "a.example", 443, is_websocket=True, is_tls=True)),
        ("/dns6/" + "a" * 253 + "/tcp/65535/", Address("dns6", "a" * 253, 65_535)),
        (f"/ip4/192.0.2.1/tcp/4001/p2p/{KEY.id}", Address("ip4", "192.0.2.1", 4001, peer=KEY.id)),
    ],
)
def test_multiaddrs_are_read_from_text_and_bytes(text, expected):
    assert Address.parse(text) == expected
    assert Address.from_bytes(expected.to_bytes()) == expected
    assert Address.parse(str(expected)) == expected


def test_the_bytes_of_a_multiaddr_are_those_of_go():
    text = "/dns4/peer.example.com/tcp/443/wss/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"
    data = bytes.fromhex(
        "3610706565722e6578616d706c652e636f6d0601bbde03a503260024080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
    )
    assert Address.parse(text).to_bytes() == data
    assert str(Address.from_bytes(data)) == text
    for length in range(1, len(data)):
        try:
            assert Address.from_bytes(data[:length]).peer is None
        except DecodeError:
            continue


def test_a_peer_id_may_be_written_as_a_cid():
    cid = "b" + base64.b32encode(b"\x01\x72" + peer_id_bytes(KEY.id)).decode().lower().rstrip("=")
    assert Address.parse(f"/ip4/192.0.2.1/tcp/4001/p2p/{cid}").peer == KEY.id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "/",
        "/ip4/192.0.2.1",
        "/ip4/192.0.2.1/udp/4001/quic-v1",
        "/ip4/192.0.2.256/tcp/1",
        "/ip4/192.0.2.1/tcp/65536",
        "/ip4/192.0.2.1/tcp/4001/http",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{KEY.id}/p2p-circuit",
        "/ip4/192.0.2.1/tcp/4001/p2p/zzz",
        "/dns4/" + "a" * 600 + "/tcp/1",
        "/dns4/" + "a" * 254 + "/tcp/1",
        "/dns4//tcp/1",
        "/dns4/a b/tcp/1",
        "/ip4/::1/tcp/1",
        "/ip6/192.0.2.1/tcp/1",
        "/ip6/fe80::1%eth0/tcp/1",
        "/ip4/192.0.2.1/tcp",
        "/ip4/192.0.2.1/tcp/-1",
        "/ip4/192.0.2.1/tcp/١",
        "ip4/192.0.2.1/tcp/1",
        "/ip4/192.0.2.1/tcp/1/ws/wss",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{KEY.id}x",
        f"/p2p/{KEY.id}/ip4/192.0.2.1/tcp/4001",
        "/ip4/192.0.2.1/tcp/4001/p2p/",
        "/ip4/192.0.2.1/tcp/4001/p2p/bafzaajaiaejca",
    ],
)
def test_what_cannot_be_dialled_is_refused(text):
    with pytest.raises(DecodeError):
        Address.parse(text)


def test_an_address_for_all_interfaces_stands_for_ones_that_can_be_dialled():
    found = local_addresses(Address.parse("/ip4/0.0.0.0/tcp/4001/ws"))
    assert Address.parse("/ip4/127.0.0.1/tcp/4001/ws") in found
    assert not any(address.is_unspecified for address in found)


def test_a_record_says_where_a_peer_listens():
    record = open_record(seal_record(KEY, PLACES, 7))
    assert (record.peer, record.seq) == (KEY.id, 7)
    assert record.addresses == tuple(place.of(KEY.id) for place in PLACES)


def test_a_record_that_was_changed_is_refused():
    sealed = seal_record(KEY, PLACES, 7)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(DecodeError):
            open_record(bytes(changed))


def test_a_record_of_another_peer_or_too_long_is_refused():
    stolen = seal_record(OTHER, PLACES, 7).replace(OTHER.public, KEY.public)
    with pytest.raises(DecodeError, match="signature"):
        open_record(stolen)
    with pytest.raises(DecodeError, match="at most"):
        open_record(bytes(RECORD_BYTES_MAX + 1))


def test_of_the_addresses_that_a_peer_tells_only_usable_ones_are_kept():
    told = [place.to_bytes() for place in PLACES]
    told += [b"", b"\xff" * 20, Address.parse("/ip4/0.0.0.0/tcp/1").to_bytes(), Address.parse("/ip4/192.0.2.9/tcp/0").to_bytes()]
    told += [PLACES[0].of(OTHER.id).to_bytes()]
    assert read_addresses(told, KEY.id) == tuple(place.of(KEY.id) for place in PLACES)
    many = [Address("ip4", "192.0.2.1", port).to_bytes() for port in range(1, 100)]
    assert len(read_addresses(many, KEY.id)) == ADDRESSES_MAX


@pytest.mark.parametrize("size", [1, 2, 3, 5, 300, 1000])
def test_messages_of_noise_are_the_same_however_they_are_cut(size):
    sent = [b"a", b"b" * 300, b"", b"c"]
    data = b"".join(len(message).to_bytes(2, "big") + message for message in sent)
    reader = _Reader(None)
    assert [message for at in range(0, len(data), size) for message in reader.cut(data[at : at + size])] == sent
    assert not reader.rest
    assert [reader.cut(len(message).to_bytes(2, "big") + message) for message in sent] == [[message] for message in sent]
    assert reader.cut(b"\0") == []
    assert reader.rest
