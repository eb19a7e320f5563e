"""The decoders of buckets and proofs, of what members and hubs say, and of what a user types.

Seeds come from the golden files, or are the usual form of each.
"""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gossiplog.errors import DecodeError, LocalProtocolError
from gossiplog.tlog.note import COSIGNATURE, VerifierKey

__all__ = ["TLOG_TARGETS"]

VECTORS = Path(__file__).parents[1] / "vectors"
BUCKET = json.loads((VECTORS / "bucket.json").read_text("utf-8"))
OBJECTS = {name.partition("/")[2]: base64.b64decode(data) for name, data in BUCKET["objects"].items()}
CHECKPOINT = OBJECTS["1/checkpoint"]
VKEY = b"PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
WITNESS = str(VerifierKey("w", COSIGNATURE, bytes(32))).encode()
POLICIES = [bytes.fromhex(policy["value"]) for policy in json.loads((VECTORS / "access.json").read_text("utf-8"))["policies"]]
REFUSAL = {"rule": "quota", "reason": "of bytes", "ids": ["0" * 32], "count": 1, "taken": 2**53 - 1}


def fuzz_note(data: bytes) -> None:
    from gossiplog.tlog.note import Note, parse_checkpoint

    for read in (Note.parse, parse_checkpoint):
        try:
            read(data)
        except DecodeError:
            continue


def fuzz_vkey(data: bytes) -> None:
    from gossiplog.tlog.note import VerifierKey

    try:
        key = VerifierKey.parse(data.decode("utf-8", "surrogateescape"))
    except DecodeError:
        return
    assert VerifierKey.parse(str(key)) == key


def fuzz_witness_policy(data: bytes) -> None:
    from gossiplog.tlog.proof import WitnessPolicy

    try:
        policy = WitnessPolicy.parse(data)
    except DecodeError:
        return
    assert policy.is_met(frozenset(policy.witnesses)) or policy.quorum != "none"


def fuzz_proof(data: bytes) -> None:
    from gossiplog.tlog.proof import Proof, check_proof

    try:
        check_proof(Proof.parse(data))
    except DecodeError:
        return


def fuzz_submission(data: bytes) -> None:
    from gossiplog.tlog.witness import AddCheckpoint

    try:
        submission = AddCheckpoint.parse(data)
    except DecodeError:
        return
    assert AddCheckpoint.parse(submission.to_bytes()) == submission


def fuzz_segment(data: bytes) -> None:
    from gossiplog.tlog.segment import parse_index, unpack

    for count in (4, 5, 6):
        try:
            for frame in parse_index(data, len(data), count):
                unpack(data[frame.offset : frame.offset + frame.length], frame)
        except DecodeError:
            continue


def fuzz_members(data: bytes) -> None:
    from gossiplog.access import decode_view, encode_view, parse_policy, parse_said
    from gossiplog.entry import Entry

    for read in (parse_policy, parse_said):
        try:
            read(Entry.decode(data))
        except DecodeError:
            continue
    try:
        view = decode_view(data)
    except DecodeError:
        return
    assert decode_view(encode_view(view)) == view


def fuzz_refusal(data: bytes) -> None:
    from gossiplog.sync.refusals import decode_refusal

    try:
        refused = decode_refusal(data)
    except DecodeError:
        return
    assert (refused.rule + refused.reason).isprintable()


def fuzz_typed(data: bytes) -> None:
    from gossiplog.bucket.cosigning import WitnessPlace
    from gossiplog.net.hub.client import parse_url
    from gossiplog.net.hub.server import parse_address
    from gossiplog.spark.tables.state import parse_path
    from gossiplog.store.postgres.url import PostgresUrl

    # As a command line has bytes that are no UTF-8.
    text = data.decode("utf-8", "surrogateescape")
    readers: tuple[Callable[[str], object], ...] = (
        WitnessPlace.parse,
        partial(parse_url, of_server=True),
        parse_url,
        parse_address,
        parse_path,
        PostgresUrl.parse,
    )
    for read in readers:
        try:
            read(text)
        except LocalProtocolError:
            continue


TLOG_TARGETS: tuple[tuple[str, Callable[[bytes], None], tuple[bytes, ...]], ...] = (
    ("note", fuzz_note, (CHECKPOINT,)),
    ("vkey", fuzz_vkey, (VKEY,)),
    ("witness-policy", fuzz_witness_policy, (b"witness a " + WITNESS + b"\ngroup g 1 a\nquorum g\n", b"log " + VKEY + b"\nquorum none\n")),
    ("proof", fuzz_proof, (BUCKET["proof"].encode(),)),
    ("submission", fuzz_submission, (b"old 5\n" + base64.b64encode(bytes(32)) + b"\n\n" + CHECKPOINT,)),
    ("segment", fuzz_segment, (OBJECTS["1/values/000.p/5"],)),
    ("members", fuzz_members, (*POLICIES, b"\0\0\0\5\0\0\0\1\3\0\0\0\2\0\0\0\0")),
    ("refusal", fuzz_refusal, (json.dumps(REFUSAL).encode(),)),
    (
        "typed",
        fuzz_typed,
        (
            b"wss://[::1]:65535/x?token=a#b",
            b"https://w.example/#" + VKEY,
            b"$.a['b'][0].c",
            b"postgresql://u:p@h:5432/db?log=x&sslmode=require",
        ),
    ),
)
"""Name, function and seeds of each; `targets` makes them into targets."""
