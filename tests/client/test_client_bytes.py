"""The browser client's bytes against the shared vectors, and against the Python that they were checked with: byte for byte."""

from __future__ import annotations

import json
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from client_support import ask_node

from gossiplog.codec import pcf
from gossiplog.codec.clock import encode_clock
from gossiplog.codec.did import decode_did
from gossiplog.codec.varint import encode_varint
from gossiplog.entry import Ed25519Signer, sign_entry, validate
from gossiplog.errors import DecodeError
from gossiplog.presence.messages import decode_frame
from gossiplog.sketch import Decoder, Sketch

FOLDER = Path(__file__).parents[1] / "vectors"
# A stated deviation: the reference's limit is its stack, ours is 1,024 levels.
TOO_DEEP = {"depth 2000 arrays"}


@cache
def vectors(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def entries() -> list[tuple[str, str]]:
    """VALUEs in hex of all vectors, and the topics of the logs that are asked."""
    pairs = [(case["value"], "t.example") for case in vectors("entries")["cases"]]
    pairs += [(case["value"], "interop.test") for case in vectors("messages")["cases"] if "value" in case]
    pairs += [(entry["value"], "interop.test") for entry in vectors("ref-0.16.1-append-log")["entries"]]
    pairs += [(value, "interop.test") for value in vectors("ref-0.16.1-ours-branches")["values"]]
    for name in ("envelope", "forms"):
        pairs += [(case["value"], case.get("topic", "interop.test")) for case in vectors(f"ref-0.16.1-{name}")["cases"]]
    return pairs


def pcf_takes(data: str) -> bool:
    try:
        return pcf.check(bytes.fromhex(data)) == len(data) // 2
    except DecodeError:
        return False


def test_dag_cbor_of_every_vector_is_taken_and_written_alike() -> None:
    cases = vectors("cbor")["cases"]
    for case, answer in zip(cases, ask_node({"op": "cbor", "bytes": case["hex"]} for case in cases), strict=True):
        is_pcf = case["portable"] and case["name"] not in TOO_DEEP
        assert answer.get("again") == (case["hex"] if is_pcf else None), case["name"]
        assert answer["isChecked"] == is_pcf, case["name"]


def test_dag_json_clocks_and_signatures_are_those_of_the_vectors() -> None:
    texts = vectors("dag-json")
    floats = [case for case in texts["floats"] if case["same"]]
    strings = [case for case in texts["strings"] if pcf_takes(case["cbor"])]
    assert len(strings) == len(texts["strings"]) - 1, "all but the one that begins with U+FEFF"
    answers = ask_node({"op": "dagJson", "bytes": case["cbor"]} for case in [*floats, *texts["bigints"], *strings])
    expected = [case["dagjson"] for case in [*floats, *texts["bigints"]]]
    assert answers == [*expected, *(bytes.fromhex(case["dagjson"]).decode() for case in strings)]
    clocks = vectors("clock")["clocks"]
    assert ask_node({"op": "clock", "clock": clock} for clock, _ in clocks) == [{"bytes": data, "again": clock} for clock, data in clocks]
    cases = vectors("ed25519")["cases"]
    asked = ({"op": "ed25519", "key": case["pk"], "signature": case["sig"], "message": case["msg"]} for case in cases)
    for case, answer in zip(cases, ask_node(asked), strict=True):
        assert answer == [case["valid"]] * 2, case["name"]


def test_messages_are_signed_to_the_bytes_of_the_reference() -> None:
    data = vectors("messages")
    seeds = {signer["did"]: signer["seed"] for signer in data["signers"]}
    cases = [case for case in data["cases"] if "value" in case and case["name"] not in {"slash", "slash2"}]
    asked = [
        {"op": "sign", "seed": seeds[case["publicKey"]], "topic": "interop.test", "payload": case["payloadCbor"]}
        | {name: case[name] for name in ("codec", "parents", "clock")}
        for case in cases
    ]
    for case, answer in zip(cases, ask_node(asked), strict=True):
        expected = {"did": case["publicKey"], "value": case["value"], "id": case["id"], "signed": case["signedBytes"]}
        assert answer == expected, case["name"]


def assert_same_verdicts(pairs: list[tuple[str, str]]) -> list[str | None]:
    rules = []
    for (value, topic), answer in zip(
        pairs, ask_node({"op": "validate", "value": value, "topic": topic} for value, topic in pairs), strict=True
    ):
        verdict = validate(bytes.fromhex(value), topic=topic, schemes={"ed25519"})
        assert (answer["outcome"], answer["rule"]) == (verdict.outcome.value, verdict.rule), (verdict, value)
        if verdict.accepted and (entry := verdict.entry) is not None:
            parents = list(entry.message.parents)
            assert answer["entry"] == {"id": entry.id, "author": entry.author, "clock": entry.clock, "parents": parents}
        rules.append(verdict.rule)
    return rules


def test_every_entry_of_the_vectors_gets_the_verdict_that_it_gets_in_python() -> None:
    assert set(assert_same_verdicts(entries())) >= {
        None,
        "portable",
        "canonical",
        "shape",
        "topic",
        "clock",
        "scheme",
        "signature",
        "nesting",
    }


def test_damaged_entries_get_the_verdict_that_they_get_in_python() -> None:
    chance, damaged = random.Random(32), list[tuple[str, str]]()
    good = [(bytes.fromhex(value), topic) for value, topic in entries() if len(value) < 2_000]
    for value, topic in chance.choices(good, k=1_500):
        data = bytearray(value)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at]
                case 2:
                    data.insert(at, chance.choice((0x00, 0x60, 0x61, 0x80, 0x9F, 0xA0, 0xD8, 0xF6, 0xF7, 0xF9, 0xFB, 0xFF)))
                case _:
                    del data[at:]
            if not data:
                break
        damaged.append((bytes(data).hex(), topic))
    assert_same_verdicts(damaged)


def test_sketches_are_those_of_the_vectors_and_name_differences() -> None:
    cases = vectors("sketch")["sketches"]
    asked = ({"op": "sketch", "keys": case["keys"], "symbols": len(case["sums"])} for case in cases)
    for case, answer in zip(cases, ask_node(asked), strict=True):
        assert answer == {"sums": case["sums"], "counts": case["counts"]}
    chance = random.Random(32)
    keys = [encode_clock(1 + n) + chance.randbytes(20 - len(encode_clock(1 + n))) for n in range(500)]
    ours, theirs = keys[:470], keys[20:]
    hexes = {"ours": [key.hex() for key in ours], "theirs": [key.hex() for key in theirs]}
    sketches = Sketch(), Sketch()
    for sketch, those in zip(sketches, (ours, theirs), strict=True):
        sketch.add(those)
    for symbols in (8, 64, 128):
        decoder = Decoder(sketches[0])
        decoder.add(list(zip(sketches[1].sums[:symbols], sketches[1].counts[:symbols], strict=True)))
        found = decoder.difference()
        (answer,) = ask_node([{"op": "difference", **hexes, "symbols": symbols}])
        assert answer["theirs"] == [key.hex() for key in found.theirs]
        assert answer["ours"] == [key.hex() for key in found.ours]
        assert (answer["isComplete"], answer["estimate"]) == (decoder.is_complete, decoder.estimate())
    assert decoder.is_complete


def test_what_is_not_portable_is_refused_with_its_place_and_python_takes_what_is_written() -> None:
    names = ("slash", "proto", "date", "nan", "half", "deep")
    reasons = ask_node({"op": "refused", "payload": name} for name in names)
    for reason, words in zip(reasons, ("is a link in dag-json", "__proto__", "$[0]", "$.a[0]", "surrogate", "64 levels"), strict=True):
        assert words in reason
    assert ask_node([{"op": "deepest"}]) == [130]
    entry = sign_entry(Ed25519Signer.from_seed(bytes(32)), "t.example", 1, [], pcf.encode({"n": [1.5, 2**60, b"x", None]}))
    asked = {"op": "sign", "seed": "00" * 32, "codec": "dag-cbor", "topic": "t.example", "parents": [], "clock": 1}
    (answer,) = ask_node([asked | {"payload": entry.payload_bytes.hex()}])
    assert bytes.fromhex(answer["value"]) == entry.value


def test_what_a_hub_sends_is_counted_before_it_is_kept() -> None:
    """Each limit of Python's twin, and one more."""
    head = "0a14" + "00" * 20
    limits = [
        ({"kind": "message", "head": "05", "times": ["0a0141", 16_384]}, 16_384, "more than 16384 times"),
        ({"kind": "event", "head": "12{size}", "times": [head, 1_000]}, 1_000, "more than 1000 times"),
        ({"kind": "message", "head": "01", "times": ["5200", 256]}, "hello", "more than 256 fields"),
    ]
    for case, answer, words in limits:
        item, count = case["times"]
        at_the_limit, beyond = ({**case, "head": sized(case["head"], item, n), "times": [item, n]} for n in (count, count + 1))
        taken, refused = ask_node({"op": "read", **each} for each in (at_the_limit, beyond))
        assert taken == answer
        assert words in refused


def sized(head: str, item: str, count: int) -> str:
    return head.replace("{size}", encode_varint(count * len(item) // 2).hex())


def test_presence_is_taken_up_to_pythons_limits_and_not_beyond() -> None:
    topic, now = "t.example", int(1_000 * time.time())
    signer = Ed25519Signer.from_seed(bytes(32))
    deep: Any = 1
    for _ in range(7):
        deep = [deep]
    good: list[tuple[dict[str, Any], int]] = [
        ({"n" * 64: 1}, 60_000),
        ({f"{n}": None if n == 3 else n for n in range(16)}, 1),
        ({"deep": deep}, 1_000),
        ({"text": "x" * (1_024 - 9)}, 1_000),
        ({}, 0),
    ]
    bad: list[tuple[dict[str, Any], int]] = [
        ({"n" * 65: 1}, 1_000),
        ({"": 1}, 1_000),
        ({"n": 1}, 60_001),
        ({"n": 1}, 0),
        ({}, 1_000),
        ({f"{n}": n for n in range(17)}, 1_000),
        ({"deep": [deep]}, 1_000),
        ({"text": "x" * (1_024 - 8)}, 1_000),
    ]
    bodies = [stated(signer, topic, now, states, ttl) for states, ttl in good + bad]
    answers = ask_node({"op": "present", "topic": topic, "body": body.hex()} for body in bodies)
    for (states, ttl), body, answer in zip(good + bad, bodies, answers, strict=True):
        shown = {name: value for name, value in states.items() if value is not None}
        is_good = (states, ttl) in good
        assert answer == (({signer.did: shown} if shown and ttl > 1 else answer or {}) if is_good else None), states
        try:
            said = decode_frame(body)
            assert isinstance(said, tuple)
            assert said[0].is_signed(topic)
            said[0].read()
        except DecodeError:
            assert not is_good
        else:
            assert is_good


def stated(signer: Ed25519Signer, topic: str, seq: int, states: dict[str, Any], ttl_ms: int) -> bytes:
    """A statement's frame without its prefix, signed whatever it says."""
    key, encoded = decode_did(signer.did)[1], pcf.encode(states)
    numbers = key + bytes(8) + seq.to_bytes(8) + ttl_ms.to_bytes(2)
    signature = signer.sign(f"gossiplog-presence/1\n{topic}\n".encode() + numbers + encoded)
    return b"\1\0\0" + numbers + signature + encoded


ONE = "8583" + "68" + b"dag-json".hex()
DID = Ed25519Signer.from_seed(bytes(32)).did
HEADS = {
    "payload": "8583606040" + "616101" + "80",
    "a map that dag-json may mistake": "8583606040" + "616101" + "80" + "a1612f",
    "codec": "8583",
    "signed in dag-json": ONE + "7838" + DID.encode().hex() + "5840" + "00" * 64 + "616101" + "80",
}


@pytest.mark.slow
@pytest.mark.parametrize("item", ["80", "a0", "40", "8180", "4161"])
@pytest.mark.parametrize("place", HEADS)
def test_four_megabytes_of_little_items_cost_little(place: str, item: str) -> None:
    count = 4_000_000 // (len(item) // 2)
    asked = {"op": "weigh", "head": HEADS[place] + "9a" + count.to_bytes(4).hex(), "times": [item, count], "topic": "a"}
    (cost,) = ask_node([asked])
    assert cost["rule"] in ("scheme", "shape", "canonical", "signature")
    assert cost["megabytes"] < 400, cost
    assert cost["seconds"] < 5, cost
