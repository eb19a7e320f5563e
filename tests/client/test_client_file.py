"""The client as one module at `/client.js`, and as a package of npm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from build_client import BUILT, build, head, install_tools
from client_support import node
from network_support import fetch, memory_log
from page_support import served

CLIENT = Path(__file__).parents[2] / "gossiplog" / "web" / "client"
BYTES_MAX = 60_000
TRY = """
const { open, signerFromSeed } = await import(process.argv[1])
const log = await open("t.example", { storage: "memory", signer: await signerFromSeed(new Uint8Array(32)) })
const { id } = await log.append({ text: "hello" })
console.log(id, (await log.get(id)).payload.text)
"""


def run(module: str, folder: Path) -> str:
    command = [node(), "--no-warnings", "--input-type=module", "-e", TRY, module]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_one_module_does_what_its_modules_do(tmp_path: Path) -> None:
    (tmp_path / "client.mjs").write_text(BUILT.read_text())
    made = run(str(tmp_path / "client.mjs"), tmp_path)
    assert made == run(str(CLIENT / "client.js"), tmp_path)
    assert made.endswith(" hello")


def test_the_one_module_is_small_and_built_of_the_modules_as_they_are() -> None:
    assert len(BUILT.read_text().encode()) <= BYTES_MAX
    assert BUILT.read_text().partition("\n")[0] == head(), "run tests/support/build_client.py"


@pytest.mark.slow
def test_whoever_builds_it_again_gets_the_same() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    install_tools()
    assert BUILT.read_text() == build()


async def test_a_server_serves_it_to_any_page() -> None:
    async with memory_log(1) as log, served(log) as hub:
        answer = await fetch(hub, "/client.js")
        assert (answer.status, answer.body.decode()) == (200, BUILT.read_text())
        assert answer.headers["content-type"].startswith("text/javascript")
        assert answer.headers["access-control-allow-origin"] == "*"
        again = await fetch(hub, "/client.js", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


@pytest.mark.slow
def test_the_package_of_npm_can_be_installed(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    packed = subprocess.run(["npm", "pack", str(CLIENT)], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()[-1]
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    subprocess.run(["npm", "install", "--offline", f"./{packed}"], cwd=tmp_path, capture_output=True, check=True)
    assert run("gossiplog-client", tmp_path).endswith(" hello")
