"""Witnesses: they sign what extends what they signed before and nothing else, whatever they are asked; and nobody waits for them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest
import trio
from log_support import SIGNERS, TOPIC

import gossiplog
from gossiplog.bucket import Cosigner, WitnessPlace
from gossiplog.entry import Ed25519Signer
from gossiplog.errors import BucketError, DecodeError, LocalProtocolError, LogBusy
from gossiplog.gossip_log import GossipLog
from gossiplog.net.hub.server import listen
from gossiplog.tlog.merkle import EMPTY_ROOT, consistency_ranges, leaf_hash, root_of
from gossiplog.tlog.note import (
    COSIGNATURE,
    Checkpoint,
    Note,
    NoteSignature,
    Origin,
    VerifierKey,
    parse_checkpoint,
    publisher_of,
    signed_checkpoint,
)
from gossiplog.tlog.proof import Proof, WitnessPolicy, check_proof
from gossiplog.tlog.witness import AddCheckpoint, WitnessRefusal
from gossiplog.web.witness_api import make_witness_http

OURS = publisher_of(SIGNERS[0])
NAME = "witness.example.com/w1"
SIGNER = Ed25519Signer.from_seed(b"w" * 32)
ORIGIN = Origin(TOPIC, OURS, 1)
LEAVES = [leaf_hash(bytes([n])) for n in range(200)]
FORK = [*LEAVES[:60], *(leaf_hash(b"other %d" % n) for n in range(200))]


def request(old: int, new: int, *, leaves: list[bytes] = LEAVES, origin: Origin = ORIGIN, proof: list[bytes] | None = None) -> bytes:
    note = signed_checkpoint(Checkpoint(origin, new, root_of(leaves[:new])), SIGNERS[0])
    if proof is None:
        proof = [root_of(leaves[start:end]) for start, end in consistency_ranges(old, new)] if 0 < old <= new else []
    return AddCheckpoint(old, proof, note.to_bytes()).to_bytes()


async def status(witness: Cosigner, data: bytes) -> int:
    """What HTTP would say, 200 where it signs what verifies."""
    try:
        line = await witness.add(data)
    except WitnessRefusal as refusal:
        return refusal.status
    note = Note.parse(AddCheckpoint.parse(data).checkpoint)
    signed = Note.parse(note.text.encode() + b"\n" + line.encode())
    assert signed.verify(witness.key)
    return 200


@pytest.fixture
def witness(tmp_path: Path) -> Cosigner:
    (tmp_path / "state").mkdir()
    return Cosigner(tmp_path / "state", NAME, SIGNER, publishers={OURS})


@asynccontextmanager
async def served(witness: Cosigner) -> AsyncIterator[str]:
    """A witness over HTTP; as it is named where it is asked."""
    async with listen([], "127.0.0.1:0", make_http=partial(make_witness_http, witness)) as hub:
        yield f"http://127.0.0.1:{hub.port}#{witness.key}"


async def test_it_signs_what_extends_what_it_signed_and_nothing_else(witness: Cosigner) -> None:
    assert await status(witness, request(0, 7)) == 200
    assert await status(witness, request(7, 7)) == 200, "the same again"
    assert await status(witness, request(7, 70)) == 200
    assert await status(witness, request(7, 71)) == 409, "of another size than it signed last"
    assert await status(witness, request(70, 69)) == 400, "smaller"
    assert await status(witness, request(0, 60)) == 409
    assert await status(witness, request(70, 70, leaves=FORK)) == 409, "another tree of the same size"
    assert await status(witness, request(70, 90, leaves=FORK)) == 422, "a fork, with its own proof"
    assert await status(witness, request(70, 90, proof=[])) == 422
    assert await status(witness, request(70, 90, leaves=LEAVES)) == 200
    assert witness.signed == 4


async def test_each_refusal_has_the_status_of_the_specification(witness: Cosigner) -> None:
    for data in (b"", b"old 1", b"old 01\n\n", b"old -1\n\n", b"old 0\nAAAA\n\n" + request(0, 1)[7:], b"new" + request(0, 1)[3:]):
        assert await status(witness, data) == 400, data[:20]
    assert await status(witness, request(0, 5, proof=[bytes(32)])) == 422, "there is nothing to prove at first"
    assert await status(witness, request(0, 5, proof=[bytes(32)] * 63)) == 422
    assert await status(witness, request(0, 5, proof=[bytes(32)] * 64)) == 400
    foreign = Origin(TOPIC, publisher_of(SIGNERS[1]), 1)
    note = signed_checkpoint(Checkpoint(foreign, 0, EMPTY_ROOT), SIGNERS[1])
    assert await status(witness, AddCheckpoint(0, [], note.to_bytes()).to_bytes()) == 404
    unsigned = Note(Checkpoint(ORIGIN, 0, EMPTY_ROOT).to_text(), (NoteSignature("nobody", b"1234", bytes(64)),))
    assert await status(witness, AddCheckpoint(0, [], unsigned.to_bytes()).to_bytes()) == 403
    forged = Note(unsigned.text, (NoteSignature(str(ORIGIN), ORIGIN.key.key_id, bytes(64)),))
    assert await status(witness, AddCheckpoint(0, [], forged.to_bytes()).to_bytes()) == 403
    empty = signed_checkpoint(Checkpoint(ORIGIN, 0, bytes(32)), SIGNERS[0])
    assert await status(witness, AddCheckpoint(0, [], empty.to_bytes()).to_bytes()) == 400, "no entries have one root"
    assert witness.signed == 0


async def test_nothing_damaged_is_signed(witness: Cosigner) -> None:
    assert await status(witness, request(0, 7)) == 200
    good, random = request(7, 70), Random(1)
    for _ in range(1_500):
        data = bytearray(good)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        assert await status(witness, bytes(data)) != 200, bytes(data)
    assert await status(witness, good) == 200


async def test_it_remembers_after_a_restart_and_one_process_has_its_state(witness: Cosigner, tmp_path: Path) -> None:
    with witness.locked():
        await witness.add(request(0, 70))
        draft = tmp_path / "state" / f".{'0' * 64}.note.00000000"
        draft.write_bytes(b"half of a note that the first one is writing")
        with pytest.raises(LogBusy, match="another process"), Cosigner(tmp_path / "state", NAME, SIGNER).locked():
            pass
        assert draft.exists()
    again = Cosigner(tmp_path / "state", NAME, SIGNER, publishers=None)
    with again.locked():
        assert await status(again, request(0, 80, leaves=FORK)) == 409
        assert await status(again, request(70, 80)) == 200


async def test_a_state_that_is_damaged_or_of_another_witness_signs_nothing(witness: Cosigner, tmp_path: Path) -> None:
    await witness.add(request(0, 70))
    (path,) = (tmp_path / "state").glob("*.note")
    good = path.read_bytes()
    for damaged in (b"", good[:-1], good.replace(b"\n70\n", b"\n07\n"), bytes(100_000)):
        path.write_bytes(damaged)
        with pytest.raises(BucketError, match="nothing is signed for this log"):
            await witness.add(request(70, 80))
    path.write_bytes(good)
    other = Cosigner(tmp_path / "state", "other.example.com", SIGNER, publishers=None)
    with pytest.raises(BucketError, match="of another witness"):
        await other.add(request(70, 80))
    assert await status(witness, request(70, 80)) == 200


async def test_a_clock_that_goes_back_denies_nothing(witness: Cosigner, monkeypatch: pytest.MonkeyPatch) -> None:
    def times(line: str) -> int:
        return int.from_bytes(Note.parse(b"x\n\n" + line.encode()).signatures[0].data[:8])

    monkeypatch.setattr("time.time", lambda: 2_000_000_000.9)
    assert times(await witness.add(request(0, 7))) == 2_000_000_000
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    assert times(await witness.add(request(7, 8))) == 2_000_000_000


async def test_of_requests_at_once_one_is_signed(witness: Cosigner) -> None:
    results: list[int] = []

    async def ask(data: bytes) -> None:
        results.append(await status(witness, data))

    await witness.add(request(0, 60))
    async with trio.open_nursery() as nursery:
        for size in range(61, 71):
            nursery.start_soon(ask, request(60, size))
            nursery.start_soon(ask, request(60, size, leaves=FORK))
    assert sorted(results) == [200] + 19 * [409]


async def test_a_published_log_is_cosigned_and_the_policy_is_met(log: GossipLog, bucket: Path, witness: Cosigner) -> None:
    second = Cosigner(bucket.with_name("second"), "w2", Ed25519Signer.from_seed(b"x" * 32), publishers=None)
    async with served(witness) as one, served(second) as two:
        first = await log.publish(bucket, witnesses=[one])
        assert first.cosigned is not None
        assert (first.cosigned.names, first.cosigned.refusals) == ([NAME], {})
        await log.append_many([{"more": n} for n in range(600)])
        assert (await log.publish(bucket, witnesses=[one])).cosigned is not None
        entry = await log.append("last")
        published = await log.publish(bucket, witnesses=[one, two])
        assert published.cosigned is not None
        assert sorted(published.cosigned.names) == ["w2", NAME]
        # They are added to, and not asked again.
        signed = witness.signed
        assert (await log.publish(bucket, witnesses=[one, two])).objects == 0
        assert witness.signed == signed == 3
    head = (bucket / OURS / "head").read_bytes()
    assert (bucket / OURS / "1" / "checkpoint").read_bytes() == head
    assert len(parse_checkpoint(head)[0].signatures) == 3
    proof = await log.prove(entry.id, bucket)
    policy = f"witness A {witness.key}\nwitness B {second.key}\ngroup both all A B\nquorum both\n"
    evidence = check_proof(Proof.parse(proof), WitnessPolicy.parse(policy.encode()))
    assert sorted(evidence.witnesses) == ["A", "B"]
    assert len(proof) - len(entry.value) * 4 // 3 < 1_500
    async with gossiplog.open(":memory:", topic=TOPIC) as reader:
        assert (await reader.sync(bucket)).taken.faults == []
        assert await reader.count() == await log.count()


async def test_a_witness_that_saw_more_names_a_log_that_was_put_back(bucket: Path, tmp_path: Path, witness: Cosigner) -> None:
    async with served(witness) as place:
        for location, count, at in (("a.db", 30, bucket), ("b.db", 20, tmp_path / "elsewhere")):
            async with gossiplog.open(tmp_path / location, topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
                await log.append_many([{location: n} for n in range(count)])
                cosigned = (await log.publish(at, witnesses=[place])).cosigned
                assert cosigned is not None
        assert cosigned.names == []
        assert "has signed 30 entries, and 20 are published here" in cosigned.refusals[NAME]


class Liar(BaseHTTPRequestHandler):
    """Whatever a witness must not do."""

    answers: list[tuple[int, str, bytes]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        code, kind, body = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@asynccontextmanager
async def lying(*answers: tuple[int, str, bytes]) -> AsyncIterator[str]:
    handler = type("One", (Liar,), {"answers": list(answers)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        await trio.to_thread.run_sync(server.shutdown)
        server.server_close()


SIZE = "text/x.tlog.size"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([(200, "text/plain", b"")], "without signatures"),
        ([(200, "text/plain", b"garbage")], "without signatures"),
        ([(200, "text/plain", "— nobody AAAAAAAAAAAA\n".encode())], "without a signature of its key"),
        ([(200, "text/plain", b"x" * 100_000)], "more than"),
        ([(302, "text/plain", b"")], "answered 302"),
        ([(500, "text/plain", b"no disk")], "answered 500: no disk"),
        ([(409, SIZE, b"699\n")], "another size each time"),
        ([(409, SIZE, b"701\n")], "has signed 701 entries, and 700 are published here"),
        ([(409, SIZE, b"-1\n")], "answered 409"),
        ([(409, "text/plain", b"1\n")], "answered 409"),
    ],
)
async def test_a_witness_that_lies_is_named_and_changes_nothing(
    log: GossipLog, bucket: Path, answers: list[tuple[int, str, bytes]], reason: str
) -> None:
    key = VerifierKey(NAME, COSIGNATURE, SIGNER.public_key)
    async with lying(*answers) as url:
        published = await log.publish(bucket, witnesses=[f"{url}#{key}"])
    assert published.cosigned is not None
    assert published.cosigned.names == []
    assert reason in published.cosigned.refusals[NAME]
    assert (bucket / OURS / "head").read_bytes() == published.checkpoint


async def test_the_signature_of_another_checkpoint_is_refused(log: GossipLog, bucket: Path, witness: Cosigner) -> None:
    other = await witness.add(request(0, 7))
    async with lying((200, "text/plain", other.encode())) as url:
        published = await log.publish(bucket, witnesses=[f"{url}#{witness.key}"])
    assert published.cosigned is not None
    assert "does not verify" in published.cosigned.refusals[NAME]


async def test_one_that_is_slow_or_down_keeps_no_other_from_signing(
    log: GossipLog, bucket: Path, witness: Cosigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, down = (VerifierKey(name, COSIGNATURE, SIGNER.public_key) for name in ("slow", "down"))
    seen: list[bytes] = []

    def look(function: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*args: object, **options: object) -> object:
            seen.append((bucket / OURS / "head").read_bytes())
            return await function(*args, **options)

        return call

    monkeypatch.setattr("gossiplog.bucket.cosigning._ask", look(gossiplog.bucket.cosigning._ask))  # type: ignore[attr-defined]
    monkeypatch.setattr(gossiplog.bucket.cosign_published, "__kwdefaults__", {"seconds": 1.0})
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with silent, served(witness) as good:
        places = [f"http://127.0.0.1:{silent.socket.getsockname()[1]}#{slow}", f"http://127.0.0.1:1#{down}", good]
        began = trio.current_time()
        published = await log.publish(bucket, witnesses=places)
        assert trio.current_time() - began < 20
    assert published.cosigned is not None
    assert published.cosigned.names == [NAME]
    assert set(published.cosigned.refusals) == {"slow", "down"}
    assert "did not answer within" in published.cosigned.refusals["slow"]
    assert set(seen) == {published.checkpoint}, "it was there for everybody before anybody was asked"


@pytest.mark.parametrize(
    "text", ["", "http://x", "http://x#", "http://x#a+b+c", f"ftp://x#{VerifierKey('w', 4, bytes(32))}", f"http://x#{ORIGIN.key}"]
)
def test_what_names_no_witness_is_told(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="names no witness"):
        WitnessPlace.parse(text)
    with pytest.raises(DecodeError):
        VerifierKey.parse(text)


@pytest.mark.slow
async def test_killed_at_any_moment_it_contradicts_nothing_that_it_answered(tmp_path: Path) -> None:
    program = (
        "import sys, trio\nsys.path.insert(0, sys.argv[1])\nfrom test_witness import *\n"
        "async def main():\n"
        "    witness = Cosigner(Path(sys.argv[2]), NAME, SIGNER, publishers=None)\n"
        "    with witness.locked():\n"
        "        print('ready', flush=True)\n"
        "        for line in sys.stdin:\n"
        "            old, new = map(int, line.split())\n"
        "            try:\n"
        "                await witness.add(request(old, new))\n"
        "                print('signed', new, flush=True)\n"
        "            except WitnessRefusal as refusal:\n"
        "                print('refused', refusal.size or 0, flush=True)\n"
        "trio.run(main)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    chance, size = Random(2), 0
    for _ in range(int(os.environ.get("KILLS", "30"))):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(Path(__file__).parent), str(tmp_path / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("0 1\n" + "".join(f"{n} {n + 1}\n" for n in range(size, 199)))
        process.stdin.flush()
        threading.Timer(chance.random() * 0.05, process.kill).start()
        answers = [line.split() for line in process.stdout if line.endswith("\n")]
        process.wait()
        process.stdin.close()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL or size >= 150
        assert all(int(answer[1]) >= size for answer in answers if answer[0] == "refused"), "it forgot"
        size = max([size, *(int(answer[1]) for answer in answers)])
        if size >= 150:
            break
    assert size > 10
    again = Cosigner(tmp_path / "state", NAME, SIGNER, publishers=None)
    with pytest.raises(WitnessRefusal) as refused:
        await again.add(request(0, 200))
    assert refused.value.size is not None
    assert refused.value.size >= size
