"""A strict reader of JSON from others: every value that it accepts can be written again, so later steps cannot fail.

The standard library reads more than JSON allows, and more than it can write: numbers of thousands of digits, NaN, halves of surrogate
pairs, and nesting just short of its own limit. Here a number fits 64 bits or a finite double, text is Unicode, and nesting is at most 64
levels deep.

Source: RFC 8259, 8.2 and 9; RFC 7493, 2.1 and 2.2.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from ..errors import DecodeError

DEPTH_MAX = 64
_INTEGER_MAX = 2**63
_DIGITS_MAX = 19


def decode(data: bytes | str) -> Any:
    """Decode one value. O(length), which the caller bounds; runs in C except for arrays and objects.

    Raises:
        DecodeError: The data is not JSON, or exceeds a limit. The message does not quote the data.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
        # Only an escape can contain half a surrogate pair; text decoded from UTF-8 has none.
        if "\\u" in text or isinstance(data, str):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise DecodeError("no JSON: a text is not Unicode") from None
    except json.JSONDecodeError as error:
        raise DecodeError(f"no JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise DecodeError(f"no JSON: nested deeper than {DEPTH_MAX}") from None
    _check_depth(value)
    return value


def _integer(digits: str) -> int:
    number = int(digits) if len(digits) <= _DIGITS_MAX + 1 else _INTEGER_MAX
    if not -_INTEGER_MAX <= number < _INTEGER_MAX:
        raise DecodeError("no JSON: a number of more than 64 bits")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise DecodeError("no JSON: a number that is not finite")
    return number


def _refuse(name: str) -> NoReturn:
    raise DecodeError(f"no JSON: {name}")


def _check_depth(value: Any) -> None:
    """Check the nesting level by level, without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            one
            for each in level
            for one in (each.values() if type(each) is dict else each if type(each) is list else ())
            if type(one) is dict or type(one) is list
        ]
        if not level:
            return
    raise DecodeError(f"no JSON: nested deeper than {DEPTH_MAX}")
