"""The browser client in Node, whose modules run there as they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gossiplog.codec.pcf import DEPTH_MAX
from gossiplog.entry import Ed25519Signer, Entry, sign_entry

FOLDER = Path(__file__).parents[1] / "client"


def deepest_entries(topic: str) -> list[Entry]:
    """Entries with as many levels as any may have, for which a browser's stack must do."""
    signers = [Ed25519Signer.from_seed(bytes(32), codec=codec) for codec in ("dag-cbor", "dag-json")]
    return [
        sign_entry(signer, topic, 1, [], item * DEPTH_MAX + b"\x01") for signer in signers for item in (b"\x81", b"\xa1\x61a", b"\xa1\x61/")
    ]


def node() -> str:
    """Return Node's path; skip the test where there is none."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found


def ask_node(cases: Iterable[dict[str, Any]]) -> list[Any]:
    """Have `vectors.mjs` answer some cases."""
    done = subprocess.run([node(), str(FOLDER / "vectors.mjs")], input=json.dumps(list(cases)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers
