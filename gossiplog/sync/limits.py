"""Limits on what a session may hold, ask for and wait for. Tests lower them; nobody should have to raise them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits on the pulling side of one session. Defaults are those of docs/spec/limits.md where it has one.

    Attributes:
        values_in_flight: Unanswered getValues.
        look_ahead: Nodes held, beyond which only the leftmost is expanded.
        held: Nodes held, beyond which the session stops and has to be resumed. Reached only if somebody has ground giant nodes.
        value_bytes_in_flight: Expected bytes of the answers to unanswered getValues.
        probes_in_flight: Unanswered getValues while the size of no value is known.
        ready_bytes: Bytes of values waiting to be inserted, beyond which nothing more is read.
        batch_bytes: Bytes of values, after which a batch takes no more.
        rejected: Invalid entries, beyond which the source counts as broken.
        orphans: Orphans, beyond which the session stops.
        rpc_s: Seconds without an answer while one is due.
    """

    values_in_flight: int = 256
    look_ahead: int = 20_000
    held: int = 250_000
    value_bytes_in_flight: int = 4 * 2**20
    probes_in_flight: int = 16
    ready_bytes: int = 8 * 2**20
    batch_entries: int = 1_000
    batch_bytes: int = 2**20
    rejected: int = 100
    orphans: int = 10_000
    rpc_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits on the serving side of one session.

    Attributes:
        requests_per_s: Requests answered per second in the long run; faster ones wait.
        requests_burst: Requests that may come at once.
        run_requests: Requests answered by one plan.
        run_children: Of these, getChildren read from the store at a time.
        part_children: Children in one answer, if the session is in parts.
        run_bytes: Bytes of answers after which a plan takes no further request. A session needs this memory, and that of one answer.
        value_chunk: Values first read from the store at a time, so that an answer that grows too large is noticed in time.
        share_s: Seconds after which a session is ended with an abort.
        cooldown_ms: The pause that such an abort asks for.
        idle_s: Seconds without a request after which a session is ended.
    """

    requests_per_s: float = 2_000.0
    requests_burst: int = 2_000
    run_requests: int = 256
    run_children: int = 64
    part_children: int = 2_048
    run_bytes: int = 2**18
    value_chunk: int = 4
    share_s: float = 10.0
    cooldown_ms: int = 0
    idle_s: float = 60.0
