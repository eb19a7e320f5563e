"""How Ctrl-C arrives in a command."""

import signal
import sys
import weakref
from collections.abc import Iterator

import pytest
import trio

from gossiplog.cli import main
from gossiplog.cli.session import run

DEADLINE_S = 60.0


class Thing:
    """What is made and gone again."""


@pytest.fixture(autouse=True)
def pythons_handler() -> Iterator[None]:
    """A Spark session of another test leaves a handler of its own, and trio keeps out of where there is one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(_: object = None) -> None:
    signal.raise_signal(signal.SIGINT)


def test_interrupt_while_something_is_finalized_is_not_lost() -> None:
    # trio keeps each asynchronous generator in a WeakSet, which Python has forget it wherever it happens to be gone.
    async def task() -> None:
        thing = Thing()
        forgotten = weakref.ref(thing, interrupt)
        del thing
        assert forgotten() is None
        with trio.fail_after(DEADLINE_S):
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run(task)


def test_interrupt_comes_between_no_two_steps() -> None:
    steps = []

    async def other() -> None:
        interrupt()
        steps.append("other")

    async def task() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other)
                with trio.fail_after(DEADLINE_S):
                    await trio.sleep_forever()
        finally:
            steps.append("end")

    with pytest.raises(BaseExceptionGroup) as raised:
        run(task)
    assert raised.group_contains(KeyboardInterrupt)
    assert steps == ["other", "end"]


def test_interrupt_while_the_command_line_is_imported_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """Whoever imports from here is interrupted."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "gossiplog.cli.app":
                interrupt()

    monkeypatch.setattr(sys, "meta_path", [Slow(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "gossiplog.cli.app", raising=False)
    with pytest.raises(SystemExit, match="130"):
        main()
