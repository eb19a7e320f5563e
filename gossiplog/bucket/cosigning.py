"""Asking witnesses to cosign a published checkpoint. Readers do not wait for them: cosignatures are added to a checkpoint already shown.

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
"""How long to wait for all witnesses together."""
_WITNESSES_MAX = 32
_ANSWER_LINES_MAX = 16

AskWitness: TypeAlias = "Callable[[str, bytes], Awaitable[tuple[int, str, bytes]]]"
"""Posts a body to a URL; returns the answer's status, media type and body. May raise GossipLogError or OSError."""


@dataclass(frozen=True, slots=True)
class WitnessPlace:
    """A witness's address and key.

    Attributes:
        url: The submission prefix, without `/add-checkpoint`.
        key: Verifies its cosignatures.
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
    """The answers of witnesses.

    Attributes:
        names: The witnesses that have cosigned the published checkpoint.
        refusals: The others by name, and why they have not.
    """

    names: list[str]
    refusals: dict[str, str]


async def cosign_published(
    storage: Storage, signer: Signer, witnesses: Sequence[WitnessPlace], ask: AskWitness, *, seconds: float = WITNESS_S
) -> Cosigned:
    """Ask the witnesses that have not cosigned the published checkpoint, all at once, and publish their cosignatures.

    A witness that fails, lies or is too slow is named, and changes nothing. If `head` changes meanwhile, nothing is published.

    Args:
        witnesses: At most 32.
        seconds: How long to wait for all of them.

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

    missing = [each for each in witnesses if not note.is_signed(each.key)]
    done.names += [each.key.name for each in witnesses if each not in missing]
    done.refusals |= {each.key.name: f"{each.url} did not answer within {seconds:g} s" for each in missing}
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
    """Have one witness sign. A witness that has signed before answers the first request with the size that it signed last."""
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
    """Return the answer's line of the witness's key, if it verifies; ignore lines of other keys."""
    answer = Note.parse(note.text.encode() + b"\n" + body)
    for line in answer.signatures[:_ANSWER_LINES_MAX]:
        if (line.name, line.key_id) == (key.name, key.key_id):
            Note(note.text, (line,)).verify(key)
            return line
    raise DecodeError("answered without a signature of its key")
