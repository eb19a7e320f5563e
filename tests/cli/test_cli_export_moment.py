"""An export is the log of one moment, whatever arrives while it is written."""

import shutil
from pathlib import Path

import pytest
import trio
from cli_support import TOPIC, Run
from log_support import make, opened

import gossiplog
from gossiplog.archive import ArchiveSource

TRUNK, BRANCHES, LENGTH = 800, 10, 30
ROUNDS = 100


def test_file_without_a_parent_is_told_from_a_part_of_a_log(cli: Run, app: str) -> None:
    lines = cli("log", app, "--json").out.splitlines()
    Path("gap.jsonl").write_text("\n".join([lines[4], *lines[:2], lines[3]]) + "\n")
    ran = cli("verify", "gap.jsonl", code=3)
    assert [line["accepted"] for line in ran.lines] == [True, True, True, False]
    assert ran.lines[-1]["rule"] == "parents"
    assert ran.lines[-1]["place"] == "line 4"
    assert "1 of 1 parents are not in the file" in cli("verify", "gap.jsonl", "--table", code=3).out
    assert all(line["accepted"] for line in cli("verify", "gap.jsonl", "--partial").lines)


def test_child_of_a_forged_entry_lacks_its_parent(cli: Run, app: str) -> None:
    lines = cli("log", app, "--json").out.splitlines()
    Path("forged.jsonl").write_text("\n".join([*lines[:4], lines[4]]).replace('"payload":4', '"payload":40') + "\n")
    assert [line["rule"] for line in cli("verify", "forged.jsonl", code=3).lines] == [None, None, None, "key", "parents"]


@pytest.mark.slow
def test_exports_under_load_are_whole_wherever_they_are_imported(cli: Run, folder: Path) -> None:
    trunk = [make(0, topic=TOPIC)]
    for number in range(1, TRUNK):
        trunk.append(make(number, [trunk[-1]], topic=TOPIC))
    arriving: list[list[bytes]] = []
    for number in range(BRANCHES):
        # Across the places where a page ends and the next one begins.
        branch = [make(number, [trunk[240 + 50 * number]], topic=TOPIC)]
        while len(branch) < LENGTH:
            branch.append(make(number, [branch[-1]], topic=TOPIC))
        arriving.append([entry.value for entry in branch])
    caught = 0

    async def prepare() -> None:
        async with gossiplog.open("base.db", topic=TOPIC) as log:
            await log.insert_many([entry.value for entry in trunk])

    async def export_while_branches_arrive() -> int:
        exporting = trio.Event()

        async def export() -> None:
            exporting.set()
            await trio.to_thread.run_sync(lambda: cli("export", "busy.db", "-o", "busy.car"))

        async with opened("busy.db", topic=TOPIC) as log, trio.open_nursery() as nursery:
            nursery.start_soon(export)
            await exporting.wait()
            for values in arriving:
                await log.insert_many(values)
        with ArchiveSource.open("busy.car") as source:
            values = [record.value for record in source.records() if record.value is not None]
        async with opened(":memory:", topic=TOPIC) as elsewhere:
            verdicts = await elsewhere.insert_many(values)
            assert all(verdict.accepted for verdict in verdicts), [verdict for verdict in verdicts if not verdict.accepted][:3]
        return len(values)

    trio.run(prepare)
    for _ in range(ROUNDS):
        shutil.copy("base.db", "busy.db")
        count = trio.run(export_while_branches_arrive)
        assert (count - TRUNK) % LENGTH == 0
        caught += TRUNK < count < TRUNK + BRANCHES * LENGTH
        for file in Path().glob("busy.*"):
            file.unlink()
    # Otherwise nothing arrived while it was being written, and the test has shown nothing.
    assert caught > ROUNDS // 10
