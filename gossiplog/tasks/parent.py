"""Processes of multiprocessing that end with their parent."""

from __future__ import annotations

import multiprocessing
import signal
import threading


def end_with_parent() -> None:
    """Have this process end as soon as its parent has, however that ended; a pool's would finish its task, or wait for another for ever."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
