"""The examples of README and of the guide to the command line: found, run on a terminal, and compared with what is said."""

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli_support import REPOSITORY
from warm import warm_command

README = REPOSITORY / "README.md"
GUIDE = REPOSITORY / "docs" / "command-line.md"
COLUMNS = 110
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VOLATILE = (
    (re.compile(r"did:key:z6Mk\w+"), "DID"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "HASH"),
    (re.compile(r"[A-Za-z0-9+/]{86}"), "SIGNATURE"),
    (re.compile(r"\b[0-9a-v]{16,32}\b"), "ID"),
    # The end of a did, in a column of its own.
    (re.compile(r"(?<=  )[1-9A-HJ-NP-Za-km-z]{8}(?=  )"), "AUTHOR"),
    (re.compile(r"\b[\d,]+ bytes|\bbytes +[\d,]+.*"), "BYTES"),
    (re.compile(r'"bytes":\d+'), "BYTES"),
    # Of a root: each entry is a boundary of the tree with probability 1/32, by its hash.
    (re.compile(r'\blevel \d+|"level":\d+'), "LEVEL"),
    (re.compile(r"  +"), " "),
)


@dataclass
class Example:
    """A command and what README says it prints.

    Attributes:
        command: For the shell.
        expected: Lines; one that is an ellipsis stands for any number of lines.
    """

    command: str
    expected: list[str] = field(default_factory=list)


def examples(text: str) -> list[Example]:
    """The commands of all `console` blocks, in order; those that install or test the project are left out."""
    found: list[Example] = []
    for block in _BLOCK.findall(text):
        current: Example | None = None
        for line in block.splitlines():
            if line.startswith("$ "):
                current = Example(re.sub(r"^pip install [^&]*&& ", "", line[2:]))
                if not re.match(r"(pip|pytest|git|\.ci/run)\b", current.command):
                    found.append(current)
            elif current is not None and line.startswith("> ") and not current.expected:
                current.command += "\n" + line[2:]
            elif current is not None:
                current.expected.append(line)
    return found


def terminal_of(folder: Path, programs: Path) -> Callable[[str], list[str]]:
    """Run commands in bash with a terminal of 110 columns, as somebody who follows README would; each gives the lines it prints.

    Args:
        folder: Where they are run.
        programs: Where `gossiplog` is; see `warm_command`.
    """
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"}
    environment |= {"HOME": str(folder.parent), "TERM": "xterm", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    for name in ("COLUMNS", "XDG_CONFIG_HOME", "GOSSIPLOG_KEY_DIR", "GOSSIPLOG_KEY_FILE"):
        environment.pop(name, None)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    return lambda command: _run(command, folder, environment)


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> list[str]:
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-c", command], environment)
    shown = b""
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n").splitlines()


def stable(line: str) -> str:
    """A line without what differs from run to run: ids, keys, hashes, sizes, the height of a tree."""
    for pattern, name in _VOLATILE:
        line = pattern.sub(name, line)
    return line.rstrip()


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether the lines are the expected ones, up to what differs from run to run; an ellipsis matches any lines."""
    pattern = "".join("(?:.*\n)*?" if line.strip() == "…" else re.escape(stable(line)) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(stable(line) + "\n" for line in actual)) is not None


def updated(text: str, run: Callable[[str], list[str]]) -> str:
    """The guide with the output that its commands have now, but for those that have an ellipsis."""

    def rerun(block: re.Match[str]) -> str:
        out = ["```console"]
        for example in examples(block.group(0) + "\n"):
            first, *more = example.command.split("\n")
            actual = run(example.command)
            out += [f"$ {first}", *(f"> {line}" for line in more)]
            out += example.expected if "…" in example.expected else actual
        return "\n".join([*out, "```"])

    return _BLOCK.sub(rerun, text)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "work"
        place.mkdir()
        with warm_command(Path(name)) as programs:
            GUIDE.write_text(updated(GUIDE.read_text(), terminal_of(place, programs)))
