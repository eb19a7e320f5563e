"""GossipLog: a replica of one topic's causal log that can be put on the network."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

import trio

from .access import Policy, has_policy
from .entry.rules import VALUE_BYTES_DEFAULT, VALUE_BYTES_LIMIT, check_number
from .entry.schemes import accepted_schemes, check_schemes
from .entry.signing import Signer
from .errors import LocalProtocolError, LogNotFound
from .log.access import AccessRule, Authorize
from .log.application import Application, Apply, is_coroutine_function
from .log.membership import Membership
from .log.requests import ReadLeaves
from .plan import ask
from .replica.log import Replica
from .replica.members import known_members
from .store import Durability, open_store
from .tasks.block import block

if TYPE_CHECKING:
    import ssl

    from .bucket import BucketPeer, Exchanged, Published, Taken, WitnessPlace
    from .net.ground.admission import HubLimits
    from .net.hub.client import HubLink
    from .net.hub.server import Hub
    from .sync.result import SyncResult
    from .sync.source import Source

__all__ = ["Application", "GossipLog", "clone", "open"]

P = ParamSpec("P")
T = TypeVar("T")


def _needs_trio(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse a call outside of trio at once, naming the module to use instead."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        if not trio.lowlevel.in_trio_task():
            hint = "gossiplog.aio.open is for asyncio" if _is_in_asyncio() else "gossiplog.blocking.open is for code without an event loop"
            raise LocalProtocolError("gossiplog.open needs a task of trio", hint=f"{hint}; in trio, begin with trio.run(main)")
        return function(*args, **options)

    return call


def _is_in_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@_needs_trio
@block("gossiplog.open")
async def open(
    location: str | os.PathLike[str],
    *,
    topic: str | None = None,
    signer: Signer | None = None,
    app: Application | Sequence[Application] | None = None,
    apply: Apply | None = None,
    authorize: Authorize | None = None,
    policy: Policy | None = None,
    durability: Durability | str = Durability.FULL,
    read_only: bool = False,
    create: bool = True,
    schemes: frozenset[str] | None = None,
    value_bytes_max: int = VALUE_BYTES_DEFAULT,
    on_rebuild: Callable[[int], None] | None = None,
) -> AsyncIterator[GossipLog]:
    """Open a log for the length of an `async with` block. If there is none, it is created, provided that a topic is given.

    The end of the block commits submitted appends and closes the log. If the block raises or is cancelled, other tasks' waiting calls raise
    ClosedError.

    Args:
        location: A path of a SQLite file, `postgresql://…?log=NAME`, or `:memory:`.
        topic: The topic that the log must have. With None the log may have any, and none is created.
        signer: Signs appends that name no other signer.
        app: One `Application` or several, which turn the entries into tables. Entries that were stored without them are applied first.
        apply: Shorthand for an application named `app` of version 1; see `gossiplog.log.application.Apply`.
        authorize: The access rule, `(message, did, past) -> bool`, or without `past`, which answers questions about the message's
            ancestors. It must be a plain function that depends only on its arguments; it is called in the database's thread. Refused
            entries and their descendants are not stored; a refused append of ours raises NotAuthorised.
        policy: The founders of a log whose own entries decide who may write (docs/spec/access.md). `topic` is then the name with which the
            log's topic begins. An existing log must have these founders. To join a log, give its whole topic and no policy.
        durability: `full`, `normal` or `off`: which failures an acknowledged append survives (docs/durability.md).
        read_only: Write nothing. Another process may write at the same time.
        schemes: The signature schemes that entries may use: `ed25519`, the only one by default, `eip712` of the extra `ethereum`, and those
            that `register_scheme` adds.
        value_bytes_max: The largest VALUE of our own appends, at most 4,194,294 bytes. Other authors' entries may always be that large.
        on_rebuild: Called now and then with the number of applied entries while tables are rebuilt.

    Raises:
        LocalProtocolError: An argument is wrong.
        StoreError: The log cannot be opened; the subclass says why.
    """
    check_number("value_bytes_max", value_bytes_max, 1, VALUE_BYTES_LIMIT)
    level = Durability(durability)
    schemes = _register(accepted_schemes() if schemes is None else schemes)
    applications = [*(app if isinstance(app, Sequence) else [app] if app else ()), *([Application("app", 1, apply)] if apply else ())]
    rule = _access_rule(authorize) if authorize else None
    if policy is not None:
        policy, topic = await _find_policy(location, topic, policy, durability=level)
    async with open_store(location, topic=topic, create=create and topic is not None, read_only=read_only, durability=level) as store:
        log = GossipLog(
            store,
            signer=signer,
            applications=applications,
            rule=rule,
            schemes=schemes,
            value_bytes_max=value_bytes_max,
            on_rebuild=on_rebuild,
        )
        async with log.running():
            if policy is not None and not read_only:
                await log.insert(policy.entry(log.topic).value)
            yield log


@_needs_trio
async def clone(
    place: str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    topic: str | None = None,
    durability: Durability | str = Durability.FULL,
    on_progress: Callable[[int, int], None] | None = None,
) -> Taken:
    """Make a log from the entries published in a bucket, or continue an interrupted clone. Others may read the log meanwhile.

    Args:
        place: The bucket: a folder.
        location: The log, which is created if necessary.
        topic: The log's topic; needed if logs of several topics are published.
        on_progress: Called now and then with how many published entries were processed, and how many there are, as far as known.

    Raises:
        LocalProtocolError: Nothing is published there, or logs of several topics are and `topic` names none.
        BucketError: The storage failed.
        StoreError: The log could not be opened or written to.
    """
    from .bucket import look, open_storage, take

    storage = open_storage(place)
    async with open(location, topic=(await look(storage, topic)).topic, durability=durability) as log:
        return await take(log, storage, skips_topics=topic is not None, on_progress=on_progress)


def _witness_places(witnesses: Sequence[str]) -> Sequence[WitnessPlace]:
    from .bucket import WitnessPlace

    return [WitnessPlace.parse(witness) for witness in witnesses]


async def _ask_witness(url: str, body: bytes) -> tuple[int, str, bytes]:
    """Ask a witness. Redirects are not followed."""
    from .net.hub.client import parse_url

    server = parse_url(url, of_server=True)
    answer = await server.ask(server.target, body, answer_bytes_max=64 * 1024)
    return answer.status, answer.first(b"content-type") or "", answer.body


async def _find_policy(location: str | os.PathLike[str], name: str | None, policy: Policy, *, durability: Durability) -> tuple[Policy, str]:
    """Return a policy with its salt, and the log's topic. An existing log's salt is used, or else a new one is drawn."""
    if not isinstance(policy, Policy):
        raise LocalProtocolError(f"a {type(policy).__name__} is no policy", hint="open(…, policy=gossiplog.Policy([did]))")
    if name is None:
        raise LocalProtocolError("a policy without a name for the log", hint="open(…, topic='team.example.com', policy=…)")
    if has_policy(name):
        raise LocalProtocolError(f"the log {name} is founded already", hint="give its whole topic without a policy, or its name with one")
    found: Policy | None = None
    with contextlib.suppress(LogNotFound):
        if location != ":memory:" and not policy.salt:
            async with open_store(location, topic=None, create=False, read_only=True, durability=durability) as store:
                if has_policy(store.topic):
                    found = (await store.read(known_members(Membership()))).policy
    if found is not None and (found.founders, found.k) != (policy.founders, policy.k):
        raise LocalProtocolError(f"{location} has other founders or another k", hint="open it without `policy`")
    policy = found or policy
    if not policy.salt:
        policy = replace(policy, salt=secrets.token_bytes(16))
    return policy, policy.topic(name)


def _register(schemes: frozenset[str]) -> frozenset[str]:
    if "eip712" in schemes:
        # Without the extra, entries of this scheme are ignored, with that reason.
        with contextlib.suppress(ModuleNotFoundError):
            from .ethereum import register

            register()
    check_schemes(schemes)
    return frozenset(schemes)


def _access_rule(authorize: Authorize) -> AccessRule:
    if is_coroutine_function(authorize):
        hint = "define it with `def`; it can ask `past`, its third argument, about ancestors"
        raise LocalProtocolError("authorize is a coroutine function, whose answer would always be yes", hint=hint)
    try:
        parameters = inspect.signature(authorize).parameters.values()
    except ValueError:
        return AccessRule(authorize, asks_past=False)
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return AccessRule(authorize, asks_past=len(places) > 2 or any(each.kind is each.VAR_POSITIONAL for each in parameters))


class GossipLog(Replica):
    """One replica of a log. Open it with `gossiplog.open`. Any number of tasks may call its methods.

    Ids are strings of 32 characters, keys the same in 20 bytes. Where a method takes an id, an unknown one raises NotFound and a malformed
    one DecodeError. A method that writes raises ReadOnlyLog if the log is open read-only. A cancelled read does nothing; a cancelled write
    is done whole or not at all.

    Attributes:
        location: Where the log lies, for messages to the user.
        read_only: Whether writing is refused.
        has_members: Whether the log's own entries decide who may write: its topic names a policy.
        has_rules: Whether a valid entry may be refused, because there is an access rule or the log has members.
        is_shared: Whether another process may be writing to the log.
        topic: The log's topic.
        presence: The states that those who have the log open give themselves for now. They are sent to the others and never stored.
    """

    async def publish(
        self,
        place: str | os.PathLike[str],
        *,
        signer: Signer | None = None,
        again: bool = False,
        witnesses: Sequence[str] = (),
        on_progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Publish new entries in the signer's own folder of a bucket; write nothing if there are none.

        Entries are published in the order in which this replica got them, under a checkpoint that the signer signs. After a cancelled call
        or a killed process the next call resumes. The log may be open read-only.

        Args:
            place: A folder, which is created if necessary.
            signer: An Ed25519 signer instead of the log's own.
            again: Write everything once more, to replace lost or damaged files.
            witnesses: Witnesses to cosign the published checkpoint within five seconds, each as `URL#VKEY`.
            on_progress: Called now and then with the number of published entries.

        Raises:
            LocalProtocolError: There is no signer, or it is not of Ed25519; or the place is no bucket.
            LogBusy: Another process publishes there with this key.
            BucketError: The storage failed, or another log was published there with this key.
        """
        from .bucket import cosign_published, open_storage, publish

        storage, chosen, places = open_storage(place), self._choose_signer(signer), _witness_places(witnesses)
        published = await publish(self, storage, chosen, again=again, on_progress=on_progress)
        if places:
            published.cosigned = await cosign_published(storage, chosen, places, _ask_witness)
        return published

    @overload
    async def sync(self, other: Replica, *, source: Source | None = None) -> SyncResult: ...

    @overload
    async def sync(
        self,
        other: str | os.PathLike[str],
        *,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Exchanged: ...

    async def sync(
        self,
        other: Replica | str | os.PathLike[str],
        *,
        source: Source | None = None,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SyncResult | Exchanged:
        """Pull the entries of another open log that this one lacks. Or exchange with a bucket: take others' entries, and publish ours.

        The other log is read from one snapshot; call its own `sync` for the other direction. A bucket needs no server and no lock: every
        writer has its own folder, and every byte read is verified. The result lists files of the bucket that are missing or wrong.

        Args:
            other: A log with the same topic, or the place of a bucket, which is a folder.
            source: What earlier syncs learned about that log; pass the same object each time.
            signer: Signs the published checkpoint, instead of the log's own signer. Without either, or to a bucket behind a web server,
                nothing is published.
            on_progress: Called now and then with how many published entries were processed, and how many there are, as far as known.

        Raises:
            LocalProtocolError: The topics differ, or the place is no bucket.
            RemoteProtocolError: The other log's tree contradicts itself.
            BucketError: The bucket's storage failed, or there is a `signer` and nothing can be written there.
        """
        if isinstance(other, Replica):
            return await super().sync(other, source=source)
        from .bucket import check_writable, exchange, open_storage

        self._check_writable()
        storage = open_storage(other)
        if signer is not None:
            check_writable(storage)
        return await exchange(self, storage, signer or self._signer, on_progress=on_progress)

    async def prove(self, id: str, place: str | os.PathLike[str] | None = None, *, publisher: str | None = None) -> bytes:
        """Return a proof that an entry is in a published log, as a file that can be checked without the log.

        It holds the entry, the publisher's newest checkpoint with its signatures, and the hashes between the two: C2SP's tlog-proof.

        Args:
            place: The bucket with the published log; None tries those that this log was published to or taken from.
            publisher: The did of the publisher whose log must contain it; None for any publisher.

        Raises:
            NotFound: The log has no such entry, or it is published nowhere.
            DamagedBucket: The published log is damaged.
            BucketError: The storage failed.
        """
        from .bucket import prove

        entry = await self.get(id)
        seq = (await self.run(ask(ReadLeaves([entry.key]))))[entry.key].seq
        return await prove(self, entry, place, publisher, guess=seq - 1)

    @block("log.keep_synced")
    async def keep_synced(
        self,
        place: str | os.PathLike[str],
        *,
        signer: Signer | None = None,
        every_s: float = 5.0,
        witnesses: Sequence[str] = (),
    ) -> AsyncIterator[BucketPeer]:
        """Keep exchanging with a bucket for the length of a block: publish new entries, and take those that others publish.

        Failures are logged and tried again, with growing pauses up to a minute. At the end of the block new entries are published, if that
        takes at most two seconds. The value of the block tells the state of the exchange.

        Args:
            place: The bucket: a folder, or a URL.
            signer: An Ed25519 signer instead of the log's own.
            every_s: How often to exchange, in seconds.
            witnesses: Witnesses to cosign published checkpoints, each as `URL#VKEY`, as `gossiplog witness` prints it.

        Raises:
            LocalProtocolError: There is no signer, or it is not of Ed25519; the place is no bucket, or a witness is malformed.
        """
        if not every_s > 0:
            raise LocalProtocolError(f"every_s {every_s}, expected more than 0")
        from .bucket import keep_exchanging, open_storage
        from .net.ground.journal import note

        def tell(event: str, reason: str) -> None:
            note(event, level=logging.WARNING, topic=self.topic, bucket=storage.url, reason=reason)

        self._check_writable()
        storage, chosen, places = open_storage(place), self._choose_signer(signer), _witness_places(witnesses)
        async with keep_exchanging(self, storage, chosen, every_s=every_s, witnesses=places, ask=_ask_witness, tell=tell) as peer:
            yield peer

    @block("log.listen")
    async def listen(
        self,
        address: str = "127.0.0.1:8080",
        *,
        tls: ssl.SSLContext | None = None,
        limits: HubLimits | None = None,
        has_api: bool = True,
    ) -> AsyncIterator[Hub]:
        """Serve the log to WebSocket clients, such as browsers, for the length of a block.

        Everything that a client or this process appends goes to all others. At the end of the block, no more clients are accepted, waiting
        data is sent for at most a second, and the connections are closed.

        Args:
            address: `HOST:PORT`, or `:PORT` for all addresses of the machine; port 0 takes a free one.
            limits: How many connections are let in: a `gossiplog.net.HubLimits`.
            has_api: Serve the HTTP API on the same port.

        Raises:
            LocalProtocolError: The address is malformed.
            CannotListen: The address is in use, or none of this machine's.
        """
        from .net.hub.server import listen

        if has_api:
            from .web import make_http
        async with listen([self], address, tls=tls, limits=limits, make_http=make_http if has_api else None) as hub:
            yield hub

    @block("log.connect")
    async def connect(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        identity: Signer | None = None,
    ) -> AsyncIterator[HubLink]:
        """Keep the log connected to a hub for the length of a block: each side gets what it lacks, and then the other's new entries.

        It connects in the background, and reconnects after growing pauses when the connection is lost. The link has `wait_connected`.

        Args:
            url: `ws://HOST:PORT` or `wss://…`, with `/TOPIC` if the hub serves several logs.
            tls: Checks the hub's certificate; the system's authorities by default.
            identity: Proves its did to the hub at each connection, for hubs that admit dids without a token.

        Raises:
            LocalProtocolError: The URL is malformed, or the log is already connected to it.
        """
        from .net.hub.client import connect

        async with connect(self, url, tls=tls, token=token, headers=headers, identity=identity) as link:
            yield link
