"""Say who has deleted or backdated records of a trail: python audit.py FOLDER [LOG], where LOG has what was collected before.

Findings follow from signatures and parents. No clock is trusted: a program's own is only compared with what it built on.
"""

import sys
from pathlib import Path

from gossiplog import blocking
from gossiplog.archive import line_to_value
from gossiplog.entry import Entry
from gossiplog.entry.validation import validate
from gossiplog.errors import DecodeError

TOLERANCE_MS = 1_000


def read(folder: Path) -> tuple[dict[str, Entry], list[str]]:
    """All valid entries of the files, and what is wrong with the others."""
    entries, wrong = {}, []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                verdict = validate(line_to_value(line)[0])
            except DecodeError as error:
                wrong.append(f"{path.name}:{number}: {error}")
                continue
            if verdict.entry is None or not verdict.accepted:
                wrong.append(f"{path.name}:{number}: {verdict.rule}: {verdict.reason}")
            else:
                entries[verdict.entry.id] = verdict.entry
    return entries, wrong


def audit(folder: Path, log: Path | None = None) -> list[str]:
    """Return one line for each finding, with the author's did."""
    entries, found = read(folder)
    collected = {}
    if log is not None and log.exists():
        with blocking.open(log, read_only=True) as opened:
            collected = {entry.id: entry for entry in opened.iterate()}
    found += [f"{each.author} has deleted {id}, which was collected" for id, each in collected.items() if id not in entries]
    known = collected | entries
    at: dict[str, int] = {}
    for id in sorted(known):  # in the order of ids parents come first
        entry = known[id]
        claimed = entry.payload.get("at", 0)
        for parent in entry.message.parents:
            if parent not in known:
                found.append(f"{entry.author} has deleted {parent}, on which its own record {id} builds")
            elif claimed < at[parent] - TOLERANCE_MS:
                found.append(
                    f"{entry.author} has backdated {id}: it builds on {parent}, which is {(at[parent] - claimed) / 1000:.0f} s younger"
                )
        at[id] = max([claimed, *(at[parent] for parent in entry.message.parents if parent in at)])
    return found


if __name__ == "__main__":
    findings = audit(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print("\n".join(findings) or "nothing is missing, and nothing is older than what it builds on")
    sys.exit(3 if findings else 0)
