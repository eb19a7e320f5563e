"""Why a server does not serve somebody."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody is not served.

    Attributes:
        status: Of HTTP: 401 where another token or proof would help, 403 where none was wrong.
        reason: For the client.
    """

    status: int
    reason: str
