"""Parts of applications: small data types whose replicas agree whatever the order of arrival. Needs the extra `kit`.

Source: docs/kit.md.
"""

from __future__ import annotations

from ..errors import LocalProtocolError

try:
    import msgspec
except ModuleNotFoundError as error:
    raise LocalProtocolError("gossiplog.kit needs msgspec, which is not installed", hint="pip install 'gossiplog[kit]'") from error
else:
    del msgspec

from .asking import ask
from .counter import Counter
from .documents import Documents
from .files import Files
from .list import Element, List
from .map import Map
from .part import Part, Readable, compose
from .set import Set
from .yjs import is_yjs_text, yjs_client

__all__ = [
    "Counter",
    "Documents",
    "Element",
    "Files",
    "List",
    "Map",
    "Part",
    "Readable",
    "Set",
    "ask",
    "compose",
    "is_yjs_text",
    "yjs_client",
]
