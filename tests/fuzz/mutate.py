"""A plain mutator: no coverage, but it knows the seeds, the bytes that matter in CBOR, varints and JSON, and how to splice two inputs."""

import random
from collections.abc import Sequence

__all__ = ["mutate"]

BYTES_MAX = 4096
INTERESTING = (
    bytes.fromhex("00011718191a1b1f2038395455585a60737778797f80818597989a9fa0a1b8bfc0d8d9f4f5f6f7f9fafbfeff") + b'{}[]":,/\\u"0-.eE \n'
)
TOKENS = (
    b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xfb\x3f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x69__proto__",
    b"\x61/",
    b"\x65bytes",
    b"\xef\xbb\xbf",
    b"\xd8\x2a\x45\x00\x01\x55\x00\x00",
    b"\xed\xa0\x80",
    b'{"/":{"bytes":"AA"}}',
    b'{"/":"bafkqaaa"}',
    b"\\ud800",
    b"1e999",
    b"\x81" * 64,
    b"[" * 64,
    b"\xff" * 10,
    b"\x80" * 10,
    b"9" * 20,
    b"\xc2\xb2",
)


def mutate(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input made of one of the corpus by 0 to 6 random changes, at most 4 KiB long."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(9)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice(INTERESTING)
        elif kind == 2 and at < len(data):
            data[at] = (data[at] + rng.choice((-1, 1))) & 0xFF
        elif kind == 3:
            del data[at : at + rng.choice((1, 1, 2, 8, 64))]
        elif kind == 4:
            data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 8)))
        elif kind == 5:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 6:
            data[at:at] = data[at : at + rng.choice((1, 2, 8, 32))]
        elif kind == 7:
            other = rng.choice(corpus)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        else:
            del data[at:]
    return bytes(data[:BYTES_MAX])
