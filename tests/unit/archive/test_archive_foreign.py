"""What is said of dag-cbor that is no entry."""

from random import Random

import dag_cbor
import pytest
from log_support import make
from multiformats import CID

from gossiplog.archive.car import describe_foreign

LINK = CID.decode("bafyreigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"name": "a", "size": 1}, 'a dag-cbor map with the keys "name", "size"'),
        ({str(number): LINK for number in range(6)}, 'a dag-cbor map with the keys "0", "1", "2", "3" and 2 more'),
        ({}, "an empty dag-cbor map"),
        ([1, LINK], "a dag-cbor list of 2"),
        (b"bytes", "dag-cbor of one value, of type bytes"),
    ],
)
def test_dag_cbor_of_others_is_described(value: object, said: str) -> None:
    assert describe_foreign(dag_cbor.encode(value)) == said


def test_what_is_none_is_not() -> None:
    assert describe_foreign(b"") is describe_foreign(b"\xff") is describe_foreign(b"\x01\x02") is None
    assert describe_foreign(dag_cbor.encode("x" * 70_000)) is None
    assert describe_foreign(b"\x81" * 60_000 + b"\x01") == "dag-cbor that is nested too deeply to look into"


def test_any_bytes_raise_nothing() -> None:
    random, value = Random(1), make({"a": [LINK, b"x", 1.5]}).value
    for _ in range(600):
        damaged = bytearray(value)
        for _ in range(random.randint(1, 3)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        describe_foreign(bytes(damaged[: random.randint(1, len(damaged))]))
        describe_foreign(random.randbytes(random.randint(0, 40)))
