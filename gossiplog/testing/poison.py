"""Payloads that no application expects. Everyone who may write to a log can send them, properly signed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from ..entry.message_id import KEY_BYTES, encode_id
from .history import ID, map_texts

_RENAMED = 0.5
_CLOCK_MAX = 40

POISON: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**53 - 1,
    1.5,
    "",
    "hello",
    "x" * 5_000,
    "\0",
    "'; DROP TABLE items; --",
    "\U0001f9e8\u202e",
    b"\xff\x00",
    [],
    [[[[[[]]]]]],
    {},
    {"": None},
    {"op": None},
    {"op": "no such operation"},
    {"op": ["set"], "key": {}, "value": b"\x00"},
    {"op": "set"},
    {"op": "set", "key": None, "value": None},
)
"""Every kind of value, strings that databases stumble over, and operations that are nearly right."""


def poisoned(random: Random, payload: Any) -> Any:
    """Return a payload with one part broken, or a member of `POISON`."""
    variants = list(_variants(payload))
    if not variants or random.random() < 0.3:
        return random.choice(POISON)
    return random.choice(variants)(random)


def name_others(random: Random, payload: Any, ids: Sequence[str]) -> Any:
    """Replace half of the ids in a payload by those of any entries, or by ids of none."""

    def rename(text: str) -> str:
        if random.random() >= _RENAMED:
            return text
        unknown = encode_id(bytes([random.randint(1, _CLOCK_MAX)]) + random.randbytes(KEY_BYTES - 1))
        return random.choice([*ids, unknown])

    return map_texts(payload, lambda text: ID.sub(lambda match: rename(match[0]), text))


def _variants(payload: Any) -> Iterator[Any]:
    """Yield functions that return the payload with one part broken."""
    if isinstance(payload, dict):
        for key, value in payload.items():
            yield lambda _, key=key: {other: payload[other] for other in payload if other != key}
            yield lambda random, key=key: {**payload, key: random.choice(POISON)}
            for variant in _variants(value):
                yield lambda random, key=key, variant=variant: {**payload, key: variant(random)}
        yield lambda random: {**payload, "unknown": random.choice(POISON)}
    elif isinstance(payload, list):
        for index, item in enumerate(payload):
            yield lambda random, index=index: [*payload[:index], random.choice(POISON), *payload[index + 1 :]]
            for variant in _variants(item):
                yield lambda random, index=index, variant=variant: [*payload[:index], variant(random), *payload[index + 1 :]]
