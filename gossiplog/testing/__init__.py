"""Checks for authors of an `apply`: the same entries must give the same tables, in whatever order they came."""

from __future__ import annotations

from .convergence import NotConvergent, check_convergence, check_history
from .generate import Author
from .history import Delivered, History, Rebuild, Written
from .poison import POISON

__all__ = ["POISON", "Author", "Delivered", "History", "NotConvergent", "Rebuild", "Written", "check_convergence", "check_history"]
