"""Signed notes, checkpoints, which are written as notes, and cosignatures of witnesses.

Believe nothing in a note before a signature on it is verified. A publisher's key is in the note's first line, its origin. So a checkpoint
proves itself to anyone who knows which publisher to expect.

Source: C2SP signed-note, tlog-checkpoint, tlog-cosignature; docs/spec/bucket.md, "Checkpoint".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ..codec.did import ED25519_CODE, decode_did, encode_did
from ..entry import ed25519
from ..entry.rules import is_topic
from ..entry.signing import Signer
from ..errors import DecodeError, LocalProtocolError
from ..tree.node import Node
from .merkle import HASH_BYTES, PROOF_HASHES_MAX

CHECKPOINT_BYTES_MAX = 64 * 1024
NUMBER_MAX = (1 << 53) - 1
"""The largest size and generation: any language's numbers can hold it, also those of JSON."""
ED25519, COSIGNATURE = 0x01, 0x04
"""The types of signatures verified here: a log's own, and a witness's, which contains a time."""
_SIGNATURES_MAX = 64
_KEY_ID_BYTES = 4
_TIME_BYTES = 8
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_SIGNATURE_LINE = re.compile(r"— ([^\s+]+) (\S+)")
_ROOT_LINE = re.compile(r"gossiplog-root ([0-9]{1,3}) ([0-9a-f]{32})")
_PUBLISHER = re.compile(r"z6Mk[1-9A-HJ-NP-Za-km-z]{44}")


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key with the name of its signer; as text, a vkey.

    Attributes:
        name: A name without spaces and plus signs.
        kind: 1 for Ed25519 signatures of a log, 4 for cosignatures, which are Ed25519 with a time.
        public_key: 32 bytes.
    """

    name: str
    kind: int
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """The 4 bytes that name the key in signature lines."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public_key).digest()[:_KEY_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(bytes([self.kind]) + self.public_key)}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Read a vkey.

        Raises:
            DecodeError: It is not a vkey, or of another kind.
        """
        name, _, rest = text.partition("+")
        key_id, _, encoded = rest.partition("+")
        data = decode_base64(encoded)
        if not name or any(char.isspace() or "\ud800" <= char <= "\udfff" for char in name) or len(data) != 1 + ed25519.PUBLIC_KEY_BYTES:
            raise DecodeError(f"{text[:200]!r} is no vkey of an Ed25519 key")
        key = cls(name, data[0], data[1:])
        if key.kind not in (ED25519, COSIGNATURE) or key.key_id.hex() != key_id:
            raise DecodeError(f"{text[:200]!r} is no vkey: its kind or its key id is wrong")
        return key


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line.

    Attributes:
        key_id: 4 bytes.
        data: The signature of the text; in a cosignature 8 bytes of time come first.
    """

    name: str
    key_id: bytes
    data: bytes

    def __str__(self) -> str:
        return f"— {self.name} {encode_base64(self.key_id + self.data)}\n"


@dataclass(frozen=True, slots=True)
class Note:
    """A parsed note; nothing in it is verified.

    Attributes:
        text: The text, with the newline at its end.
        signatures: One for each signature line, 64 at most.
    """

    text: str
    signatures: tuple[NoteSignature, ...]

    @classmethod
    def parse(cls, data: bytes) -> Note:
        """Parse a note.

        Raises:
            DecodeError: It is malformed, or longer than 64 KiB.
        """
        if len(data) > CHECKPOINT_BYTES_MAX:
            raise DecodeError(f"a note of {len(data):,} bytes, at most {CHECKPOINT_BYTES_MAX:,} are allowed")
        try:
            whole = data.decode()
        except UnicodeDecodeError:
            raise DecodeError("a note that is not UTF-8") from None
        if any(char < " " and char != "\n" for char in whole):
            raise DecodeError("a note with control characters")
        text, blank, lines = whole.rpartition("\n\n")
        if not blank or not lines.endswith("\n") or lines.count("\n") > _SIGNATURES_MAX:
            raise DecodeError("a note without signatures, or with more than 64")
        signatures = []
        for line in lines[:-1].split("\n"):
            match = _SIGNATURE_LINE.fullmatch(line)
            if match is None or len(signature := decode_base64(match[2])) <= _KEY_ID_BYTES:
                raise DecodeError(f"{line[:200]!r} is no signature line")
            signatures.append(NoteSignature(match[1], signature[:_KEY_ID_BYTES], signature[_KEY_ID_BYTES:]))
        return cls(f"{text}\n", tuple(signatures))

    def to_bytes(self) -> bytes:
        """Return the note's bytes."""
        return (self.text + "\n" + "".join(map(str, self.signatures))).encode()

    def verify(self, key: VerifierKey) -> int | None:
        """Verify the key's signature on the text.

        Returns:
            The time of a cosignature, in Unix seconds; 0 for a signature without a time. None if the key has not signed.

        Raises:
            DecodeError: A line names the key, but its signature does not verify.
        """
        time = None
        for line in self.signatures:
            if (line.name, line.key_id) != (key.name, key.key_id):
                continue
            time, signature, message = 0, line.data, self.text.encode()
            if key.kind == COSIGNATURE:
                time, signature = int.from_bytes(line.data[:_TIME_BYTES]), line.data[_TIME_BYTES:]
                message = cosigned(self.text, time)
            if not 0 <= time < 1 << 63 or not ed25519.verify_strictly(key.public_key, signature, message):
                raise DecodeError(f"the signature of {key.name} does not verify")
        return time

    def is_signed(self, key: VerifierKey) -> bool:
        """Whether the key has signed, and all of its signatures verify."""
        try:
            return self.verify(key) is not None
        except DecodeError:
            return False


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint's first line, `<topic>/<publisher>/<generation>`: it names the tree, and the key that signs.

    Attributes:
        publisher: The publisher's did without `did:key:`, 48 characters: it holds the Ed25519 key that signs.
        generation: From 1 to 2^53 − 1; a higher one when the publisher could not continue the one before.
    """

    topic: str
    publisher: str
    generation: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.publisher}/{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read a first line.

        Raises:
            DecodeError: It does not have this form.
        """
        topic, _, rest = text.partition("/")
        publisher, _, number = rest.partition("/")
        is_number = _NUMBER.fullmatch(number) is not None and 0 < int(number) <= NUMBER_MAX
        if not is_topic(topic) or not _PUBLISHER.fullmatch(publisher) or not is_number:
            raise DecodeError(f"{text[:200]!r} is no origin of the form TOPIC/PUBLISHER/GENERATION")
        return cls(topic, publisher, int(number))

    @property
    def folder(self) -> str:
        """The folder of its tree in a bucket, `<publisher>/<generation>`."""
        return f"{self.publisher}/{self.generation}"

    @property
    def key(self) -> VerifierKey:
        """The key that signs its checkpoints.

        Raises:
            DecodeError: The publisher's name holds no Ed25519 key.
        """
        return VerifierKey(str(self), ED25519, _public_key(f"did:key:{self.publisher}"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A publisher's statement about its tree.

    Attributes:
        origin: The publisher and generation of the tree.
        root: Its root, 32 bytes.
        log_root: The root of the publisher's log, if the log had exactly these entries at the time; an extension line.
    """

    origin: Origin
    size: int
    root: bytes
    log_root: Node | None = None

    def to_text(self) -> str:
        """Return the note's text."""
        root = self.log_root
        more = "" if root is None else f"gossiplog-root {root.level} {root.hash.hex()}\n"
        return f"{self.origin}\n{self.size}\n{encode_base64(self.root)}\n{more}"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parse a note's text; unknown extension lines are ignored.

        Raises:
            DecodeError: It is not a checkpoint of ours.
        """
        origin, size, root = tree_head(text)
        if size > NUMBER_MAX:
            raise DecodeError(f"{size} is no size of a tree")
        found = next(filter(None, map(_ROOT_LINE.fullmatch, text.split("\n")[3:])), None)
        log_root = None if found is None else Node(int(found[1]), None, bytes.fromhex(found[2]))
        return cls(Origin.parse(origin), size, root, log_root)


def tree_head(text: str) -> tuple[str, int, bytes]:
    """Return the origin, size and root of any program's checkpoint; later lines are ignored.

    Raises:
        DecodeError: It is not a checkpoint.
    """
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):
        raise DecodeError("a checkpoint of fewer than three lines, or with an empty one")
    (root,) = parse_hashes(lines[2:3])
    return lines[0], parse_number(lines[1]), root


def parse_number(text: str) -> int:
    """Parse a decimal number below 2^63 without leading zeros; raise DecodeError if it is anything else."""
    if not _NUMBER.fullmatch(text) or int(text) >= 1 << 63:
        raise DecodeError(f"{text[:40]!r} is no number")
    return int(text)


def parse_hashes(lines: Sequence[str]) -> list[bytes]:
    """Parse the hashes of a proof, one per line; raise DecodeError for more than 63, or one that has not 32 bytes."""
    hashes = [decode_base64(line) for line in lines[: PROOF_HASHES_MAX + 1]]
    if len(hashes) > PROOF_HASHES_MAX or any(len(each) != HASH_BYTES for each in hashes):
        raise DecodeError(f"more than {PROOF_HASHES_MAX} hashes, or one that has not {HASH_BYTES} bytes")
    return hashes


def unsigned(note: bytes) -> bytes:
    """Return a note's text, by which checkpoints are compared: cosignatures may be added to a checkpoint at any time."""
    return note.rpartition(b"\n\n")[0]


def parse_checkpoint(data: bytes) -> tuple[Note, Checkpoint]:
    """Parse a checkpoint and verify its publisher's signature. The caller checks that this is the expected publisher.

    Raises:
        DecodeError: It is malformed, or not signed by the publisher that its origin names.
    """
    note = Note.parse(data)
    checkpoint = Checkpoint.parse(note.text)
    if note.verify(checkpoint.origin.key) is None:
        raise DecodeError(f"{checkpoint.origin} has not signed this checkpoint")
    return note, checkpoint


def signed_checkpoint(checkpoint: Checkpoint, signer: Signer) -> Note:
    """Sign a checkpoint of the signer's own tree.

    Raises:
        LocalProtocolError: The signer is of another scheme, or of another publisher.
    """
    if publisher_of(signer) != checkpoint.origin.publisher:
        raise LocalProtocolError(f"{signer.did} does not sign for {checkpoint.origin}")
    key, text = checkpoint.origin.key, checkpoint.to_text()
    return Note(text, (NoteSignature(key.name, key.key_id, signer.sign(text.encode())),))


def publisher_of(signer: Signer) -> str:
    """Return the name of a signer's folder: its did without `did:key:`.

    Raises:
        LocalProtocolError: It is not an Ed25519 signer.
    """
    publisher = signer.did.removeprefix("did:key:")
    if not _PUBLISHER.fullmatch(publisher):
        raise LocalProtocolError(f"{signer.did} is no Ed25519 key, and cannot sign checkpoints")
    return publisher


def is_publisher(name: str) -> bool:
    """Whether a folder's name is a publisher's."""
    return _PUBLISHER.fullmatch(name) is not None


def check_publisher(did: str) -> str:
    """Return the name of the folder of a publisher with this did, whose `did:key:` may be left out.

    Raises:
        LocalProtocolError: It cannot be a publisher's.
    """
    name = did.removeprefix("did:key:")
    if not is_publisher(name):
        raise LocalProtocolError(f"{did!r} is no publisher's", hint="publishers are Ed25519 keys, did:key:z6Mk…")
    return name


def cosign(text: str, key: VerifierKey, signer: Signer, time: int) -> NoteSignature:
    """Sign a checkpoint's text as a witness with this key, which is the signer's, at a time in Unix seconds."""
    return NoteSignature(key.name, key.key_id, time.to_bytes(_TIME_BYTES) + signer.sign(cosigned(text, time)))


def cosigned(text: str, time: int) -> bytes:
    """Return what a witness signs: a checkpoint's text under the time, in Unix seconds."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def encode_base64(data: bytes) -> str:
    """Encode as in RFC 4648, section 4, with padding."""
    return base64.b64encode(data).decode()


def decode_base64(text: str) -> bytes:
    """Decode canonical base64.

    Raises:
        DecodeError: It is not base64, or not what `encode_base64` writes.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"{text[:80]!r} is not base64") from None
    if encode_base64(data) != text:
        raise DecodeError(f"{text[:80]!r} is not base64 in its one form")
    return data


def _public_key(did: str) -> bytes:
    code, public_key = decode_did(did)
    if code != ED25519_CODE or len(public_key) != ed25519.PUBLIC_KEY_BYTES or encode_did(code, public_key) != did:
        raise DecodeError(f"{did} is no Ed25519 key")
    return public_key
