"""Checks that every store's answer must pass, whatever the database holds: rows in order, with parts of the right form.

A damaged index may return rows twice or go back, so reading page after page would never end. Malformed keys, hashes and numbers would end
the plan that reads them with an error that blames our code, not the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from operator import itemgetter, lt
from typing import Any, TypeVar

from ..errors import DecodeError
from ..plan import Request
from ..tree.node import HASH_BYTES, KEY_BYTES, LEVEL_MAX, Node, NodeRun, ReadRoot, ReadRuns
from . import requests
from .fsck_requests import ReadEntryRows, ReadLeafPage, ReadLinkPage, ReadNodePage, ReadPositionPage

T = TypeVar("T")


def check_answer(request: Request[Any], answer: Any) -> None:
    """Check an answer of a database before a plan gets it. O(rows).

    Raises:
        DecodeError: The answer cannot be right.
        TypeError: A part has another type than its column.
    """
    check = _CHECKS.get(type(request))
    if check is not None:
        check(request, answer)


def _check_tail(request: requests.ReadTail | ReadEntryRows, rows: Sequence[tuple[int, Any]]) -> None:
    _check_order([request.seq, *map(itemgetter(0), rows)])


def _check_page(request: requests.ReadPage, rows: Sequence[tuple[bytes, bytes]]) -> None:
    keys = list(map(itemgetter(0), rows))
    _check_keys(keys)
    if request.reverse:
        keys.reverse()
    if keys:
        _check_order([*_after(request.after), *keys, *_after(request.before)])


def _check_heads(request: requests.ReadHeads, keys: Sequence[bytes]) -> None:
    _check_keys(keys)
    _check_order(keys)


def _check_values(request: requests.ReadValues, values: dict[bytes, bytes]) -> None:
    if not values.keys() <= set(request.keys):
        raise DecodeError(f"asked for {len(request.keys)} keys, the index gave another")


def _check_sketch(request: requests.ReadSketch, kept: requests.KeptSketch | None) -> None:
    if kept is not None:
        _check_numbers([kept.seq])
        if type(kept.symbols) is not bytes:
            raise DecodeError(f"the sketch is {_show(kept.symbols)}")


def _check_root(request: ReadRoot, root: Node) -> None:
    _check_nodes([root])
    if not 0 <= root.level <= LEVEL_MAX:
        raise DecodeError(f"the tree's root is at level {root.level}, at most {LEVEL_MAX} expected")


def _check_runs(request: ReadRuns, runs: Sequence[NodeRun]) -> None:
    for parent, children, _ in runs:
        _check_nodes([parent, *children])
        _check_order([child.key or b"" for child in children])


_CHECKS: dict[type[Request[Any]], Callable[[Any, Any], None]] = {
    requests.ReadBranchTips: lambda request, tips: _check_numbers(tips.values()),
    requests.ReadCount: lambda request, counts: _check_numbers(counts),
    ReadEntryRows: _check_tail,
    requests.ReadHeads: _check_heads,
    ReadLeafPage: lambda request, rows: _check_order([_rank(key) for key in (*_after(request.after), *[row.key for row in rows])]),
    requests.ReadLeaves: lambda request, leaves: _check_numbers(chain.from_iterable(leaves.values())),
    ReadLinkPage: lambda request, links: _check_order([_link_key(link) for link in (*_after(request.after), *links)]),
    ReadNodePage: lambda request, rows: _check_order([*_after(request.after), *rows]),
    requests.ReadPage: _check_page,
    ReadPositionPage: lambda request, rows: _check_order([*_after(request.after), *[at for at, _ in rows]]),
    requests.ReadQuarantine: lambda request, records: _check_order([*_after(request.after), *[record.key for record in records]]),
    ReadRoot: _check_root,
    ReadRuns: _check_runs,
    requests.ReadSketch: _check_sketch,
    requests.ReadTail: _check_tail,
    requests.ReadValues: _check_values,
}


def _after(bound: T | None) -> tuple[T, ...]:
    return () if bound is None else (bound,)


def _link_key(link: requests.BranchLink) -> tuple[int, int, int, int]:
    child, parent, _ = link
    return child.branch, parent.branch, child.clock, parent.clock


def _check_order(keys: Sequence[Any]) -> None:
    if not all(map(lt, keys, keys[1:])):
        before, key = next((before, key) for before, key in pairwise(keys) if not before < key)
        raise DecodeError(f"rows are out of order: {_show(key)} after {_show(before)}")


def _check_keys(keys: Sequence[Any]) -> None:
    if _are_all(keys, KEY_BYTES):
        return
    for key in keys:
        if type(key) is not bytes or len(key) != KEY_BYTES:
            raise DecodeError(f"{_show(key)} is not a key of {KEY_BYTES} bytes")


def _are_all(values: Sequence[Any], size: int) -> bool:
    """Tell whether all values are bytes of this size, without a Python loop."""
    return list(map(type, values)).count(bytes) == len(values) == list(map(len, values)).count(size)


def _check_numbers(numbers: Iterable[Any]) -> None:
    for number in numbers:
        if type(number) is not int:
            raise DecodeError(f"{_show(number)} is not a number")


def _check_nodes(nodes: Sequence[Node]) -> None:
    levels, keys, hashes = zip(*nodes, strict=True)
    # The first node of a level has no key. The parent may be a first node, too.
    named = [key for key in keys if key is not None]
    if list(map(type, levels)).count(int) == len(nodes) and _are_all(hashes, HASH_BYTES) and _are_all(named, KEY_BYTES):
        return
    for level, key, node_hash in nodes:
        if type(level) is not int or type(node_hash) is not bytes or len(node_hash) != HASH_BYTES:
            raise DecodeError(f"a node of the tree has level {_show(level)} and hash {_show(node_hash)}")
        if key is not None and (type(key) is not bytes or len(key) != KEY_BYTES):
            raise DecodeError(f"{_show(key)} is not the key of a node")


def _rank(value: object) -> tuple[int, Any]:
    """Order values of any type as SQLite does: null, numbers, texts, blobs."""
    match value:
        case None:
            return 0, 0
        case int() | float():
            return 1, value
        case str():
            return 2, value.encode("utf-8", "surrogatepass")
        case _:
            return 3, value


def _show(value: object) -> str:
    return value.hex()[:80] if isinstance(value, bytes) else repr(value)[:80]
