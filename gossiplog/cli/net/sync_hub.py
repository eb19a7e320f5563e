"""`sync` with a hub at the other end: once, or until Ctrl-C."""

from __future__ import annotations

import signal
import ssl
from typing import TYPE_CHECKING, Any

from ...entry.validation import Rule
from ...errors import LocalProtocolError, ProtocolNotSupported
from ..exits import ExitCode, Failure
from ..output import Output, counted
from ..progress import Progress

if TYPE_CHECKING:
    from ...entry.signing import Signer
    from ...gossip_log import GossipLog
    from ...net.hub.client import HubUrl
    from ...net.hub.exchange import Exchange
    from ...sync import SyncResult

__all__ = ["IDS_SHOWN", "follow_hub", "hub_url", "left_out_record", "rehearse_hub", "sync_hub"]

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

    try:
        return parse_url(text, token=token, identity=identity)
    except LocalProtocolError as error:
        raise Failure(str(error), hint=error.hint, code=ExitCode.USAGE, kind="usage") from None


async def sync_hub(
    log: GossipLog,
    hub: HubUrl,
    *,
    pulls: bool,
    pushes: bool,
    tls: ssl.SSLContext | None,
    out: Output,
    healed: dict[str, Any] | None = None,
) -> Exchange:
    """Exchange with a hub once, and report it."""
    from ...net.hub.exchange import exchange

    with Progress("entries", is_shown=not out.is_strict) as progress:

        def on_pause(seconds: float) -> None:
            out.note(f"{hub.url} wants to be left alone for {seconds:.0f} s, or brought nothing; going on after that")

        done = await exchange(log, hub, pulls=pulls, pushes=pushes, tls=tls, on_progress=progress.step, on_pause=on_pause)
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
        **({} if healed is None else {"healed": healed}),
        "leftOut": None if done.pulled is None else left_out_record(done.pulled),
    }
    shown = [("pulled", counted(done.pulled.entries, "entry", "entries"))] if done.pulled is not None else []
    shown += [("pushed", counted(done.pushed, "entry", "entries"))] if pushes else []
    per_entry = "" if done.bytes_per_entry is None else f", {done.bytes_per_entry:,.0f} an entry"
    shown += [("bytes", f"{done.bytes_sent:,} sent, {done.bytes_received:,} received{per_entry}")]
    shown += [("round trips", f"{done.pulled.waits:,}")] if done.pulled is not None else []
    shown += [("seconds", f"{done.seconds:.2f}")]
    if done.root is not None:
        ours = await log.root()
        shown += [("roots", f"equal: {ours.hash.hex()}" if done.is_equal else f"differ: {ours.hash.hex()} and {done.root.hash.hex()}")]
    out.fields(record, shown)
    if done.is_taken is False:
        hint = "run it again to go on; if it stays so, the hub refuses an entry of this log: `gossiplog verify` looks for damage"
        if done.unserved:
            hint = f"what it asked for cannot be answered: {done.unserved}"
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


async def rehearse_hub(log: GossipLog, hub: HubUrl, *, pulls: bool, pushes: bool, tls: ssl.SSLContext | None, out: Output) -> int:
    """Say what an exchange with a hub would move, and about how many bytes that takes; move nothing."""
    from ...net.hub.exchange import exchange

    try:
        done = await exchange(log, hub, pulls=pulls, pushes=pushes, tls=tls, is_rehearsal=True)
    except ProtocolNotSupported:
        message = f"{hub.url} cannot say beforehand what would be moved"
        raise Failure(message, hint="it does not reconcile; only a sync shows it", code=ExitCode.USAGE, kind="usage") from None
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
    out.fields(record, shown)
    return ExitCode.DONE


async def _mean_value_bytes(log: GossipLog) -> float:
    """Return the mean size of our last entries, by which those of others are guessed."""
    sizes = [len(entry.value) async for entry in log.iterate(reverse=True, limit=_SAMPLE)]
    return sum(sizes) / len(sizes) if sizes else 0.0


async def follow_hub(log: GossipLog, hub: HubUrl, *, tls: ssl.SSLContext | None, out: Output) -> int:
    """Stay connected to a hub until Ctrl-C."""
    import trio

    from ...net.hub.client import connect

    async with connect(log, hub.url, tls=tls, headers=dict(hub.headers), identity=hub.identity):
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            out.note(f"following {hub.url}; Ctrl-C ends it")
            await anext(signals)
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
