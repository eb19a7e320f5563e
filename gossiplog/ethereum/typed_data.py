"""Hashing of typed data and encoding of arguments: the parts of EIP-712 and of the contract ABI that the reference uses.

Source: EIP-712; the contract ABI specification; `@canvas-js/chain-ethereum` 0.13.14, `getAbiString`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ..codec.javascript import SAFE_INTEGER_MAX, is_safe_integer
from .keys import ADDRESS, is_address, keccak

Fields: TypeAlias = Mapping[str, Sequence[tuple[str, str]]]
"""For each type the names and types of its fields; the first type is that of the whole value."""


class Untypable(ValueError):
    """A value does not have the required type."""


def hash_typed_data(name: str, types: Fields, value: Mapping[str, Any]) -> bytes:
    """Return the hash of a value in a named domain, which a wallet signs.

    Raises:
        Untypable: The value is not of these types.
    """
    domain = keccak(keccak(b"EIP712Domain(string name)") + keccak(name.encode()))
    return keccak(b"\x19\x01" + domain + _hash_struct(next(iter(types)), types, value))


def _hash_struct(kind: str, types: Fields, value: Mapping[str, Any]) -> bytes:
    parts = [keccak(_describe(kind, types))]
    parts += [_encode_field(field, types, value[name]) for name, field in types[kind]]
    return keccak(b"".join(parts))


def _describe(kind: str, types: Fields) -> bytes:
    """Encode a type, followed by the types that it refers to, sorted by name. Types must not refer to each other in circles."""
    used = [field for _, field in types[kind] if field in types]
    for one in used:
        used += [field for _, field in types[one] if field in types and field not in used]
    words = [f"{each}({','.join(f'{field} {name}' for name, field in types[each])})" for each in (kind, *sorted(used))]
    return "".join(words).encode()


def _encode_field(kind: str, types: Fields, value: Any) -> bytes:
    """Return the 32 bytes that stand for a value."""
    if kind in types:
        return _hash_struct(kind, types, value)
    match kind:
        case "string" if isinstance(value, str):
            return keccak(value.encode())
        case "string[]" if isinstance(value, (list, tuple)):
            return keccak(b"".join(_encode_field("string", types, item) for item in value))
        case "bytes" if isinstance(value, bytes):
            return keccak(value)
        case "uint64" if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= SAFE_INTEGER_MAX:
            return value.to_bytes(32, "big")
        case "address" if isinstance(value, str) and is_address(value):
            return bytes.fromhex(value[2:]).rjust(32, b"\0")
    raise Untypable(f"{str(value)[:64]!r} is no {kind}")


def encode_arguments(values: Sequence[Any]) -> bytes:
    """Encode the arguments of an action by the contract ABI: addresses, texts, bools and whole numbers.

    Raises:
        Untypable: An argument is anything else.
    """
    heads: list[bytes | None] = []
    tails: list[bytes] = []
    for value in values:
        match value:
            case bool():
                heads.append(int(value).to_bytes(32, "big"))
            case int() | float():
                heads.append(_whole(value).to_bytes(32, "big", signed=True))
            case str() if ADDRESS.fullmatch(value):
                if not is_address(value):
                    raise Untypable(f"{value} has a wrong checksum")
                heads.append(bytes.fromhex(value[2:]).rjust(32, b"\0"))
            case str():
                data = value.encode()
                heads.append(None)
                tails.append(len(data).to_bytes(32, "big") + data + bytes(-len(data) % 32))
            case _:
                raise Untypable(f"an argument of type {type(value).__name__}")
    position, waiting, encoded = 32 * len(heads), iter(tails), []
    for head in heads:
        if head is None:
            encoded.append(position.to_bytes(32, "big"))
            position += len(next(waiting))
        else:
            encoded.append(head)
    return b"".join([*encoded, *tails])


def _whole(value: float) -> int:
    """Return a number as an integer, if it is whole and JavaScript has it exactly."""
    if not is_safe_integer(value):
        raise Untypable(f"{value} is no whole number, or too large to be exact")
    return int(value)
