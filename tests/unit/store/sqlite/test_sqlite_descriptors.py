"""A process without a descriptor left is told so, whatever it was about to open: its log is there, and may be written to."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import errno, json, os, resource, sys
import trio, gossiplog
from gossiplog.store.sqlite import store as _

path, said = sys.argv[1], {}

def exhaust(left):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken = []
    while True:
        try:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            break
    for _ in range(left):
        os.close(taken.pop())
    return taken

async def main():
    async with gossiplog.open(path, read_only=True) as log:
        for left in range(5):
            taken = exhaust(left)
            for read_only in (True, False):
                try:
                    async with gossiplog.open(path, read_only=read_only) as again:
                        await again.count()
                except Exception as error:
                    said[f"{left} {read_only}"] = [type(error).__name__, str(error), error.hint]
            for descriptor in taken:
                os.close(descriptor)
        assert await log.count() == 3

trio.run(main)
print(json.dumps(said))
"""


def test_no_descriptors_left_is_no_missing_log(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    made = "import sys, trio, gossiplog\nasync def main():\n async with gossiplog.open(sys.argv[1], topic='a') as log:\n"
    made += "  await log.append_many([1, 2, 3], signer=gossiplog.Ed25519Signer.generate())\ntrio.run(main)"
    subprocess.run([sys.executable, "-c", made, path], check=True)
    ran = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert len(said) >= 4, "with none left, and with too few"
    for kind, message, hint in said.values():
        assert kind == "StoreUnavailable" and "Too many open files" in message and "ulimit -n" in hint, said
