"""Base58btc, the text of did:keys, of CIDs of version 0 and of libp2p's peer ids."""

from __future__ import annotations

from ..errors import DecodeError

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {char: digit for digit, char in enumerate(ALPHABET)}


def encode_base58(data: bytes) -> str:
    """Encode in base58btc without a multibase prefix; a leading zero byte is a leading `1`. O(n²)."""
    number = int.from_bytes(data, "big")
    digits: list[str] = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(ALPHABET[digit])
    digits.append("1" * (len(data) - len(data.lstrip(b"\0"))))
    return "".join(reversed(digits))


def decode_base58(text: str) -> bytes:
    """Decode base58btc without a multibase prefix. O(n²): bound the text first.

    Raises:
        DecodeError: A character is not in the alphabet.
    """
    number = 0
    try:
        for char in text:
            number = number * 58 + _DIGITS[char]
    except KeyError:
        raise DecodeError(f"{text!r} is not base58btc") from None
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
