"""Entries at every bound, one below and one above, in both codecs: each gets a verdict, and nothing raises."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gossiplog.ethereum
from gossiplog.archive.car import describe_foreign
from gossiplog.archive.jsonl import entry_to_line, line_to_value
from gossiplog.codec import pcf
from gossiplog.codec.base58 import encode_base58
from gossiplog.codec.clock import encode_clock
from gossiplog.codec.did import DID_CHARS_MAX
from gossiplog.codec.pcf import item_header
from gossiplog.entry import Ed25519Signer, Outcome, validate, validate_many, validation
from gossiplog.entry import schemes as schemes_module
from gossiplog.entry.envelope import build_value, signed_bytes
from gossiplog.entry.rules import CLOCK_MAX, NESTING_MAX, PARENTS_MAX, TOPIC_CHARS_MAX, VALUE_BYTES_LIMIT
from gossiplog.entry.schemes import SignatureScheme, register_scheme
from gossiplog.entry.validation import judge
from gossiplog.ethereum import eip712

SIGNERS = {codec: Ed25519Signer(bytes(32), codec=codec) for codec in ("dag-cbor", "dag-json")}
DID = SIGNERS["dag-cbor"].did
CODECS = (*SIGNERS, eip712.ACTION, eip712.SESSION, "raw", "")
SCHEMES = ("ed25519", "eip712")
TOPIC = "app.example.com"
LINK = b"\xd8\x2a\x58\x25\x00\x01\x71\x12\x20" + bytes(32)
LEAVES = {"a number": b"\x01", "bytes": b"\x41\xff", "a link": LINK, "a map of /": b"\xa1\x61/\x01", "an empty list": b"\x80"}
OPENINGS = {"lists": b"\x81", "maps": b"\xa1\x61a", "maps of /": b"\xa1\x61/"}


def value_of(codec: str, payload: bytes, *, topic: str = TOPIC, clock: int = 1, parents: tuple[bytes, ...] = (), did: str = DID) -> bytes:
    """VALUE, signed if the codec is one of the two that Ed25519 signs."""
    signature = bytes(65)
    if codec in SIGNERS:
        try:
            signature = SIGNERS[codec].sign(signed_bytes(codec, topic, clock, parents, payload))
        except gossiplog.GossipLogError:
            signature = bytes(64)
    return build_value(codec, did, signature, topic, clock, parents, payload)


def examined(value: bytes) -> tuple[Outcome, str | None]:
    """The verdict, which has to be the same by each way of asking; what is accepted goes through a file's line unchanged."""
    gossiplog.ethereum.register()
    verdict = validate(value, topic=TOPIC, schemes=SCHEMES)
    assert validate_many([value, value], topic=TOPIC, schemes=SCHEMES) == [verdict, verdict]
    assert judge(value, topic=TOPIC, schemes=SCHEMES) == verdict
    if verdict.accepted:
        assert verdict.entry is not None
        assert line_to_value(entry_to_line(verdict.entry)) == (value, verdict.entry.id)
    return verdict.outcome, verdict.rule


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("codec", SIGNERS)
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_payloads_at_the_limit_of_nesting(codec: str, leaf: str, opening: str, beyond: int) -> None:
    levels = {"a map of /": 1, "an empty list": 1}.get(leaf, 0)
    payload = OPENINGS[opening] * (NESTING_MAX + beyond - levels) + LEAVES[leaf]
    expected = (Outcome.ACCEPT, None) if beyond <= 0 else (Outcome.IGNORE, "nesting")
    assert examined(value_of(codec, payload)) == expected


@pytest.mark.parametrize("codec", CODECS[2:])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_payloads_at_the_limit_of_nesting_in_codecs_of_their_own(codec: str, beyond: int) -> None:
    outcome, rule = examined(value_of(codec, b"\x81" * (NESTING_MAX + beyond) + b"\x01"))
    assert (outcome, rule) == (Outcome.IGNORE, "nesting" if beyond > 0 else "scheme")


@pytest.mark.parametrize("codec", SIGNERS)
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_other_bounds(codec: str, beyond: int) -> None:
    good, outcome = (Outcome.ACCEPT, None), beyond <= 0
    parents = tuple(encode_clock(1) + number.to_bytes(19, "big") for number in range(PARENTS_MAX + beyond))
    assert examined(value_of(codec, b"\x01", topic=TOPIC, clock=2, parents=parents)) == (good if outcome else (Outcome.IGNORE, "size"))
    highest = encode_clock(CLOCK_MAX - 1).ljust(20, b"k")
    clock = CLOCK_MAX + beyond
    # Only a clock right above its parent's is one.
    assert examined(value_of(codec, b"\x01", clock=clock, parents=(highest,)))[1] == (None if beyond == 0 else "clock")
    topic = "t" * (TOPIC_CHARS_MAX + beyond)
    assert validate(value_of(codec, b"\x01", topic=topic)).rule == (None if outcome else "topic")
    head = len(value_of(codec, b"")) + 5
    size = VALUE_BYTES_LIMIT + beyond - head
    assert examined(value_of(codec, item_header(2, size) + bytes(size))) == (good if outcome else (Outcome.IGNORE, "size"))
    data = b"\xed\x01" + bytes(300)
    long = "did:key:z" + encode_base58(data)
    long = long[: DID_CHARS_MAX + beyond].ljust(DID_CHARS_MAX + beyond, "1")
    assert examined(value_of(codec, b"\x01", did=long))[1] in ("scheme", "signature")


def test_whatever_stands_in_a_signature_of_eip712_is_nobodys_fault() -> None:
    random_ = random.Random(1)
    parts = (b"\x01", b"\x20", b"\xf6", b"\xf5", b"\x60", b"\x63abc", b"\x41\xff", b"\x80", b"\xa0", b"\xfb\x3f\xf8" + bytes(6), LINK)
    did = pcf.encode("did:pkh:eip155:1:0x" + "0" * 40)
    huge = pcf.encode("did:pkh:eip155:" + "9" * 5000 + ":0x" + "0" * 40)
    for codec in CODECS[2:4]:
        key = gossiplog.ethereum.Eip712Signer(b"\x01" * 32).did
        for _ in range(300):
            names = ["did", "args", "name", "type", "context", "publicKey", "authorizationData"]
            kind = b"\x66action" if codec == eip712.ACTION else b"\x67session"
            context = b"\xa2\x68duration%b\x69timestamp%b" % (random_.choice(parts), random_.choice(parts))
            chosen = {name: random_.choice((*parts, context, did, huge)) for name in names if random_.random() < 0.9}
            if random_.random() < 0.8:
                chosen |= {"type": kind, "did": did, "context": context}
            items = sorted(chosen.items(), key=lambda item: (len(item[0]), item[0]))
            payload = item_header(5, len(items)) + b"".join(pcf.encode(name) + item for name, item in items)
            assert examined(value_of(codec, payload, did=key))[0] is Outcome.IGNORE


def test_a_scheme_that_raises_costs_its_own_entries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(public_key: bytes, signed: bytes) -> bool:
        raise ZeroDivisionError("of a scheme")

    monkeypatch.setattr(schemes_module, "_SCHEMES", dict(schemes_module._SCHEMES))
    register_scheme(SignatureScheme("broken", 0x1234, fail, 65, frozenset({"raw"})))
    bad = value_of("raw", b"\x01", did="did:key:z" + encode_base58(b"\xb4\x24" + bytes(32)))
    good = value_of("dag-cbor", b"\x01")
    first, second, third = validate_many([good, bad, good], schemes={"ed25519", "broken"})
    assert first.accepted
    assert third.accepted
    assert (second.outcome, second.rule) == (Outcome.IGNORE, "scheme")
    assert "ZeroDivisionError: of a scheme" in str(second.reason)


@pytest.mark.parametrize("step", ["parse_envelope", "signature_and_signed_bytes"])
def test_a_fault_of_ours_costs_the_entry_that_shows_it_alone(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = value_of("dag-cbor", b"\x01"), value_of("dag-cbor", b"\x02")
    sound = getattr(validation, step)

    def fail(value: bytes, *rest: Any) -> Any:
        if value == bad:
            raise gossiplog.errors.EncodeError("of a bound that is one off " + "x" * 1000)
        return sound(value, *rest)

    monkeypatch.setattr(validation, step, fail)
    first, second, third = validate_many([good, bad, good], topic=TOPIC)
    assert first.accepted
    assert third.accepted
    assert second == validate(bad, topic=TOPIC) == judge(bad, topic=TOPIC)
    assert (second.outcome, second.rule) == (Outcome.IGNORE, "scheme")
    assert "of a bound" in str(second.reason)
    assert len(str(second.reason)) < 300


@pytest.mark.parametrize(
    "data", [b"\x81" * n + b"\x01" for n in (300, 900, 1000, 1100, 5000)] + [b"\xa1\x79\xff\xf0" + b"k" * 65_520 + b"\x01"]
)
def test_foreign_bytes_of_any_depth_are_described_or_not(data: bytes) -> None:
    described = describe_foreign(data)
    assert described is None or len(described) < 300
