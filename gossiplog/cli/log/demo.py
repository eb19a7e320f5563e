"""`demo`: the essentials on two real logs in a temporary folder, from the first append to a forgery that is detected."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..entries import ID_CHARACTERS
from ..exits import ExitCode
from ..options import FOLDER, output_options
from ..output import Output, clean
from ..session import in_trio, opened, working_folder
from .graph import graph_lines, graph_nodes
from .verify import BrokenRule, VerifyPool, verify_log

if TYPE_CHECKING:
    from ...entry.signing import Ed25519Signer

_TOPIC = "demo.gossiplog"
_SHARED = {"op": "create", "list": "groceries"}
_APART = {
    "alice": [{"op": "add", "item": "bread"}, {"op": "add", "item": "olives"}, {"op": "done", "item": "bread"}],
    "bob": [{"op": "add", "item": "coffee"}, {"op": "add", "item": "lemons"}],
}
_MERGE = {"op": "share", "with": "everybody"}


@click.command()
@click.option("--dir", "folder", metavar="DIR", type=FOLDER, help="A new or empty folder to work in, which is kept.")
@click.option("--keep", is_flag=True, help="Keep the temporary folder, and say where it is.")
@output_options()
@in_trio
async def demo(folder: str | None, keep: bool, out: Output) -> int:
    """Show the essentials on two real logs.

    Two replicas fork while apart, merge and end equal; then a copy is tampered with, and `verify` finds it. Everything is real: two SQLite
    files, two keys, signatures, a merkle sync each way. Nothing is left behind without --dir or --keep.

    \b
    Examples
      gossiplog demo
      gossiplog demo --dir ./demo && gossiplog log ./demo/alice.db
    """
    # A demonstration is for people, in a pipe too; only --json asks for data.
    out = Output(is_json=out.is_strict, is_strict=out.is_strict)
    with working_folder(folder, "gossiplog-demo-", keeps=keep) as place:
        summary = await _play(place, out)
    if out.is_json:
        out.record(summary)
    elif folder or keep:
        out.line(f"\nkept in {place}: try `gossiplog log {place}/alice.db`")
    return ExitCode.DONE if summary["equal"] and summary["forgeryFound"] else ExitCode.INTEGRITY


async def _play(place: Path, out: Output) -> dict[str, Any]:
    from ...entry.signing import Ed25519Signer

    # These keys are not secret: derived from the names, they make every run print the same, which the README shows.
    signers = {name: Ed25519Signer.from_seed(hashlib.sha256(f"gossiplog demo, {name}".encode()).digest()) for name in _APART}
    paths = {name: str(place / f"{name}.db") for name in _APART}
    await _fork(paths, signers, out)
    roots = await _merge(paths, signers, out)
    forged, finding = await _forge(place, paths["bob"], out)
    return {
        "roots": roots,
        "equal": roots["alice"] == roots["bob"],
        "forged": forged,
        "forgeryFound": finding is not None and finding.id == forged,
        "rule": finding.rule if finding else None,
        "reason": finding.reason if finding else None,
    }


async def _fork(paths: dict[str, str], signers: dict[str, Ed25519Signer], out: Output) -> None:
    """Let both start from one entry and append while apart."""
    _say(out, "1  Alice creates a log; Bob gets a copy. Then they work apart, and history forks.")
    async with (
        opened(paths["alice"], read_only=False, create=True, topic=_TOPIC, signer=signers["alice"]) as alice,
        opened(paths["bob"], read_only=False, create=True, topic=_TOPIC, signer=signers["bob"]) as bob,
    ):
        await alice.append(_SHARED)
        await bob.sync(alice)
        for name, log in (("alice", alice), ("bob", bob)):
            for entry in await log.append_many(_APART[name]):
                id, payload = out.style(entry.id[:ID_CHARACTERS], "yellow"), json.dumps(entry.payload, separators=(",", ":"))
                _say(out, f"   {name:<6} {id}  clock {entry.clock}  {payload}")


async def _merge(paths: dict[str, str], signers: dict[str, Ed25519Signer], out: Output) -> dict[str, str]:
    """Sync both ways, append to both branches, sync again, and compare the roots."""
    _say(out, "\n2  They meet. Each pulls what it lacks, and nothing else.")
    async with (
        opened(paths["alice"], read_only=False, signer=signers["alice"]) as alice,
        opened(paths["bob"], read_only=False, signer=signers["bob"]) as bob,
    ):
        pulled = (await alice.sync(bob)).entries, (await bob.sync(alice)).entries
        _say(out, f"   alice pulled {pulled[0]}, bob pulled {pulled[1]}; both have {len(await alice.heads())} heads")
        merge = await alice.append(_MERGE)
        await bob.sync(alice)
        _say(out, f"   alice appends once more: {len(merge.message.parents)} parents, so the branches are joined\n")
        for line in graph_lines(await graph_nodes(bob, 50), out):
            _say(out, f"   {line}")
        roots = {name: (await log.root()).hash.hex() for name, log in (("alice", alice), ("bob", bob))}
    verdict = ("equal", "green") if roots["alice"] == roots["bob"] else ("DIFFERENT", "red")
    _say(out, f"\n3  Equal roots, equal logs: {out.style(*verdict, bold=True)}")
    for name, root in roots.items():
        _say(out, f"   {name:<6} {root}")
    return roots


async def _forge(place: Path, path: str, out: Output) -> tuple[str, BrokenRule | None]:
    """Change a few bytes of one entry in a copy, directly in the database, and verify the copy."""
    copy = str(place / "forged.db")
    shutil.copyfile(path, copy)
    forged = ""
    async with opened(copy) as log:
        async for entry in log.iterate():
            if b"coffee" in entry.value:
                forged = entry.id
    database = sqlite3.connect(copy)
    with database:
        for seq, value in database.execute("SELECT seq, value FROM gossiplog_entries").fetchall():
            database.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = ?", (value.replace(b"coffee", b"poison"), seq))
    database.close()
    _say(out, "\n4  Somebody edits a copy of Bob's file: coffee becomes poison. `gossiplog verify` on that copy:")
    found: BrokenRule | None = None
    with VerifyPool(1, _TOPIC) as pool:
        async with opened(copy) as log:
            async for finding in verify_log(log, pool):
                if not finding.accepted:
                    found = finding
                    id = out.style((finding.id or "")[:ID_CHARACTERS], "yellow")
                    _say(out, f"   {id}  {out.style('FAILED', 'red', bold=True)}  {finding.rule}: {clean(finding.reason or '')}")
    return forged, found


def _say(out: Output, line: str) -> None:
    if not out.is_json:
        out.line(line)
        out.flush()
