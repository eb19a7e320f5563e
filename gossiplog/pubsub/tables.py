"""Parameters from tables, as TOML files have them, strictly: an unknown key, a wrong type and a broken rule are errors that name the key.

What a table leaves out has the value of the parameters that it is laid over; `score = false` switches scoring off.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import LocalProtocolError

P = TypeVar("P")


def overlaid(base: P, table: object, path: str) -> P:
    """Return parameters with some of their values replaced.

    Args:
        base: What the table leaves out; a dataclass of parameters, with others in it.
        table: Values by name; nested parameters are tables in it.
        path: What the table is called in errors, such as `params.gossipsub`.

    Raises:
        LocalProtocolError: A key is unknown, a value of the wrong type, or the whole breaks one of the parameters' own rules.
    """
    if not isinstance(table, Mapping):
        raise LocalProtocolError(f"{path}: {table!r}, expected a table")
    hints = get_type_hints(type(base))
    values = {row.name: getattr(base, row.name) for row in fields(base)}  # type: ignore[arg-type]  # a dataclass
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in values:
            near = difflib.get_close_matches(key, values, 1)
            raise LocalProtocolError(f"{where}: unknown parameter{f'; did you mean {near[0]}?' if near else ''}")
        values[key] = _convert(hints[key], value, values[key], where)
    try:
        return type(base)(**values)
    except LocalProtocolError as error:
        raise LocalProtocolError(f"{path}: {error}" if path else str(error)) from None


def as_toml(params: Any) -> str:
    """Write parameters as `overlaid` reads them; what is None or empty is written as a comment."""
    return "\n".join(_lines(params, "")) + "\n"


def _lines(params: Any, path: str) -> list[str]:
    values = {row.name: getattr(params, row.name) for row in fields(params)}
    lines = [f"{name} = {_literal(value)}" for name, value in values.items() if not is_dataclass(value) and not isinstance(value, Mapping)]
    lines = [f"# {line}" if line.endswith("= false") and values[line.split(" ")[0]] is None else line for line in lines]
    for name, value in values.items():
        if is_dataclass(value):
            lines += ["", f"[{path}{name}]", *_lines(value, f"{path}{name}.")]
    return lines


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value or False).lower() if value is None or isinstance(value, bool) else repr(value)


def _convert(hint: Any, value: Any, base: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is False:
            return None
        return _convert(next(option for option in arguments if option is not type(None)), value, base, where)
    if is_dataclass(hint):
        make: Any = hint
        return overlaid(make() if base is None else base, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, None, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {key: _convert(arguments[1], item, (base or {}).get(key), f"{where}.{key}") for key, item in value.items()}
    kind = getattr(hint, "__supertype__", hint)
    if kind is float and type(value) is int:
        return float(value)
    if not isinstance(kind, type) or type(value) is not kind:
        raise LocalProtocolError(f"{where}: {value!r}, expected {_named(hint)}")
    return value


def _named(hint: Any) -> str:
    return "a list" if get_origin(hint) is tuple else {float: "a number", int: "a whole number", bool: "true or false"}.get(hint, "text")
