"""Parts that an application is composed of: each a small data type whose replicas agree whatever the order of arrival.

Source: docs/kit.md.
"""

from __future__ import annotations

from .counter import Counter
from .files import Files
from .list import Element, List
from .map import Map
from .part import Part, Readable, compose
from .set import Set

__all__ = ["Counter", "Element", "Files", "List", "Map", "Part", "Readable", "Set", "compose"]
