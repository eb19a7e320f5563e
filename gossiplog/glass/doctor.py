"""What is wrong with a log or a server, and what to do about it, judged from figures (`Vitals`) that the caller has measured.

Each check is a function from the figures to findings. "ok" is a finding too, so that a reader sees what was checked. A figure that could
not be measured is None, and gives no finding.

Source: docs/glass.md, "Doctor".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .advice import advice_on, bare_reason
from .scene import PeerLink

HEADS_WARN = 1_000
"""The most heads that an update message names; an append has at most 256 parents."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Our clock compared with a server's.

    Attributes:
        uncertain_s: The error of `ahead_s`: half of the round trip, and the server's rounding to seconds.
    """

    ahead_s: float
    uncertain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk that a log is on: the bytes that are free for us, and its size."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate: its name, and for how many more seconds it is valid; negative once it has expired."""

    name: str
    left_s: float


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The contents of a log.

    Attributes:
        heads: The number of heads, counted up to `HEADS_WARN` + 1.
        quarantined_lately: How many of those in quarantine came in the last hour.
        set_aside: How many entries are set aside, by application; up to 10,000 in all.
        looked_at: The number of entries whose place in the tree was checked.
        faults: What is wrong with these places.
    """

    entries: int
    heads: int
    quarantined: int = 0
    quarantined_lately: int = 0
    set_aside: Mapping[str, int] = field(default_factory=dict)
    looked_at: int = 0
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NetworkFigures:
    """The network of one log at a server.

    Attributes:
        hubs: The URLs of the hubs that it should be a client of.
        is_in_mesh: Whether it takes part in a mesh of servers.
        degree: The number of peers that get every entry at once by pubsub.
        is_spread: Whether a message published now reaches as many peers at once as the router wants, or all that are subscribed.
        queue_bytes_max: The most bytes that may wait for one peer.
        dials: The reason, by the address that cannot be reached.
        banned: The reason of the ban, by peer id.
        quiet_s: Seconds since an entry was stored.
        store_trouble: Why the log does not answer or store; None while it does.
        misplaced: What happened to the log's file, if it is no longer where it was opened.
        waiting: The number of entries that wait to be verified.
    """

    topic: str
    peers: Sequence[PeerLink] = ()
    hubs: Sequence[str] = ()
    is_in_mesh: bool = False
    degree: int = 0
    is_spread: bool = True
    queue_bytes_max: int = 4 * 2**20
    dials: Mapping[str, str] = field(default_factory=dict)
    banned: Mapping[str, str] = field(default_factory=dict)
    quiet_s: float = 0.0
    store_trouble: str | None = None
    is_disk_full: bool = False
    misplaced: str | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """The figures at one moment; None for those that were not measured.

    Attributes:
        version: The version of the server.
        our_version: The version of the program that asks.
        files: The number of open file descriptors, and the limit.
    """

    version: str | None = None
    our_version: str | None = None
    clock: Clock | None = None
    disk: DiskSpace | None = None
    files: tuple[int, int] | None = None
    certificate: Certificate | None = None
    log: LogFigures | None = None
    network: NetworkFigures | None = None


Severity: TypeAlias = Literal["ok", "note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
"""From the mildest to the worst."""

CLOCK_WARN_S, CLOCK_ERROR_S = 5.0, 120.0
"""Nothing in a log depends on clocks; certificates, tokens and the comparison of two servers' journals do."""
DISK_WARN_SHARE, DISK_ERROR_SHARE = 0.10, 0.02
DISK_WARN_BYTES, DISK_ERROR_BYTES = 2**30, 2**26
"""Free space has to be below both limits: a tenth of a large disk is plenty, and a small disk may be small on purpose."""
FILES_WARN_SHARE, FILES_ERROR_SHARE = 0.8, 0.95
CERTIFICATE_WARN_S, CERTIFICATE_ERROR_S = 21 * 86_400.0, 3 * 86_400.0
"""Automatic renewal happens 30 days before the end: with less than three weeks left, it has failed."""
QUEUE_FULL_SHARE = 0.5
QUIET_S = 3_600.0
"""After an hour without a new entry there is a note, if peers are connected; it may be normal."""
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of a check."""

    check: str
    severity: Severity
    text: str
    advice: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {"check": self.check, "severity": self.severity, "text": self.text, "advice": self.advice, "details": dict(self.details)}


def examine(vitals: Vitals) -> list[Diagnosis]:
    """Run all checks for which there are figures; return their findings in the order of the checks."""
    found = [finding for check in _CHECKS for finding in check(vitals)]
    if vitals.log is not None:
        found += [finding for of_log in _LOG_CHECKS for finding in of_log(vitals.log)]
    if vitals.network is not None:
        found += [finding for of_network in _NETWORK_CHECKS for finding in of_network(vitals.network)]
    return found


def findings_from(record: object) -> list[Diagnosis]:
    """Read the findings in a server's answer; anything else in it is ignored."""
    listed = record.get("findings") if isinstance(record, dict) else None
    found = []
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and one.get("severity") in SEVERITIES:
            details = one.get("details")
            check, text, advice = (str(one.get(name, "")) for name in ("check", "text", "advice"))
            found.append(Diagnosis(check, one["severity"], text, advice, details if isinstance(details, dict) else {}))
    return found


# The machine and the program


def _clock(vitals: Vitals) -> Iterator[Diagnosis]:
    clock = vitals.clock
    if clock is None:
        return
    off_s = max(0.0, abs(clock.ahead_s) - clock.uncertain_s)
    details = {"ahead_s": round(clock.ahead_s, 1), "uncertain_s": round(clock.uncertain_s, 1)}
    if off_s < CLOCK_WARN_S:
        yield Diagnosis("clock", "ok", "this machine's clock agrees with the server's", details=details)
        return
    side = "ahead of" if clock.ahead_s > 0 else "behind"
    text = f"this machine's clock is {abs(clock.ahead_s):,.0f} s {side} the server's"
    severity: Severity = "error" if off_s >= CLOCK_ERROR_S else "warning"
    advice = "synchronise both machines by NTP; entries are not affected, but certificates and the comparison of two journals are"
    yield Diagnosis("clock", severity, text, advice, details)


def _disk(vitals: Vitals) -> Iterator[Diagnosis]:
    disk = vitals.disk
    if disk is None:
        return
    details = {"free_bytes": disk.free_bytes, "total_bytes": disk.total_bytes}
    severity: Severity = "ok"
    if disk.free_bytes < min(DISK_ERROR_BYTES, disk.total_bytes * DISK_ERROR_SHARE):
        severity = "error"
    elif disk.free_bytes < min(DISK_WARN_BYTES, disk.total_bytes * DISK_WARN_SHARE):
        severity = "warning"
    text = f"{_size(disk.free_bytes)} of {_size(disk.total_bytes)} are free on the log's disk"
    advice = "" if severity == "ok" else "make room: on a full disk a log stores no more entries, though those that it has stay whole"
    yield Diagnosis("disk", severity, text, advice, details)


def _files(vitals: Vitals) -> Iterator[Diagnosis]:
    if vitals.files is None:
        return
    is_open, most = vitals.files
    share = is_open / most if most else 0.0
    severity: Severity = "error" if share >= FILES_ERROR_SHARE else "warning" if share >= FILES_WARN_SHARE else "ok"
    advice = "" if severity == "ok" else "raise the limit (LimitNOFILE= in systemd, ulimit -n in a shell), or lower --connections"
    yield Diagnosis("files", severity, f"{is_open:,} of {most:,} file descriptors are in use", advice, {"open": is_open, "most": most})


def _version(vitals: Vitals) -> Iterator[Diagnosis]:
    here, there = vitals.our_version, vitals.version
    if there is None:
        return
    details = {"version": there} | ({} if here is None else {"our_version": here})
    if here is None or here == there:
        yield Diagnosis("version", "ok", f"it runs gossiplog {there}", details=details)
        return
    text = f"the server runs gossiplog {there}, this command is {here}"
    yield Diagnosis("version", "note", text, "update the older one when convenient", details)


def _certificate(vitals: Vitals) -> Iterator[Diagnosis]:
    certificate = vitals.certificate
    if certificate is None:
        return
    days = certificate.left_s / 86_400
    details = {"name": certificate.name, "left_s": round(certificate.left_s)}
    if certificate.left_s <= 0:
        text, severity = f"the certificate for {certificate.name} expired {-days:,.0f} days ago", SEVERITIES[3]
    else:
        text = f"the certificate for {certificate.name} is valid for {days:,.0f} more days"
        severity = "error" if certificate.left_s < CERTIFICATE_ERROR_S else "warning" if certificate.left_s < CERTIFICATE_WARN_S else "ok"
    advice = "" if severity == "ok" else "renew it and restart the server: clients refuse an expired one"
    yield Diagnosis("certificate", severity, text, advice, details)


# The log


def _contents(log: LogFigures) -> Iterator[Diagnosis]:
    details = {"entries": log.entries, "heads": log.heads}
    if log.heads > HEADS_WARN:
        advice = "append once, which merges 256 of them; many heads mean that many writers do not reach each other: look at the peers"
        yield Diagnosis("heads", "warning", f"the log has more than {HEADS_WARN:,} heads", advice, details)
    else:
        yield Diagnosis(
            "heads", "ok", f"{_counted(log.entries, 'entry', 'entries')}, {_counted(log.heads, 'head', 'heads')}", details=details
        )


def _tree(log: LogFigures) -> Iterator[Diagnosis]:
    details = {"looked_at": log.looked_at, "faults": list(log.faults)}
    if log.faults:
        advice = "`gossiplog fsck LOG` says what is affected, `gossiplog sync --heal LOG OTHER` makes it whole from another replica"
        yield Diagnosis("tree", "error", f"the tree does not fit the entries: {log.faults[0]}", advice, details)
    elif log.looked_at:
        text = f"the tree fits the {_counted(log.looked_at, 'entry', 'entries')} that were checked"
        yield Diagnosis("tree", "ok", text, details=details)


def _quarantine(log: LogFigures) -> Iterator[Diagnosis]:
    details = {"entries": log.quarantined, "last_hour": log.quarantined_lately}
    if not log.quarantined:
        yield Diagnosis("quarantine", "ok", "nothing is in quarantine", details=details)
        return
    text = f"{_counted(log.quarantined, 'entry is', 'entries are')} in quarantine"
    advice = "`gossiplog quarantine ls LOG` says why; `gossiplog quarantine retry LOG` lets in those that are whole now"
    if log.quarantined_lately:
        text += f", {log.quarantined_lately:,} of them for less than an hour"
        yield Diagnosis("quarantine", "error", text, advice, details)
    else:
        yield Diagnosis("quarantine", "warning", text, advice, details)


def _set_aside(log: LogFigures) -> Iterator[Diagnosis]:
    details = dict(log.set_aside)
    if not any(log.set_aside.values()):
        yield Diagnosis("set-aside", "ok", "no application has set an entry aside", details=details)
        return
    for name, count in sorted(log.set_aside.items()):
        text = f"application {name} failed on {_counted(count, 'entry', 'entries')}, which had no effect on its tables"
        advice = "`gossiplog quarantine ls LOG` says why; fix the application, then `gossiplog quarantine retry LOG --apply …`"
        yield Diagnosis("set-aside", "warning", text, advice, {"application": name, "entries": count})


# The network


def _store(network: NetworkFigures) -> Iterator[Diagnosis]:
    if network.misplaced is not None:
        advice = "do not stop the server before `gossiplog sync NEW.db URL` has copied everything; then put a whole log in that place"
        yield Diagnosis("store", "error", f"{network.misplaced}: new entries will be lost when the server stops", advice)
    elif network.is_disk_full:
        advice = "make room on the log's disk; then the server resumes by itself, and fetches the entries that it could not store"
        yield Diagnosis("store", "error", "the last commit failed: the disk is full", advice)
    elif network.store_trouble is not None:
        advice = "look at the log's disk or database; the server resumes by itself when that answers"
        yield Diagnosis("store", "error", f"the log cannot store, or does not answer: {network.store_trouble}", advice)
    else:
        yield Diagnosis("store", "ok", "the log answers, and stores new entries")


def _connections(network: NetworkFigures) -> Iterator[Diagnosis]:
    peers = network.peers
    kinds = {kind: sum(peer.kind == kind for peer in peers) for kind in ("mesh", "hub", "client")}
    text = f"{_counted(kinds['mesh'], 'server', 'servers')}, {_counted(kinds['hub'], 'hub', 'hubs')} and "
    text += f"{_counted(kinds['client'], 'client', 'clients')} are connected"
    if network.is_in_mesh and not kinds["mesh"]:
        advice = "check --bootstrap, the other side's address and firewalls in between; `gossiplog serve -v` logs each attempt"
        yield Diagnosis("peers", "error", "no server of the mesh is connected", advice, kinds)
    elif len(network.hubs) > kinds["hub"]:
        text = f"{kinds['hub']} of {_counted(len(network.hubs), 'hub', 'hubs')} of --connect are connected"
        yield Diagnosis("peers", "error", text, "check --connect, the token and firewalls in between", kinds | {"hubs": list(network.hubs)})
    elif not peers:
        advice = "fine for a hub that waits for clients; otherwise give it --bootstrap or --connect"
        yield Diagnosis("peers", "note", "nobody is connected", advice, kinds)
    else:
        yield Diagnosis("peers", "ok", text, details=kinds)


def _dials(network: NetworkFigures) -> Iterator[Diagnosis]:
    for address, reason in list(network.dials.items())[:_NAMED_MAX]:
        text = f"{address} cannot be reached: {bare_reason(address, reason)}"
        yield Diagnosis("dials", "warning", text, advice_on(reason), {"address": address, "reason": reason})


def _mesh(network: NetworkFigures) -> Iterator[Diagnosis]:
    candidates = sum(peer.kind == "mesh" and peer.protocol is not None and network.topic in peer.topics for peer in network.peers)
    if not network.is_in_mesh or not candidates:
        return
    details = {"degree": network.degree, "subscribed": candidates}
    text = f"{_counted(network.degree, 'peer gets', 'peers get')} every entry at once, of {candidates:,} subscribed"
    if network.is_spread:
        yield Diagnosis("mesh", "ok", text, details=details)
        return
    advice = (
        "a backoff after a PRUNE ends within a minute; if this persists, look at the scores (`gossiplog peers URL`) and at --mesh-params"
    )
    yield Diagnosis("mesh", "warning" if network.degree else "error", text, advice, details)


def _topics(network: NetworkFigures) -> Iterator[Diagnosis]:
    strangers = [
        peer for peer in network.peers if peer.kind == "mesh" and peer.topics and network.topic not in peer.topics and not peer.is_pushing
    ]
    if strangers:
        topics = sorted({topic for peer in strangers for topic in peer.topics})[:_NAMED_MAX]
        text = f"{_counted(len(strangers), 'peer has', 'peers have')} another topic than {network.topic}: {', '.join(topics)}"
        advice = "a log's topic never changes; point both sides at logs of the same topic"
        yield Diagnosis("topic", "warning", text, advice, {"peers": _named(strangers), "topics": topics})


def _protocols(network: NetworkFigures) -> Iterator[Diagnosis]:
    mute = [peer for peer in network.peers if peer.kind == "mesh" and peer.protocol is None and network.topic not in peer.topics]
    if mute:
        text = f"{_counted(len(mute), 'server has', 'servers have')} no pubsub protocol in common with us"
        advice = "give all servers of a mesh the same --router and a similar version; until then entries come only by syncs, later"
        yield Diagnosis("protocol", "warning", text, advice, {"peers": _named(mute)})


def _scores(network: NetworkFigures) -> Iterator[Diagnosis]:
    scored = [peer for peer in network.peers if peer.score is not None]
    ignored = [peer for peer in scored if not peer.is_heeded]
    negative = [peer for peer in scored if peer.is_heeded and (peer.score or 0.0) < 0]
    if ignored:
        text = f"messages of {_counted(len(ignored), 'peer', 'peers')} are ignored: the score is below the threshold"
        yield Diagnosis("scores", "error", text, _SCORE_ADVICE, {"peers": _named(ignored)})
    if negative:
        text = f"{_counted(len(negative), 'peer is', 'peers are')} kept out of the mesh by a score below 0"
        yield Diagnosis("scores", "warning", text, _SCORE_ADVICE, {"peers": _named(negative)})
    if scored and not ignored and not negative:
        yield Diagnosis("scores", "ok", "no peer's score is below 0")


_SCORE_ADVICE = "`gossiplog peers URL --json` has the parts of each score: invalid messages, misbehaviour, many peers at one address"


def _queues(network: NetworkFigures) -> Iterator[Diagnosis]:
    full = [peer for peer in network.peers if peer.queued_bytes > network.queue_bytes_max * QUEUE_FULL_SHARE]
    slow = [peer for peer in network.peers if peer.dropped and peer not in full]
    if full:
        text = f"{_counted(len(full), 'peer reads', 'peers read')} too slowly: more than half of the queue is full"
        advice = "look at the peer's machine and network; it is dropped after 15 s without progress, and catches up by a sync"
        yield Diagnosis("queues", "warning", text, advice, {"peers": _named(full)})
    if slow:
        text = f"messages for {_counted(len(slow), 'peer', 'peers')} were dropped at a full queue; their entries come by a sync, later"
        yield Diagnosis("queues", "note", text, "nothing to do unless it goes on", {"peers": _named(slow)})
    if network.waiting > 1_000:
        text = f"{network.waiting:,} entries wait to be verified"
        yield Diagnosis("queues", "note", text, "it will catch up; if not, the machine is too small", {"waiting": network.waiting})
    if not full and not slow:
        yield Diagnosis("queues", "ok", "no queue is full")


def _refusals(network: NetworkFigures) -> Iterator[Diagnosis]:
    refused = [peer for peer in network.peers if peer.refused]
    if refused:
        count = sum(peer.refused for peer in refused)
        text = f"{_counted(count, 'message', 'messages')} of {_counted(len(refused), 'peer', 'peers')} were refused"
        advice = "the server's journal has a reason for each peer; logs refuse signed pubsub messages (StrictNoSign)"
        yield Diagnosis("refused", "warning", text, advice, {"peers": _named(refused)})
    for peer, reason in list(network.banned.items())[:_NAMED_MAX]:
        text = f"peer {peer} is banned: {reason}"
        advice = "a ban ends after ten minutes; find out what its program sends"
        yield Diagnosis("bans", "warning", text, advice, {"peer": peer, "reason": reason})


def _quiet(network: NetworkFigures) -> Iterator[Diagnosis]:
    if network.peers and network.quiet_s > QUIET_S:
        text = f"nothing new has been stored for {network.quiet_s / 3600:,.1f} hours, though peers are connected"
        advice = "fine if nobody writes; else compare the roots (`GET root`) of both sides, and ask `gossiplog why` about one entry"
        yield Diagnosis("quiet", "note", text, advice, {"quiet_s": round(network.quiet_s)})


_CHECKS: tuple[Callable[[Vitals], Iterator[Diagnosis]], ...] = (_version, _clock, _disk, _files, _certificate)
_LOG_CHECKS: tuple[Callable[[LogFigures], Iterator[Diagnosis]], ...] = (_contents, _tree, _quarantine, _set_aside)
_NETWORK_CHECKS: tuple[Callable[[NetworkFigures], Iterator[Diagnosis]], ...] = (
    _store,
    _connections,
    _dials,
    _mesh,
    _topics,
    _protocols,
    _scores,
    _queues,
    _refusals,
    _quiet,
)


def _named(peers: Sequence[PeerLink]) -> list[str]:
    return [peer.peer for peer in peers[:_NAMED_MAX]]


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _size(number: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1_000:
            return f"{number:,.0f} {unit}"
        number //= 1_000
    return f"{number:,} TB"
