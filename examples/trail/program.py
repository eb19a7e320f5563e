"""One of several programs that record what they do: python program.py FOLDER NAME KEY [honest|delete|backdate]."""

import logging
import sys
import time
from pathlib import Path

from gossiplog.archive import entry_to_line, line_to_value
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, Entry
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.trail import Trail, TrailHandler

TOPIC = "trail.example.com"


def main(folder: str, name: str, key: str, manner: str) -> None:
    """Work, and then do with the trail what a program of this manner does."""
    signer = Ed25519Signer.load(key)
    trail = Trail(folder, topic=TOPIC, signer=signer, program=name)
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.addHandler(TrailHandler(trail))

    @trail.recorded
    def price(item: str, count: int) -> int:
        logger.info("looking up %s", item)
        return 7 * count

    @trail.recorded
    def order(item: str, count: int) -> str:
        return f"{count} {item} for {price(item, count)}"

    for n in range(5):
        order(f"item {n}", n)
    trail.flush()
    (file,) = Path(folder).glob(f"{name}-*.jsonl")
    lines = file.read_bytes().splitlines()
    if manner == "delete":
        # The third order never happened.
        file.write_bytes(b"\n".join(line for line in lines if b"item 2" not in line) + b"\n")
    if manner == "backdate":
        # It was all decided an hour earlier. The record is signed by the program's own key, and has all that a record needs.
        last = Entry.stored(line_to_value(lines[-1])[0])
        record = pcf.encode({"kind": "decided", "program": name, "at": time.time_ns() // 1_000_000 - 3_600_000})
        with file.open("ab") as more:
            more.write(entry_to_line(sign_entry(signer, TOPIC, next_clock([last.key]), [last.key], record)) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
