"""The sync streams of a log: those that peers open, served in turns, and those on which we pull. The rooms `pull` and `sync` decide."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import trio

from ...broadcast.actions import StartSync
from ...broadcast.events import Misbehaved, SyncFinished, SyncServed
from ...errors import ClosedError, RemoteProtocolError, SnapshotExpired, StreamReset
from ...plan import ask
from ...pull.machine import Pull, Way
from ...pull.serving import CROSSING, HEARD_S, RESUME_S, Aftermath, after_merkle, after_reconciliation
from ...reconcile import Reconciled, Reconciliation, Served, messages, serve
from ...sync.result import Ending, SyncResult
from ...sync.server import SyncServer
from ...tasks.spans import span
from ...tree.node import ReadRoot
from ..ground.journal import note
from ..ground.protocol_ids import is_in_parts, reconcile_protocol, sync_protocols
from ..transport.muxed import Handler, PromptHandler, Stream
from .driver import LogDriver
from .intake import IntakeWork
from .peers import PeerConnection, ServedPeer
from .sessions import Insert, ServeSession, Turns, close_in_peace, run_pull, sketch_in_time

WAITING_MAX = 64
"""Sync streams of one peer that wait for each other. The reference opens one for every orphan it is pushed."""
SYMBOLS_A_REQUEST = 8
"""Symbols that count as one request of a peer's allowance."""
Serve: TypeAlias = Callable[[PeerConnection, Stream], Awaitable[bool]]
"""Returns whether the peer has to be reminded."""


class SyncStreams:
    """Serves and pulls for one log."""

    def __init__(self, driver: LogDriver, intake: IntakeWork) -> None:
        self._driver = driver
        self._intake = intake
        self._turns = Turns()

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of sync streams, by protocol id."""
        handler, topic = self._driver.connections.handler, self._driver.topic
        reconciliation = PromptHandler(handler(partial(self._serve, self._serve_reconciliation)))
        merkle = handler(partial(self._serve, self._serve_merkle))
        return {reconcile_protocol(topic): reconciliation, **dict.fromkeys(sync_protocols(topic), merkle)}

    # Streams that peers open

    async def _serve(self, serve: Serve, link: PeerConnection, stream: Stream) -> None:
        peer = link.peer
        if "pull" not in peer.rights:
            peer.note_once("pull", "client may not pull")
            raise StreamReset("pulling is not allowed here")
        if serve == self._serve_reconciliation:
            link.speaks.reconciles = True
        if peer.serving.statistics().tasks_waiting >= WAITING_MAX:
            raise StreamReset("too many sync streams at once")
        peer.dealings.begun += 1
        async with peer.serving:
            try:
                async with self._turns.taken():
                    is_cut_short = await serve(link, stream)
            except SnapshotExpired as error:
                # The store had to tidy up, which is nobody's fault. The peer resumes on a later snapshot.
                raise StreamReset(str(error)) from error
            except RemoteProtocolError as error:
                self._driver.tell(Misbehaved(peer.id, str(error)))
                raise
        if is_cut_short:
            await self._remind(peer, stream)

    async def _remind(self, peer: ServedPeer, stream: Stream) -> None:
        """Send our heads to a client whose session was cut short, unless it begins another by itself; see `Aftermath`."""
        begun = peer.dealings.begun
        with trio.move_on_after(HEARD_S), suppress(StreamReset, ClosedError):
            # The client notices the end when it asks for more.
            while await stream.receive_some():
                pass
        await trio.sleep(RESUME_S)
        if peer.dealings.begun == begun:
            self._driver.tell(SyncServed(peer.id))

    def _follow_up(self, peer: ServedPeer, aftermath: Aftermath) -> bool:
        """Tell the machine what follows a session; return whether the peer has to be reminded."""
        if aftermath.result is not None:
            # No session of ours has this token.
            self._driver.tell(SyncFinished(peer.id, aftermath.result, -1))
        if aftermath.tells:
            self._driver.tell(SyncServed(peer.id))
        return aftermath.reminds

    async def _serve_merkle(self, link: PeerConnection, stream: Stream) -> bool:
        peer, log = link.peer, self._driver.log
        server = SyncServer(trio.current_time(), bucket=peer.bucket, in_parts=is_in_parts(stream.protocol))
        async with log.snapshot(may_expire=True) as snapshot:
            root = await snapshot.run(ask(ReadRoot()))
            try:
                await ServeSession(log, snapshot, stream, server, self._turns).run()
            finally:
                peer.count("syncs served")
                peer.count("sync requests", server.requests)
        if server.fault:
            peer.note_once("sync unanswered", "sync ended without an answer", level=logging.WARNING, reason=server.fault)
        return self._follow_up(peer, after_merkle(server, has_moved=await log.root() != root))

    async def _serve_reconciliation(self, link: PeerConnection, stream: Stream) -> bool:
        peer, log = link.peer, self._driver.log
        if peer.dealings.is_crossing(is_outbound=link.connection.is_outbound):
            await _refuse(stream, CROSSING)
            return False
        await trio.sleep_until(peer.bucket.ready_at(trio.current_time()))
        view = await sketch_in_time(log)
        if view is None:
            await _refuse(stream, "the sketch is not ready")
            return False
        served = Served()
        session = Reconciliation(serve(view, takes=not log.read_only, served=served))
        insert = partial(self._intake.insert_synced, peer, "reconcile")
        try:
            async with log.snapshot(may_expire=True) as snapshot:
                await ServeSession(log, snapshot, stream, session, self._turns, insert).run()
        finally:
            self._note_served(peer, served)
            # Entries that were inserted are announced even if the session was cut off.
            reminds = self._follow_up(peer, after_reconciliation(served, is_over=session.outcome is not None))
        if served.fault:
            raise RemoteProtocolError(served.fault, peer=peer.id)
        return reminds

    def _note_served(self, peer: ServedPeer, served: Served) -> None:
        peer.count("syncs served")
        peer.count("entries pulled", served.taken)
        peer.bucket.take(1 + served.symbols // SYMBOLS_A_REQUEST, trio.current_time())
        why = served.fault or served.reason or None
        self._driver.observed("sync", peer.id, type="reconcile-served", count=served.taken, reason=why)
        note("reconciled", peer=peer.id, entries=served.taken, given=served.given, symbols=served.symbols, reason=why)

    # Streams that we open

    async def pull(self, action: StartSync, link: PeerConnection) -> None:
        """Pull from a peer. However that ends, the machine is given the result."""
        peer, began = link.peer, trio.current_time()
        # A reconciliation gives as well as takes: not with a client that may not pull.
        may_reconcile = "pull" in peer.rights
        pull = Pull(action.source, link.speaks, peer.dealings, may_reconcile=may_reconcile, first_answer_s=action.first_answer_s)

        def insert(way: Way) -> Insert:
            is_reconciled = way is Way.RECONCILE
            self._driver.observed("sync-begin", peer.id, type="reconcile" if is_reconciled else "merkle")
            return partial(self._intake.insert_synced, peer, "reconcile" if is_reconciled else "sync")

        async def close(stream: Stream) -> None:
            link.start(lambda _: close_in_peace(stream))

        peer.pulling += 1
        with span("sync", self._driver.topic) as note_attributes:
            try:
                open_stream = partial(self._driver.open_stream, link)
                await run_pull(pull, self._driver.log, link.connection, open_stream, insert, close, serving=peer.serving)
            finally:
                peer.pulling -= 1
                result = pull.result
                self._driver.figures.syncs.add(trio.current_time() - began)
                self._note_reconciled(peer, pull.outcome)
                self._on_pulled(peer, result, "reconcile" if pull.is_reconciled else "merkle", is_begun=pull.is_begun)
                self._driver.tell(SyncFinished(action.peer, result, action.token))
                if peer.dealings.take_crossed():
                    self._driver.tell(SyncServed(action.peer))
            note_attributes(entries=result.entries, waits=result.waits, bytes=result.bytes_received, ending=result.ending.value)

    def _note_reconciled(self, peer: ServedPeer, outcome: Reconciled | None) -> None:
        if outcome is None or outcome.fallback == CROSSING:
            return
        if outcome.fallback:
            self._driver.count("reconciliations fallen back")
            note("reconciliation fell back", peer=peer.id, reason=outcome.fallback)
        elif outcome.result.ending is Ending.COMPLETE:
            peer.count("reconciliations")

    def _on_pulled(self, peer: ServedPeer, result: SyncResult, type: str, *, is_begun: bool) -> None:
        peer.count("syncs")
        peer.count("entries pulled", result.entries)
        is_fine = result.ending in (Ending.COMPLETE, Ending.ABORTED, Ending.QUOTA)
        failure = None if result.ending is Ending.COMPLETE else result.reason or result.ending.value
        self._driver.observed("sync", peer.id, type=type, count=result.entries, size=result.bytes_received, reason=failure)
        level = logging.INFO if is_fine else logging.WARNING
        if not is_begun:
            # The peer may not serve this topic at all, and is retried now and then.
            level = logging.DEBUG if "no sync" in peer.told else level
            peer.told.add("no sync")
        note(
            "synced" if result.ending is Ending.COMPLETE else "sync ended early",
            level=level,
            peer=peer.id,
            entries=result.entries,
            waits=result.waits,
            bytes=result.bytes_received,
            unsupported=result.unsupported or None,
            invalid=result.rejected or None,
            ending=None if result.ending is Ending.COMPLETE else result.ending.value,
            reason=result.reason or None,
        )


async def _refuse(stream: Stream, reason: str) -> None:
    """Refuse to reconcile; the other side then syncs by trees."""
    with suppress(StreamReset, ClosedError):
        await stream.send_all(messages.encode(messages.Refuse(reason)))
        stream.close_sending()
