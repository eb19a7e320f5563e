"""An interpreter, warm: a process that has imported a program forks a child for each call of it, which spares the call the imports and
nothing else."""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys
arguments = {first!r} + sys.argv[1:]
if arguments[:1] != ["-m"]:
    os.execv({python!r}, [{python!r}, *arguments])
signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# What comes before it is known whom it is for has to wait.
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with socket.socket(socket.AF_UNIX) as call:
    call.connect({place!r})
    request = json.dumps([os.getcwd(), arguments[1:], dict(os.environ)]).encode("utf-8", "surrogateescape")
    socket.send_fds(call, [len(request).to_bytes(4, "big")], [0, 1, 2])
    call.sendall(request)
    child = int.from_bytes(call.recv(4, socket.MSG_WAITALL), "big")
    def pass_on(number, frame):
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass  # It has just ended.
    for each in signals:
        signal.signal(each, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    sys.exit(next(iter(call.recv(1)), 1))
"""


@contextmanager
def warm_python(program: Path, modules: Sequence[str], *, first: Sequence[str] = ()) -> Iterator[None]:
    """Make a program that is Python, with these modules imported already where it is called with `-m`.

    What a call is told: its arguments, its environment, the folder that it is called in, the three files of its caller, and SIGINT, SIGTERM
    and SIGHUP. What is killed leaves it running until the end of the block.

    Args:
        program: Where to put it; a socket lies beside it.
        modules: What to import.
        first: Arguments before those that the program is given.
    """
    place = program.with_name(f"{program.name}.warm")
    program.write_text(CLIENT.format(python=sys.executable, place=str(place), first=list(first)))
    program.chmod(0o755)
    # Whoever forks must be alone, and numpy starts a thread for each core.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), str(place), *modules]
    # In a session of its own, so that whatever it has forked ends with it. It waits for the end of its stdin, which comes with ours however
    # this process ends.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def warm_command(folder: Path) -> Iterator[Path]:
    """Put a program `gossiplog` into a folder, which calls a process that has imported it already; yield the folder."""
    from gossiplog.cli.app import COMMANDS

    names = {each.partition(":")[0] for each in COMMANDS.values() if not each.startswith("spark.")}
    modules = [*sorted(f"gossiplog.cli.{name}" for name in names), "gossiplog.gossip_log", "gossiplog.store.sqlite.store"]
    modules += ["gossiplog.net.hub.server", "gossiplog.net.libp2p", "gossiplog.web"]
    with warm_python(folder / "gossiplog", modules, first=["-m", "gossiplog"]):
        yield folder


def serve(place: str, modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    # A collection of garbage would touch, and so copy, every page of what the children inherit.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                os.killpg(0, signal.SIGKILL)
            call, _ = listener.accept()
            with call:
                if os.fork() == 0:
                    listener.close()
                    answer(call)


def answer(call: socket.socket) -> None:
    """Run in a child the module that a call asks for, with its files, and tell it the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(call, 4, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww"))
    request = call.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    call.sendall(os.getpid().to_bytes(4, "big"))
    folder, (module, *arguments), environment = json.loads(request.decode("utf-8", "surrogateescape"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:1] = [folder, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = [module, *arguments]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        call.send(bytes([code & 255]))
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
