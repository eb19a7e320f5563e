"""The browser client's bytes against the shared vectors, and against the Python that they were checked with: byte for byte."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from client_support import ask_node

from gossiplog.codec import pcf
from gossiplog.codec.clock import encode_clock
from gossiplog.entry import Ed25519Signer, sign_entry, validate
from gossiplog.errors import DecodeError
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
        assert answer["isChecked"] == is_pcf or b"\x61/" in bytes.fromhex(case["hex"]), case["name"]


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
