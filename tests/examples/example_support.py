"""Hubs for the examples, and strangers who write what no example asked for."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossiplog import Ed25519Signer, blocking
from gossiplog.testing import POISON

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 90.0


@contextmanager
def running_hub(folder: Path, topic: str) -> Iterator[str]:
    """Run `gossiplog serve`, whichever is on the path; give its URL."""
    log = str(folder / "hub.db")
    subprocess.run(["gossiplog", "init", log, "--topic", topic], check=True, capture_output=True)
    serve = ["gossiplog", "serve", log, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["urls"][0]
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)


@contextmanager
def running_page(program: Path, folder: Path, name: str, *options: str, python: str = sys.executable) -> Iterator[tuple[str, str]]:
    """Run an example that serves a page as its README says; give the page's URL, and its hub's if it is one.

    Args:
        python: The interpreter, which sees nothing but its own environment if it is not this one.
    """
    command = [python, "-u", str(program), "--log", f"{name}.db", "--port", "0", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or python == sys.executable}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = ""
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                    break
            assert found is not None, said
            hub = re.search(r"--connect (ws://[^\s,]+)", said)
            yield found[1], hub[1] if hub else ""
            process.send_signal(signal.SIGINT)
            said += process.communicate(timeout=DEADLINE_S)[0]
        finally:
            process.kill()
    assert "Traceback" not in said, said


@contextmanager
def stranger(url: str, topic: str) -> Iterator[blocking.GossipLog]:
    """Connect to a hub as anybody may who is let in. What builds on an entry can only be where that entry is."""
    with blocking.open(":memory:", topic=topic, signer=Ed25519Signer.generate()) as log, log.connect(url) as link:
        link.wait_connected()
        yield log


def poison_like(payload: dict[str, Any]) -> list[Any]:
    """All of POISON, and a payload in which each field in turn is each of it, or is missing."""
    nearly = [{**payload, field: value} for field in payload if field != "op" for value in POISON]
    return [*POISON, *nearly, *({key: payload[key] for key in payload if key != field} for field in payload)]


def lines_of_code(path: Path) -> int:
    """Count the lines of a program or a page that are neither blank, nor a comment, nor a docstring."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return sum(not line.strip().startswith(("#", "//")) for line in lines if line.strip())
