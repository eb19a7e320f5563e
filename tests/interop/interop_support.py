"""The reference, `@canvas-js/gossiplog` 0.13.14, as a process that answers requests; and what the tests on both sides of it share."""

from __future__ import annotations

import fcntl
import json
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from gossiplog import Ed25519Signer, Entry, GossipLog
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry

FOLDER = Path(__file__).parent
VECTORS = FOLDER.parent / "vectors"
TOPIC = "interop.example.com"
CODECS = ("dag-cbor", "dag-json")
SEEDS = tuple(bytes([n]) * 32 for n in (1, 2, 3))

_ANSWER_S = 300.0
"""The longest answer takes some 20 s on two free cores."""
_RESERVED = {"slash", "slash2"}
"""Maps that the reference signs and then reads back as something else; see spec/entries.md, "Portable canonical form"."""
_TOO_DEEP = {"depth 2000 arrays"}
"""Our limit is 1,024 levels, the reference's its stack."""
_NODE_MAJOR_MIN = 20


def install_reference() -> None:
    """Install the packages that package-lock.json names, unless they are there; skip the tests if node or npm is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < _NODE_MAJOR_MIN:
        pytest.skip(f"node {version.strip()} is older than {_NODE_MAJOR_MIN}")
    lock = FOLDER / "package-lock.json"
    installed = FOLDER / "node_modules" / ".installed"
    # Several processes of one run of pytest may come here.
    with (FOLDER / ".gitignore").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not installed.exists() or installed.read_bytes() != lock.read_bytes():
            # One of the packages is compiled where there is no build of it for the machine, which takes minutes.
            subprocess.run([npm, "ci"], cwd=FOLDER, check=True, stdin=subprocess.DEVNULL)
            installed.write_bytes(lock.read_bytes())


class Reference:
    """A running reference. Its logs have names, lie in memory, and end with it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._buffer = bytearray()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, op: str, *, may_fail: bool = False, **request: Any) -> Any:
        """Send one request and return the answer; what goes wrong over there fails the test, or makes it None."""
        answer = await self._answer(op, request)
        assert may_fail or "error" not in answer, answer["error"]
        return answer.get("result")

    async def ask_in_vain(self, op: str, **request: Any) -> str:
        """Send one request that goes wrong over there; return how."""
        answer = await self._answer(op, request)
        assert "error" in answer, answer
        error: str = answer["error"]
        return error

    async def insert(self, log: str, entries: Iterable[Entry]) -> list[str]:
        """Insert entries, each of which must be accepted; return the ids that the reference computed."""
        answers = await self.ask("insert", log=log, values=[entry.value.hex() for entry in entries])
        refused = [answer for answer in answers if "error" in answer]
        assert not refused, refused[:3]
        return [answer["id"] for answer in answers]

    async def export(self, log: str) -> list[tuple[str, bytes]]:
        """Return id and VALUE of every entry, as the reference would serve them."""
        return [(entry["id"], bytes.fromhex(entry["value"])) for entry in await self.ask("export", log=log)]

    async def root(self, log: str) -> tuple[int, bytes]:
        """Return level and hash of the root."""
        root = await self.ask("root", log=log)
        return root["level"], bytes.fromhex(root["hash"])

    async def _answer(self, op: str, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with trio.fail_after(_ANSWER_S):
            await self._process.stdin.send_all(json.dumps({"op": op, **request}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await self._read_line())
            return answer

    async def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = await self._process.stdout.receive_some()
            assert chunk, f"the reference ended with {self._process.poll()}"
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


def run_reference(script: str = "reference.mjs") -> AbstractAsyncContextManager[Reference]:
    """Start a script around the reference; end it at the end."""
    return run_program("node", script)


@asynccontextmanager
async def run_program(*command: str) -> AsyncIterator[Reference]:
    """Start a program that answers as the reference does; end it at the end."""
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process: trio.Process = await nursery.start(start)
        try:
            yield Reference(process)
        finally:
            assert process.stdin is not None
            with trio.CancelScope(shield=True):
                await process.stdin.aclose()


async def root_of(log: GossipLog) -> tuple[int, bytes]:
    """Return level and hash of our root."""
    root = await log.root()
    return root.level, root.hash


def load_vectors(name: str) -> list[dict[str, Any]]:
    """Return the cases of one file of vectors."""
    cases: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text())["cases"]
    return cases


def portable_payloads() -> list[bytes]:
    """Return each payload of the vectors, in PCF, that both sides write and read alike, without repetitions."""
    of_messages = [case for case in load_vectors("messages") if "payloadCbor" in case and case["name"] not in _RESERVED]
    of_cbor = [case for case in load_vectors("cbor") if case["portable"] and case["name"] not in _TOO_DEEP]
    hexes = [case["payloadCbor"] for case in of_messages] + [case["hex"] for case in of_cbor]
    return [bytes.fromhex(text) for text in dict.fromkeys(hexes)]


def chain(payloads: Iterable[bytes], *, topic: str = TOPIC) -> list[Entry]:
    """Sign payloads in PCF one upon the other, each in both codecs, by several signers in turn."""
    signers = [Ed25519Signer.from_seed(seed, codec=codec) for seed in SEEDS for codec in CODECS]
    entries: list[Entry] = []
    for n, payload in enumerate(payload for payload in payloads for _ in CODECS):
        parents = [entries[-1].key] if entries else []
        entries.append(sign_entry(signers[n % len(signers)], topic, next_clock(parents), parents, payload))
    return entries


def random_payload(rng: random.Random) -> Any:
    """Make a payload for a log of ours; those of the other side come from `reference.mjs`."""
    kinds: list[Any] = [
        None,
        rng.random() < 0.5,
        rng.randint(-(2**53), 2**53),
        rng.uniform(-1e6, 1e6),
        "日本語 🌍" * rng.randrange(4),
        rng.randbytes(rng.randrange(40)),
        [rng.randrange(100) for _ in range(rng.randrange(30))],
        {"op": "set", "key": str(rng.randrange(50)), "value": {"n": rng.random()}},
    ]
    return rng.choice(kinds)
