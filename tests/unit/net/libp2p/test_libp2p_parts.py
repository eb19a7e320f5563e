import pickle
from pathlib import Path

import pytest

from gossiplog.errors import ClosedError, DecodeError, KeyFileError
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.identity import peer_of
from gossiplog.net.libp2p.noise import _Reader
from gossiplog.net.libp2p.records import ADDRESSES_MAX, RECORD_BYTES_MAX, open_record, read_addresses, seal_record
from gossiplog.net.libp2p.transport import local_addresses

KEY, OTHER = PeerKey(bytes(range(32))), PeerKey(b"\1" * 32)
PLACES = [Address.parse("/ip4/192.0.2.1/tcp/4001/ws"), Address.parse("/dns4/peer.example.com/tcp/443/wss")]


def test_a_peer_id_is_that_of_the_specification():
    # From the test vectors of "Peer Ids and Keys": an Ed25519 key, public half in protobuf.
    public = bytes.fromhex("080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
    assert peer_of(public) == "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq"


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
        (f"/ip4/192.0.2.1/tcp/4001/p2p/{KEY.id}", Address("ip4", "192.0.2.1", 4001, peer=KEY.id)),
    ],
)
def test_multiaddrs_are_read_from_text_and_bytes(text, expected):
    assert Address.parse(text) == expected
    assert Address.from_bytes(expected.to_bytes()) == expected
    assert Address.parse(str(expected)) == expected


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
    reader.check_end()
    assert [reader.cut(len(message).to_bytes(2, "big") + message) for message in sent] == [[message] for message in sent]
    assert reader.cut(b"\0") == []
    with pytest.raises(ClosedError, match="within a message"):
        reader.check_end()
