"""Two ways to run the command: in this process, which is fast, and in one of its own, which is the truth about pipes and signals."""

import os
import subprocess
from pathlib import Path

import pytest
from cli_support import COLD, REPOSITORY, SEEDS, TOPIC, WARM, Ran, Run
from click.testing import CliRunner

from gossiplog.cli.app import root
from gossiplog.entry import Ed25519Signer


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, with a keyring that holds one key, alice's."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    for name in ("GOSSIPLOG_KEY_FILE", "NO_COLOR", "GOSSIPLOG_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    Ed25519Signer.from_seed(SEEDS["alice"]).save(keys / "alice.pem")
    return place


@pytest.fixture
def cli(folder: Path) -> Run:
    """Run the command in this process; fails the test unless it leaves with `code`."""

    def run(*args: str, input: str | bytes | None = None, code: int = 0) -> Ran:
        result = CliRunner().invoke(root, args, input=input, prog_name="gossiplog")
        assert result.exit_code == code, f"{args}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
        assert "Traceback" not in result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def environment(folder: Path, warm_gossiplog: None) -> dict[str, str]:
    """What a process of its own needs to find the program, the package and the keyring."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100"}


@pytest.fixture
def shell(environment: dict[str, str]) -> Run:
    """Run the command in a process of its own; it is warm, but where the encoding of its standard files is what is tried."""

    def run(*args: str, input: str = "", code: int = 0, **extra: str) -> Ran:
        command = [*(COLD if "PYTHONIOENCODING" in extra else WARM), *args]
        result = subprocess.run(command, input=input, capture_output=True, text=True, env={**environment, **extra}, timeout=60, check=False)
        assert result.returncode == code, f"{args}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        return Ran(result.returncode, result.stdout, result.stderr)

    return run


@pytest.fixture
def app(cli: Run) -> str:
    """A log of five entries in a row, each one's payload its number from 1."""
    cli("init", "app.db", "--topic", TOPIC)
    cli("append", "app.db", "--lines", input="".join(f"{number}\n" for number in range(1, 6)))
    return "app.db"


@pytest.fixture
def forked(cli: Run, app: str, tmp_path: Path) -> str:
    """A second log, which shares two entries with the first and has two of its own by bob."""
    cli("key", "import", "bob", input=SEEDS["bob"].hex())
    ids = [line["id"] for line in cli("log", app, "--json").lines]
    cli("export", app, "-o", "shared.jsonl", "--range", f"..{ids[1]}")
    cli("init", "other.db", "--topic", TOPIC)
    cli("import", "other.db", "shared.jsonl")
    cli("append", "other.db", "--lines", "--key", "bob", input='"b1"\n"b2"\n')
    (tmp_path / "keys" / "bob.pem").unlink()
    return "other.db"
