import json
import pickle
from pathlib import Path

import pytest

from gossiplog.codec import dag_json, pcf
from gossiplog.entry import Ed25519Signer, Entry, Message, Signature, decode_id, sign_entry, signed_bytes, validate
from gossiplog.errors import DecodeError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "messages.json").read_text())
CASES = [case for case in VECTORS["cases"] if "value" in case]
SEEDS = {signer["did"]: bytes.fromhex(signer["seed"]) for signer in VECTORS["signers"]}
# The reference signs these and can never serve them: a map that begins with `/` is not dag-json-safe.
NOT_PORTABLE = {"slash", "slash2"}
PORTABLE = [case for case in CASES if case["name"] not in NOT_PORTABLE]


def name_of(case):
    return f"{case['name']} {case['codec']}"


@pytest.mark.parametrize("case", PORTABLE, ids=name_of)
def test_every_message_of_the_reference_decodes(case):
    entry = Entry.decode(bytes.fromhex(case["value"]))
    assert (entry.id, entry.key.hex(), entry.clock) == (case["id"], case["key"], case["clock"])
    assert entry.signature == Signature(case["codec"], case["publicKey"], bytes.fromhex(case["signature"]))
    assert entry.message.parents == tuple(case["parents"])
    assert entry.message.topic == entry.topic == "interop.test"
    assert entry.payload_bytes.hex() == case["payloadCbor"]
    assert dag_json.encode(entry.message.payload).decode() == case["payloadDagJson"]
    assert validate(entry.value, topic="interop.test", key=entry.key).accepted


@pytest.mark.parametrize("case", PORTABLE, ids=name_of)
def test_every_message_of_the_reference_is_signed_to_the_same_bytes(case):
    signer = Ed25519Signer.from_seed(SEEDS[case["publicKey"]], codec=case["codec"])
    parents = [decode_id(parent) for parent in case["parents"]]
    payload = pcf.encode(dag_json.decode(case["payloadDagJson"]))
    assert payload.hex() == case["payloadCbor"]
    assert signed_bytes(case["codec"], "interop.test", case["clock"], parents, payload).hex() == case["signedBytes"]
    entry = sign_entry(signer, "interop.test", case["clock"], parents, payload)
    assert entry.value.hex() == case["value"]
    assert entry.id == case["id"]


def test_the_messages_that_poison_the_reference_are_refused():
    for case in CASES:
        if case["name"] in NOT_PORTABLE:
            assert validate(bytes.fromhex(case["value"])).rule == "portable"


def test_an_entry_made_of_key_and_value_decodes_when_asked():
    signed = sign_entry(Ed25519Signer.from_seed(bytes(32)), "t", 1, [], pcf.encode({"a": [1, b"x"]}))
    entry = Entry(signed.key, signed.value)
    assert entry.message == Message("t", 1, (), {"a": [1, b"x"]})
    assert entry.message is entry.message
    assert entry.parent_keys == ()
    assert repr(entry) == f"<Entry {entry.id}, {len(entry.value)} bytes>"


def test_entries_are_equal_when_their_values_are():
    signer = Ed25519Signer.from_seed(bytes(32))
    one, same, other = (sign_entry(signer, "t", 1, [], payload) for payload in (b"\x01", b"\x01", b"\x02"))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != one.value
    assert len({one, same, other}) == 2


def test_entries_can_be_pickled_before_and_after_decoding():
    entry = sign_entry(Ed25519Signer.from_seed(bytes(32)), "t", 1, [], b"\x01")
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert entry.message.payload == 1
    assert pickle.loads(pickle.dumps(entry)).message == entry.message


def test_a_damaged_value_raises_one_error_when_it_is_decoded():
    entry = sign_entry(Ed25519Signer.from_seed(bytes(32)), "t", 1, [], pcf.encode({"a": "text"}))
    for at in range(len(entry.value)):
        damaged = Entry(entry.key, entry.value[:at])
        with pytest.raises(DecodeError):
            _ = damaged.message


def test_bytes_like_values_are_taken():
    entry = sign_entry(Ed25519Signer.from_seed(bytes(32)), "t", 1, [], b"\x01")
    assert Entry.decode(bytearray(entry.value)) == entry
    assert type(Entry.decode(memoryview(entry.value)).value) is bytes
