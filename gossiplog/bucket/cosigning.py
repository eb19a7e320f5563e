"""Asking witnesses to cosign what was published. Nobody waits for them: a checkpoint is shown first, and cosignatures come to it.

Source: C2SP tlog-witness; docs/spec/bucket.md, "Witnesses".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import trio

from ..entry.signing import Signer
from ..errors import BucketError, DecodeError, GossipLogError, LocalProtocolError
from ..tlog.merkle import consistency_ranges
from ..tlog.note import CHECKPOINT_BYTES_MAX, COSIGNATURE, Note, NoteSignature, VerifierKey, publisher_of
from ..tlog.witness import SIZE_TYPE, AddCheckpoint
from .reading import PublishedTree, open_tree, read_head
from .storage import Storage

WITNESS_S = 5.0
"""How long all witnesses together are waited for."""
_WITNESSES_MAX = 32
_ANSWER_LINES_MAX = 16

AskWitness: TypeAlias = "Callable[[str, bytes], Awaitable[tuple[int, str, bytes]]]"
"""Posts a body to a URL; returns the status, the media type and the body of the answer. May raise GossipLogError or OSError."""


@dataclass(frozen=True, slots=True)
class WitnessPlace:
    """Where a witness is asked, and by which key it is known.

    Attributes:
        url: The submission prefix, to which `/add-checkpoint` comes.
        key: Of cosignatures.
    """

    url: str
    key: VerifierKey

    @classmethod
    def parse(cls, text: str) -> WitnessPlace:
        """Read `URL#VKEY`.

        Raises:
            LocalProtocolError: It has another form.
        """
        url, _, vkey = text.partition("#")
        hint = "a witness is named by URL#VKEY, as `gossiplog witness` prints it"
        try:
            key = VerifierKey.parse(vkey)
        except DecodeError as error:
            raise LocalProtocolError(f"{text[:200]!r} names no witness: {error}", hint=hint) from None
        if not url.startswith(("http://", "https://")) or key.kind != COSIGNATURE:
            raise LocalProtocolError(f"{text[:200]!r} names no witness with a key for cosignatures", hint=hint)
        return cls(url.rstrip("/"), key)


@dataclass(slots=True)
class Cosigned:
    """What witnesses have answered.

    Attributes:
        names: Of the witnesses whose cosignatures stand under the published checkpoint.
        refusals: Names of the others, and why.
    """

    names: list[str]
    refusals: dict[str, str]


async def cosign_published(
    storage: Storage, signer: Signer, witnesses: Sequence[WitnessPlace], ask: AskWitness, *, seconds: float = WITNESS_S
) -> Cosigned:
    """Ask those witnesses that have not cosigned the published checkpoint, all at once, and publish what they sign.

    A witness that is slow, lies or is away is named, and changes nothing. If the checkpoint is another one meanwhile, so does this call.

    Args:
        witnesses: At most 32.
        seconds: How long they are waited for.

    Raises:
        BucketError: The storage failed.
        DamagedBucket: What is published is damaged.
        LogBusy: Another process publishes there.
    """
    if len(witnesses) > _WITNESSES_MAX:
        raise LocalProtocolError(f"{len(witnesses)} witnesses, at most {_WITNESSES_MAX} are asked")
    publisher = publisher_of(signer)
    head, checkpoint = await read_head(storage, publisher)
    note = Note.parse(head)
    done, lines = Cosigned([], {}), list[NoteSignature]()

    async def one(witness: WitnessPlace) -> None:
        name = witness.key.name
        try:
            lines.append(await _ask(tree, note, witness, ask))
            del done.refusals[name]
        except (GossipLogError, OSError) as error:
            done.refusals[name] = f"{witness.url}: {error}"[:400]

    missing = []
    for witness in witnesses:
        if note.is_signed(witness.key):
            done.names.append(witness.key.name)
        else:
            missing.append(witness)
            done.refusals[witness.key.name] = f"{witness.url} did not answer within {seconds:g} s"
    if not missing:
        return done
    tree = await open_tree(storage, checkpoint)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for witness in missing:
                nursery.start_soon(one, witness)
    if lines:
        cosigned = Note(note.text, (*note.signatures, *lines)).to_bytes()
        async with storage.lock(publisher):
            if len(cosigned) <= CHECKPOINT_BYTES_MAX and await storage.swap(f"{publisher}/head", cosigned, head):
                await storage.write(f"{checkpoint.origin.folder}/checkpoint", cosigned)
                done.names += [line.name for line in lines]
    return done


async def _ask(tree: PublishedTree, note: Note, witness: WitnessPlace, ask: AskWitness) -> NoteSignature:
    """Have one witness sign; it says at first which size it has signed last, if it has signed any."""
    own = Note(note.text, note.signatures[:1]).to_bytes()
    old = 0
    for _ in range(3):
        proof = await tree.drive(tree.tiles.roots(consistency_ranges(old, tree.size))) if old else []
        status, kind, body = await ask(f"{witness.url}/add-checkpoint", AddCheckpoint(old, proof, own).to_bytes())
        text = body.decode("utf-8", "replace").strip()
        if status == 409 and kind.partition(";")[0] == SIZE_TYPE and text.isascii() and text.isdecimal() and len(text) < 20:
            old = int(text)
            if old > tree.size:
                raise BucketError(f"has signed {old:,} entries, and {tree.size:,} are published here")
            continue
        if status != 200:
            raise BucketError(f"answered {status}: {text[:200]}")
        return _verified(note, body, witness.key)
    raise BucketError("names another size each time that it is asked")


def _verified(note: Note, body: bytes, key: VerifierKey) -> NoteSignature:
    """Return the line of an answer that is the witness's and verifies; lines of other keys are passed over."""
    answer = Note.parse(note.text.encode() + b"\n" + body)
    for line in answer.signatures[:_ANSWER_LINES_MAX]:
        if (line.name, line.key_id) == (key.name, key.key_id):
            Note(note.text, (line,)).verify(key)
            return line
    raise DecodeError("answered without a signature of its key")
