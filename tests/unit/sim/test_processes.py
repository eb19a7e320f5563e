"""Processes that simulations are spread over."""

import contextlib
import os
import signal
import subprocess
import sys


def test_processes_end_with_their_parent_in_the_middle_of_a_task() -> None:
    task = "import os, time; print(os.getpid(), flush=True); time.sleep(90)"
    program = f"from gossiplog.sim.processes import spread_out\nif __name__ == '__main__': list(spread_out(exec, [{task!r}] * 2, 2))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        try:
            process.terminate()
            # Its end is that of the last process that writes to it.
            assert process.communicate(timeout=30) == (b"", None)
        finally:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
