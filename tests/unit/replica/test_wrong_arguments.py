"""What a user passes by mistake gets an error of ours, before anything is signed, and one that says what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import GossipLog, Policy
from gossiplog.errors import DecodeError, KeyFileError, LocalProtocolError, StatementError

SIGNER = gossiplog.Ed25519Signer.from_seed(bytes(32))
MISTAKES: dict[str, tuple[Callable[[GossipLog, Any], Any], type[Exception], str]] = {
    "one payload for many": (
        lambda log, entry: log.append_many({"op": "set", "key": "a"}),
        LocalProtocolError,
        "one payload, a dict",
    ),
    "one text for many": (lambda log, entry: log.append_many("hello"), LocalProtocolError, "one payload, a str"),
    "a path for a signer": (lambda log, entry: log.append(1, signer="laptop.pem"), LocalProtocolError, "a str is no signer"),
    "an entry for its id": (lambda log, entry: log.get(entry), DecodeError, "32 characters"),
    "a key for its id": (lambda log, entry: log.is_ancestor(entry.key, entry.id), DecodeError, "32 characters"),
    "an integer of 71 bits": (lambda log, entry: log.query("SELECT $1", 2**70), StatementError, "too large"),
    "half a surrogate pair": (lambda log, entry: log.query("SELECT $1", "\ud800"), StatementError, "surrogates"),
    "half a pair in the statement": (lambda log, entry: log.query("SELECT '\ud800'"), StatementError, "surrogates"),
}
ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "a path for a signer": ({"signer": "laptop.pem"}, "a str is no signer"),
    "a function for an application": ({"app": lambda entries, tx: None}, "a function is no Application"),
    "a list of functions": ({"app": [lambda entries, tx: None]}, "a function is no Application"),
    "a size of a text": ({"value_bytes_max": "3"}, "value_bytes_max '3', expected 1 to"),
    "a scheme that there is not": ({"schemes": {"ed25519", "typo"}}, "no signature scheme is named 'typo'"),
    "a text for schemes": ({"schemes": "ed25519"}, "no signature scheme is named '1'"),
    "founders for a policy": ({"policy": [SIGNER.did]}, "a list is no policy"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_is_named_and_leaves_nothing(mistake: str) -> None:
    call, error, words = MISTAKES[mistake]
    async with gossiplog.open(":memory:", topic="mistakes.example.com", signer=SIGNER) as log:
        entry = await log.append(1)
        with pytest.raises(error, match=words):
            await call(log, entry)
        assert await log.count() == 1


@pytest.mark.parametrize("mistake", ARGUMENTS)
async def test_a_wrong_argument_of_open_is_named(mistake: str) -> None:
    options, words = ARGUMENTS[mistake]
    with pytest.raises(LocalProtocolError, match=words):
        async with gossiplog.open(":memory:", topic="mistakes.example.com", **options):
            pass


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
async def test_an_interval_is_more_than_nothing(every_s: float, tmp_path: Path) -> None:
    async with gossiplog.open(":memory:", topic="mistakes.example.com", signer=SIGNER) as log:
        with pytest.raises(LocalProtocolError, match="every_s"):
            async with log.keep_synced(tmp_path / "bucket", every_s=every_s):
                pass


def test_founders_are_a_list() -> None:
    assert Policy([SIGNER.did]).founders == (SIGNER.did,)
    with pytest.raises(LocalProtocolError, match="one did, expected a list"):
        Policy(SIGNER.did)


def test_a_path_without_a_name_is_no_place_for_a_key() -> None:
    with pytest.raises(KeyFileError, match="exists"):
        SIGNER.save("")
