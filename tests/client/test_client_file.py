"""The client as one module at `/client.js`, and as a package of npm."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from client_support import node
from network_support import fetch, memory_log
from page_support import served

from gossiplog.web.client_file import ENTRY, client_module, client_sources
from gossiplog.web.shortening import shortened

CLIENT = Path(__file__).parents[2] / "gossiplog" / "web" / "client"
BYTES_MAX = 64_000
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
    (tmp_path / "client.mjs").write_text(client_module())
    made = run(str(tmp_path / "client.mjs"), tmp_path)
    assert made == run(str(CLIENT / ENTRY), tmp_path)
    assert made.endswith(" hello")


TRICKY = r"""
// a comment: don't
const numbers = [1, 2, 3], divided = numbers.length / 2 / 3, text = "// not /* one */"
const label = `${numbers.map((value) => `<${value}>`).join("")} ${{ value: divided }.value} \\`
let total = 0
class Tally extends Map {
	#count = 0
	static made = numbers.length
	size2 = divided
	get value() { return this.#count }
	add(value, { by = 1, ...others } = {}) {
		this.#count += by /* each */ + +others.more - -1
		return value ? this.#count : { value, by, total: by }
	}
	async *each(value) {
		yield* value
	}
}
const tally = new Tally()
for (const value of numbers) {
	if (value > 2) { total = value } else tally.add(value, { by: value, more: "4" })
	switch (value) {
		case total: {
			swap([1, 2])
			const value = /[/"']+\/g/.test(text)
			total += value ? 1 : 10
		}
	}
}
function swap([left, right], key = "left") {
	const { [key]: found = left, right: other = right } = { left, right }
	return { found, other, async left(value) { return value } }
}
const swapped = swap([1, 2])
let each = []
for await (const value of tally.each([7, 8])) each.push(value)
const result = JSON.stringify({ label, total, size: tally.size2, made: Tally.made, value: tally.value, swapped, each, none: tally.add(0) })
"""


def test_shorter_text_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "whole.mjs").write_text(TRICKY + "export { result }")
    (tmp_path / "short.mjs").write_text(short := shortened(TRICKY, ["result"]))
    printed = [
        subprocess.run(
            [node(), "-e", f"import('./{name}.mjs').then(({{ result }}) => console.log(result))"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in ("whole", "short")
    ]
    assert printed[0] == printed[1] and '"none":{"value":0,"by":1' in printed[0]
    assert len(short) < 0.7 * len(TRICKY)


def test_the_one_module_is_small_and_has_every_module_once() -> None:
    assert set(client_sources()) == {path.name for path in CLIENT.glob("*.js")}
    assert len(client_module().encode()) <= BYTES_MAX
    declared = re.compile(r"^(?:export )?(?:async )?(?:const|let|function\*?|class) (\w+)", re.MULTILINE)
    names = Counter(name for source in client_sources().values() for name in declared.findall(source))
    assert [name for name, count in names.items() if count > 1] == []


async def test_a_server_serves_it_to_any_page() -> None:
    async with memory_log(1) as log, served(log) as hub:
        answer = await fetch(hub, "/client.js")
        assert (answer.status, answer.body.decode()) == (200, client_module())
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
