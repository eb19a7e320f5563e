"""What the tests of the command line share."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
TOPIC = "cli.example"
COLD = [sys.executable, "-m", "gossiplog"]
"""The command as a user starts it; 0.3 s of it is for its imports."""
WARM = ["gossiplog"]
"""The same from a process that has imported it; see `warm_gossiplog`."""
SEEDS = {"alice": b"\x01" * 32, "bob": b"\x02" * 32}


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> Any:
        (record,) = self.lines
        return record

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Run = Callable[..., Ran]
