"""Whole numbers in text, and those who read them from a user or a client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gossiplog.codec.digits import read_digits
from gossiplog.errors import GossipLogError
from gossiplog.net.hub.server import parse_address
from gossiplog.net.libp2p.addresses import Address
from gossiplog.sim.routing.topology import read_links

WRONG = ("", "²", "٣", "-1", "+1", "1_0", "1.0", "1 2", "9" * 5_000)


@pytest.mark.parametrize("text", WRONG)
def test_only_ascii_digits_are_a_number(text: str) -> None:
    assert read_digits(text, 0, 10) is None


def test_bounds_are_part_of_the_range() -> None:
    assert [read_digits(text, 1, 3) for text in ("0", "1", "03", "4")] == [None, 1, 3, None]


def _links(text: str) -> object:
    path = Path("links")
    path.write_text(f"0 {text or 'x'}\n", "utf-8")
    return read_links(path, 5)


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(lambda text: parse_address(f"127.0.0.1:{text}"), id="an address to listen on"),
        pytest.param(lambda text: Address.parse(f"/ip4/127.0.0.1/tcp/{text}"), id="a multiaddr"),
        pytest.param(_links, id="a file of links"),
    ],
)
def test_a_text_that_is_no_number_is_refused_in_our_words(
    reader: Callable[[str], object], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossipLogError):
        reader(text)
