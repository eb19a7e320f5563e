"""The sync streams of a service: those that peers open, served in turns, and those that we open. Reconciliation first, else merkle sync."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import TypeAlias

import trio

from ...broadcast import Misbehaved, StartSync, SyncFinished, SyncServed
from ...errors import ClosedError, GossipLogError, ProtocolNotSupported, RemoteProtocolError, SnapshotExpired, StreamReset
from ...plan import ask
from ...pubsub.types import PeerId
from ...reconcile import Reconciled, Served, Wishes, reconcile, serve
from ...sync.result import Ending, SyncResult
from ...sync.schedule import SessionSlots
from ...sync.source import Source
from ...tasks.spans import span
from ...tree.node import ReadRoot
from ..ground.journal import note
from ..ground.protocol_ids import is_in_parts, reconcile_protocol, sync_protocols
from ..transport.stream import Stream
from .owner import OPEN_S, Owner
from .peers import Peer, PeerConnection
from .pull_session import PullSession
from .reconcile_session import ReconcileSession, refuse, sketch_in_time
from .serve_session import SESSION_S, ServeSession, Turns

__all__ = ["Syncs"]

WAITING_MAX = 64
"""Sync streams of one peer that wait for each other. The reference opens one for every orphan it is pushed."""
BAD_STREAMS_MAX = 100
"""Sync streams on which a peer broke the protocol that make one offence: a mistake of its program is no attack, and thousands are."""
SYMBOLS_A_REQUEST = 8
"""Symbols that count as one request of a peer's allowance."""
HEARD_S = 60.0
"""How soon a client hears that its session was cut short: when it has inserted what it got."""
RESUME_S = 0.5
"""How soon after that it resumes, if it does."""
CROSSING = "a session that the other side began is running"

Serve: TypeAlias = Callable[[Peer, Stream], Awaitable[bool]]
"""Returns whether the session was cut short."""


class Syncs:
    """Serves and pulls for one service.

    Args:
        service: Whose.
        open_stream: Opens a stream, or returns None.
    """

    def __init__(self, service: Owner, open_stream: Callable[..., Awaitable[Stream | None]]) -> None:
        self._service = service
        self._open = open_stream
        self._slots = SessionSlots[PeerId]()
        self._waiting: dict[PeerId, trio.Event] = {}
        self._turns = Turns()
        self._protocols = sync_protocols(service.topic)
        self._reconcile_protocol = reconcile_protocol(service.topic)

    def served(self) -> dict[str, Callable[[PeerConnection, Stream], Awaitable[None]]]:
        """Return what serves each protocol."""
        merkle = dict.fromkeys(self._protocols, partial(self._serve, self._serve_merkle))
        return {self._reconcile_protocol: partial(self._serve, self._serve_reconciliation), **merkle}

    # Streams that peers open

    async def _serve(self, serve: Serve, link: PeerConnection, stream: Stream) -> None:
        peer = link.peer
        if "pull" not in peer.rights:
            peer.note_once("pull", "client may not pull")
            raise StreamReset("pulling is not allowed here")
        if serve == self._serve_reconciliation:
            link.reconciles = True
            if link.connection.is_outbound and peer.reconciling.locked():
                # Both began at once. The side that dialled is the client of the one that goes on, and it goes both ways.
                peer.has_crossed = True
                await refuse(stream, CROSSING)
                return
        if peer.serving_waiting >= WAITING_MAX:
            raise StreamReset("too many sync streams at once")
        peer.serving_begun += 1
        peer.serving_waiting += 1
        try:
            await peer.serving.acquire()
        finally:
            peer.serving_waiting -= 1
        try:
            is_cut_short = await self._serve_in_turn(serve, peer, stream)
        except RemoteProtocolError as error:
            peer.bad_streams += 1
            if peer.bad_streams % BAD_STREAMS_MAX == 0:
                self._service.tell(Misbehaved(peer.id, f"{peer.bad_streams} sync streams that break the protocol: {error}"))
            raise
        finally:
            peer.serving.release()
        if is_cut_short:
            await self._remind(peer, stream)

    async def _remind(self, peer: Peer, stream: Stream) -> None:
        """Tell a client whose session was cut short our heads, unless it begins the next one.

        The reference resumes by itself in Node. In a browser it does not where `WebSocket.OPEN` is undefined in its bundle, as esbuild
        makes it: it would go on when all are told our heads again, up to five minutes later. Told while it syncs, it would begin a second
        sync beside the first; so this waits until it has heard of the end, which it does when it asks for more.
        """
        begun = peer.serving_begun
        with trio.move_on_after(HEARD_S), suppress(StreamReset, ClosedError):
            while await stream.receive_some():
                pass
        await trio.sleep(RESUME_S)
        if peer.serving_begun == begun:
            self._service.tell(SyncServed(peer.id))

    async def _serve_in_turn(self, serve: Serve, peer: Peer, stream: Stream) -> bool:
        is_served = self._slots.enter(peer.id)
        if is_served is None:
            raise StreamReset("too many sessions wait")
        try:
            if not is_served:
                await self._wait_for_turn(peer)
            return await serve(peer, stream)
        except SnapshotExpired as error:
            # The store had to tidy up: nobody's fault. The peer resumes on a later one.
            raise StreamReset(str(error)) from error
        finally:
            self._leave(peer.id)

    async def _serve_merkle(self, peer: Peer, stream: Stream) -> bool:
        async with self._service.log.snapshot(may_expire=True) as snapshot:
            root = await snapshot.run(ask(ReadRoot()))
            session = ServeSession(snapshot, stream, peer.bucket, self._turns)
            try:
                await session.run()
            finally:
                peer.count("syncs served")
                peer.count("sync requests", session.server.requests)
        if session.server.fault:
            peer.note_once("sync unanswered", "sync ended without an answer", level=logging.WARNING, reason=session.server.fault)
        if session.server.is_aborted:
            return True
        if session.server.is_short or await self._service.log.root() != root:
            self._service.tell(SyncServed(peer.id))
        return False

    async def _serve_reconciliation(self, peer: Peer, stream: Stream) -> bool:
        log = self._service.log
        started = trio.current_time()
        await trio.sleep_until(peer.bucket.ready_at(started))
        view = await sketch_in_time(log)
        if view is None:
            await refuse(stream, "the sketch is not ready")
            return False
        served: Served | None = None
        session: ReconcileSession | None = None
        try:
            async with log.snapshot(may_expire=True) as snapshot:
                session = ReconcileSession(log, stream, partial(self._service.insert_synced, peer, "reconcile"), snapshot=snapshot)
                with self._turns.limit(started, started + SESSION_S):
                    served = await session.run(serve(view, takes=not log.read_only))
                stream.close_sending()
        finally:
            inserted = 0 if session is None else session.result.entries
            self._on_served(peer, served, inserted)
            if served is None or served.has_moved:
                self._service.tell(SyncServed(peer.id))
        if served is not None and served.fault:
            raise RemoteProtocolError(served.fault, peer=peer.id)
        return False

    def _on_served(self, peer: Peer, served: Served | None, inserted: int) -> None:
        peer.count("syncs served")
        peer.count("entries pulled", inserted)
        # What was inserted is told of, even if the session was cut off.
        result = SyncResult(ending=Ending.COMPLETE, entries=inserted)
        if served is not None:
            peer.bucket.take(1 + served.symbols // SYMBOLS_A_REQUEST, trio.current_time())
            result.brought = served.brought
            result.rejected, result.rejected_keys = served.rejected, tuple(served.rejected_keys)
            why = served.fault or served.reason or None
            self._service.observed("sync", peer.id, type="reconcile-served", count=inserted, reason=why)
            note("reconciled", peer=peer.id, entries=inserted, given=served.given, symbols=served.symbols, reason=why)
        if inserted or result.rejected:
            # No session of ours has this token.
            self._service.tell(SyncFinished(peer.id, result, -1))

    async def _wait_for_turn(self, peer: Peer) -> None:
        self._waiting[peer.id] = turn = trio.Event()
        self._turns.on_wait()
        try:
            await turn.wait()
        finally:
            self._turns.on_served()
            self._waiting.pop(peer.id, None)

    def _leave(self, id: PeerId) -> None:
        chosen = self._slots.leave(id)
        if chosen is not None:
            self._waiting[chosen].set()

    # Streams that we open

    async def pull(self, action: StartSync, link: PeerConnection) -> None:
        """Run a sync as its client; whatever happens, the machine gets its result."""
        with span("sync", self._service.topic) as note_attributes:
            result = await self._pull(action, link)
            note_attributes(entries=result.entries, waits=result.waits, bytes=result.bytes_received, ending=result.ending.value)

    async def _pull(self, action: StartSync, link: PeerConnection) -> SyncResult:
        # What each session has come to so far: a cancelled one brought what it brought.
        results: list[SyncResult] = []
        began = trio.current_time()
        is_done, stream = False, None
        link.peer.pulling += 1
        try:
            # A reconciliation gives as well as takes, which is not for a client that may not pull.
            if "pull" in link.peer.rights and link.reconciles is not False and action.source.may_reconcile(trio.current_time()):
                is_done, stream = await self._reconcile(action, link, results)
            if not is_done:
                await self._pull_merkle(action, link, stream, results)
        finally:
            link.peer.pulling -= 1
            result = reduce(SyncResult.then, results) if results else SyncResult(reason="no stream could be opened")
            self._service.figures.syncs.add(trio.current_time() - began)
            self._on_pulled(link.peer, result, "reconcile" if is_done else "merkle", is_begun=bool(results))
            self._service.tell(SyncFinished(action.peer, result, action.token))
            if link.peer.has_crossed:
                # It was left with what our session gave, which began before some of what made it begin its own was here.
                link.peer.has_crossed = False
                self._service.tell(SyncServed(action.peer))
        return result

    async def _reconcile(self, action: StartSync, link: PeerConnection, results: list[SyncResult]) -> tuple[bool, Stream | None]:
        """Reconcile; return whether that was all, and if not, a stream that was opened for merkle sync, if one was."""
        peer, log, source = link.peer, self._service.log, action.source
        async with peer.reconciling:
            view = await sketch_in_time(log)
            if view is None:
                return False, None
            stream = await self._open_reconciliation(action, link)
            if stream is None or not link.reconciles:
                return False, stream
            insert = partial(self._service.insert_synced, peer, "reconcile")
            self._service.observed("sync-begin", peer.id, type="reconcile")
            session = ReconcileSession(log, stream, insert, first_answer_s=action.first_answer_s)
            results.append(session.result)
            try:
                outcome = await session.run(reconcile(view, source, trio.current_time(), Wishes(after=source.resume_after)))
                if session.is_unheard:
                    raise ProtocolNotSupported("the stream ended without a word")
            except ProtocolNotSupported:
                link.reconciles = False
                results.clear()
                return False, None
            except GossipLogError as error:
                outcome = Reconciled(session.result, fallback=str(error))
            link.start(partial(_close, session))
        outcome.result.bytes_sent, outcome.result.bytes_received = session.result.bytes_sent, session.result.bytes_received
        results[:] = [outcome.result]
        if outcome.fallback == CROSSING:
            # The session that the peer began brings what it has, too.
            async with peer.serving:
                outcome.result.ending = Ending.COMPLETE
            return True, None
        await self._note_outcome(peer, source, outcome)
        return not outcome.fallback, None

    async def _open_reconciliation(self, action: StartSync, link: PeerConnection) -> Stream | None:
        """Open a stream for it, lazily where the peer is known to speak it, else for what it speaks."""
        is_known = link.reconciles is True
        protocols = [self._reconcile_protocol, *([] if is_known else self._merkle_protocols(link))]
        stream = await self._open(link, protocols, action.first_answer_s or OPEN_S, is_lazy=is_known)
        if stream is not None:
            link.reconciles = stream.protocol == self._reconcile_protocol
        return stream

    async def _note_outcome(self, peer: Peer, source: Source, outcome: Reconciled) -> None:
        if outcome.is_doubtful:
            await self._service.log.forget_sketch()
        if outcome.fallback:
            source.on_fallback(trio.current_time())
            self._service.count("reconciliations fallen back")
            note("reconciliation fell back", peer=peer.id, reason=outcome.fallback)
        elif outcome.result.ending is Ending.COMPLETE:
            source.on_reconciled()
            peer.count("reconciliations")

    def _merkle_protocols(self, link: PeerConnection) -> Sequence[str]:
        # Who lacks our protocol would be asked for it in vain each time, which takes a round trip.
        return self._protocols[not link.syncs_in_parts :]

    async def _pull_merkle(self, action: StartSync, link: PeerConnection, stream: Stream | None, results: list[SyncResult]) -> None:
        if stream is None:
            stream = await self._open(link, self._merkle_protocols(link), action.first_answer_s or OPEN_S)
        if stream is None:
            return
        link.syncs_in_parts = is_in_parts(stream.protocol)
        log, patience_s = self._service.log, action.first_answer_s
        insert = partial(self._service.insert_synced, link.peer, "sync")
        self._service.observed("sync-begin", link.peer.id, type="merkle")
        session = PullSession(log, link.connection, stream, action.source, insert, first_answer_s=patience_s)
        results.append(session.result)
        try:
            await session.run()
        finally:
            link.start(partial(_close, session))

    def _on_pulled(self, peer: Peer, result: SyncResult, type: str, *, is_begun: bool) -> None:
        peer.count("syncs")
        peer.count("entries pulled", result.entries)
        is_fine = result.ending in (Ending.COMPLETE, Ending.ABORTED, Ending.QUOTA)
        failure = None if result.ending is Ending.COMPLETE else result.reason or result.ending.value
        self._service.observed("sync", peer.id, type=type, count=result.entries, size=result.bytes_received, reason=failure)
        level = logging.INFO if is_fine else logging.WARNING
        if not is_begun:
            # It may not serve this topic at all, and is tried again now and then.
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


async def _close(session: PullSession | ReconcileSession, link: PeerConnection) -> None:
    await session.close()
