"""Whole numbers in text that somebody else wrote. Python's `int` also takes the digits of other scripts, and fails above 4,300 of them."""

from __future__ import annotations

_DIGITS_MAX = 20


def read_digits(text: str, least: int, most: int) -> int | None:
    """Read a whole number in ASCII digits, at most 20; None if the text is another one, or the number is out of bounds."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    number = int(text)
    return number if least <= number <= most else None
