"""Checks for those who write an `apply`: that it comes to the same tables wherever the same entries are, in whatever order they came."""

from __future__ import annotations

from .convergence import NotConvergent, check_convergence, check_history
from .generate import Author
from .history import Deliver, History, Rebuild, Written
from .poison import POISON

__all__ = ["POISON", "Author", "Deliver", "History", "NotConvergent", "Rebuild", "Written", "check_convergence", "check_history"]
