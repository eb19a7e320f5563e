"""`sync`: make two logs equal, or a log and what a hub serves: once, or until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...entry.validation import Rule
from ...errors import LogNotFound, ProtocolNotSupported, SyncAborted, TopicMismatch
from ..exits import ExitCode, Failure, misused, worst
from ..journal import LOG_FORMATS, write_journal
from ..log.heal import Healing
from ..options import (
    LOG_OR_SHELF,
    Location,
    client_tls,
    durability_option,
    exchange_key_option,
    option,
    output_options,
    read_identity,
    read_token,
    shared,
    takes,
    tls_ca_option,
    token_option,
)
from ..output import Output, counted
from ..progress import Progress
from ..session import in_trio, opened, wait_for_signal
from .bucket import exchange_with

if TYPE_CHECKING:
    from ...entry.signing import Signer
    from ...gossip_log import GossipLog
    from ...net.hub.client import HubConnections, HubUrl
    from ...net.hub.exchange import Exchange
    from ...sync.result import SyncResult
    from ...tree import Node

# A hub at the other end
IDS_SHOWN = 8
"""How many ids of entries that are not valid are named."""
_SAMPLE = 100
_KEY_BYTES = 20
_VALUE_OVERHEAD = 4


def hub_url(text: str, token: str | None = None, identity: Signer | None = None) -> HubUrl | None:
    """Take a URL apart; None if it is a path. The token lets us in, or the identity.

    Raises:
        Failure: It is a URL, and no hub's.
    """
    if "://" not in text:
        return None
    from ...net.hub.client import parse_url

    with misused(""):
        return parse_url(text, token=token, identity=identity)


async def _sync_hub(log: GossipLog, hub: HubUrl, wish: _Wish, tls: ssl.SSLContext | None) -> Exchange:
    """Exchange with a hub once, and report it."""
    from ...net.hub.exchange import exchange
    from ...sync.result import Ending

    out, pulls, pushes = wish.out, wish.pulls, wish.pushes
    with Progress("entries", is_shown=not out.is_strict) as progress:

        def on_pause(seconds: float) -> None:
            out.note(f"{hub.url} wants to be left alone for {seconds:.0f} s, or brought nothing; going on after that")

        done = await exchange(
            log, hub, pulls=pulls, pushes=pushes, tls=tls, on_progress=progress.step, on_pause=on_pause, connections=wish.connections
        )
    record = {
        "pulled": None if done.pulled is None else done.pulled.entries,
        "pushed": done.pushed if pushes else None,
        "equal": done.is_equal,
        "root": None if done.root is None else {"level": done.root.level, "hash": done.root.hash.hex()},
        "roundTrips": None if done.pulled is None else done.pulled.waits,
        "sessions": (0 if done.pulled is None else done.pulled.sessions) + done.sessions,
        "bytesSent": done.bytes_sent,
        "bytesReceived": done.bytes_received,
        "bytesPerEntry": None if done.bytes_per_entry is None else round(done.bytes_per_entry, 1),
        "seconds": round(done.seconds, 3),
        **wish.healed,
        "leftOut": None if done.pulled is None else left_out_record(done.pulled),
    }
    shown = [("pulled", counted(done.pulled.entries, "entry", "entries"))] if done.pulled is not None else []
    shown += [("pushed", counted(done.pushed, "entry", "entries"))] if pushes else []
    per_entry = "" if done.bytes_per_entry is None else f", {done.bytes_per_entry:,.0f} an entry"
    shown += [("bytes", f"{done.bytes_sent:,} sent, {done.bytes_received:,} received{per_entry}")]
    shown += [("round trips", f"{done.pulled.waits:,}")] if done.pulled is not None else []
    shown += [("seconds", f"{done.seconds:.2f}")]
    if done.root is not None:
        shown += [_roots(await log.root(), done.root, is_equal=done.is_equal)]
    out.fields(record, shown)
    has_our_store_failed = done.pulled is not None and done.pulled.ending is Ending.STORAGE
    if done.is_taken is False and not has_our_store_failed:
        hint = f"run it again to go on; if that does not help, `gossiplog doctor {hub.url}` says whether the hub can store entries"
        if done.unserved:
            hint = f"this log cannot answer its requests: {done.unserved}; `gossiplog verify` looks for damage"
        raise _refusal(hub, done) or Failure(
            f"{hub.url} did not take all entries", hint=hint, code=ExitCode.INCOMPLETE, kind="sync-aborted"
        )
    return done


def _refusal(hub: HubUrl, done: Exchange) -> Failure | None:
    """Say what the hub said that it does not take; None if it said nothing."""
    refused = sorted(done.refused.values(), key=lambda each: (each.rule == Rule.QUOTA, -each.count))
    if not refused:
        return None
    message = f"{hub.url} does not take {counted(refused[0].count, 'entry', 'entries')}: {refused[0].reason}"
    if refused[0].rule == Rule.QUOTA:
        return Failure(message, hint="run it again after that to go on", code=ExitCode.INCOMPLETE, kind="quota")
    first = f"the first is {refused[0].ids[0]}" if refused[0].ids else None
    return Failure(message, hint=first, code=ExitCode.UNAUTHORISED, kind="unauthorised")


async def _rehearse_hub(log: GossipLog, hub: HubUrl, wish: _Wish, tls: ssl.SSLContext | None) -> int:
    """Say what an exchange with a hub would move, and about how many bytes that takes; move nothing."""
    from ...net.hub.exchange import exchange

    pulls, pushes = wish.pulls, wish.pushes
    try:
        done = await exchange(log, hub, pulls=pulls, pushes=pushes, tls=tls, is_rehearsal=True)
    except ProtocolNotSupported:
        message = f"{hub.url} cannot say beforehand what would be moved"
        raise Failure(message, hint="it does not reconcile; only a sync shows it", code=ExitCode.USAGE) from None
    found = done.rehearsal
    assert found is not None
    mean = await _mean_value_bytes(log)
    spent = done.bytes_sent + done.bytes_received
    expected = spent + round(_KEY_BYTES * found.wanted + (mean + _VALUE_OVERHEAD) * (found.wanted + found.given))
    record = {
        "pulled": found.wanted if pulls else None,
        "pushed": found.given if pushes else None,
        "dryRun": True,
        "symbols": found.symbols,
        "bytesSpent": spent,
        "bytesExpected": expected,
    }
    shown = [("to be pulled", f"{found.wanted:,}")] if pulls else []
    shown += [("to be pushed", f"{found.given:,}")] if pushes else []
    shown += [("bytes", f"about {expected:,} with entries of {mean:,.0f} bytes; this run took {spent:,}")]
    wish.out.fields(record, shown)
    return ExitCode.DONE


async def _mean_value_bytes(log: GossipLog) -> float:
    """Return the mean size of our last entries, by which those of others are guessed."""
    sizes = [len(entry.value) async for entry in log.iterate(reverse=True, limit=_SAMPLE)]
    return sum(sizes) / len(sizes) if sizes else 0.0


async def _follow_hub(log: GossipLog, hub: HubUrl, tls: ssl.SSLContext | None, out: Output) -> int:
    """Stay connected to a hub until Ctrl-C."""
    from ...net.hub.client import connect

    async with connect(log, hub.url, tls=tls, headers=dict(hub.headers), identity=hub.identity):
        await wait_for_signal(tell=lambda: out.note(f"following {hub.url}; Ctrl-C ends it"))
    return ExitCode.DONE


def left_out_record(result: SyncResult) -> dict[str, object] | None:
    """What a sync left out and why, as JSON has it; None where that is nothing."""
    from ...entry.message_id import encode_id

    if result.complete and not result.rejected:
        return None
    return {
        "rejected": result.rejected,
        "rejectedIds": [encode_id(key) for key in result.rejected_keys[:IDS_SHOWN]],
        "unsupported": result.unsupported,
        "unsupportedReason": result.unsupported_reason or None,
        "orphans": result.orphans,
        "skipped": result.skipped,
        "reason": result.reason or None,
    }


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of `sync` but for the direction."""

    is_dry: bool = option("--dry-run", is_flag=True, help="Count what would move, and move nothing.")
    heals: bool = option("--heal", is_flag=True, help="First repair a damaged LOG; fetch its damaged and lost entries from OTHER.")
    is_all: bool = option("--all", is_flag=True, help="LOG is a folder or a database of logs: sync each of them.")
    creates: bool = option("--create", is_flag=True, help="With --all: create logs that one side lacks.")
    follows: bool = option("--follow", is_flag=True, help="With a hub: stay connected, and exchange what is new as it comes, until Ctrl-C.")
    tls_ca: str | None = shared(tls_ca_option)
    token_file: str | None = shared(token_option)
    key_name: str | None = shared(exchange_key_option)
    log_format: str = option("--log-format", type=click.Choice(LOG_FORMATS), default="text", help="With --follow: how to log, on stderr.")
    durability: str = shared(durability_option)


@click.command()
@click.argument("log", metavar="LOG", type=LOG_OR_SHELF)
@click.argument("other", metavar="OTHER", type=LOG_OR_SHELF)
@click.option("--pull", "direction", flag_value="pull", help="Only take from OTHER what LOG lacks.")
@click.option("--push", "direction", flag_value="push", help="Only give OTHER what it lacks.")
@takes(options=_Options)
@output_options()
@in_trio
async def sync(log: Location, other: Location, direction: str | None, options: _Options, out: Output) -> int:
    """Make two logs equal.

    Two logs of one topic exchange what they lack, and end with equal roots. They compare hashes from the root down, so the cost depends on
    the difference, not on the size. All received entries are verified. An interrupted run keeps what it has and can be repeated.

    OTHER is another log, or the ws:// or wss:// URL of a hub: a `gossiplog serve`, or the reference implementation. They sync once, or with
    --follow stay connected. OTHER may also be a bucket, which is a folder: LOG takes what others have published there, and is published
    beside them with your key. A path that ends in / is a bucket even if no folder is there yet. From a bucket behind a web server LOG only
    takes.

    Damaged rows do not change hashes, so an ordinary sync does not repair them. --heal checks LOG, repairs it or rebuilds it from what is
    left (keeping the damaged file beside it), fetches the rest from OTHER, and checks LOG again.

    With --all LOG is a folder or a database of logs, as `gossiplog serve --dir` has them. OTHER is another one, the URL of a server without
    a topic, or buckets: a place that ends in {topic}. Topics that both have are synced, with --create all of them. The worst exit code of
    a log is that of the command; what fails with one does not stop the others.

    \b
    Examples
      gossiplog sync app.db /mnt/stick/app.db
      gossiplog sync app.db other.db --pull --dry-run
      gossiplog sync app.db other.db --heal
      gossiplog sync app.db /mnt/share/app/
      gossiplog sync app.db ws://127.0.0.1:8080
      gossiplog sync app.db wss://hub.example.com/app.example.com --follow
      gossiplog sync --all documents /mnt/stick/documents --create
      gossiplog sync --all documents wss://hub.example.com
      gossiplog sync --all documents 's3://bucket/documents/{topic}'
    """
    if options.key_name is not None and options.token_file is not None:
        raise click.UsageError("either --key or --token-file lets us in")
    if options.creates and not options.is_all:
        raise click.UsageError("--create goes with --all; `gossiplog copy` makes a copy of one log")
    healing = Healing(log, out) if options.heals else None
    wish = _Wish(log, other, options, out, pulls=direction != "push", pushes=direction != "pull", healing=healing)
    if not options.is_all:
        if any(each.is_url and each.is_shelf for each in (log, other)):
            raise click.UsageError("a place of many logs: --all syncs each of them, and LOG is one of them")
        return await _with_one(wish)
    if options.heals or options.follows or options.is_dry:
        raise click.UsageError("--all goes with --pull and --push, but with neither --heal, --follow nor --dry-run")
    return await _with_all(wish)


@dataclass(frozen=True)
class _Wish:
    """What one call of the command is to do.

    Attributes:
        pulls: Take what `log` lacks.
        pushes: Give what `other` lacks.
        healing: How `log` is made whole first, if it is.
        topic: Which both must have; None for whichever.
        connections: With the hub, shared by all logs of a shelf.
    """

    log: Location
    other: Location
    options: _Options
    out: Output
    pulls: bool
    pushes: bool
    healing: Healing | None
    topic: str | None = None
    connections: HubConnections | None = None

    @property
    def healed(self) -> dict[str, Any]:
        """What a record has of the healing, if there was one."""
        return {} if self.healing is None else {"healed": self.healing.record}

    def judged(self, *results: tuple[SyncResult | None, Location]) -> int:
        """Say what syncs left out, each with where it pulled from, and choose the exit code."""
        codes = [_judge(result, place, self.out) for result, place in results if result is not None]
        return worst([*codes, *([] if self.healing is None else [self.healing.code])])


async def _with_one(wish: _Wish) -> int:
    """Make two logs equal, wherever the other is.

    Raises:
        UsageError: Options do not go together.
    """
    from ...bucket import is_bucket

    log, other, options = wish.log, wish.other, wish.options
    wants_hub = options.follows or options.tls_ca is not None or options.token_file is not None
    if not other.is_url and is_bucket(other):
        if options.is_dry or options.heals or wants_hub:
            raise click.UsageError(f"{other} is a bucket: only --pull, --push, --key and --durability go with it")
        exchange = partial(exchange_with, log, other, key_name=options.key_name, pulls=wish.pulls, pushes=wish.pushes)
        return await exchange(topic=wish.topic, durability=options.durability, out=wish.out)
    identity = read_identity(options.key_name)
    hub = None if other.is_url else hub_url(other, None if identity else read_token(options.token_file), identity)
    if hub is None and (wants_hub or identity is not None):
        raise click.UsageError(
            f"{other} is no hub, at a ws:// or wss:// URL, as --follow, --tls-ca and --token-file want, and no bucket, as --key may; "
            "the path of a new bucket ends in /"
        )
    if options.follows and (options.is_dry or not (wish.pulls and wish.pushes)):
        raise click.UsageError("under --follow there is no --dry-run, and no direction")
    if options.heals and (options.is_dry or options.follows or not wish.pulls):
        raise click.UsageError("--heal pulls, once: it does not go with --dry-run, --push or --follow")
    if hub is None and log.is_same(other):
        raise click.UsageError("LOG and OTHER are the same")
    return await (_with_log(wish) if hub is None else _with_hub(wish, hub))


async def _with_all(wish: _Wish) -> int:
    """Exchange each log of a shelf with its counterpart."""
    from ...bucket import in_place
    from ...net.hub.client import at_topic, open_hub_connections
    from ...store import Durability
    from ...store.places import open_place
    from .sync_all import sync_all, topics_in_bucket, topics_of_hub

    ours, place, others, options = open_place(wish.log.full), wish.other.full, None, wish.options
    place_of: Callable[[str], str | os.PathLike[str]]
    if "{topic}" in place:
        theirs, place_of = await topics_in_bucket(place), partial(in_place, f"{place.rstrip('/')}/")
    elif (hub := None if wish.other.is_url else hub_url(place, read_token(options.token_file))) is not None:
        if options.key_name is not None:
            raise click.UsageError("--all asks a server for its logs with a token: --key signs in to a single log")
        theirs, place_of = await topics_of_hub(hub, client_tls(options.tls_ca)), partial(at_topic, place)
    else:
        others = open_place(place)
        if options.creates and wish.pushes:
            async with others.opened(Durability(options.durability)):
                pass
        theirs, place_of = set(await others.topics()), others.log_at

    here = set(await ours.topics())
    lacking = ((theirs - here) if wish.pulls else set(), (here - theirs) if wish.pushes else set())

    async def sync_one(topic: str, out: Output) -> int:
        log, other = Location.parse(os.fspath(ours.log_at(topic))), Location.parse(os.fspath(place_of(topic)))
        created = [log] if topic in lacking[0] else [other] if topic in lacking[1] and others is not None else []
        for location in created:
            async with opened(location, read_only=False, create=True, topic=topic):
                pass
        return await _with_one(replace(wish, log=log, other=other, topic=topic, out=out, connections=connections))

    async with open_hub_connections() as connections:
        return await sync_all([*(here & theirs), *(lacking[0] | lacking[1] if options.creates else ())], sync_one, out=wish.out)


async def _with_hub(wish: _Wish, hub: HubUrl) -> int:
    """Exchange with a hub, once or for as long as we follow it."""
    log, healing, out = wish.log, wish.healing, wish.out
    tls = client_tls(wish.options.tls_ca)
    if healing is not None:
        await healing.prepare(None)
    async with opened(log, topic=wish.topic, read_only=wish.options.is_dry or not wish.pulls, durability=wish.options.durability) as ours:
        if healing is not None:
            from ...net.hub.exchange import exchange

            await healing.finish(ours, partial(exchange, ours, hub, pulls=True, pushes=False, tls=tls))
        if wish.options.follows:
            write_journal(wish.options.log_format)
            return await _follow_hub(ours, hub, tls, out)
        if wish.options.is_dry:
            return await _rehearse_hub(ours, hub, wish, tls)
        done = await _sync_hub(ours, hub, wish, tls)
    return wish.judged((done.pulled, wish.other))


async def _with_log(wish: _Wish) -> int:
    """Exchange with another log."""
    log, other, healing = wish.log, wish.other, wish.healing
    if healing is None and not other.is_url and Path(log).exists() and not Path(other).exists():
        hint = f"`gossiplog copy {log} {other}` makes a copy of the log there, `gossiplog sync {log} {other}/` a bucket"
        raise LogNotFound(f"no log at {other}", hint=hint)
    if healing is not None:
        async with opened(other) as theirs:
            topic = theirs.topic
        await healing.prepare(topic)
    pulled = pushed = None
    async with opened(log, topic=wish.topic, read_only=wish.options.is_dry or not wish.pulls, durability=wish.options.durability) as ours:
        # It is written to only if there is something to give: a source of a sync may be a stranger's.
        async with opened(other) as theirs:
            if ours.topic != theirs.topic:
                hint = "only logs of one topic can be merged"
                raise TopicMismatch(f"{log} has topic {ours.topic}, {other} has {theirs.topic}", hint=hint)
            if wish.options.is_dry:
                missing, extra = await _count_difference(ours, theirs)
                counts = [missing if wish.pulls else None, extra if wish.pushes else None]
                _report(wish, counts, await ours.root(), await theirs.root())
                return ExitCode.DONE
            if healing is not None:
                await healing.finish(ours, partial(ours.sync, theirs))
            pulled = await ours.sync(theirs) if wish.pulls else None
            roots = await ours.root(), await theirs.root()
        if wish.pushes and roots[0] != roots[1]:
            async with opened(other, read_only=False, durability=wish.options.durability) as theirs:
                pushed = await theirs.sync(ours)
                roots = await ours.root(), await theirs.root()
        counts = [pulled.entries if pulled else None, pushed.entries if pushed else 0 if wish.pushes else None]
        done = {"pulled": pulled, "pushed": pushed}
        asked = {"pulled": wish.pulls, "pushed": wish.pushes}
        left_out = {name: result and left_out_record(result) for name, result in done.items() if asked[name]}
        _report(wish, counts, *roots, left_out)
    return wish.judged((pulled, other), (pushed, log))


def _report(wish: _Wish, counts: Sequence[int | None], ours: Node, theirs: Node, left_out: Mapping[str, object] | None = None) -> None:
    pulled, pushed = counts
    record = {
        "pulled": pulled,
        "pushed": pushed,
        "dryRun": wish.options.is_dry,
        "equal": ours == theirs,
        "root": {"level": ours.level, "hash": ours.hash.hex()},
        **wish.healed,
        "leftOut": left_out,
    }
    would = "to be " if wish.options.is_dry else ""
    shown = [(f"{would}pulled", f"{pulled:,}")] if pulled is not None else []
    shown += [(f"{would}pushed", f"{pushed:,}")] if pushed is not None else []
    wish.out.fields(record, [*shown, _roots(ours, theirs, is_equal=ours == theirs)])


def _roots(ours: Node, theirs: Node, *, is_equal: bool) -> tuple[str, str]:
    return "roots", f"equal: {ours.hash.hex()}" if is_equal else f"differ: {ours.hash.hex()} and {theirs.hash.hex()}"


def _judge(result: SyncResult, source: str, out: Output) -> ExitCode:
    """Say what a sync left out, and choose the exit code."""
    from ...entry.message_id import encode_id
    from ...sync.result import Ending

    is_ours_to_verify = "://" not in source or Location.parse(source).is_url
    if result.ending is Ending.VIOLATION:
        hint = (
            f"`gossiplog verify {source}` names the entry, `gossiplog fsck {source}` what else is damaged"
            if is_ours_to_verify
            else "whoever runs the hub finds what is damaged with `gossiplog verify` and `gossiplog fsck`"
        )
        raise Failure(f"{source} is damaged: {result.reason}", hint=hint, code=ExitCode.INTEGRITY, kind="damaged-log")
    if result.rejected:
        first = ", ".join(encode_id(key) for key in result.rejected_keys[:IDS_SHOWN])
        names = f"`gossiplog verify {source}` names them" if is_ours_to_verify else f"the first of them: {first}"
        out.note(f"{counted(result.rejected, 'entry', 'entries')} of {source} not valid, and left out; {names}")
    if result.unsupported:
        out.note(
            f"{counted(result.unsupported, 'entry', 'entries')} of {source} not supported here, and left out; {result.unsupported_reason}"
        )
    if result.orphans or result.skipped:
        reason = result.reason or "their ancestors are missing"
        out.note(f"{counted(result.orphans + result.skipped, 'entry', 'entries')} of {source} left out for now: {reason}")
    if result.ending is Ending.STORAGE:
        raise Failure(result.reason, hint="what was taken is kept; run it again to go on", code=ExitCode.INCOMPLETE, kind="storage")
    if result.ending is not Ending.COMPLETE:
        raise SyncAborted(f"the sync from {source} stopped early: {result.reason}", cooldown_s=result.cooldown_s)
    return ExitCode.INTEGRITY if result.rejected else ExitCode.DONE if result.complete else ExitCode.INCOMPLETE


async def _count_difference(ours: GossipLog, theirs: GossipLog) -> tuple[int, int]:
    """Count what we lack and what they lack; reads only the parts of the two trees that differ."""
    from ...plan import ask
    from ...tree import Question, diff_steps

    missing = extra = 0
    steps = diff_steps()
    answer: Any = None
    with contextlib.suppress(StopIteration):
        while True:
            step = steps.send(answer)
            answer = None
            if isinstance(step, Question):
                answer = await (ours if step.side == "a" else theirs).run(ask(step.request))
            else:
                missing += step.a is None
                extra += step.b is None
    return missing, extra
