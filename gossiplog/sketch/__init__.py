"""Sketches of sets of keys: a few sums of two sets name what these differ in, whatever their sizes."""

from .decoder import Contradiction, Decoder, Difference
from .sketch import SYMBOLS_MAX, Sketch

__all__ = ["SYMBOLS_MAX", "Contradiction", "Decoder", "Difference", "Sketch"]
