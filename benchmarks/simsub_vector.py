"""The vectorised engine: simsub's rules of 2018, with what makes up nearly all events, the publishes, worked off in numpy.

The smallest latency is a lookahead: nothing that is sent while a bucket of 9 ms is worked off arrives in it, so all arrivals of a bucket
are known when it begins. Control messages are handled one by one in their order, with the very code and random numbers of `simsub.py`;
where one of them changes a mesh, the publishes before it are forwarded first. So all counters are equal to the exact engine's, not
just close to them.

It needs numpy, of the extra `sim`. No command runs it: it shows how fast such an engine can be, in `benchmarks.sim_speed`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gossiplog.errors import LocalProtocolError
from gossiplog.sim.simsub.simsub import HEARTBEAT, IWANT, RULES_2018, SimsubResult, SimsubRules, SimsubRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Offer = tuple[float, int, int, Ints]

__all__ = ["VectorRun", "run_vector"]

MESH_COLUMNS = 32
"""Room for a node's mesh; doubled when a mesh outgrows it."""
NODE_BITS = 20
NODE_MASK = (1 << NODE_BITS) - 1


class VectorRun(SimsubRun):
    """One run of simsub's script under rules without jitter; see `SimsubRun` for the arguments.

    Memory: 8 bytes a message and node, 0.5 kB a node for its mesh.

    Raises:
        LocalProtocolError: The rules have jitter or a single source (they are those of 2022), there are over a million nodes or
            40 million messages, or numpy is missing.
    """

    def __init__(self, rules: SimsubRules, nodes: int, messages: int, delay_s: float, seed: int) -> None:
        try:
            import numpy
        except ImportError as error:
            raise LocalProtocolError("the vectorised engine needs numpy", hint="pip install 'gossiplog[sim]'") from error
        if rules.jitter or rules.source_published or rules.adaptive:
            raise LocalProtocolError(f"rules {rules.name}: the vectorised engine runs the rules of {RULES_2018.name}")
        if nodes >= NODE_MASK or messages >= 1 << 23:
            raise LocalProtocolError(f"{nodes} nodes and {messages} messages, expected less than {NODE_MASK} and {1 << 23}")
        super().__init__(rules, nodes, messages, delay_s, seed)
        self._np = numpy
        self.seen = []
        self._first: Floats = numpy.full((messages, nodes), numpy.inf)
        self._mesh_peers: Ints = numpy.zeros((nodes, MESH_COLUMNS), dtype=numpy.int64)
        self._mesh_s: Floats = numpy.zeros((nodes, MESH_COLUMNS))
        self._mesh_size: Ints = numpy.zeros(nodes, dtype=numpy.int64)
        self._parcels: defaultdict[int, list[tuple[Floats, Ints]]] = defaultdict(list)
        self._loose: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        self._offers: defaultdict[int, list[Offer]] = defaultdict(list)  # IHAVEs: when, to whom, from whom, ids
        self._known_s: list[dict[int, float]] = [{} for _ in range(nodes + 1)]
        self._uncached = self._latency
        self._latency = self._remembered_latency
        # The first receipts of the bucket that is worked off, in order of time, and how far they are entered and forwarded.
        self._times: Floats = numpy.empty(0)
        self._packed: Ints = numpy.empty(0, dtype=numpy.int64)
        self._due_s: list[float] = []
        self._receipts: list[tuple[int, int]] = []
        self._entered = 0
        self._forwarded = 0

    def run(self, progress: Callable[[float], None] | None = None) -> SimsubResult:
        """Work the whole script off; see `SimsubRun.run`."""
        self._start()
        events = 0
        last = int(self.end_s * self._per_s)
        for index in range(last + 1):
            control = self._buckets.pop(index, [])
            control.sort()
            offers = self._offers.pop(index, [])
            events += len(control) + len(offers) + self._receive(index)
            self._work_off(control)
            self._on_offers([offer for offer in offers if offer[0] <= self.end_s])
            self._enter(self.end_s)
            self._forward(len(self._times))
            if progress is not None and not index & 63:
                progress(index / last)
        return SimsubResult(dict(self.counters), events)

    def _remembered_latency(self, a: int, b: int) -> float:
        """Peers talk again and again; a link's hash is computed once for each end."""
        known = self._known_s[a].get(b)
        if known is None:
            known = self._known_s[a][b] = self._uncached(a, b)
        return known

    # Publishes

    def _push(self, time_s: float, target: int, source: int, kind: int, data: Any = None) -> None:
        if kind < 0:
            super()._push(time_s, target, source, kind, data)
        else:  # an injection, or the answer to an IWANT: few
            self._loose[int(time_s * self._per_s)].append((time_s, self._pack(kind, target, source)))

    @staticmethod
    def _pack(message: int, target: int, source: int) -> int:
        return message << 2 * NODE_BITS | target << NODE_BITS | source & NODE_MASK

    def _receive(self, index: int) -> int:
        """Find the first receipts among the arrivals of a bucket. Returns the number of arrivals."""
        np = self._np
        parcels = self._parcels.pop(index, [])
        loose = self._loose.pop(index, None)
        if loose:
            parcels.append((np.array([time for time, _ in loose]), np.array([packed for _, packed in loose], dtype=np.int64)))
        self._due_s, self._receipts, self._entered, self._forwarded = [], [], 0, 0
        if not parcels:
            self._times, self._packed = np.empty(0), np.empty(0, dtype=np.int64)
            return 0
        times = np.concatenate([parcel[0] for parcel in parcels])
        packed = np.concatenate([parcel[1] for parcel in parcels])
        arrivals = len(times)
        flat = self._flat(packed)
        first = self._first.reshape(-1)
        fresh = (first[flat] == np.inf) & (times <= self.end_s)
        times, packed, flat = times[fresh], packed[fresh], flat[fresh]
        np.minimum.at(first, flat, times)
        winners = np.flatnonzero(first[flat] == times)
        winners = winners[np.argsort(times[winners], kind="stable")]
        self._times, self._packed = times[winners], packed[winners]
        self.counters["deliver"] += len(winners)
        self._due_s = self._times.tolist()
        owners, messages = self._packed >> NODE_BITS & NODE_MASK, self._packed >> 2 * NODE_BITS
        self._receipts = list(zip(owners.tolist(), messages.tolist(), strict=True))
        return arrivals

    def _flat(self, packed: Ints) -> Ints:
        return (packed >> 2 * NODE_BITS) * len(self.nodes) + (packed >> NODE_BITS & NODE_MASK)

    def _enter(self, until_s: float) -> None:
        """Enter receipts up to a time into their nodes' windows."""
        start, nodes = self._entered, self.nodes
        self._entered = end = bisect_right(self._due_s, until_s, start)
        for number, message in self._receipts[start:end]:
            nodes[number].window.append(message)

    def _forward_before(self, time_s: float) -> None:
        """Forward what was received before a mesh changes."""
        if self._forwarded < len(self._times):
            self._forward(int(self._np.searchsorted(self._times, time_s)))

    def _forward(self, until: int) -> None:
        """Send receipts up to this index on to the mesh, except to where they came from."""
        np, start = self._np, self._forwarded
        if until <= start:
            return
        self._forwarded = until
        times, packed = self._times[start:until], self._packed[start:until]
        targets = packed >> NODE_BITS & NODE_MASK
        sizes = self._mesh_size[targets]
        total = int(sizes.sum())
        if not total:
            return
        rows = np.repeat(np.arange(len(times)), sizes)
        columns = np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        senders = targets[rows]
        peers = self._mesh_peers[senders, columns]
        kept = peers != packed[rows] & NODE_MASK
        rows, senders, peers = rows[kept], senders[kept], peers[kept]
        arrivals = times[rows] + self._mesh_s[senders, columns[kept]]
        parcels = packed[rows] >> 2 * NODE_BITS << 2 * NODE_BITS | peers << NODE_BITS | senders
        self.counters["publish"] += len(arrivals)
        if len(arrivals):
            self._hand_out(arrivals, parcels)

    def _hand_out(self, arrivals: Floats, parcels: Ints) -> None:
        """Lay sends, at least one, into the buckets of their arrival."""
        np = self._np
        days = (arrivals * self._per_s).astype(np.int64)
        order = np.argsort(days, kind="stable")
        days, arrivals, parcels = days[order], arrivals[order], parcels[order]
        cuts = np.flatnonzero(days[1:] != days[:-1]) + 1
        starts = [0, *cuts.tolist()]
        for start, end in zip(starts, [*starts[1:], len(days)], strict=True):
            self._parcels[int(days[start])].append((arrivals[start:end], parcels[start:end]))

    # Control

    def _work_off(self, bucket: list[tuple[Any, ...]]) -> None:
        """Handle control messages in order, all but IHAVEs."""
        for now, _, target, source, kind, data in bucket:
            if now > self.end_s:
                break
            if kind == HEARTBEAT:
                self._enter(now)
            self._on_control(now, target, source, kind, data)

    def _gossip(self, now: float, number: int, peers: list[int], ids: list[int]) -> None:
        self.counters["ihave"] += len(peers)
        offers, known, per_s, numbers = self._offers, self._known_s[number], self._per_s, self._np.array(ids)
        for peer in peers:
            at = now + (known[peer] if peer in known else self._latency(number, peer))
            offers[int(at * per_s)].append((at, peer, number, numbers))

    def _on_offers(self, offers: list[Offer]) -> None:
        """Handle the IHAVEs of a bucket together, as hardly any of them is answered."""
        if not offers:
            return
        np = self._np
        sizes = np.array([len(offer[3]) for offer in offers])
        ids = np.concatenate([offer[3] for offer in offers])
        targets = np.repeat(np.array([offer[1] for offer in offers], dtype=np.int64), sizes)
        times = np.repeat(np.array([offer[0] for offer in offers]), sizes)
        wanted = np.flatnonzero(self._first[ids, targets] > times)
        if not len(wanted):
            return
        owners = np.repeat(np.arange(len(offers)), sizes)[wanted].tolist()
        by_offer: dict[int, list[int]] = {}
        for owner, message in zip(owners, ids[wanted].tolist(), strict=True):
            by_offer.setdefault(owner, []).append(message)
        for owner, messages in by_offer.items():
            now, target, source, _ = offers[owner]
            self._send(now, target, source, IWANT, messages)

    def _has(self, now: float, number: int, message: int) -> bool:
        return bool(self._first[message, number] <= now)

    def _forget(self, number: int, messages: list[int]) -> None:
        self._first[messages, number] = self._np.inf

    def _graft(self, now: float, number: int, peer: int) -> None:
        self._forward_before(now)
        super()._graft(now, number, peer)
        self._copy_mesh(number)

    def _prune(self, now: float, number: int, peer: int) -> None:
        self._forward_before(now)
        super()._prune(now, number, peer)
        self._copy_mesh(number)

    def _copy_mesh(self, number: int) -> None:
        np, mesh = self._np, self.nodes[number].mesh
        size = len(mesh)
        if size > self._mesh_peers.shape[1]:
            self._mesh_peers = np.concatenate([self._mesh_peers, np.zeros_like(self._mesh_peers)], axis=1)
            self._mesh_s = np.concatenate([self._mesh_s, np.zeros_like(self._mesh_s)], axis=1)
        self._mesh_size[number] = size
        self._mesh_peers[number, :size] = list(mesh)
        self._mesh_s[number, :size] = list(mesh.values())


def run_vector(
    rules: SimsubRules, nodes: int, messages: int, delay_s: float, seed: int, progress: Callable[[float], None] | None = None
) -> SimsubResult:
    """Run simsub's script once, as `run_simsub` does, with the same counters; pays from some hundred nodes on."""
    return VectorRun(rules, nodes, messages, delay_s, seed).run(progress)
