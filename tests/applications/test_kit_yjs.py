"""Which updates of a Yjs document are let in: those of the real library, changed at random, and by strangers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from gossiplog import kit

OURS, THEIRS = "did:key:z6MkqjhU8iVVYsHMPgK7agTpsYLPcwVFgmFzP3FNbxTtQ9nr", "did:key:z6Mkr5aHZBUDMMGD4kQnK7fHJzRoWwuF2tvJ2k5kGLhxTfXQ"
CLIENT = kit.yjs_client(OURS)


def update_of(*structs: bytes, client: int = CLIENT, clock: int = 0) -> bytes:
    """Build an update of one client that deletes nothing."""
    return b"\x01" + varint(len(structs)) + varint(client) + varint(clock) + b"".join(structs) + b"\x00"


def varint(value: int) -> bytes:
    return bytes((value,)) if value < 128 else bytes((value & 127 | 128,)) + varint(value >> 7)


FIRST = b"\x04\x01\x04text\x02hi"
NEXT = b"\x84" + varint(CLIENT) + b"\x01\x01!"
DELETED = b"\x81" + varint(CLIENT) + b"\x01\x03"


def test_numbers_belong_to_a_did_and_differ_between_sessions() -> None:
    numbers = [kit.yjs_client(OURS) for _ in range(20)]
    assert len(set(numbers)) > 1
    assert len({number >> 20 for number in (*numbers, CLIENT)}) == 1
    assert max(numbers) < 2**53, "a number of JavaScript"
    assert kit.yjs_client(THEIRS) >> 20 != CLIENT >> 20


@pytest.mark.parametrize("structs", [(FIRST,), (FIRST, NEXT), (FIRST, DELETED), (b"\x00\x05",), (b"\x0a\x05", NEXT), ()])
def test_text_is_let_in_under_its_authors_numbers(structs: tuple[bytes, ...]) -> None:
    update = update_of(*structs)
    assert kit.is_yjs_text(update, OURS)
    assert not kit.is_yjs_text(update, THEIRS)
    assert not kit.is_yjs_text(update_of(*structs, client=CLIENT ^ 1 << 20), OURS)
    assert not any(kit.is_yjs_text(update[:length], OURS) for length in range(len(update) - 1)), "it is cut off"


@pytest.mark.parametrize("kind", [kind for kind in range(32) if kind not in (0, 1, 4, 10)])
def test_anything_else_than_text_is_kept_out(kind: int) -> None:
    assert not kit.is_yjs_text(update_of(FIRST, bytes((kind,)) + FIRST[1:]), OURS)


def test_another_text_and_the_values_of_a_map_are_kept_out() -> None:
    assert not kit.is_yjs_text(update_of(b"\x04\x01\x05other\x02hi"), OURS)
    assert kit.is_yjs_text(update_of(b"\x04\x01\x05other\x02hi"), OURS, "other")
    assert not kit.is_yjs_text(update_of(b"\x24\x01\x04text\x01k\x02hi"), OURS)
    assert not kit.is_yjs_text(update_of(b"\x04\x00" + varint(CLIENT) + b"\x00\x02hi"), OURS), "inside of something else"
    assert not kit.is_yjs_text(update_of(b"\x04\x01\x04text\x02\xff\xfe"), OURS)
    assert not kit.is_yjs_text(b"\xff" * 12, OURS)


@pytest.mark.slow
def test_what_two_write_is_let_in_and_what_is_nearly_that_breaks_nothing() -> None:
    import pycrdt

    chance = Random(7)
    ours, theirs = (pycrdt.Doc(client_id=kit.yjs_client(did)) for did in (OURS, THEIRS))
    updates: list[tuple[bytes, str]] = []
    for _ in range(150):
        doc, other, did = chance.choice([(ours, theirs, OURS), (theirs, ours, THEIRS)])
        before, text = doc.get_state(), doc.get("text", type=pycrdt.Text)
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.6:
                text.insert(0, chance.choice(["a", "bread ", "né", "x" * 200]))
            elif len(text) and str(text)[:3].isascii():
                del text[0 : min(len(text), 3)]
        updates.append((doc.get_update(before), did))
        if chance.random() < 0.5:
            other.apply_update(doc.get_update(other.get_state()))
    assert all(kit.is_yjs_text(update, did) for update, did in updates)
    assert {kit.is_yjs_text(update, OURS) for update, did in updates if did == THEIRS} == {False, True}, "only what takes out is anybody's"
    for update, did in hostile(chance, updates):
        if kit.is_yjs_text(update, did):
            reader = pycrdt.Doc()
            try:
                reader.apply_update(update)
            except ValueError:
                continue
            str(reader.get("text", type=pycrdt.Text))


def hostile(chance: Random, updates: list[tuple[bytes, str]]) -> Iterator[tuple[bytes, str]]:
    """Updates with other types under the text's name, and all with bytes changed."""
    import pycrdt

    for _ in range(20):
        doc = pycrdt.Doc(client_id=kit.yjs_client(OURS))
        made: Any = doc.get("text", type=chance.choice([pycrdt.Array, pycrdt.Text, pycrdt.Map]))
        if isinstance(made, pycrdt.Array):
            made.extend([None, 1, "x", {"a": [1]}])
        elif isinstance(made, pycrdt.Text):
            made.insert_embed(0, {"image": "x"})
        else:
            made["k"] = "v"
        assert not kit.is_yjs_text(doc.get_update(), OURS)
        updates.append((doc.get_update(), OURS))
    for _ in range(3_000):
        update, did = chance.choice(updates)
        changed = bytearray(update)
        for _ in range(chance.randrange(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        yield bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.3 else changed), did


@pytest.mark.parametrize(
    "update", [None, True, 7, 1.5, "text", "\ud800", [], [1, 2], {}, {"a": b"x"}, b"", bytearray(b"x"), memoryview(b"\0\0")]
)
def test_whatever_a_payload_may_be_is_judged_and_raises_nothing(update):
    assert kit.is_yjs_text(update, OURS) is False
