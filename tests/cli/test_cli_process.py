"""What only a process of its own shows: exit codes, pipes, signals, terminals, start-up time."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from cli_support import COLD, SEEDS, TOPIC, WARM, Run

import gossiplog
from gossiplog.entry import Ed25519Signer


@contextmanager
def started(environment: dict[str, str], *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the command with pipes at its three ends; it is gone afterwards."""
    process = subprocess.Popen(
        [*COLD, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def on_terminal(environment: dict[str, str], *args: str, typed: bytes = b"", interrupt_after: bytes = b"") -> tuple[int, str]:
    """Run the command with a terminal at its three ends, type something, and press Ctrl-C once a text was shown."""
    environment = {**environment, "TERM": "xterm-256color"}
    command = [*(COLD if interrupt_after else WARM), *args]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    shown = b""
    deadline = time.monotonic() + 60
    os.write(terminal, typed)
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
            if interrupt_after and interrupt_after in shown:
                os.write(terminal, b"\x03")
                interrupt_after = b""
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_module_and_command_are_the_same(environment: dict[str, str], shell: Run) -> None:
    def cold(*args: str) -> str:
        return subprocess.run([*COLD, *args], capture_output=True, text=True, env=environment, check=True).stdout

    assert re.fullmatch(r"gossiplog \d+\.\d+\.\d+\S*\n", cold("--version"))
    shown = cold("--help")
    assert shown.startswith("Usage: gossiplog [OPTIONS]")
    assert shell("--help").out == shown


def test_help_takes_less_than_half_a_second_of_cpu(environment: dict[str, str]) -> None:
    code = (
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'gossiplog', '--help'], stdout=subprocess.DEVNULL, check=True)\n"
        "print(os.times().children_user + os.times().children_system)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True).stdout
    assert float(out) < 0.5


def test_help_imports_no_heavy_library(environment: dict[str, str]) -> None:
    code = (
        "import sys\nfrom gossiplog.cli.app import COMMANDS, root\nimport click\n"
        "[root.get_command(click.Context(root), name) for name in COMMANDS]\n"
        "print([name for name in ('trio', 'rich', 'aiosqlite', 'cryptography', 'multiprocessing', 'numpy') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True).stdout
    assert out == "[]\n"


def test_log_without_a_network_imports_no_pubsub(environment: dict[str, str]) -> None:
    code = "import sys, gossiplog.replica.log\nprint([name for name in sys.modules if name.startswith('gossiplog.pubsub')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True).stdout
    assert out == "[]\n"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["stat", "app.db"], 0),
        (["stat", "missing.db"], 1),
        (["stat"], 2),
        (["nonsense"], 2),
        (["stat", "app.db", "--nonsense"], 2),
        (["verify", "--values", "bad.hex"], 3),
        ([], 2),
    ],
)
def test_exit_codes(cli: Run, app: str, args: list[str], code: int) -> None:
    Path("bad.hex").write_text("00\n")
    assert "Traceback" not in cli(*args, code=code).err


def test_errors_under_json_are_one_object_on_stderr(cli: Run, app: str) -> None:
    for args in (["stat", "missing.db", "--json"], ["stat", "--json", "--nonsense"], ["show", app, "0", "--json"]):
        ran = cli(*args, code=2 if "--nonsense" in args else 1)
        assert ran.out == ""
        assert set(ran.error) == {"kind", "message", "hint"}


def test_errors_are_at_most_two_lines(cli: Run, app: str) -> None:
    for args in (
        ["stat", "missing.db"],
        ["show", app, "0"],
        ["append", app, "{"],
        ["key", "show", "nobody"],
        ["import", app, "nothing.car"],
    ):
        assert len(cli(*args, code=1).err.splitlines()) <= 2


def test_unknown_command_suggests_the_one_that_was_meant(cli: Run) -> None:
    assert "'append'" in cli("apend", code=2).err


def test_json_in_a_pipe_and_a_table_on_a_terminal(shell: Run, environment: dict[str, str], app: str) -> None:
    assert len(shell("log", app).lines) == 5
    code, shown = on_terminal(environment, "log", app)
    assert code == 0
    assert "\x1b[" in shown
    assert "payload" in shown
    assert shown.count("\n") == 6
    code, shown = on_terminal(environment, "log", app, "--json")
    assert [json.loads(line)["message"]["payload"] for line in shown.splitlines()] == [1, 2, 3, 4, 5]


def test_no_color_leaves_the_terminal_plain(environment: dict[str, str], app: str) -> None:
    for args in (["log", app], ["graph", app], ["stat", "missing.db"], ["verify", app]):
        _, shown = on_terminal({**environment, "NO_COLOR": "1"}, *args)
        assert "\x1b" not in shown, args


def test_ascii_terminal_gets_ascii(cli: Run, shell: Run, app: str) -> None:
    cli("append", app, '"héllo"')
    ran = shell("graph", app, PYTHONIOENCODING="ascii")
    assert ran.out.isascii()
    assert shell("log", app, PYTHONIOENCODING="ascii").lines[-1]["message"]["payload"] == "héllo"


@pytest.fixture(scope="module")
def long_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 2,000 entries, of which each test gets a copy."""
    path = tmp_path_factory.mktemp("long") / "long.db"

    async def make() -> None:
        async with gossiplog.open(path, topic=TOPIC, signer=Ed25519Signer.from_seed(SEEDS["alice"]), durability="off") as log:
            await log.append_many([f"{n} {'x' * 200}" for n in range(2000)])

    trio.run(make)
    return path


@pytest.fixture
def long_log(folder: Path, long_original: Path) -> str:
    return Path(shutil.copy(long_original, folder)).name


@pytest.mark.parametrize(
    "command", [["log"], ["verify", "--jobs", "2"], ["verify", "--jobs", "1"], ["graph", "--limit", "2000"], ["export", "-o", "-"]]
)
def test_closed_pipe_ends_quietly(environment: dict[str, str], long_log: str, command: list[str]) -> None:
    name, *options = command
    with started(environment, name, long_log, *options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_closed_pipe_before_the_first_byte_ends_quietly(environment: dict[str, str], app: str) -> None:
    with started(environment, "stat", app) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


@pytest.mark.parametrize(("closed", "code"), [("<&-", 0), ("2>&-", 0), (">&-", 1), ("<&- >&- 2>&-", 1)])
def test_log_survives_standard_streams_that_were_closed(environment: dict[str, str], shell: Run, app: str, closed: str, code: int) -> None:
    script = f'exec "$@" {closed}'
    ran = subprocess.run(["sh", "-c", script, "sh", *COLD, "append", app, '"told"'], env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout == b"") == (code, ">" in closed.split("2>")[0])
    assert ran.stderr == (b"error: Bad file descriptor\n" if closed == ">&-" else b"")
    assert shell("verify", app).code == 0


def test_follow_shows_what_another_process_appends(environment: dict[str, str], cli: Run, app: str) -> None:
    with started(environment, "log", app, "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for number in range(1, 6):
            assert json.loads(process.stdout.readline())["message"]["payload"] == number
        cli("append", app, '"news"')
        assert json.loads(process.stdout.readline())["message"]["payload"] == "news"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


def test_slow_producer_sees_each_line_committed_at_once(environment: dict[str, str], cli: Run, app: str) -> None:
    with started(environment, "append", app, "--lines") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b'"slow %d"\n' % number)
            process.stdin.flush()
            id = json.loads(process.stdout.readline())["id"]
            assert cli("show", app, id, "--json").record["message"]["payload"] == f"slow {number}"
        process.stdin.close()
        assert process.wait(30) == 0


def test_interrupt_keeps_what_was_acknowledged(environment: dict[str, str], cli: Run, app: str) -> None:
    with started(environment, "append", app, "--lines", "--batch", "10", "-q") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"".join(b"%d\n" % number for number in range(5000)))
        process.stdin.flush()
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        acknowledged = [first, *process.stdout.read().splitlines()]
        errors = process.stderr.read().decode()
        assert process.wait(30) == 130
    assert errors == "error: interrupted; everything acknowledged is kept\n"
    ids = cli("log", app, "-q").out.split()
    assert {line.strip().decode() for line in acknowledged} <= set(ids)
    assert all(line["accepted"] for line in cli("verify", app).lines)
    cli("fsck", app)
    cli("append", app, '"goes on"')


def test_interrupt_while_waiting_for_input_ends_at_once(environment: dict[str, str], app: str) -> None:
    code, shown = on_terminal(environment, "append", app, "--lines", "--json", typed=b'"typed"\n', interrupt_after=b'"clock":6}')
    assert code == 130
    assert json.loads(shown.splitlines()[-1])["error"]["kind"] == "interrupted"


@pytest.mark.parametrize(
    ("command", "begin"), [("append app.db -", b'"'), ("import app.db -", b"{"), ("verify -", b"{"), ("verify --values -", b"0")]
)
def test_interrupt_while_waiting_for_the_rest_of_the_input_ends_at_once(
    environment: dict[str, str], app: str, command: str, begin: bytes
) -> None:
    with started(environment, *command.split()) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than a pipe holds: it is written once reading has begun.
        process.stdin.write(begin.ljust(2**18, b"0"))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b"error: interrupted; everything acknowledged is kept\n"
        process.stdin.close()


def test_end_of_input_on_a_terminal_is_the_end(environment: dict[str, str], app: str) -> None:
    code, shown = on_terminal(environment, "verify", "--values", "-", typed=b"\x04")
    assert (code, shown.split("\r\n")[-2:]) == (0, ["0 entries, all valid", ""])


def test_interrupt_of_parallel_verification_leaves_no_noise(environment: dict[str, str], long_log: str) -> None:
    with started(environment, "verify", long_log, "--jobs", "2") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        # A terminal sends Ctrl-C to the whole group, the helping processes included.
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 130
        assert process.stderr.read() == b"error: interrupted; everything acknowledged is kept\n"


def test_progress_is_shown_on_a_terminal_and_nowhere_else(environment: dict[str, str], cli: Run, shell: Run, long_log: str) -> None:
    assert shell("verify", long_log).err == "2,000 entries, all valid\n"
    cli("export", long_log, "-o", "long.jsonl")
    cli("init", "copy.db", "--topic", TOPIC)
    assert shell("import", "copy.db", "long.jsonl").err == ""
    code = (
        "import gossiplog.cli.progress as progress, sys\nprogress._DELAY_S, progress._EVERY = 0.0, 1\n"
        "from gossiplog.cli import main\nsys.argv[1:] = ['verify', 'long.db', '--jobs', '1', '--table']\nmain()"
    )
    environment = {**environment, "TERM": "xterm-256color"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(sys.executable, [sys.executable, "-c", code], environment)
    shown = b""
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"verifying" in shown
    assert re.search(rb"\d/s", shown)
    assert b"2,000 entries, all valid" in shown


def test_hint_is_printed_once_beside_a_traceback(shell: Run) -> None:
    ran = shell("key", "show", "nobody", code=1, GOSSIPLOG_DEBUG="1")
    assert "Traceback" in ran.err
    assert ran.err.count("hint: ") == 1


def test_completion_offers_commands_options_and_keys(shell: Run) -> None:
    def complete(line: str) -> list[str]:
        words = {"_GOSSIPLOG_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return [each.split(",")[1] for each in shell(**words).out.split()]

    assert "append" in complete("gossiplog ap")
    assert "--durability" in complete("gossiplog append app.db --du")
    assert complete("gossiplog append app.db 1 --key al") == ["alice"]


def test_private_key_appears_nowhere_but_in_its_file(shell: Run, tmp_path: Path) -> None:
    seed = "07" * 32
    ran = shell("key", "import", "secret", input=seed, GOSSIPLOG_DEBUG="1")
    shown = [ran.out + ran.err, shell("key", "list").out, shell("key", "show", "secret").out]
    shown.append(shell("key", "import", "secret", input=seed, code=1, GOSSIPLOG_DEBUG="1").err)
    pem = (tmp_path / "keys" / "secret.pem").read_text().splitlines()[1]
    assert not [text for text in shown if seed in text or pem in text]


def test_single_key_file_is_used(shell: Run, app: str, tmp_path: Path) -> None:
    file = str(tmp_path / "service.pem")
    did = shell("key", "new", "service", GOSSIPLOG_KEY_FILE=file).record["did"]
    id = shell("append", app, "1", GOSSIPLOG_KEY_FILE=file).record["id"]
    assert shell("show", app, id).record["signature"]["publicKey"] == did


def test_demo_does_what_it_says(cli: Run) -> None:
    record = cli("demo", "--json").record
    assert record["equal"] is True
    assert record["forgeryFound"] is True
    out = cli("demo", "--dir", "d").out
    assert "├─╮" in out
    assert "FAILED" in out
    assert Path("d/alice.db").exists()
    cli("demo", "--dir", "d", code=2)
    assert cli("demo").out == out.rpartition("\n\nkept in")[0] + "\n"


def test_bench_measures_every_step(cli: Run) -> None:
    ran = cli("bench", "--entries", "200", "--durability", "off")
    assert [line["what"].split(",")[0] for line in ran.lines] == [
        "append",
        "append",
        "append",
        "ingest",
        "sync into an empty log",
        "read in causal order",
        "read and decode",
    ]
    assert all(line["durability"] == "off" and line["cpuSeconds"] >= 0 for line in ran.lines)
    assert "durability off" in ran.err


def test_internal_errors_are_reported_without_a_traceback(environment: dict[str, str]) -> None:
    code = (
        "import gossiplog.cli.log.lifecycle as lifecycle, sys\nlifecycle.is_in_bucket = lambda log: 1 / 0\n"
        "sys.argv[1:] = ['stat', 'x']\nfrom gossiplog.cli import main\nmain()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr
    assert "Traceback" not in ran.stderr
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**environment, "GOSSIPLOG_DEBUG": "1"}, check=False
    )
    assert "Traceback" in ran.stderr


def test_parallel_verification_that_is_terminated_leaves_no_process(environment: dict[str, str], long_log: str) -> None:
    with started(environment, "verify", long_log, "--jobs", "2") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        # The helping processes write to it, too.
        process.communicate(timeout=30)


def test_publishing_at_intervals_outlives_a_failure_and_ends_with_0_at_ctrl_c(environment: dict[str, str], app: str, folder: Path) -> None:
    share = folder / "share"
    with started(environment, "publish", app, "share", "--every", "0.1", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["added"] == 5
        shutil.move(share, folder / "away")
        share.write_text("a file")
        assert b"bucket away" in process.stderr.readline()
        share.unlink()
        assert json.loads(process.stdout.readline())["size"] == 5
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
