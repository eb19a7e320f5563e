"""JavaScript's treatment of numbers and strings, where bytes depend on it.

Every entry passes through JavaScript objects in the reference: an integral float there is an integer, and dag-json writes numbers as
`String(n)` does and sorts keys by UTF-16 code units.

Source: ECMA-262, Number::toString; docs/spec/entries.md, "Portable canonical form"; vectors/dag-json.json.
"""

from __future__ import annotations

from typing import Any

SAFE_INTEGER_MAX = 2**53 - 1


def is_safe_integer(number: float) -> bool:
    """Say whether a float is an integer in the reference: integral, and at most 2^53 − 1 from 0. False for NaN and infinities."""
    return -SAFE_INTEGER_MAX <= number <= SAFE_INTEGER_MAX and number == int(number)


def float_text(number: float) -> str:
    """Return `String(number)` of a finite float other than −0.0.

    Python's repr has the same shortest digits but places the point and the exponent differently.
    """
    mantissa, _, exponent_text = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    # The number is 0.digits × 10^point.
    point = int(exponent_text or "0") + len(digits) - len(fraction)
    digits = digits.rstrip("0")
    sign = "-" if number < 0 else ""
    if not digits:
        return "0"
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def utf16_order(text: str) -> bytes:
    """Return a sort key that orders strings as JavaScript's `<` does. The order differs from Python's where U+E000…U+FFFF meet higher
    characters."""
    return text.encode("utf-16-be", "surrogatepass")


def reserved_map(value: dict[str, Any]) -> str | None:
    """Say why a map with the key `/` is not portable, or None if it is. Links and bytes inside are objects, not maps.

    Source: `@ipld/dag-json` interprets a map whose first key is `/`; `@ipld/dag-cbor` takes any object for a CID for which
    `object["/"] === object.bytes`.
    """
    slash = value["/"]
    if type(slash) in (bool, int, float, str) and "bytes" in value:
        twin = value["bytes"]
        if type(twin) is type(slash) and twin == slash:
            return "a map in which `/` and `bytes` are equal is taken for a link"
    if min(value, key=utf16_order) == "/":
        if type(slash) is str:
            return "a map that begins with `/` and a string is a link in dag-json"
        if type(slash) is dict and type(slash.get("bytes")) is str and min(slash, key=utf16_order) == "bytes":
            return "a map that begins with `/` and a map of `bytes` is bytes in dag-json"
    return None
