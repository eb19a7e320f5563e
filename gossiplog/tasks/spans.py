"""OpenTelemetry spans, in a process that has loaded OpenTelemetry's API; elsewhere a span costs one look-up.

This module does not import OpenTelemetry. An SDK with an exporter, without which spans are useless, is set up before this package is used,
by `opentelemetry-instrument` or by the application. Attributes follow the semantic conventions for messaging. They contain no payloads,
no tokens and no text from others.

Source: docs/operations.md, "Traces"; OpenTelemetry semantic conventions 1.43, "Messaging spans".
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Literal, Protocol

Kind = Literal["append", "receive", "sync"]

_TYPES = {"append": ("PRODUCER", "send"), "receive": ("CONSUMER", "process"), "sync": ("CLIENT", "receive")}
"""The kind of the span, and the type of the operation."""


class Attributes(Protocol):
    """Sets attributes that are known only at the end."""

    def __call__(self, **attributes: str | int) -> None:
        """Set attributes; their names get the prefix `gossiplog.`."""
        ...


def _ignore(**attributes: str | int) -> None:
    pass


_NOTHING = nullcontext(_ignore)


def span(kind: Kind, topic: str, entries: int | None = None, began_ns: int | None = None) -> AbstractContextManager[Attributes]:
    """Make a span over a `with` block.

    Args:
        entries: The number of entries, if known at the start.
        began_ns: The span's start in Unix time, if it was before the block.
    """
    trace = sys.modules.get("opentelemetry.trace")
    return _NOTHING if trace is None else _Span(trace, kind, topic, entries, began_ns)


class _Span:
    """A span that ends with its block. If the block raises, it records the exception's type, and not the text, which may quote anything."""

    __slots__ = ("_entered", "_span", "_trace")

    def __init__(self, trace: Any, kind: Kind, topic: str, entries: int | None, began_ns: int | None) -> None:
        span_kind, operation = _TYPES[kind]
        attributes: dict[str, str | int] = {
            "messaging.system": "gossiplog",
            "messaging.operation.name": kind,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
        }
        if entries is not None:
            attributes["messaging.batch.message_count"] = entries
        self._trace = trace
        tracer = trace.get_tracer("gossiplog")
        kind_there = trace.SpanKind[span_kind]
        self._span = tracer.start_span(f"{kind} {topic}", kind=kind_there, attributes=attributes, start_time=began_ns)

    def __enter__(self) -> Attributes:
        self._entered = self._trace.use_span(self._span, end_on_exit=True, record_exception=False, set_status_on_exception=False)
        self._entered.__enter__()
        return self._set

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, Exception):
            self._span.set_attribute("error.type", kind.__qualname__)
            self._span.set_status(self._trace.StatusCode.ERROR)
        # The error itself is withheld, so that OpenTelemetry does not record its text.
        self._entered.__exit__(None, None, None)

    def _set(self, **attributes: str | int) -> None:
        self._span.set_attributes({f"gossiplog.{name}": value for name, value in attributes.items()})
