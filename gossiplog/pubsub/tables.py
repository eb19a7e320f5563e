"""Parameter dataclasses from TOML tables, read strictly: errors for unknown keys, wrong types and broken rules name the key.

A key that a table leaves out keeps the value of the parameters underneath; `score = false` switches scoring off.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import MappingProxyType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import LocalProtocolError

P = TypeVar("P")
_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", tuple: "an array", dict: "a table"}


class TableError(LocalProtocolError):
    """A table is wrong. The message begins with the path of the wrong key."""


def overlaid(base: P, table: object, path: str) -> P:
    """Return parameters with some of their values replaced.

    Args:
        base: The parameters to change, a dataclass that may hold others.
        table: The new values by name; nested parameters are nested tables.
        path: The table's name in errors, such as `params.gossipsub`.

    Raises:
        LocalProtocolError: A key is unknown, a value of the wrong type, or the whole breaks one of the parameters' own rules.
    """
    return from_table(type(base), table, path, _values(base))


def from_table(cls: type[P], table: object, path: str, values: Mapping[str, Any] = MappingProxyType({})) -> P:
    """Build a dataclass from a table. Fields with `compare=False` cannot be set.

    An integer is accepted for a float; nothing else is converted. Where several dataclasses are possible, the key `kind` names one.

    Args:
        values: The values of keys that the table leaves out; a key missing here too gets its default.

    Raises:
        LocalProtocolError: As `overlaid`, or a field without a default is missing.
    """
    if not isinstance(table, Mapping):
        raise TableError(f"{path}: {table!r}, expected a table")
    hints, found = get_type_hints(cls), dict(values)
    known = {row.name: row for row in fields(cls) if row.compare}  # type: ignore[arg-type]  # a dataclass
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise TableError(f"{where}: unknown key{f'; did you mean {near[0]}?' if near else ''}")
        found[key] = _convert(hints[key], value, found.get(key), where)
    for key, row in known.items():
        if key not in found and row.default is MISSING and row.default_factory is MISSING:
            raise TableError(f"{path}.{key}: missing" if path else f"{key}: missing")
    try:
        return cls(**found)
    except TableError:
        raise
    except LocalProtocolError as error:
        raise LocalProtocolError(f"{path}: {error}" if path else str(error)) from None


def as_toml(params: Any) -> str:
    """Write parameters as `overlaid` reads them; a parameter that is None is written as a comment."""
    return "\n".join(_lines(params, "")) + "\n"


def _lines(params: Any, path: str) -> list[str]:
    values = _values(params)
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


def _values(params: Any) -> dict[str, Any]:
    return {} if params is None else {row.name: getattr(params, row.name) for row in fields(params)}


def _convert(hint: Any, value: Any, base: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        if value is False and len(options) < len(arguments):
            return None
        return _convert(options[0], value, base, where) if len(options) == 1 else _one_of(options, value, where)
    if is_dataclass(hint):
        return from_table(hint, value, where, _values(base))  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], item, None, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {key: _convert(arguments[1], item, (base or {}).get(key), f"{where}.{key}") for key, item in value.items()}
    if hint is Any:
        return value
    kind = getattr(hint, "__supertype__", hint)
    if kind is float and type(value) is int:
        return float(value)
    if not isinstance(kind, type) or type(value) is not kind:
        raise TableError(f"{where}: {value!r}, expected {_SAID.get(origin or kind, 'a table')}")
    if isinstance(value, float) and not abs(value) < 1e18:
        raise TableError(f"{where}: {value!r}, expected a finite number")
    return value


def _one_of(options: Sequence[type[Any]], table: Any, where: str) -> Any:
    if not isinstance(table, Mapping):
        raise TableError(f"{where}: {table!r}, expected a table")
    kinds, kind = {option.__name__.lower(): option for option in options}, table.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise TableError(f"{where}.kind: {kind!r}, expected one of {', '.join(kinds)}")
    return from_table(kinds[kind], {key: value for key, value in table.items() if key != "kind"}, where)
