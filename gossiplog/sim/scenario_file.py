"""Reading scenarios from TOML, strictly: an unknown key, a wrong type and a value out of range are errors that name the key.

A table of the file is a dataclass of `scenario.py`, field by field; `[[fault]]` tables say by `kind` which of the faults they are.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import MISSING, fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .scenario import FAULTS, Fault, Scenario, ScenarioError, need

__all__ = ["load_scenario", "parse_scenario", "ready_scenarios", "set_key"]

T = TypeVar("T")


def ready_scenarios() -> dict[str, str]:
    """Name the scenarios that ship with the package, each with its `about`."""
    found = {}
    for entry in sorted(resources.files(__package__).joinpath("data/scenarios").iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            found[entry.name[: -len(".toml")]] = str(tomllib.loads(entry.read_text("utf-8")).get("about", ""))
    return found


def load_scenario(name: str) -> Scenario:
    """Read a scenario from a file, or one of `ready_scenarios` by its name.

    Raises:
        ScenarioError: There is no such file, it is no TOML, or a key is wrong; the message names file and key.
    """
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        ready = resources.files(__package__).joinpath(f"data/scenarios/{path.name}.toml")
        if path.name != name or not ready.is_file():
            near = difflib.get_close_matches(name, ready_scenarios(), 1)
            hint = f"did you mean {near[0]}?" if near else "run `gossiplog sim scenarios` for those that ship with the package"
            raise ScenarioError(f"no scenario {name!r}", hint=hint)
        return parse_scenario(ready.read_text("utf-8"), name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{name}: {error}") from error
    return replace(parse_scenario(text, name), directory=path.parent)


def parse_scenario(text: str, origin: str = "scenario") -> Scenario:
    """Read a scenario from TOML text.

    Raises:
        ScenarioError: It is no TOML, or a key is wrong; the message begins with `origin`.
    """
    try:
        return _load(Scenario, tomllib.loads(text), "")
    except (tomllib.TOMLDecodeError, ScenarioError, RecursionError) as error:
        raise ScenarioError(f"{origin}: {error}") from error


def set_key(scenario: Scenario, key: str, value: Any) -> Scenario:
    """Return the scenario with one key, such as `publish.interval_s` or `params.gossipsub.D`, set to another value."""
    table = _dump(scenario)
    *path, last = key.split(".")
    inner = table
    for step in path:
        inner = inner.setdefault(step, {})
        need(isinstance(inner, dict), key, value, "a path through tables")
    inner[last] = value
    return replace(_load(Scenario, table, ""), directory=scenario.directory)


def _dump(value: Any) -> Any:
    """Turn dataclasses back into the tables that `_load` reads."""
    if is_dataclass(value) and not isinstance(value, type):
        table = {row.name: _dump(getattr(value, row.name)) for row in fields(value) if row.name != "directory"}
        kind = next((name for name, cls in FAULTS.items() if type(value) is cls), None)
        return {"kind": kind, **table} if kind else table
    if isinstance(value, tuple):
        return [_dump(item) for item in value]
    if isinstance(value, dict):
        return {key: _dump(item) for key, item in value.items()}
    return value


def _load(cls: type[T], table: Any, path: str) -> T:
    """Build a dataclass from a table, key by key."""
    if not isinstance(table, dict):
        raise ScenarioError(f"{path}: {table!r}, expected a table")
    hints = get_type_hints(cls)
    known = {row.name: row for row in fields(cls) if row.name != "directory"}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ScenarioError(f"{where}: unknown key{f'; did you mean {near[0]}?' if near else ''}")
        values[key] = _convert(hints[key], value, where)
    for key, row in known.items():
        if row.default is MISSING and row.default_factory is MISSING and key not in values:
            raise ScenarioError(f"{path}.{key}: missing" if path else f"{key}: missing")
    return cls(**values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Check one value against its field's type. Whole numbers are taken for floats; nothing else is converted."""
    if is_dataclass(hint):
        return _load(hint, value, where)  # type: ignore[arg-type]
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise ScenarioError(f"{where}: {value!r}, expected an array")
        return tuple(_convert(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ScenarioError(f"{where}: {value!r}, expected a table")
        return {key: _convert(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(hint, UnionType):
        return _load_fault(value, where)
    if hint is Any:
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ScenarioError(f"{where}: {value!r}, expected {_SAID[hint]}")
    if hint is float and not abs(value) < 1e18:
        raise ScenarioError(f"{where}: {value!r}, expected a finite number")
    return value


_SAID = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def _load_fault(table: Any, where: str) -> Fault:
    if not isinstance(table, dict):
        raise ScenarioError(f"{where}: {table!r}, expected a table")
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in FAULTS:
        raise ScenarioError(f"{where}.kind: {kind!r}, expected one of {', '.join(FAULTS)}")
    return _load(FAULTS[kind], {key: value for key, value in table.items() if key != "kind"}, where)
