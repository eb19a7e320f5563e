"""A record in dag-cbor becomes a VALUE by copying; what it says is what the decoded record says."""

import tracemalloc
from random import Random

import pytest
from log_support import SIGNERS, make, make_history

from gossiplog.archive.jsonl import cbor_to_value, record_to_value
from gossiplog.codec import pcf
from gossiplog.errors import DecodeError


def record_of(entry):
    message, signature = entry.message, entry.signature
    return {
        "message": {"clock": message.clock, "parents": list(message.parents), "payload": message.payload, "topic": message.topic},
        "signature": {"codec": signature.codec, "publicKey": signature.public_key, "signature": signature.signature},
    }


def test_records_become_the_values_that_they_were_made_of() -> None:
    random = Random(2)
    payloads = [None, 0, "", b"\0", [[], {}, [[]]], {"/": 1, "a": {"/": {}}}, {"message": {"payload": 1}, "é": [1.5]}]
    entries = [*make_history(random, 20), *[make(payload, signer=SIGNERS[1]) for payload in payloads]]
    for entry in entries:
        record = record_of(entry)
        body = pcf.encode(record)
        assert cbor_to_value(body) == entry.value == record_to_value(record)
        # More fields than the ones that are needed, wherever they sort.
        for extra in ({"a": 1}, {"zzzzzzzzzz": [[]]}):
            more = {key: {**part, **extra} for key, part in record.items()} | extra
            assert cbor_to_value(pcf.encode(more)) == entry.value


def test_damaged_records_are_refused_as_their_decoded_form_is() -> None:
    record = record_of(make({"a": [1, "two"]}, [make(1)]))
    body = pcf.encode(record)
    random, refused = Random(3), 0
    for _ in range(3_000):
        damaged = bytearray(body)
        match random.randrange(3):
            case 0:
                damaged[random.randrange(len(body))] = random.randrange(256)
            case 1:
                del damaged[random.randrange(len(body)) :]
            case _:
                damaged[random.randrange(len(body)) : random.randrange(len(body))] = random.randbytes(random.randrange(3))
        try:
            expected = record_to_value(pcf.decode(bytes(damaged)))
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                cbor_to_value(bytes(damaged))
        else:
            assert cbor_to_value(bytes(damaged)) == expected
    assert refused > 1_000


@pytest.mark.parametrize("item", [b"\x80", b"\xa0", b"\x81\x80", b"\x01"])
def test_a_body_of_empty_arrays_costs_its_bytes_and_no_more(item: bytes) -> None:
    count = 70_000
    record = record_of(make(0))
    body = pcf.encode(record).replace(b"\x67payload\x00", b"\x67payload\x9a" + count.to_bytes(4) + item * count)
    tracemalloc.start()
    try:
        value = cbor_to_value(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value.endswith(item * count)
    assert peak < 4 * len(body) + 65_536


def test_many_small_fields_are_no_way_round_the_bounds() -> None:
    record = record_of(make(0))
    record["message"]["parents"] = ["0" * 32] * 16_385
    with pytest.raises(DecodeError, match="16385 parents"):
        cbor_to_value(pcf.encode(record))
    record["message"]["parents"] = []
    body = pcf.encode(record).replace(b"\x67parents\x80", b"\x67parents\x9a" + (1_100_000).to_bytes(4) + b"\x80" * 1_100_000)
    with pytest.raises(DecodeError, match="parents"):
        cbor_to_value(body)
