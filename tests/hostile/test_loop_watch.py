"""The watch over event loops itself: it must see what holds a loop, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import loop_watch
import trio
from loop_watch import STEP_CPU_S, read_report, watching_loop


def work(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


async def test_step_that_works_too_long_is_found_with_what_it_did() -> None:
    with watching_loop() as held:
        await trio.lowlevel.checkpoint()
        work(2 * STEP_CPU_S)
        await trio.lowlevel.checkpoint()
    (step,) = held
    assert step["cpu_ms"] >= 2000 * STEP_CPU_S
    assert any(frame.endswith(" work") for frame in step["stack"])


async def test_steps_that_wait_or_share_out_their_work_are_let_be() -> None:
    with watching_loop() as held:
        await trio.lowlevel.checkpoint()
        time.sleep(2 * STEP_CPU_S)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
            work(STEP_CPU_S / 5)
        await trio.lowlevel.checkpoint()
    assert held == []


def test_step_of_another_process_is_reported(tmp_path: Path) -> None:
    (tmp_path / "slowly.py").write_text(
        "import time, trio\n"
        "async def main():\n"
        "    await trio.lowlevel.checkpoint()\n"
        "    began = time.thread_time()\n"
        f"    while time.thread_time() - began < {2 * STEP_CPU_S}: pass\n"
        "trio.run(main)\n"
    )
    report = tmp_path / "held.jsonl"
    command = [sys.executable, loop_watch.__file__, str(report), "slowly"]
    subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, check=True, timeout=60)
    (step,) = read_report(report)
    assert step["task"].endswith(".main")
