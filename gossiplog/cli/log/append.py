"""`append`: sign payloads and add them."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ... import errors
from ...entry.rules import VALUE_BYTES_DEFAULT, VALUE_BYTES_LIMIT
from ...log.page import PAGE_BYTES_MAX
from ..exits import Failure, stopped
from ..options import LOG, choose_signer, client_tls, durability_option, key_option, output_options, read_token, tls_ca_option, token_option
from ..output import Output
from ..posting import Poster, is_server_url, refuse_server_options
from ..progress import Progress
from ..session import opened, run, waited_for

if TYPE_CHECKING:
    from ...entry.message import Entry
    from ...gossip_log import GossipLog

_BATCH = 1000
_BATCH_MAX = 10_000
_PAYLOAD_BYTES_MAX = 25 * 1024 * 1024
_READ_BYTES = 256 * 1024
_PAUSE_S = 0.02
"""After a pause of this length the lines so far are committed, so that a slow producer sees its lines in the log."""


@click.command()
@click.argument("log", metavar="LOG|URL", type=LOG)
@click.argument("payload", required=False, metavar="[PAYLOAD|-]")
@click.option("--lines", is_flag=True, help="Read one payload per line from stdin.")
@click.option(
    "--batch", type=click.IntRange(1, _BATCH_MAX), default=_BATCH, metavar="N", help="With --lines: the most lines in a transaction."
)
@key_option
@durability_option
@click.option(
    "--max-entry-bytes",
    "value_bytes_max",
    type=click.IntRange(1, VALUE_BYTES_LIMIT),
    default=VALUE_BYTES_DEFAULT,
    metavar="N",
    help="The largest entry, in bytes.",
)
@tls_ca_option
@token_option
@output_options(quiet="Print only ids.")
def append(
    log: str,
    payload: str | None,
    lines: bool,
    batch: int,
    key_name: str | None,
    durability: str,
    value_bytes_max: int,
    tls_ca: str | None,
    token_file: str | None,
    out: Output,
) -> None:
    """Sign a payload and add it to the log.

    The entry's parents are the current heads, at most 256. The command prints its id.

    PAYLOAD is JSON; '-' or nothing reads it from stdin. Bytes and links are written as in dag-json:
    {"/":{"bytes":"aGk"}} and {"/":"bafy…"}. Numbers are JavaScript's: 1.0 is stored as 1.

    With --lines, lines are committed in batches as they come, and ids are printed after the commit. A refused line stops the run: earlier
    lines are kept, and the message names the refused one.

    To append to a served log, give its server's URL as LOG: the entry is signed here and posted there, with --lines one by one. The URL may
    end in the log's topic; without one the server's only log is used, and its topic is shown before anything is signed.

    An acknowledged entry survives a killed process at any durability, and with 'full' also a loss of power. With 'normal' a loss of power
    may cost the last entries, with 'off' the whole file.

    \b
    Examples
      gossiplog append app.db '{"op":"set","key":"a","value":1}'
      date -u +'{"now":"%FT%TZ"}' | gossiplog append app.db -
      ID=$(gossiplog append -q app.db '"hello"')
      gossiplog append app.db --lines < operations.jsonl
      gossiplog append ws://127.0.0.1:8080 '"hello"'
    """
    if lines and payload not in (None, "-"):
        raise click.UsageError("--lines reads payloads from stdin; leave PAYLOAD out")
    if payload is None and not lines and sys.stdin.isatty():
        raise click.UsageError("no payload: give one as an argument, or pipe it in")
    signer = choose_signer(key_name)

    if is_server_url(log):
        poster = Poster(log, signer, read_token(token_file), value_bytes_max, client_tls(tls_ca), out.note)
        _post(poster, payload, lines, out)
        return
    refuse_server_options(tls_ca, token_file)

    async def task() -> None:
        async with opened(log, read_only=False, signer=signer, durability=durability, value_bytes_max=value_bytes_max) as opened_log:
            if lines:
                await _append_lines(opened_log, batch, out)
                return
            text = await waited_for(lambda: _read_payload(payload))
            _report(await opened_log.append(_parse(text)), out)

    run(task)


def _read_payload(payload: str | None) -> bytes:
    if payload not in (None, "-"):
        return payload.encode("utf-8", "surrogateescape")
    text = b""
    while len(text) <= _PAYLOAD_BYTES_MAX and (data := _read_some(sys.stdin.buffer)):
        text += data
    return text


def _post(poster: Poster, payload: str | None, lines: bool, out: Output) -> None:
    if not lines:
        _report(poster.append(_parse(_read_payload(payload))), out, is_posted=True)
        return
    kept = 0
    for chunk in _batches(sys.stdin.buffer, _BATCH):
        for number, text in chunk:
            try:
                _report(poster.append(_parse(text)), out, is_posted=True)
            except errors.GossipLogError as error:
                raise _stopped(error, number, kept) from error
            kept = number
            out.flush()


async def _append_lines(log: GossipLog, batch: int, out: Output) -> None:
    kept = 0
    batches = _batches(sys.stdin.buffer, batch)
    with Progress("appending", is_shown=not out.is_strict and not sys.stdout.isatty()) as progress:
        while chunk := await waited_for(lambda: next(batches, None)):
            payloads: list[tuple[int, Any]] = []
            fault: errors.GossipLogError | None = None
            bad_line = 0
            for number, text in chunk:
                try:
                    payloads.append((number, _parse(text)))
                except errors.GossipLogError as error:
                    fault, bad_line = error, number
                    break
            try:
                for entry in await log.append_many([payload for _, payload in payloads]) if payloads else []:
                    _report(entry, out)
                kept = payloads[-1][0] if payloads else kept
            except errors.StoreError as error:
                raise _stopped(error, kept + 1, kept) from error
            except errors.GossipLogError:
                # One of them was refused, and the transaction with it: find out which, and keep those before it.
                for number, payload in payloads:
                    try:
                        _report(await log.append(payload), out)
                    except errors.GossipLogError as error:
                        raise _stopped(error, number, kept) from error
                    kept = number
            if fault is not None:
                raise _stopped(fault, bad_line, kept) from fault
            out.flush()
            progress.at(kept)


def _stopped(error: errors.GossipLogError, line: int, kept: int) -> Failure:
    """Return the error that names the line that was refused, and the lines in the log."""
    before = f"lines 1 to {kept} are kept" if kept > 1 else "line 1 is kept" if kept else "nothing was kept"
    return stopped(error, f"line {line}", f"{before}; go on with `tail -n +{line}`")


def _batches(file: BinaryIO, size: int) -> Iterator[list[tuple[int, bytes]]]:
    """Group lines with their numbers, without blank ones; a group ends when it is full, or when the input pauses."""
    number = 0
    rest = b""
    group: list[tuple[int, bytes]] = []
    held = 0
    is_over = False
    while not is_over:
        data = _read_some(file)
        is_over = not data
        *lines, rest = (rest + data).split(b"\n")
        if rest and (is_over or len(rest) > _PAYLOAD_BYTES_MAX):
            lines.append(rest)
            rest = b""
        for line in lines:
            number += 1
            if line.strip():
                group.append((number, line))
                held += len(line)
            if len(group) == size or held >= PAGE_BYTES_MAX:
                yield group
                group, held = [], 0
        if group and (is_over or _pauses(file)):
            yield group
            group, held = [], 0


def _read_some(file: BinaryIO) -> bytes:
    """Read the bytes that are there, and wait only if there are none.

    This bypasses the file's buffer: `_pauses` cannot see bytes in the buffer, and a thread that is abandoned here must not hold the
    buffer's lock, which Python takes when it exits.
    """
    try:
        descriptor = file.fileno()
    except (OSError, ValueError):
        return file.read(_READ_BYTES)
    return os.read(descriptor, _READ_BYTES)


def _pauses(file: BinaryIO) -> bool:
    try:
        return not select.select([file.fileno()], [], [], _PAUSE_S)[0]
    except (OSError, ValueError):
        return False


def _parse(text: bytes) -> Any:
    from ...codec import dag_json

    if len(text) > _PAYLOAD_BYTES_MAX:
        raise Failure(f"a payload of more than {_PAYLOAD_BYTES_MAX} bytes", hint="an entry has at most 4 MiB")
    if not text.strip():
        raise Failure("no payload: the input is empty", kind="payload")
    try:
        return dag_json.decode(text)
    except errors.DecodeError as error:
        hint = _hint_at_quotes(text.strip())
        raise Failure(f"not a payload: {error}", hint=hint, kind="payload") from error


def _hint_at_quotes(text: bytes) -> str | None:
    """Guess whether text is not JSON because its quotes are missing, eaten by the shell, or single."""
    if text[:1] not in b'{["-0123456789':
        return """write strings with quotes: '"hello"'"""
    if b"'" in text or (text[:1] == b"{" and b'"' not in text):
        return """JSON has double quotes around keys and strings, and the shell needs single quotes around it all: '{"a":1}'"""
    return None


def _report(entry: Entry, out: Output, *, is_posted: bool = False) -> None:
    """Show an entry; for a posted one also the topic, because the log is not here."""
    record, text = {"id": entry.id, "clock": entry.clock}, f"{out.style(entry.id, 'yellow')}  clock {entry.clock}"
    if is_posted:
        record, text = {**record, "topic": entry.topic}, f"{text}  topic {entry.topic}"
    out.tell(record, text, quiet=entry.id)
