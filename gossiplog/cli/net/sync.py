"""`sync`: make a log equal to another log, or to that of a hub: once, or until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
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
from ..output import Output, counted, record_of
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

# With a hub
_IDS_SHOWN = 8
"""How many ids of invalid entries are named."""
_SAMPLE = 100
_KEY_BYTES = 20
_VALUE_OVERHEAD = 4


def hub_url(text: str, token: str | None = None, identity: Signer | None = None, *, tls_ca: str | None = None) -> HubUrl | None:
    """Parse the URL of a hub, to log in with the token or the identity; None if `text` is a path.

    Raises:
        Failure: It is another kind of URL.
    """
    if "://" not in text:
        return None
    from ...net.hub.client import parse_url

    tls = client_tls(tls_ca)
    with misused(""):
        return parse_url(text, token=token, identity=identity, tls=tls)


async def _sync_hub(log: GossipLog, hub: HubUrl, wish: _Wish) -> SyncResult | None:
    """Exchange with a hub once, and report it; return the pull."""
    from ...net.hub.exchange import exchange
    from ...sync.result import Ending

    with Progress("entries", is_shown=not wish.out.is_strict) as progress:

        def on_pause(seconds: float) -> None:
            wish.out.note(f"{hub.url} asks for a pause of {seconds:.0f} s, or sent nothing; going on after that")

        done = await exchange(
            log,
            hub,
            pulls=wish.pulls,
            pushes=wish.pushes,
            on_progress=progress.step,
            on_pause=on_pause,
            connections=wish.connections,
        )
    pulled, per_entry = done.pulled, done.bytes_per_entry
    record = {
        "equal": done.is_equal,
        "root": None if done.root is None else {"level": done.root.level, "hash": done.root.hash.hex()},
        "roundTrips": None if pulled is None else pulled.waits,
        "sessions": (0 if pulled is None else pulled.sessions) + done.sessions,
        **record_of(done, "bytes_sent", "bytes_received"),
        "bytesPerEntry": None if per_entry is None else round(per_entry, 1),
        "seconds": round(done.seconds, 3),
        "leftOut": left_out_record(pulled),
    }
    each = "" if per_entry is None else f", {per_entry:,.0f} an entry"
    shown = [("bytes", f"{done.bytes_sent:,} sent, {done.bytes_received:,} received{each}")]
    shown += [("round trips", f"{pulled.waits:,}")] if pulled is not None else []
    shown += [("seconds", f"{done.seconds:.2f}")]
    if done.root is not None:
        shown += [_roots(await log.root(), done.root, is_equal=done.is_equal)]
    wish.report(None if pulled is None else pulled.entries, done.pushed, record, shown)
    has_our_store_failed = pulled is not None and pulled.ending is Ending.STORAGE
    if done.is_taken is False and not has_our_store_failed:
        hint = f"run it again to go on; if that does not help, `gossiplog doctor {hub.url}` says whether the hub can store entries"
        if done.unserved:
            hint = f"this log cannot answer its requests: {done.unserved}; `gossiplog verify` looks for damage"
        message = f"{hub.url} did not accept all entries"
        raise _refusal(hub, done) or Failure(message, hint=hint, code=ExitCode.INCOMPLETE, kind="sync-aborted")
    return pulled


def _refusal(hub: HubUrl, done: Exchange) -> Failure | None:
    """Return the error for entries that the hub reported as refused; None if it reported none."""
    refused = sorted(done.refused.values(), key=lambda each: (each.rule == Rule.QUOTA, -each.count))
    if not refused:
        return None
    message = f"{hub.url} refuses {counted(refused[0].count, 'entry', 'entries')}: {refused[0].reason}"
    if refused[0].rule == Rule.QUOTA:
        return Failure(message, hint="run it again after that to go on", code=ExitCode.INCOMPLETE, kind="quota")
    first = f"the first is {refused[0].ids[0]}" if refused[0].ids else None
    return Failure(message, hint=first, code=ExitCode.UNAUTHORISED, kind="unauthorised")


async def _rehearse_hub(log: GossipLog, hub: HubUrl, wish: _Wish) -> int:
    """Report what an exchange with a hub would move, and about how many bytes that takes; move nothing."""
    from ...net.hub.exchange import exchange

    try:
        done = await exchange(log, hub, pulls=wish.pulls, pushes=wish.pushes, is_rehearsal=True)
    except ProtocolNotSupported:
        message = f"{hub.url} does not reconcile, so --dry-run cannot know what would be moved"
        raise Failure(message, hint="only a sync shows it", code=ExitCode.USAGE) from None
    found = done.rehearsal
    assert found is not None
    # Entries to come are taken to be as large as our last ones.
    sizes = [len(entry.value) async for entry in log.iterate(reverse=True, limit=_SAMPLE)]
    mean = sum(sizes) / max(1, len(sizes))
    spent = done.bytes_sent + done.bytes_received
    expected = spent + round(_KEY_BYTES * found.wanted + (mean + _VALUE_OVERHEAD) * (found.wanted + found.given))
    record = {"dryRun": True, "symbols": found.symbols, "bytesSpent": spent, "bytesExpected": expected}
    shown = [("bytes", f"about {expected:,} with entries of {mean:,.0f} bytes; this run took {spent:,}")]
    wish.report(found.wanted, found.given, record, shown)
    return ExitCode.DONE


async def _follow_hub(log: GossipLog, hub: HubUrl, out: Output) -> int:
    from ...net.hub.client import connect

    async with connect(log, hub.url, tls=hub.tls, headers=dict(hub.headers), identity=hub.identity):
        await wait_for_signal(tell=lambda: out.note(f"following {hub.url}; Ctrl-C ends it"))
    return ExitCode.DONE


def left_out_record(result: SyncResult | None) -> dict[str, object] | None:
    """Return the entries that a sync left out and why, as JSON; None if there are none."""
    from ...entry.message_id import encode_id

    if result is None or (result.complete and not result.rejected):
        return None
    return {
        **record_of(result, "rejected", "unsupported", "orphans", "skipped"),
        "rejectedIds": [encode_id(key) for key in result.rejected_keys[:_IDS_SHOWN]],
        "unsupportedReason": result.unsupported_reason or None,
        "reason": result.reason or None,
    }


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of `sync`, without the direction."""

    is_dry: bool = option("--dry-run", is_flag=True, help="Count the entries that would move, and move none.")
    heals: bool = option("--heal", is_flag=True, help="First repair a damaged LOG, and fetch its damaged and lost entries from OTHER.")
    is_all: bool = option("--all", is_flag=True, help="LOG is a folder or a database of logs: sync each of them.")
    creates: bool = option("--create", is_flag=True, help="With --all: create logs that one side lacks.")
    follows: bool = option(
        "--follow", is_flag=True, help="With a hub: stay connected, and exchange new entries as they come, until Ctrl-C."
    )
    tls_ca: str | None = shared(tls_ca_option)
    token_file: str | None = shared(token_option)
    key_name: str | None = shared(exchange_key_option)
    log_format: str = option("--log-format", type=click.Choice(LOG_FORMATS), default="text", help="With --follow: how to log, on stderr.")
    durability: str = shared(durability_option)


@click.command()
@click.argument("log", metavar="LOG", type=LOG_OR_SHELF)
@click.argument("other", metavar="OTHER", type=LOG_OR_SHELF)
@click.option("--pull", "direction", flag_value="pull", help="Only fetch from OTHER what LOG lacks.")
@click.option("--push", "direction", flag_value="push", help="Only give OTHER what it lacks.")
@takes(options=_Options)
@output_options()
@in_trio
async def sync(log: Location, other: Location, direction: str | None, options: _Options, out: Output) -> int:
    """Make two logs equal.

    Two logs of one topic exchange what they lack, and end with equal roots. They compare hashes from the root down, so the cost depends on
    the difference, not on the size. All received entries are verified. An interrupted run keeps what it has and can be repeated.

    OTHER is another log, or the ws:// or wss:// URL of a hub: a `gossiplog serve`, or the reference implementation. They sync once, or with
    --follow stay connected. OTHER may also be a bucket, which is a folder: LOG gets what others have published there, and is published
    beside them with your key. A path that ends in / is a bucket even if no folder is there yet. A bucket behind a web server is only read.

    Damaged rows do not change hashes, so an ordinary sync does not repair them. --heal checks LOG, repairs it or rebuilds it from what is
    left (keeping the damaged file beside it), fetches the rest from OTHER, and checks LOG again.

    With --all LOG is a folder or a database of logs, as for `gossiplog serve --dir`. OTHER is another one, the URL of a server without
    a topic, or buckets: a place that ends in {topic}. Topics that both sides have are synced, with --create all of them. If a log fails,
    the others go on; the exit code is that of the worst log.

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
        raise click.UsageError("--key and --token-file exclude each other")
    if options.creates and not options.is_all:
        raise click.UsageError("--create goes with --all; `gossiplog copy` makes a copy of one log")
    healing = Healing(log, out) if options.heals else None
    wish = _Wish(log, other, options, out, pulls=direction != "push", pushes=direction != "pull", healing=healing)
    if not options.is_all:
        if any(each.is_url and each.is_shelf for each in (log, other)):
            raise click.UsageError("that is a database of many logs: --all syncs all of them, ?log=NAME names one")
        return await _with_one(wish)
    if options.heals or options.follows or options.is_dry:
        raise click.UsageError("--all goes with --pull and --push, but with neither --heal, --follow nor --dry-run")
    return await _with_all(wish)


@dataclass(frozen=True)
class _Wish:
    """The task of one call of the command.

    Attributes:
        pulls: Whether `log` gets what it lacks.
        pushes: Whether `other` gets what it lacks.
        healing: The healing of `log`; None without --heal.
        topic: The topic that both must have; None for any.
        connections: The connections with the hub, which all logs of a shelf share.
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

    def report(self, pulled: int | None, pushed: int | None, record: Mapping[str, Any], shown: Iterable[tuple[str, str]]) -> None:
        """Write how many entries were or would be moved, and more about it; the direction decides which of the counts are written."""
        pulled, pushed = pulled if self.pulls else None, pushed if self.pushes else None
        would = "to be " if self.options.is_dry else ""
        counts = [(f"{would}{name}", f"{n:,}") for name, n in (("pulled", pulled), ("pushed", pushed)) if n is not None]
        healed = {} if self.healing is None else {"healed": self.healing.record}
        self.out.fields({"pulled": pulled, "pushed": pushed, **record, **healed}, [*counts, *shown])

    def judged(self, *results: tuple[SyncResult | None, Location]) -> int:
        """Report what syncs left out, each with the place it pulled from, and choose the exit code."""
        codes = [_judge(result, place, self.out) for result, place in results if result is not None]
        return worst([*codes, *([] if self.healing is None else [self.healing.code])])


async def _with_one(wish: _Wish) -> int:
    """Sync one log with another log, a hub or a bucket.

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
    hub = None if other.is_url else hub_url(other, None if identity else read_token(options.token_file), identity, tls_ca=options.tls_ca)
    if hub is None and (wants_hub or identity is not None):
        raise click.UsageError(
            f"{other} is a log: --follow, --tls-ca and --token-file are for hubs, which have ws:// or wss:// URLs, and --key is for hubs "
            "and buckets; the path of a new bucket ends in /"
        )
    if options.follows and (options.is_dry or not (wish.pulls and wish.pushes)):
        raise click.UsageError("--follow goes with neither --dry-run, --pull nor --push")
    if options.heals and (options.is_dry or options.follows or not wish.pulls):
        raise click.UsageError("--heal pulls, once: it does not go with --dry-run, --push or --follow")
    if hub is None and log.is_same(other):
        raise click.UsageError("LOG and OTHER are the same")
    return await (_with_log(wish) if hub is None else _with_hub(wish, hub))


async def _with_all(wish: _Wish) -> int:
    """Sync each log of a shelf with its counterpart."""
    from ...bucket import in_place
    from ...net.hub.client import at_topic, open_hub_connections
    from ...store import Durability
    from ...store.places import open_place
    from .sync_all import sync_all, topics_in_bucket, topics_of_hub

    ours, place, others, options = open_place(wish.log.full), wish.other.full, None, wish.options
    place_of: Callable[[str], str | os.PathLike[str]]
    if "{topic}" in place:
        theirs, place_of = await topics_in_bucket(place), partial(in_place, f"{place.rstrip('/')}/")
    elif (hub := None if wish.other.is_url else hub_url(place, read_token(options.token_file), tls_ca=options.tls_ca)) is not None:
        if options.key_name is not None:
            raise click.UsageError("with --all a server needs a token: --key logs in to a single log")
        theirs, place_of = await topics_of_hub(hub), partial(at_topic, place)
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
    log, healing = wish.log, wish.healing
    if healing is not None:
        await healing.prepare(None)
    async with opened(log, topic=wish.topic, read_only=wish.options.is_dry or not wish.pulls, durability=wish.options.durability) as ours:
        if healing is not None:
            from ...net.hub.exchange import exchange

            await healing.finish(ours, partial(exchange, ours, hub, pulls=True, pushes=False))
        if wish.options.follows:
            write_journal(wish.options.log_format)
            return await _follow_hub(ours, hub, wish.out)
        if wish.options.is_dry:
            return await _rehearse_hub(ours, hub, wish)
        pulled = await _sync_hub(ours, hub, wish)
    return wish.judged((pulled, wish.other))


async def _with_log(wish: _Wish) -> int:
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
        # Opened read-only unless there is something to give: the source of a sync may belong to somebody else.
        async with opened(other) as theirs:
            if ours.topic != theirs.topic:
                hint = "only logs of one topic can be merged"
                raise TopicMismatch(f"{log} has topic {ours.topic}, {other} has {theirs.topic}", hint=hint)
            if wish.options.is_dry:
                missing, extra = await _count_difference(ours, theirs)
                _report(wish, missing, extra, await ours.root(), await theirs.root())
                return ExitCode.DONE
            if healing is not None:
                await healing.finish(ours, partial(ours.sync, theirs))
            pulled = await ours.sync(theirs) if wish.pulls else None
            roots = await ours.root(), await theirs.root()
        if wish.pushes and roots[0] != roots[1]:
            async with opened(other, read_only=False, durability=wish.options.durability) as theirs:
                pushed = await theirs.sync(ours)
                roots = await ours.root(), await theirs.root()
        left_out = {"pulled": left_out_record(pulled)} if wish.pulls else {}
        left_out |= {"pushed": left_out_record(pushed)} if wish.pushes else {}
        _report(wish, pulled.entries if pulled else None, pushed.entries if pushed else 0, *roots, left_out)
    return wish.judged((pulled, other), (pushed, log))


def _report(wish: _Wish, pulled: int | None, pushed: int, ours: Node, theirs: Node, left_out: Mapping[str, object] | None = None) -> None:
    record = {
        "dryRun": wish.options.is_dry,
        "equal": ours == theirs,
        "root": {"level": ours.level, "hash": ours.hash.hex()},
        "leftOut": left_out,
    }
    wish.report(pulled, pushed, record, [_roots(ours, theirs, is_equal=ours == theirs)])


def _roots(ours: Node, theirs: Node, *, is_equal: bool) -> tuple[str, str]:
    return "roots", f"equal: {ours.hash.hex()}" if is_equal else f"differ: {ours.hash.hex()} and {theirs.hash.hex()}"


def _judge(result: SyncResult, source: str, out: Output) -> ExitCode:
    """Report what a sync left out, and choose the exit code."""
    from ...entry.message_id import encode_id
    from ...sync.result import Ending

    is_ours_to_verify = "://" not in source or Location.parse(source).is_url
    if result.ending is Ending.VIOLATION:
        hint = "its operator can find the damage with `gossiplog verify` and `gossiplog fsck`"
        if is_ours_to_verify:
            hint = f"`gossiplog verify {source}` names the entry, `gossiplog fsck {source}` other damage"
        raise Failure(f"{source} is damaged: {result.reason}", hint=hint, code=ExitCode.INTEGRITY, kind="damaged-log")
    if result.rejected:
        first = ", ".join(encode_id(key) for key in result.rejected_keys[:_IDS_SHOWN])
        names = f"`gossiplog verify {source}` names them" if is_ours_to_verify else f"the first of them: {first}"
        out.note(f"{counted(result.rejected, 'entry', 'entries')} of {source} not valid, and left out; {names}")
    if result.unsupported:
        count = counted(result.unsupported, "entry", "entries")
        out.note(f"{count} of {source} not supported here, and left out; {result.unsupported_reason}")
    if result.orphans or result.skipped:
        reason = result.reason or "their ancestors are missing"
        out.note(f"{counted(result.orphans + result.skipped, 'entry', 'entries')} of {source} left out for now: {reason}")
    if result.ending is Ending.STORAGE:
        raise Failure(result.reason, hint="what was taken is kept; run it again to go on", code=ExitCode.INCOMPLETE, kind="storage")
    if result.ending is not Ending.COMPLETE:
        raise SyncAborted(f"the sync from {source} stopped early: {result.reason}", cooldown_s=result.cooldown_s)
    return ExitCode.INTEGRITY if result.rejected else ExitCode.DONE if result.complete else ExitCode.INCOMPLETE


async def _count_difference(ours: GossipLog, theirs: GossipLog) -> tuple[int, int]:
    """Count the entries that we lack, and those that they lack; reads only the parts of the two trees that differ."""
    from ...plan import ask
    from ...tree import Question, diff

    missing = extra = 0
    steps = diff()
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
