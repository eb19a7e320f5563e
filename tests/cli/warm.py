"""The command, warm: a process that has imported it forks a child for each call, which spares the call the imports and nothing else."""

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CLIENT = """\
#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as call:
    call.connect({place!r})
    socket.send_fds(call, ["\\0".join([os.getcwd(), *sys.argv[1:]]).encode()], [0, 1, 2])
    sys.exit(call.recv(1)[0])
"""


@contextmanager
def warm_command(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Put a program `gossiplog` into a folder, which calls a process that has imported it already; yield the folder.

    What it is told: its arguments, the folder that it is called in, and the three files of its caller. The environment is the one given.
    """
    place = folder / "warm"
    program = folder / "gossiplog"
    program.write_text(CLIENT.format(python=sys.executable, place=str(place)))
    program.chmod(0o755)
    command = [sys.executable, str(Path(__file__)), str(place)]
    with subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield folder
        finally:
            process.kill()


def serve(place: str) -> None:
    from gossiplog.cli.app import COMMANDS

    for module in {each.partition(":")[0] for each in COMMANDS.values() if not each.startswith("spark.")}:
        importlib.import_module(f"gossiplog.cli.{module}")
    importlib.import_module("gossiplog.gossip_log")
    importlib.import_module("gossiplog.store.sqlite.store")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            call, _ = listener.accept()
            with call:
                if os.fork() == 0:
                    listener.close()
                    answer(call)


def answer(call: socket.socket) -> None:
    """Do in a child what a call asks for, with its files, and tell it the exit code."""
    from gossiplog.cli.app import root

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(call, 1 << 20, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww"))
    folder, *arguments = request.decode().split("\0")
    os.chdir(folder)
    code = 1
    try:
        root.main(arguments, prog_name="gossiplog")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    finally:
        sys.stdout.flush()
        call.send(bytes([code]))
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
