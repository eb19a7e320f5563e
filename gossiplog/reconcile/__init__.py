"""Reconciliation at the limit: replicas find what either lacks by sketches, at a cost that follows the difference alone."""

from .decoder import Contradiction, Decoder, Difference
from .sketch import SYMBOLS_MAX, Sketch

__all__ = ["SYMBOLS_MAX", "Contradiction", "Decoder", "Difference", "Sketch"]
