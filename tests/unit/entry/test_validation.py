import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gossiplog.codec import pcf
from gossiplog.codec.base58 import encode_base58
from gossiplog.codec.framing import FRAME_BYTES_MAX
from gossiplog.entry import Ed25519Signer, Outcome, sign_entry, validate, validate_many, verify_signature
from gossiplog.entry.envelope import build_value
from gossiplog.entry.rules import VALUE_BYTES_LIMIT
from gossiplog.sync.rpc import ValuesResponse
from gossiplog.sync.wire import encode_response

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "entries.json").read_text())["cases"]
SIGNER = Ed25519Signer.from_seed(bytes(32))
TOPIC = "app.example.com"
ENTRY = sign_entry(SIGNER, TOPIC, 1, [], pcf.encode({"op": "set", "key": "a", "value": 1}))


def rebuilt(**changes):
    """ENTRY's VALUE with parts of it replaced; the signature does not follow."""
    parts = {
        "codec": "dag-cbor",
        "did": SIGNER.did,
        "signature": ENTRY.signature.signature,
        "topic": TOPIC,
        "clock": 1,
        "parent_keys": [],
        "payload": ENTRY.payload_bytes,
    }
    return build_value(**(parts | changes))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_entry_of_the_vectors_gets_its_verdict(case):
    verdict = validate(bytes.fromhex(case["value"]), topic="t.example")
    # The vectors say which entries 0.13.14 can serve; of the others those are nobody's fault that 0.16.1 keeps.
    assert verdict.outcome.value == ("ignore" if verdict.rule == "portable" else case["verdict"]), verdict
    assert verdict.accepted == (case["verdict"] == "accept")
    if verdict.accepted:
        assert verdict.entry is not None
        assert verdict.entry.id == case["id"]
        assert (verdict.rule, verdict.reason) == (None, None)
    else:
        assert case["verdict"] == "reject"
        assert verdict.rule in ("canonical", "portable", "shape")
        assert verdict.reason


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b"", "canonical"),
        (ENTRY.value[:-1], "canonical"),
        (pcf.encode([1, 2, 3]), "shape"),
        (rebuilt(topic="a/b"), "topic"),
        (rebuilt(topic="other.example.com"), "topic"),
        (rebuilt(clock=2), "clock"),
        (rebuilt(codec="json"), "scheme"),
        (rebuilt(codec=""), "scheme"),
        (rebuilt(did="did:web:example.com"), "scheme"),
        (rebuilt(did="did:key:z" + "1" * 600), "scheme"),
        (rebuilt(did="did:key:z" + encode_base58(b"\x80\x24" + bytes(33))), "scheme"),
        (rebuilt(did="did:key:z" + encode_base58(b"\xed\x01" + bytes(31))), "signature"),
        (rebuilt(did=Ed25519Signer.from_seed(b"\1" * 32).did), "signature"),
        (rebuilt(signature=b""), "signature"),
        (rebuilt(signature=bytes(63)), "signature"),
        (rebuilt(signature=bytes(64)), "signature"),
        (rebuilt(signature=ENTRY.signature.signature + b"\0"), "signature"),
        (rebuilt(payload=b"\x01"), "signature"),
        (rebuilt(codec="dag-json"), "signature"),
    ],
)
def test_the_first_rule_that_fails_is_named(value, rule):
    verdict = validate(value, topic=TOPIC)
    assert verdict.outcome is (Outcome.IGNORE if rule == "scheme" else Outcome.REJECT)
    assert not verdict.accepted
    assert verdict.rule == rule
    assert verdict.reason


def test_rules_are_asked_in_their_order():
    both = rebuilt(topic="other", clock=9, signature=b"")
    assert validate(both, topic=TOPIC).rule == "clock"
    assert validate(rebuilt(topic="other", signature=b""), topic=TOPIC, key=bytes(20)).rule == "topic"
    assert validate(rebuilt(signature=b"", did=""), topic=TOPIC, key=bytes(20)).rule == "key"
    assert validate(rebuilt(signature=b"", did=""), topic=TOPIC).rule == "scheme"


def test_a_foreign_key_is_refused_and_the_right_one_named():
    verdict = validate(ENTRY.value, key=bytes(20))
    assert verdict.rule == "key"
    assert ENTRY.key.hex() in str(verdict.reason)
    assert validate(ENTRY.value, key=ENTRY.key).accepted


def test_without_a_topic_any_is_accepted():
    assert validate(ENTRY.value).accepted
    assert validate(ENTRY.value, topic=TOPIC).accepted
    refused = validate(ENTRY.value, topic="b")
    assert refused.reason == "topic 'app.example.com', expected 'b'"
    assert refused.entry == ENTRY


def test_bytes_like_values_are_taken():
    assert validate(bytearray(ENTRY.value)).accepted
    assert validate(memoryview(ENTRY.value)).entry == ENTRY


def test_whatever_fits_a_frame_is_accepted():
    size = VALUE_BYTES_LIMIT - len(rebuilt(payload=b"\x5a" + bytes(4)))
    value = sign_entry(SIGNER, TOPIC, 1, [], b"\x5a" + size.to_bytes(4, "big") + bytes(size)).value
    assert len(value) == VALUE_BYTES_LIMIT == 4_194_294
    assert validate(value).accepted
    assert len(encode_response(ValuesResponse([value]))) == FRAME_BYTES_MAX
    assert validate(value, value_bytes_max=70_000).rule == "size"
    assert validate(value + b"x", value_bytes_max=1 << 40).rule == "size"


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("size", bytes(VALUE_BYTES_LIMIT + 1)),
        ("size", build_value("dag-cbor", SIGNER.did, bytes(64), TOPIC, 2, [b"\x01" + bytes(19)] * 16_385, b"\xf6")),
        ("nesting", build_value("dag-cbor", SIGNER.did, bytes(64), TOPIC, 1, [], b"\x81" * 1_025 + b"\xf6")),
        ("nesting", build_value("dag-json", SIGNER.did, bytes(64), TOPIC, 1, [], b"\x81" * 1_025 + b"\xf6")),
        ("scheme", build_value("dag-json2", SIGNER.did, bytes(64), TOPIC, 1, [], b"\xf6")),
        ("scheme", build_value("dag-cbor", "did:pkh:eip155:1:0x" + "a" * 40, bytes(65), TOPIC, 1, [], b"\xf6")),
    ],
)
def test_what_we_do_not_support_is_nobodys_fault(rule: str, value: bytes):
    verdict = validate(value, topic=TOPIC)
    assert (verdict.rule, verdict.outcome) == (rule, Outcome.IGNORE)


def test_every_single_bit_counts():
    for at in range(len(ENTRY.value)):
        for bit in range(8):
            value = bytearray(ENTRY.value)
            value[at] ^= 1 << bit
            verdict = validate(bytes(value), topic=TOPIC)
            assert verdict.outcome is (Outcome.IGNORE if verdict.rule in ("portable", "scheme") else Outcome.REJECT)


def test_a_small_order_key_is_accepted_for_convergence():
    case = next(case for case in CASES if case["name"].startswith("small-order"))
    entry = validate(bytes.fromhex(case["value"])).entry
    assert entry is not None
    assert verify_signature(entry.signature.public_key, entry.signature.signature, b"any message at all")


def test_many_are_decided_in_order_and_on_any_thread():
    values = [ENTRY.value, b"", rebuilt(payload=b"\x02"), ENTRY.value]
    expected = [verdict.rule for verdict in validate_many(values, topic=TOPIC)]
    assert expected == [None, "canonical", "signature", None]
    with ThreadPoolExecutor(2) as pool:
        for verdicts in pool.map(lambda _: validate_many(values * 20, topic=TOPIC), range(8)):
            assert [verdict.rule for verdict in verdicts] == expected * 20
