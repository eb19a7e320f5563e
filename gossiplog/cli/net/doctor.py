"""`doctor`: what is wrong with a log or a running server, and what to do about it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ..asking import ANSWER_S, Asker
from ..exits import ExitCode, Failure
from ..options import LOG, Location, client_tls, output_options, read_token, tls_ca_option, token_option
from ..output import Column, Listing, Output, clean
from ..posting import is_server_url
from ..session import opened, run

if TYPE_CHECKING:
    from ...glass.doctor import Certificate, Clock, Diagnosis

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_COLUMNS = (Column("severity", styles=_COLOURS), Column("check"), Column("finding and advice"))
_HAS_EXPIRED = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED."""


@click.command()
@click.argument("log", metavar="LOG|URL", type=LOG)
@tls_ca_option
@token_option
@output_options(quiet="Print only the names of the checks that found something.")
def doctor(log: Location, tls_ca: str | None, token_file: str | None, out: Output) -> int:
    """Say what is wrong with a log or a server, and what to do.

    For a log it checks the disk, heads, quarantine, entries set aside, and whether the tree fits some entries (`gossiplog fsck` checks
    all). For a server, at the URL that `gossiplog serve` prints, it also checks clock, version, certificate, file descriptors, connections,
    unreachable addresses, mesh, scores, queues, refusals and bans.

    The exit code is 0 if there is nothing to fix, 7 if there is, and 3 if the tree does not fit the entries.

    \b
    Examples
      gossiplog doctor app.db
      gossiplog doctor wss://log.example.com --json
    """
    if is_server_url(log):
        findings = _of_server(log, client_tls(tls_ca), read_token(token_file))
    else:
        findings = run(lambda: _of_log(log))
    with Listing(out, _COLUMNS) as listing:
        for finding in findings:
            if out.is_quiet and finding.severity in ("ok", "note"):
                continue
            text = finding.text + (f"; {finding.advice}" if finding.advice else "")
            listing.add(finding.record(), (finding.severity, clean(finding.check), clean(text)), id=clean(finding.check))
    if any(finding.check == "tree" and finding.severity == "error" for finding in findings):
        return ExitCode.INTEGRITY
    return ExitCode.TROUBLE if any(finding.severity in ("warning", "error") for finding in findings) else ExitCode.DONE


async def _of_log(location: Location) -> list[Diagnosis]:
    from ...glass.doctor import Vitals, examine
    from ...replica.vitals import read_disk, read_log

    async with opened(location) as log:
        return examine(Vitals(disk=read_disk(log.location), log=await read_log(log)))


def _of_server(url: str, tls: ssl.SSLContext | None, token: str | None) -> list[Diagnosis]:
    from ...glass.doctor import Clock, Vitals, examine, findings_from
    from ...version import VERSION

    asker = Asker(url, tls, token)
    certificate = _certificate(asker) if asker.server.is_tls else None
    if certificate is not None and certificate.left_s <= 0:
        # No client would ask a server with such a certificate.
        return examine(Vitals(certificate=certificate))
    said = asker.ask("doctor")
    found = findings_from(said.record)
    if not found:
        raise asker.nonsense("doctor")
    clock: Clock | None = None if said.ahead_s is None else Clock(said.ahead_s, said.took_s / 2 + 1.0)
    theirs = next((str(finding.details.get("version", "")) for finding in found if finding.check == "version"), None)
    seen_from_here = examine(Vitals(version=theirs or None, our_version=VERSION, clock=clock, certificate=certificate))
    return [*seen_from_here, *(finding for finding in found if finding.check != "version")]


def _certificate(asker: Asker) -> Certificate | None:
    """Return the server's certificate; None if the server cannot be reached, which the next request will report."""
    import trio

    from ...glass.advice import advice_on
    from ...glass.doctor import Certificate

    async def read() -> Mapping[str, Any]:
        with trio.fail_after(ANSWER_S):
            stream = await asker.server.dial()
            try:
                return stream.certificate
            finally:
                await stream.aclose()

    host = asker.server.host
    try:
        shown = run(read)
    except trio.TooSlowError:
        return None
    except OSError as error:
        reason = getattr(error, "reason", None)
        if not isinstance(reason, ssl.SSLCertVerificationError):
            return None
        if reason.verify_code == _HAS_EXPIRED:
            return Certificate(host, -1.0)
        text = f"the certificate of {host} is not trusted: {reason.verify_message}"
        raise Failure(text, hint=advice_on(reason.verify_message), code=ExitCode.NETWORK, kind="tls") from None
    ends = shown.get("notAfter")
    return Certificate(host, ssl.cert_time_to_seconds(ends) - time.time()) if isinstance(ends, str) else None
