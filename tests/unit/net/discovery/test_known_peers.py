"""Peers that were reached are found again after a restart, by a file."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest
from mesh_support import a_host, a_peer, eventually, free_place

from gossiplog.net.discovery.book import KNOWN_MAX, load_known, save_known
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.pubsub.types import PeerId


async def test_restarted_peer_dials_who_was_reached_before_and_would_never_dial(tmp_path: Path) -> None:
    known_file, place, key, theirs = tmp_path / "app.db.peers.json", free_place(), PeerKey.generate(), PeerKey.generate()
    async with a_peer(key=key, known_file=known_file) as first, a_peer(*first.host.announced[:1], key=theirs, listen=(place,)):
        await eventually(lambda: theirs.id in first.discovery.book.reached(9))
    assert stat.S_IMODE(known_file.stat().st_mode) == 0o600
    assert json.loads(known_file.read_text()) == {theirs.id: [str(place.of(theirs.id))]}
    # It only listens now, and there is no bootstrap list.
    async with a_host(place, key=theirs) as other, a_peer(key=key, known_file=known_file):
        await eventually(lambda: key.id in other.peers)


def test_file_is_bounded_replaced_whole_and_a_damaged_one_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "peers.json"
    assert load_known(path) == {}
    key = PeerKey.generate()
    address = Address.parse("/ip4/192.0.2.1/tcp/4001").of(key.id)
    save_known(path, {key.id: (address,) * 20})
    assert load_known(path) == {key.id: [address] * 2}
    assert list(tmp_path.iterdir()) == [path]
    with caplog.at_level(logging.WARNING, logger="gossiplog"):
        for text in ("[]", "{", '{"x": 1}', '{"x": ["/ip4/192.0.2.1/tcp/1"]}', '{"x": [1]}', "\udcff", "null", "[" * 100_000):
            path.write_bytes(text.encode(errors="surrogateescape"))
            assert load_known(path) == {}
            assert "known peers not read" in caplog.text, text
            caplog.clear()
        save_known(tmp_path / "missing" / "peers.json", {PeerId("x"): ()})
        assert "known peers not written" in caplog.text
    assert KNOWN_MAX == 256
