"""A log that begins with a snapshot, as 0.16.1 of the reference begins one."""

from gossiplog.codec import pcf
from gossiplog.entry import Entry
from gossiplog.entry.envelope import build_value

SNAPSHOT_TOPIC = f"app.example.com:{'b5' * 32}"
SCHEMES = frozenset({"ed25519", "canvas-snapshot"})
SNAPSHOT = Entry.decode(
    build_value("canvas-snapshot", "", b"", SNAPSHOT_TOPIC, 0, (), pcf.encode({"type": "snapshot", "models": {}, "effects": []}))
)
