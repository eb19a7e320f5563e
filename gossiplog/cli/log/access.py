"""`access`: the members of a log, which its own entries decide."""

from __future__ import annotations

import secrets
import signal
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import click

from ...access.forms import ROLES
from ...access.invitation import CODE_BYTES, encode_code, invitation_signer
from ...entry.rules import VALUE_BYTES_DEFAULT
from ...errors import CannotConnect, GossipLogError, NotAuthorised, RemoteProtocolError, SyncAborted
from ..entries import ID_CHARACTERS
from ..exits import ExitCode
from ..options import (
    LOG,
    NumberRange,
    choose_signer,
    client_tls,
    id_argument,
    identity_option,
    key_option,
    output_options,
    read_identity,
    read_token,
    shared,
    takes,
    tls_ca_option,
    token_option,
)
from ..output import Column, Listing, Output, clean
from ..posting import Poster, is_server_url, refuse_server_options
from ..qr import draw_qr, qr_option
from ..session import opened, resolve, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ...entry.message import Entry
    from ...gossip_log import GossipLog
    from ...replica.members import LogMember

T = TypeVar("T")
_Reach: TypeAlias = "Callable[[], AbstractAsyncContextManager[_Reached]]"
_DID_CHARACTERS = 20
"""How much of a did a table shows: `did:key:z6Mk`, with which all begin, and eight characters that tell them apart."""

_under_option = click.option(
    "--under", metavar="NODE", help="Sign as this node of yours; by default the one closest to a founder that may."
)
_role_option = click.option("--role", type=click.Choice(ROLES), default="write", show_default=True, help="What the node may do.")
_device_option = click.option(
    "--device", is_flag=True, help="The key belongs to the same person as your node, like a phone beside a laptop."
)
_LOOK_S = 1.0
_ANSWER_LOOKS = 5
"""How often `join` looks for the inviter's answer; the inviter looks for new nodes once a second."""
_REVOKE_TRIES = 60
_ENDS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
"""The signals that end an invitation early, beside Ctrl-C; a terminal that is closed sends SIGHUP."""
_AWAY = (CannotConnect, RemoteProtocolError, SyncAborted)
"""The errors while a server restarts."""
_node_argument = click.argument("node", metavar="NODE|DID")


@dataclass(frozen=True, slots=True)
class _Place:
    """A log, or the URL of a server, and how to reach that."""

    log: str = shared(click.argument("log", metavar="LOG|URL", type=LOG))
    tls_ca: str | None = shared(tls_ca_option)
    token_file: str | None = shared(token_option)


def _with_reached(command: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Make a command of a coroutine function whose first argument is the log of LOG or URL, open for reading."""

    @wraps(command)
    def whole(at: _Place, key_name: str | None, **options: Any) -> T:
        reach = _reached(at, key_name, signs=False)

        async def task() -> T:
            async with reach() as (opened_log, _, _):
                return await command(opened_log, **options)

        return run(task)

    return whole


def _appends(command: Callable[..., Awaitable[Entry]]) -> Callable[..., None]:
    """Make a command of a coroutine function that appends an entry to the log of LOG or URL, signed with `--key`; the entry is reported."""

    @wraps(command)
    def whole(at: _Place, key_name: str | None, out: Output, **options: Any) -> None:
        _append(at, key_name, out, lambda opened_log: command(opened_log, **options))

    return key_option(output_options(quiet="Print only the entry's id, which also names a new node.")(whole))


@click.group(no_args_is_help=True)
def access() -> None:
    """Decide who may write to a log, and list who may.

    A log made with `gossiplog init --founder DID` keeps its own members: grants and revocations are entries, and every replica comes to
    the same answer, without a server. Rights flow down a tree: a founder grants, an admin grants below, and only somebody above can
    remove a node, with everything below it. A node is a founder's did or the id of a grant, of which the first characters are enough.

    LOG may also be the URL of a running server: the command fetches and checks its log, signs here, and sends the new entry to the server.

    \b
    Roles
      read   may be here, and leave
      write  may also write data
      admin  may also grant, revoke and admit below its own node

    \b
    Examples
      ANNA=$(gossiplog key show -q laptop)
      gossiplog init team.db --topic team.example.com --founder "$ANNA"
      gossiplog access grant team.db did:key:z6Mk… --role write
      gossiplog access grant team.db did:key:z6Mk… --device
      gossiplog access show team.db
      gossiplog access revoke team.db 0g5k
      gossiplog access show ws://127.0.0.1:8080
    """


@access.command()
@takes(at=_Place)
@identity_option
@output_options(quiet="Print only the names of nodes that are held.")
@_with_reached
async def show(log: GossipLog, out: Output) -> None:
    """List the members of a log, and those that were removed.

    STATE is `member`, or names the entries that removed the node. PERSON is the node that a device belongs to.

    \b
    Examples
      gossiplog access show team.db
      gossiplog access show team.db --json | jq -r 'select(.held) | .did'
    """
    columns = (Column("node", style="yellow"), Column("role"), Column("person"), Column("state"), Column("did", style="cyan"))
    with Listing(out, columns, empty="no members") as listing:
        for member in await log.members():
            if out.is_quiet and not member.is_held:
                continue
            state = "member" if member.is_held else f"removed by {', '.join(map(_short, member.removed_by))}"
            person = "" if member.person == member.node else _short(member.person)
            listing.add(member.to_record(), (_short(member.node), member.role, person, state, member.did), id=member.node)


@access.command()
@takes(at=_Place)
@click.argument("did", metavar="DID")
@_role_option
@_device_option
@_under_option
@_appends
async def grant(log: GossipLog, did: str, role: str, device: bool, under: str | None) -> Entry:
    """Let somebody in: make a new node below one of yours.

    `gossiplog key show` prints the DID on the machine that has the key. A member who is to add devices of their own needs the role admin,
    which covers only the nodes below their own.

    \b
    Examples
      gossiplog access grant team.db did:key:z6Mk… --role admin
      gossiplog access grant team.db did:key:z6Mk… --device
    """
    return await log.grant(did, role, under=await _node(log, under), device=device)


@access.command()
@takes(at=_Place)
@_role_option
@_device_option
@click.option("--minutes", type=NumberRange(0, 1_440), metavar="N", default=10.0, help="How long the code is good for.")
@_under_option
@key_option
@qr_option
@output_options(quiet="Print only the code, and then the new member's node.")
def invite(at: _Place, role: str, device: bool, minutes: float, under: str | None, key_name: str | None, has_qr: bool, out: Output) -> None:
    """Let in the first person who brings a code.

    Read out or show the code, and keep this command running while the other person gives it to `gossiplog access join`. The code works
    once, and no longer than --minutes; Ctrl-C, or closing the terminal, ends it early. The command outlasts a restart of the server.

    \b
    Examples
      gossiplog access invite team.db
      gossiplog access invite wss://team.example.com --device --minutes 5
    """
    code = encode_code(secrets.token_bytes(CODE_BYTES))
    there = f"gossiplog access join {at.log if is_server_url(at.log) else 'LOG'} {code}{'' if role == 'write' else f' --role {role}'}"
    # Before anybody is invited, since it may fail.
    drawn = draw_qr(there) if has_qr else []
    reach = _reached(at, key_name, signs=True)

    async def task() -> int:
        import trio

        async with reach() as (seen, signing, share):
            with trio.open_signal_receiver(*_ENDS) as signals:
                async with signing() as opened_log:
                    node = await _node(opened_log, under)
                    key = invitation_signer(code, opened_log.topic)
                    invitation = (await opened_log.grant(key.did, "admin", under=node, device=device)).id
                await share()
                record = {"code": code, "node": invitation, "topic": seen.topic, "role": role, "device": device}
                joined = None
                try:
                    out.fields(record, [("code", out.style(code, bold=True)), ("there", there)], quiet=code)
                    out.flush()
                    for line in drawn:
                        click.echo(line, err=True)
                    with trio.move_on_after(60 * minutes):
                        while joined is None:
                            with trio.move_on_after(_LOOK_S):
                                await anext(signals)
                                break
                            with suppress(*_AWAY):
                                await share()
                                joined, others = _find_joined(await seen.members(), invitation, role, device)
                                if joined is None and others:
                                    async with signing() as opened_log:
                                        for node in others:
                                            await opened_log.revoke(node)
                                    await share()
                finally:
                    with trio.CancelScope(shield=True):
                        async with signing() as opened_log:
                            await opened_log.revoke(invitation, adopt=[] if joined is None else [joined.node])
                        await _share_patiently(share, hint=f"the code still lets in: gossiplog access revoke {at.log} {invitation}")
        if joined is None:
            raise NotAuthorised("nobody has brought the code", hint="`gossiplog access invite` makes another one")
        record = {"node": joined.node, "did": joined.did, "role": joined.role}
        out.fields(record, [("joined", joined.did), ("node", _short(joined.node))], quiet=joined.node)
        return ExitCode.DONE

    run(task)


@access.command()
@takes(at=_Place)
@click.argument("code")
@_role_option
@key_option
@output_options(quiet="Print only the new node's name, which is the entry's id.")
def join(at: _Place, code: str, role: str, key_name: str | None, out: Output) -> None:
    """Join with the code that `gossiplog access invite` shows.

    --role must be that of the invitation. Case, spaces and hyphens of the code do not matter. The command
    waits a few seconds for the inviter, and fails if the code let in somebody else.

    \b
    Examples
      gossiplog access join team.db K7QX-9M2P-0R4T-HZ3B --key phone
      gossiplog access join wss://team.example.com k7qx9m2p0r4thz3b --role admin
    """
    did = choose_signer(key_name).did

    async def say(opened_log: GossipLog) -> Entry:
        signer = invitation_signer(code, opened_log.topic)
        invitations = [member for member in await opened_log.members() if member.did == signer.did]
        if not any(member.is_held for member in invitations):
            reason = "was used, or its time is over" if invitations else "belongs to no invitation to this log"
            raise NotAuthorised(f"the code {reason}", hint="ask for another one, from `gossiplog access invite`")
        return await opened_log.grant(did, role, device=invitations[0].person != invitations[0].node, signer=signer)

    node = _append(at, key_name, out, say, code=code)
    run(partial(_hear_inviter, _reached(at, key_name, signs=False), node, role, out))


@access.command()
@takes(at=_Place)
@_node_argument
@click.option(
    "--keep", metavar="ID", multiple=True, help="Keep only this entry and its ancestors, instead of all entries that are here; repeatable."
)
@click.option("--keep-nothing", is_flag=True, help="Make everything void that the node ever signed.")
@click.option("--adopt", metavar="NODE", multiple=True, help="Keep this child of the node, with all below it; repeatable.")
@_under_option
@_appends
async def revoke(log: GossipLog, node: str, keep: tuple[str, ...], keep_nothing: bool, adopt: tuple[str, ...], under: str | None) -> Entry:
    """Remove a node and all below it, or vote for that as a founder.

    Entries of the node that this replica has still count. Those that it signs on replicas that have not seen the removal are void: they are
    kept, and have no effect. A founder who is not above the node votes instead, and the votes of k founders remove it.

    \b
    Examples
      gossiplog access revoke team.db 0g5k
      gossiplog access revoke team.db did:key:z6Mk…
      gossiplog access revoke team.db 0g5k --adopt 0h2m
    """
    if keep and keep_nothing:
        raise click.UsageError("--keep and --keep-nothing exclude each other", click.get_current_context())
    ids = [await resolve(log, each) for each in keep] if keep or keep_nothing else None
    nodes = [await resolve(log, each) for each in adopt]
    target = await _node(log, node)
    assert target is not None
    return await log.revoke(target, under=await _node(log, under), keep=ids, adopt=nodes)


@access.command()
@takes(at=_Place)
@click.argument("node", metavar="[NODE]", required=False)
@_appends
async def leave(log: GossipLog, node: str | None) -> Entry:
    """Give up a node of your own, and all below it.

    Only a new grant brings it back. Nothing brings back a founder, who therefore has to name the node.

    \b
    Example
      gossiplog access leave team.db
    """
    return await log.leave(await _node(log, node))


@access.command()
@takes(at=_Place)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_under_option
@_appends
async def admit(log: GossipLog, ids: tuple[str, ...], under: str | None) -> Entry:
    """Make data count again that a removal made void.

    The removal must be yours, or one by somebody below you. Grants and removals cannot be admitted; sign new ones.

    \b
    Example
      gossiplog access admit team.db 0k5v 0k61
    """
    return await log.admit([await resolve(log, each) for each in ids], under=await _node(log, under))


@access.command("log")
@takes(at=_Place)
@identity_option
@output_options(quiet="Print only ids.")
@_with_reached
async def log_(log: GossipLog, out: Output) -> None:
    """List grants, removals and admissions, and which of them are void.

    If an admin is removed, nodes that this admin had removed count again. The list shows them, so that somebody above can remove them
    once more.

    \b
    Example
      gossiplog access log team.db
    """
    columns = (Column("id", style="yellow"), Column("said"), Column("of"), Column("state"), Column("by", style="cyan"))
    with Listing(out, columns, empty="nothing but the policy") as listing:
        for each in await log.access_log():
            state = f"void by {', '.join(map(_short, each.revoked_by))}" if each.revoked_by else "counts"
            more = f" and {len(each.names) - 1} more" if len(each.names) > 1 else ""
            listing.add(each.to_record(), (_short(each.id), each.kind, _short(each.names[0]) + more, state, each.author), id=each.id)


@access.command()
@takes(at=_Place)
@id_argument
@identity_option
@output_options()
@_with_reached
async def check(log: GossipLog, entry_id: str, out: Output) -> int:
    """Say whether an entry counts, and what made it void.

    Also shows the node that signed it, and the person. The exit code is 0 if the entry counts, and 7 if it is void.

    \b
    Example
      gossiplog access check team.db 0k5v
    """
    id = await resolve(log, entry_id)
    standing = await log.standing(id)
    fields = [("id", id), ("state", "counts" if standing.counts else "void"), ("kind", standing.kind)]
    fields += [("node", standing.node), ("role", standing.role), ("person", standing.person)] if standing.node else []
    out.fields({"id": id, **standing.to_record()}, fields if standing.reason is None else [*fields, ("why", standing.reason)])
    return ExitCode.DONE if standing.counts else ExitCode.TROUBLE


def _append(at: _Place, key_name: str | None, out: Output, say: Callable[[GossipLog], Awaitable[Entry]], *, code: str | None = None) -> str:
    """Append the entry that `say` signs, and report it; return its id."""
    reach = _reached(at, key_name, signs=True, code=code)

    async def task() -> str:
        async with reach() as (_, signing, share):
            async with signing() as opened_log:
                entry = await say(opened_log)
            await share()
        body: dict[str, Any] = entry.payload["gossiplog.access"]
        said = clean(" ".join(f"{name} {value}" for name, value in body.items()))
        out.tell({"id": entry.id, **body}, f"{out.style(entry.id, 'yellow')}  {said}", quiet=entry.id)
        return entry.id

    return run(task)


def _find_joined(members: Sequence[LogMember], invitation: str, role: str, device: bool) -> tuple[LogMember | None, list[str]]:
    """Find the first member who joined by an invitation with its role, as a device or not; and the nodes that joined with another."""
    joined = [member for member in members if member.path[-2:-1] == (invitation,) and member.is_held]
    right = [member for member in joined if (member.role, member.person != member.node) == (role, device)]
    return (right[0] if right else None), [member.node for member in joined if member not in right]


async def _hear_inviter(reach: _Reach, node: str, role: str, out: Output) -> None:
    """Wait a few seconds for the inviter's answer to a new node.

    Raises:
        NotAuthorised: The inviter removed the node, because its role is not the invitation's, or together with the invitation.
    """
    import trio

    async with reach() as (log, _, share):
        for _ in range(_ANSWER_LOOKS):
            await trio.sleep(_LOOK_S)
            await share()
            members = {member.node: member for member in await log.members()}
            joined = members[node]
            is_open = members[joined.path[-2]].is_held
            if not joined.is_held and is_open:
                raise NotAuthorised(
                    f"the code is not for the role {role}", hint="join with the --role that `gossiplog access invite` shows"
                )
            if not joined.is_held:
                raise NotAuthorised("the code let in somebody else, or its time is over", hint="ask for another one")
            if not is_open:
                return
    out.note("the inviter has not answered yet: `gossiplog access show` says whether you are let in")


async def _share_patiently(share: Callable[[], Awaitable[None]], hint: str) -> None:
    """Give a server our new entries, and retry while it restarts."""
    import trio

    try:
        for _ in range(_REVOKE_TRIES):
            with suppress(*_AWAY):
                return await share()
            await trio.sleep(_LOOK_S)
        await share()
    except GossipLogError as error:
        error.hint = hint
        raise


class _Reached(NamedTuple):
    """A log that is open for reading, a file or fetched from a server.

    Attributes:
        signing: Opens the log for signing; a file only for as long as something is signed, so that others can write to it in between.
        share: Gives the server our new entries and fetches its own; for a file it does nothing.
    """

    log: GossipLog
    signing: Callable[[], AbstractAsyncContextManager[GossipLog]]
    share: Callable[[], Awaitable[None]]


def _reached(at: _Place, key_name: str | None, *, signs: bool, code: str | None = None) -> _Reach:
    """Return a function that opens a log; a server's log is fetched. With a code of an invitation, its key logs in to the server."""
    from ...entry.signing import Ed25519Signer

    identity = choose_signer(key_name) if signs else read_identity(key_name)
    signer = identity if signs else None
    log, token, tls, topic = at.log, read_token(at.token_file), client_tls(at.tls_ca), ""
    if is_server_url(log):
        topic = Poster(log, identity or Ed25519Signer.generate(), token, VALUE_BYTES_DEFAULT, tls).find_topic()
        identity = identity if code is None else invitation_signer(code, topic)
    else:
        refuse_server_options(at.tls_ca, at.token_file)

    @asynccontextmanager
    async def reach() -> AsyncIterator[_Reached]:
        import trio

        from ... import open as open_log
        from ...net.hub.client import parse_url
        from ...net.hub.exchange import exchange

        if not topic:
            async with opened(log) as local:
                yield _Reached(local, lambda: opened(log, read_only=False, signer=signer), trio.lowlevel.checkpoint)
            return
        hub = parse_url(log, token=token, tls=tls, identity=identity, of_server=True)
        async with open_log(":memory:", topic=topic, signer=signer) as fetched:

            async def share() -> None:
                done = await exchange(fetched, hub)
                if not done.is_taken:
                    reasons = "; ".join(each.reason for each in done.refused.values())
                    raise NotAuthorised(f"{log} refused the entry" + (f": {reasons}" if reasons else ""))

            await exchange(fetched, hub, pushes=False)
            yield _Reached(fetched, lambda: nullcontext(fetched), share)

    return reach


async def _node(log: GossipLog, name: str | None) -> str | None:
    """Complete a node's name from its first characters; a did stays as it is."""
    return name if name is None or name.startswith("did:") else await resolve(log, name)


def _short(name: str) -> str:
    """Shorten a node's name for a table, to as much as options such as `--under` need."""
    return name[:_DID_CHARACTERS] if name.startswith("did:") else name[:ID_CHARACTERS]
