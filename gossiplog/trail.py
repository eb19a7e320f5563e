"""A trail: signed records of what a program does. Each process writes its own file, in which each record is the parent of the next.

Any number of processes can write at once without a lock, because forks are ordinary history in a log. To collect the files:
`cat DIR/*.jsonl | gossiplog import LOG -`.

Recording must never harm the program. Records go into a bounded queue, and one thread of the process signs and writes them. If the queue
is full or the disk fails, records are dropped, and the next written record says how many.

Source: docs/trail.md.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import itertools
import logging
import math
import os
import queue
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .archive import entry_to_line
from .codec import pcf
from .entry.message_id import decode_id, encode_id
from .entry.rules import check_topic, next_clock
from .entry.signing import Signer, sign_entry
from .errors import DecodeError

__all__ = ["Trail", "TrailHandler"]

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_MAX = 10_000
_BATCH = 100
_TEXT_CHARS_MAX = 1_000
_ITEMS_MAX = 50
_DEPTH_MAX = 4
_INTEGER_MAX = 2**53 - 1
_CLOSE_S = 2.0
_AFTER = "GOSSIPLOG_TRAIL_AFTER"

_span: ContextVar[str | None] = ContextVar("gossiplog_trail_span", default=None)


class Trail:
    """Records what this process does. Any thread may use it, also in asyncio and trio. After a fork the child continues in its own file.

    Args:
        folder: The files' folder; created if necessary. Each process writes `PROGRAM-PID-RANDOM.jsonl`.
        topic: The topic of the log that will collect them.
        program: The program's name in records and file names; by default that of `sys.argv[0]`.
        queue_max: How many records may wait to be written; more are dropped.

    Attributes:
        error: Why records could last not be written; None if all were.

    Raises:
        LocalProtocolError: The topic is malformed.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, topic: str, signer: Signer, program: str | None = None, queue_max: int = QUEUE_MAX
    ) -> None:
        check_topic(topic)
        self.error: str | None = None
        self._folder = Path(folder)
        self._topic = topic
        self._signer = signer
        self._program = _text(program or Path(sys.argv[0] or "python").name)
        self._queue_max = queue_max
        self._last = _keys_in(os.environ.get(_AFTER, ""))
        self._begin()
        _TRAILS.add(self)

    @property
    def lost(self) -> int:
        """How many records this process has dropped."""
        return self._lost

    def record(self, kind: str, /, **fields: Any) -> None:
        """Record something, without waiting or raising. Values without a portable form are recorded as text; long values are cut."""
        try:
            span = fields.pop("span", None) or _span.get()
            record = {_text(name): _plain(value, 0) for name, value in fields.items()} | ({"span": span} if span else {})
            record |= {"kind": _text(kind), "at": time.time_ns() // 1_000_000, "program": self._program, "process": os.getpid()}
            if self._queue.qsize() >= self._queue_max:
                self._lost = next(self._drops)
                return
            self._queue.put(record)
            if self._thread is None or not self._thread.is_alive():
                self._start()
        except Exception as error:  # the program must not fail because recording does
            self.error = f"{type(error).__name__}: {error}"
            self._lost = next(self._drops)

    @contextmanager
    def span(self, name: str, /, **fields: Any) -> Iterator[str]:
        """Record the beginning and the end of a block, and how it ended. Records within have its id as `span`, or spans as `parent`."""
        span, parent = secrets.token_hex(8), _span.get()
        self.record("begin", **{**fields, "name": name, "span": span, "parent": parent})
        token, began = _span.set(span), time.perf_counter()
        try:
            yield span
        except BaseException as error:
            self.record("raised", span=span, name=name, error=f"{type(error).__name__}: {_safely(str, error)}", ms=_ms(began))
            raise
        else:
            self.record("end", span=span, name=name, ms=_ms(began))
        finally:
            _span.reset(token)

    def recorded(self, function: Callable[P, T]) -> Callable[P, T]:
        """Record each call of a function, plain or `async def`: its arguments, its result or exception, and the span of the caller."""
        name = f"{function.__module__}.{function.__qualname__}"
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_later(*args: P.args, **options: P.kwargs) -> Any:
                with self.span(name, arguments=args, options=options) as span:
                    result = await function(*args, **options)
                    self.record("returned", span=span, result=result)
                return result

            return call_later  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> T:
            with self.span(name, arguments=args, options=options) as span:
                result = function(*args, **options)
                self.record("returned", span=span, result=result)
            return result

        return call

    def environment(self) -> dict[str, str]:
        """Return environment variables for a program to start: they make the records written so far the parents of its first record."""
        self.flush()
        return {_AFTER: ",".join(map(encode_id, self._last))}

    def flush(self, timeout_s: float = _CLOSE_S) -> bool:
        """Wait up to `timeout_s` until all records so far are written; return whether they are."""
        if self._thread is None or not self._thread.is_alive():
            return self._queue.empty()
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout_s)

    def _begin(self) -> None:
        """Start afresh in this process; its file and its thread are made at the first record."""
        self._queue: queue.SimpleQueue[dict[str, Any] | threading.Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._drops = itertools.count(1)
        self._lost = self._told = 0
        self._file: int | None = None
        self._size = 0

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="gossiplog trail", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            waiting = [self._queue.get()]
            while len(waiting) < _BATCH and not self._queue.empty():
                waiting.append(self._queue.get())
            records = [each for each in waiting if not isinstance(each, threading.Event)]
            try:
                self._write(records)
            except Exception as error:  # such as a full disk or a missing folder: the program goes on, and a later record has the number
                self.error = f"{type(error).__name__}: {error}"
                for _ in records:
                    self._lost = next(self._drops)
            for each in waiting:
                if isinstance(each, threading.Event):
                    each.set()

    def _write(self, records: list[dict[str, Any]]) -> None:
        lines, last, lost = list[bytes](), self._last, self._lost
        for record in records:
            if lost > self._told and not lines:
                record["lost"] = lost - self._told
            entry = sign_entry(self._signer, self._topic, next_clock(last), last, pcf.encode(record))
            last = [entry.key]
            lines.append(entry_to_line(entry) + b"\n")
        data = b"".join(lines)
        if not data:
            return
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"{Path(self._program).name}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            self._file = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if os.write(self._file, data) != len(data):
                raise OSError("the disk is full")
        except OSError:
            # The next line must not follow half a line.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self._last, self._told = last, lost


class TrailHandler(logging.Handler):
    """Puts records of the standard library's logging into a trail, with the current span."""

    def __init__(self, trail: Trail, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._trail = trail

    def emit(self, record: logging.LogRecord) -> None:
        """Record it; a message that cannot be formatted is recorded unformatted."""
        text = _safely(logging.LogRecord.getMessage, record)
        failure = record.exc_info[1] if record.exc_info else None
        raised = {} if failure is None else {"error": f"{type(failure).__name__}: {_safely(str, failure)}"}
        line = f"{record.filename}:{record.lineno}"
        self._trail.record("log", level=record.levelname, logger=record.name, message=text, line=line, **raised)


_TRAILS: weakref.WeakSet[Trail] = weakref.WeakSet()


def _flush_all() -> None:
    for trail in list(_TRAILS):
        trail.flush()


def _after_fork() -> None:
    for trail in list(_TRAILS):
        trail._begin()
    # Children of multiprocessing exit without calling `atexit` functions, and drop finalizers that were made before this moment.
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.register_after_fork(_TRAILS, lambda _: util.Finalize(None, _flush_all, exitpriority=0))


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _keys_in(text: str) -> list[bytes]:
    try:
        return [decode_id(id) for id in text.split(",") if id]
    except DecodeError:
        return []


def _plain(value: Any, depth: int) -> Any:
    """Return a portable value of bounded size that represents this one in a record."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= _INTEGER_MAX else _safely(hex, value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, str):
        return _text(value)
    if depth < _DEPTH_MAX:
        if isinstance(value, Mapping):
            items = itertools.islice(value.items(), _ITEMS_MAX)
            return {_text(name if isinstance(name, str) else _safely(repr, name)): _plain(each, depth + 1) for name, each in items}
        if isinstance(value, list | tuple):
            return [_plain(each, depth + 1) for each in value[:_ITEMS_MAX]]
    return _safely(repr, value)


def _safely(function: Callable[[Any], str], value: Any) -> str:
    try:
        return _text(function(value))
    except Exception as error:  # anybody's `__repr__`
        return f"a {type(value).__name__} that cannot be shown: {type(error).__name__}"


def _text(text: str) -> str:
    return text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode() + ("…" if len(text) > _TEXT_CHARS_MAX else "")


def _ms(began: float) -> float:
    return round(1_000 * (time.perf_counter() - began), 3)
