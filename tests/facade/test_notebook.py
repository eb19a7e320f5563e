"""A log in the cells of a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from facade_support import DEADLINE_S, PRELUDE, open_blocking

pytestmark = pytest.mark.slow


class Kernel:
    """A kernel of Jupyter's, which is given one cell after the other."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self._client = manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=DEADLINE_S)

    def run(self, cell: str, *, interrupt_at: str | None = None) -> str:
        """Run a cell, and return what it prints, and the error that it ends with."""
        printed = ""

        def hear(message: dict[str, Any]) -> None:
            nonlocal printed
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
                if interrupt_at is not None and interrupt_at in message["content"]["text"]:
                    self.manager.interrupt_kernel()

        reply = self._client.execute_interactive(cell, timeout=DEADLINE_S, output_hook=hear)["content"]
        return printed + "".join(reply.get("traceback", []))

    def close(self) -> None:
        self._client.stop_channels()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    from jupyter_client.manager import KernelManager

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path), extra_arguments=["--colors=NoColor"])
    try:
        kernel = Kernel(manager)
        yield kernel
        kernel.close()
    finally:
        manager.shutdown_kernel(now=True)


def test_cells_use_either_door(kernel: Kernel, tmp_path: Path) -> None:
    assert kernel.run(PRELUDE) == ""
    assert kernel.run('opened = blocking.open("a.db", **OPTIONS)\nlog = opened.start()\nlog.append(1)\nprint(log.count())') == "1\n"
    assert kernel.run("print([entry.message.payload for entry in log.iterate()])") == "[1]\n"
    assert (
        kernel.run('async with aio.open("b.db", **OPTIONS) as other:\n    await other.append(1)\n    print(await other.count())') == "1\n"
    )
    assert "gossiplog.aio.open is for asyncio" in kernel.run('async with gossiplog.open("c.db") as log: pass')
    assert "hint: give 1 to 32 of the characters" in kernel.run('log.resolve("zz")')

    stopped = kernel.run(
        'events = log.subscribe(from_now=True).start()\nprint("waiting", flush=True)\nnext(events)', interrupt_at="waiting"
    )
    assert "KeyboardInterrupt" in stopped
    assert kernel.run("log.append(2)\nprint(next(events).message.payload)") == "2\n"

    # The log is still open.
    kernel.manager.shutdown_kernel()
    with open_blocking(tmp_path / "a.db") as log:
        assert log.count() == 2
