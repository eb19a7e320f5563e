"""`publish`, `clone`, `checkpoint`, `prove` and `check`: logs in buckets; and the part of `sync` that is about buckets."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...archive import entry_to_line
from ...errors import DecodeError, GossipLogError
from ..entries import payload_text
from ..exits import ExitCode, Failure, of_faults, worst
from ..journal import write_journal
from ..options import (
    BUCKET,
    FILE,
    OUTPUT,
    PUBLISHER,
    Location,
    NumberRange,
    bucket_topic_option,
    choose_signer,
    durability_option,
    id_argument,
    key_option,
    log_argument,
    output_options,
    witness_option,
)
from ..output import Column, Listing, Output, clean, counted, opened_output, record_of
from ..progress import Progress
from ..session import in_trio, opened, resolve, wait_for_signal, with_log

if TYPE_CHECKING:
    from ...bucket import Exchanged, Published, Taken
    from ...gossip_log import GossipLog

_SHOWN = 20

_place_argument = click.argument("place", metavar="URL", type=BUCKET)
_publisher_option = click.option("--publisher", metavar="DID", type=PUBLISHER, help="Only what this publisher has published.")


@click.command()
@log_argument
@_place_argument
@key_option
@click.option("--every", type=NumberRange(min=0.1), metavar="SECONDS", help="Publish new entries at this interval, until Ctrl-C.")
@click.option("--again", is_flag=True, help="Write everything once more, to replace lost or damaged files.")
@witness_option
@output_options()
@in_trio
async def publish(
    log: Location, place: str, key_name: str | None, every: float | None, again: bool, witnesses: tuple[str, ...], out: Output
) -> None:
    """Publish a log in a bucket.

    URL is a folder, which others read directly or through any web server. In it each publisher has its own folder, named by its did.
    Entries are written in the order in which LOG got them, in compressed segments, with a tree of hashes over them and a checkpoint that
    your key signs. Only new entries are written; existing files stay as they are. An interrupted or killed run resumes when repeated.
    LOG may grow, and be served, meanwhile. With --every a failure is reported and tried again, and Ctrl-C ends the command with code 0.

    \b
    Examples
      gossiplog publish app.db /mnt/share/app
      gossiplog publish app.db /srv/www/app --every 10
    """
    from ...tasks.nursery import open_service_nursery

    signer = choose_signer(key_name)
    async with opened(log) as opened_log:

        async def publish_new() -> None:
            nonlocal again
            with Progress("publishing", await opened_log.count(), is_shown=not out.is_strict) as progress:
                published = await opened_log.publish(place, signer=signer, again=again, witnesses=witnesses, on_progress=progress.at)
            again = False
            if every is None or published.objects:
                _report_published(published, out)
            out.flush()

        if every is None:
            await publish_new()
            return
        write_journal("text", is_quiet=out.is_quiet)
        async with open_service_nursery() as nursery:
            nursery.start_soon(_repeat, publish_new, every, place)
            await wait_for_signal()


async def _repeat(publish_new: Callable[[], Awaitable[None]], every_s: float, place: str) -> None:
    """Publish for ever. A failure is told once, and tried again after pauses that grow up to a minute."""
    import trio

    from ...bucket.peer import PAUSE_MAX_S
    from ...net.ground.journal import note

    pause, told = every_s, ""
    while True:
        try:
            await publish_new()
            pause, told = every_s, ""
        except GossipLogError as error:
            pause = min(max(PAUSE_MAX_S, every_s), 2 * pause)
            if str(error) != told:
                note("bucket away", level=logging.WARNING, bucket=place, reason=str(error))
            told = str(error)
        await trio.sleep(pause)


@click.command()
@_place_argument
@log_argument
@bucket_topic_option
@durability_option
@output_options()
@in_trio
async def clone(place: str, log: Location, topic: str | None, durability: str, out: Output) -> int:
    """Make a log from a bucket.

    Copies the entries of all publishers below URL. Each byte is verified before it is used: the checkpoint by its signature, tiles and
    entries by the checkpoint, and each entry by its own signature as well. LOG can be read while it grows. An interrupted run can be
    repeated; later runs add new entries.

    \b
    Examples
      gossiplog clone /mnt/share/app app.db
    """
    from ...bucket import Exchanged, look, open_storage, take

    storage = open_storage(place)
    chosen = (await look(storage, topic)).topic
    async with opened(log, read_only=False, create=True, topic=chosen, durability=durability) as opened_log:
        with Progress("cloning", is_shown=not out.is_strict) as progress:
            taken = await take(opened_log, storage, skips_topics=topic is not None, on_progress=progress.at)
    return _report_exchanged(Exchanged(taken, None), log, out)


async def exchange_with(
    log: Location, place: str, *, key_name: str | None, pulls: bool, pushes: bool, topic: str | None, durability: str, out: Output
) -> int:
    """Sync a log with a bucket.

    Args:
        pulls: Whether the log gets what others have published.
        pushes: Whether the log is published.
        topic: The topic that the log must have; None for any.
    """
    from ...bucket import Exchanged, Taken, open_storage

    takes_only = not pushes or (pulls and key_name is None and open_storage(place).is_read_only)
    signer = None if takes_only else choose_signer(key_name)
    async with opened(log, topic=topic, read_only=not pulls, durability=durability) as opened_log:
        with Progress("syncing", is_shown=not out.is_strict) as progress:
            if pulls:
                done = await opened_log.sync(place, signer=signer, on_progress=progress.at)
            else:
                done = Exchanged(Taken(), await opened_log.publish(place, signer=signer, on_progress=progress.at))
    return _report_exchanged(done, log, out)


@click.command()
@_place_argument
@_publisher_option
@output_options()
@in_trio
async def checkpoint(place: str, publisher: str | None, out: Output) -> int:
    """Show the checkpoints in a bucket.

    Shows for each publisher how many entries it has published, and the root of the tree over them, signed by its key. Signatures are
    verified; invalid checkpoints are named, and the exit code is then 3, or 5 if one cannot be read.

    \b
    Examples
      gossiplog checkpoint /mnt/share/app
    """
    from ...bucket import open_storage, read_heads
    from ...bucket.reading import kind_of

    kinds = list[str]()
    columns = [Column("publisher"), Column("generation", is_right=True), Column("entries", is_right=True), Column("root")]
    storage = open_storage(place, publisher)
    heads = await read_heads(storage)
    if not heads:
        raise Failure(f"nothing is published at {storage.url}", hint="`gossiplog publish LOG URL` publishes a log")
    with Listing(out, columns) as listing:
        for name, head in heads.items():
            did, found = f"did:key:{name}", head.checkpoint
            if head.fault is not None:
                kinds.append(kind_of(head.fault))
                listing.add({"publisher": did, "valid": False, "reason": str(head.fault)}, [did, "", "", clean(str(head.fault))])
            if head.fault is not None or found is None:
                continue
            record = {
                "publisher": did,
                "valid": True,
                "origin": str(found.origin),
                "size": found.size,
                "root": found.root.hex(),
                "key": str(found.origin.key),
                "note": head.note.decode(),
            }
            listing.add(record, [did, str(found.origin.generation), f"{found.size:,}", found.root.hex()])
    return of_faults(kinds)


@click.command()
@log_argument
@id_argument
@click.option("-o", "--output", metavar="FILE", type=OUTPUT, required=True, help="The file for the proof, such as said.tlog-proof.")
@click.option("--from", "place", metavar="URL", type=BUCKET, help="The bucket with the entry; by default those where LOG was published.")
@_publisher_option
@output_options()
@with_log
async def prove(log: GossipLog, entry_id: str, output: str, place: str | None, publisher: str | None, out: Output) -> None:
    """Prove that an entry is in a published log.

    FILE holds the entry, the publisher's newest checkpoint with its signatures, and the hashes between the two, so it can be checked
    without LOG and the bucket. It proves the author, and that the entry was in this publisher's log, but not that its contents are true.

    \b
    Examples
      gossiplog prove app.db 0g5k -o said.tlog-proof
      gossiplog check said.tlog-proof
    """
    id = await resolve(log, entry_id)
    proof = await log.prove(id, place, publisher=publisher)
    with opened_output(output) as file:
        file.write(proof)
    out.fields({"id": id, "file": output, "bytes": len(proof)}, [("entry", id), ("file", f"{output}, {len(proof):,} bytes")])


@click.command()
@click.argument("proof", metavar="PROOF", type=FILE)
@click.option("--policy", type=FILE, help="The file that says whose logs are accepted, and which witnesses must have cosigned.")
@_publisher_option
@output_options()
def check(proof: str, policy: str | None, publisher: str | None, out: Output) -> None:
    """Check a proof.

    No log is needed. Without a policy every publisher is accepted; compare the did that is shown with the one that you expect. A policy is
    a file in the format of C2SP's tlog-policy: keys of logs, keys of witnesses, and how many of these must have cosigned.

    \b
    Examples
      gossiplog check said.tlog-proof
      gossiplog check said.tlog-proof --policy trusted.policy
    """
    from ...tlog.proof import PROOF_BYTES_MAX, Proof, WitnessPolicy, check_proof

    try:
        judged = WitnessPolicy.parse(_read(policy, 1 << 20)) if policy is not None else None
        evidence = check_proof(Proof.parse(_read(proof, PROOF_BYTES_MAX + 1)), judged)
    except DecodeError as error:
        raise Failure(f"{proof}: {error}", code=ExitCode.INTEGRITY, kind="proof") from error
    found, entry = evidence.checkpoint, evidence.entry
    if publisher is not None and publisher.removeprefix("did:key:") != found.origin.publisher:
        raise Failure(f"{proof}: published by did:key:{found.origin.publisher}", code=ExitCode.INTEGRITY, kind="proof")
    seen = {name: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for name, at in evidence.witnesses.items()}
    record = {
        "id": entry.id,
        "author": entry.author,
        "index": evidence.index,
        "publisher": f"did:key:{found.origin.publisher}",
        "origin": str(found.origin),
        "size": found.size,
        "witnesses": seen,
        "entry": json.loads(entry_to_line(entry)),
    }
    shown = [
        ("entry", entry.id),
        ("author", clean(entry.author)),
        ("payload", payload_text(entry)),
        ("published by", f"did:key:{found.origin.publisher}"),
        ("in", f"{clean(found.origin.topic)}, generation {found.origin.generation}, as entry {evidence.index + 1:,} of {found.size:,}"),
        ("seen by", ", ".join(f"{clean(name)} at {at}" for name, at in seen.items()) or "no witness that a --policy names"),
    ]
    out.fields(record, shown)


def _read(path: str, bytes_max: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(bytes_max)


def _report_published(published: Published, out: Output) -> None:
    record = {**record_of(published, "origin", "size", "added", "objects"), "bytes": published.written_bytes}
    cosigned = published.cosigned
    if cosigned is not None:
        record |= {"witnesses": cosigned.names, "refusals": cosigned.refusals}
    shown = [
        ("published", f"{counted(published.added, 'new entry', 'new entries')}, {published.size:,} in all"),
        ("written", f"{counted(published.objects, 'object', 'objects')}, {published.written_bytes:,} bytes"),
        ("publisher", f"did:key:{published.origin.split('/')[1]}"),
    ]
    if cosigned is not None:
        shown.append(("cosigned by", ", ".join(map(clean, cosigned.names)) or "no witness"))
        for name, reason in cosigned.refusals.items():
            out.note(clean(f"{name} has not cosigned: {reason}"))
    out.fields(record, shown)


def _report_exchanged(done: Exchanged, log: str, out: Output) -> int:
    taken, published = done.taken, done.published
    publishers = [
        {
            **record_of(each, "publisher", "size", "known", "rejected", "left_out"),
            "added": each.entries,
            "complete": each.is_complete,
            "refused": [{"id": id, "reason": reason} for id, reason in each.refused],
            "faults": [record_of(fault, "kind", "reason", "evidence") for fault in each.faults],
        }
        for each in taken.publishers
    ]
    record = {"added": taken.entries, "publishers": publishers, "published": None if published is None else published.added}
    shown = [("taken", f"{counted(taken.entries, 'new entry', 'new entries')} from {counted(len(publishers), 'publisher', 'publishers')}")]
    if published is not None:
        shown.append(("published", f"{counted(published.added, 'new entry', 'new entries')}, {published.size:,} in all"))
    out.fields(record, shown)
    _tell_faults(taken, log, out)
    code = ExitCode.INTEGRITY if any(each.rejected for each in taken.publishers) else of_faults(fault.kind for fault in taken.faults)
    if any(each.left_out for each in taken.publishers):
        return worst([code, ExitCode.INCOMPLETE])
    if code is ExitCode.INCOMPLETE and all(each.is_complete for each in taken.publishers):
        out.note(f"{log} has every entry nonetheless: other publishers had those that could not be read")
        return ExitCode.DONE
    return code


def _tell_faults(taken: Taken, log: str, out: Output) -> None:
    if out.is_json:
        return
    for fault in taken.faults[:_SHOWN]:
        evidence = f"; both signed notes are kept: {', '.join(fault.evidence)}" if fault.evidence else ""
        out.note(clean(f"{fault.kind}: {fault.reason}{evidence}"))
    refused: Sequence[tuple[str, str]] = [each for one in taken.publishers for each in one.refused]
    for id, reason in refused[:_SHOWN]:
        out.note(clean(f"{id} was refused: {reason}"))
