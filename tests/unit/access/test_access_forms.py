"""Bytes of policies, grants, revocations and admissions, and histories of signed entries, against tests/vectors/access.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from access_support import DIDS, SIGNERS, Driven
from make_access_vectors import FORMS, REFUSED

from gossiplog.access import (
    NOTHING,
    Policy,
    decode_view,
    encode_code,
    encode_said,
    encode_view,
    has_policy,
    invitation_signer,
    is_control,
    parse_policy,
    parse_said,
)
from gossiplog.access.views import IndexSet, View
from gossiplog.codec import pcf
from gossiplog.codec.base58 import encode_base58
from gossiplog.entry.message import Entry
from gossiplog.entry.message_id import encode_id
from gossiplog.entry.signing import sign_entry
from gossiplog.errors import DecodeError, LocalProtocolError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/access.json").read_text("utf-8"))
TOPIC = Policy(tuple(DIDS[:3]), salt=bytes(16)).topic("a")


def says(payload: bytes) -> Entry:
    return sign_entry(SIGNERS[0], TOPIC, 1, [], payload)


def test_policies_have_the_bytes_of_the_vectors() -> None:
    for vector in VECTORS["policies"]:
        policy = Policy(tuple(reversed(vector["founders"])), vector["k"], bytes.fromhex(vector["salt"]))
        entry = policy.entry(vector["topic"])
        assert (policy.hash.hex(), policy.topic("team.example.com")) == (vector["hash"], vector["topic"])
        assert (entry.id, entry.value.hex()) == (vector["id"], vector["value"])
        assert parse_policy(Entry.decode(bytes.fromhex(vector["value"]))) == policy
        assert has_policy(vector["topic"])


def test_what_is_said_has_the_bytes_of_the_vectors() -> None:
    for name, payload in VECTORS["forms"].items():
        entry = says(bytes.fromhex(payload))
        assert pcf.encode(encode_said(FORMS[name])).hex() == payload
        assert is_control(entry)
        assert parse_said(entry) == FORMS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_another_form_is_refused(name: str) -> None:
    entry = says(bytes.fromhex(VECTORS["refused"][name]))
    assert is_control(entry)
    with pytest.raises(DecodeError):
        parse_said(entry)


def test_what_has_more_keys_or_another_one_is_data() -> None:
    for payload in ({"gossiplog.access": {}, "x": 1}, {"gossiplog.acces": {}}, ["gossiplog.access"], None):
        assert not is_control(says(pcf.encode(payload)))


def test_signed_histories_come_out_as_the_model_says() -> None:
    for history in VECTORS["histories"]:
        entries = [Entry.decode(bytes.fromhex(each["value"])) for each in history["entries"]]
        driven = Driven(parse_policy(entries[0]))
        for entry, expected in zip(entries, history["entries"], strict=True):
            assert entry.id == expected["id"]
            said = parse_said(entry) if is_control(entry) and entry.parent_keys else None
            reason = driven.add(entry.key, entry.author, map(encode_id, entry.parent_keys), said)
            assert (reason is None) == expected["belongs"]
        expected_counts = {each["id"]: each["counts"] for each in history["entries"][1:] if each["belongs"]}
        assert driven.standings() == expected_counts


def test_no_other_policy_entry_is_taken() -> None:
    policy = Policy(tuple(DIDS[:3]), salt=bytes(16))
    entry = policy.entry(TOPIC)
    payload = entry.payload_bytes
    others = [
        sign_entry(SIGNERS[0], TOPIC, 1, [], payload),
        policy.entry(Policy(tuple(DIDS[:3]), 3, bytes(16)).topic("a")),
        Policy(tuple(DIDS[:2]), salt=bytes(16)).entry(TOPIC),
        says(pcf.encode({"gossiplog.access": {"founders": DIDS[0], "k": 1, "salt": bytes(16)}})),
        says(pcf.encode({"gossiplog.access": {"founders": [DIDS[0]], "k": True, "salt": bytes(16)}})),
        says(pcf.encode({"gossiplog.access": {"founders": [DIDS[0]], "k": 1, "salt": b""}})),
        says(pcf.encode(None)),
    ]
    assert parse_policy(entry) == policy
    for other in others:
        with pytest.raises(DecodeError):
            parse_policy(other)


def test_policy_is_within_its_bounds() -> None:
    for founders, k in ((1, 1), (2, 2), (3, 2), (3, 3), (4, 3), (8, 5)):
        assert Policy(tuple(DIDS[:founders]), k).k == k
    for founders, k in ((0, 0), (1, 2), (2, 1), (3, 1), (3, 4), (4, 2)):
        with pytest.raises(LocalProtocolError):
            Policy(tuple(DIDS[:founders]), k)
    for salt in (bytes(15), bytes(17)):
        with pytest.raises(LocalProtocolError):
            Policy((DIDS[0],), salt=salt)
    policy = Policy((DIDS[0],), salt=bytes(16))
    assert len(policy.topic("x" * 75)) == 128
    for name in ("x" * 76, "", "a:b", "a#b"):
        with pytest.raises(LocalProtocolError):
            policy.topic(name)


def test_weak_and_other_keys_hold_nothing() -> None:
    small = bytes([1]) + bytes(31)
    for key in (small, bytes(32), b"\xff" * 32, bytes(31)):
        with pytest.raises(LocalProtocolError):
            Policy(("did:key:z" + encode_base58(b"\xed\x01" + key),))
    with pytest.raises(LocalProtocolError):
        Policy(("did:key:z" + encode_base58(b"\xed\x81\x00" + SIGNERS[0].public_key),))


def test_topics_without_a_hash_have_no_policy() -> None:
    digest = TOPIC.rpartition(".")[2]
    assert has_policy(TOPIC)
    for topic in (
        "a",
        digest,
        f"a.{digest[:-1]}",
        f"a.{digest[:-1]}1",
        f"a.{digest.upper()}",
        f"a#{digest}",
        f"a:{digest}",
        f"a.{digest}g",
    ):
        assert not has_policy(topic) or topic == f"a.{digest}g"


def test_views_are_sets() -> None:
    one = IndexSet(0, 0)
    for number in (0, 3, 4, 9):
        one = one.with_number(number)
    two = IndexSet(0, 0).with_number(1).with_number(4)
    assert [number for number in range(12) if number in one] == [0, 3, 4, 9]
    assert [number for number in range(12) if number in one.union(two)] == [0, 1, 3, 4, 9]
    assert one.union(two) == two.union(one)
    assert IndexSet(0, 0).with_number(0).with_number(1) == IndexSet(2, 0)
    for view in (NOTHING, View(one, two), View(IndexSet(70_000, 1 << 69_000 | 2), two)):
        assert decode_view(encode_view(view)) == view
    with pytest.raises(DecodeError):
        decode_view(encode_view(NOTHING) + b"\0")


def test_a_code_is_read_as_people_type_it_and_makes_another_key_for_each_log() -> None:
    code = encode_code(bytes(range(10)))
    assert code == "000G-40R4-0M30-E209"
    key = invitation_signer(code, "a.example.com")
    assert key.did == "did:key:z6MkqK73hg5pHyqbriamu8F72tqPHXV6kPNXp5ihqRpPZWA3"
    assert {invitation_signer(typed, "a.example.com").did for typed in ("ooog 4or4 om3o e2o9", code.lower(), code.replace("-", ""))} == {
        key.did
    }
    assert invitation_signer(code, "b.example.com").did != key.did
    for wrong in ("", code[:-1], code + "0", "U" + code[1:], "000G-40R4-0M30-E20é"):
        with pytest.raises(LocalProtocolError, match="is no code"):
            invitation_signer(wrong, "a.example.com")
