"""The plan that answers a run of requests from one snapshot. Sizes are checked before anything large is built."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..codec.framing import FRAME_BYTES_MAX, encode_frame
from ..log.page import PAGE_BYTES_MAX
from ..log.requests import ReadValues
from ..plan import Plan, ask
from ..tree.node import KEY_BYTES, LEVEL_MAX, Node, ReadNodes, ReadRoot, ReadRuns
from . import rpc
from .limits import ServerLimits
from .wire import encode_response

_NODE_BYTES = KEY_BYTES + 26
"""The most that one node takes in an answer."""
_VALUE_OVERHEAD = 5
"""The most that a field takes around its bytes: the tag, and a length below 2^28."""


@dataclass(slots=True)
class Reply:
    """The answers to a run of requests.

    Attributes:
        frames: Framed responses, one per request from the first on.
        fault: Why the next request cannot be answered, so that the stream has to end; None if its turn has not come yet.
        is_violation: That fault is the peer's.
        is_short: The last answer has only the first of the values asked for, and no further request may be answered.
    """

    frames: list[bytes] = field(default_factory=list)
    size: int = 0
    values: int = 0
    fault: str | None = None
    is_violation: bool = False
    is_short: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether no further request is answered, in this run or another."""
        return self.fault is not None or self.is_short

    def add(self, framed: bytes) -> None:
        """Add the next answer."""
        self.frames.append(framed)
        self.size += len(framed)

    def fail(self, fault: str, *, is_violation: bool) -> None:
        """End the run: the next request cannot be answered."""
        self.fault, self.is_violation = fault, is_violation


def answer(requests: Sequence[rpc.Request], limits: ServerLimits, *, in_parts: bool = False) -> Plan[Reply]:
    """Answer requests in order, until all are answered, the answers reach `limits.run_bytes`, or one cannot be answered.

    In a session in parts, an answer to getChildren has at most `limits.part_children` children; else all, if they fit a frame.

    Consecutive getChildren of one level, most of a sync's requests, are read in one request to the store.
    """
    reply = Reply()
    while len(reply.frames) < len(requests) and not reply.is_over and (not reply.frames or reply.size < limits.run_bytes):
        request = requests[len(reply.frames)]
        match request:
            case rpc.GetRoot():
                root = yield from ask(ReadRoot())
                reply.add(encode_frame(encode_response(rpc.RootResponse(root))))
            case rpc.GetNode():
                yield from _answer_node(reply, request)
            case rpc.GetChildren():
                run = _run_of(requests, len(reply.frames), limits.run_children)
                yield from _answer_children(reply, run, limits, in_parts=in_parts)
            case rpc.GetValues():
                yield from _answer_values(reply, request, limits, in_parts=in_parts)
    return reply


def _run_of(requests: Sequence[rpc.Request], start: int, count_max: int) -> list[rpc.GetChildren]:
    """The getChildren of one level that begin at `start`."""
    run: list[rpc.GetChildren] = []
    for request in requests[start : start + count_max]:
        if not isinstance(request, rpc.GetChildren) or (run and (request.level != run[0].level or request.start is not None)):
            break
        run.append(request)
        if request.start is not None:
            break
    return run


def _answer_node(reply: Reply, request: rpc.GetNode) -> Plan[None]:
    if request.level > LEVEL_MAX:
        reply.fail(f"getNode at level {request.level}, at most {LEVEL_MAX} expected", is_violation=True)
        return
    nodes: list[Node | None] = yield from ask(ReadNodes([(request.level, request.key)]))
    reply.add(encode_frame(encode_response(rpc.NodeResponse(nodes[0]))))


def _answer_children(reply: Reply, run: Sequence[rpc.GetChildren], limits: ServerLimits, *, in_parts: bool) -> Plan[None]:
    level, start = run[0].level, run[0].start
    if not 1 <= level <= LEVEL_MAX:
        reply.fail(f"getChildren at level {level}, expected 1 to {LEVEL_MAX}", is_violation=True)
        return
    if start is not None and not in_parts:
        reply.fail("getChildren of a part, in a session that is not in parts", is_violation=True)
        return
    most = limits.part_children if in_parts else FRAME_BYTES_MAX // _NODE_BYTES
    keys = sorted({request.key for request in run}, key=lambda key: key or b"")
    runs = yield from ask(ReadRuns(level, keys, start, most + 1))
    families = {found.parent.key: found.children for found in runs}
    framed: dict[bytes | None, bytes] = {}
    for request in run:
        if reply.frames and reply.size >= limits.run_bytes:
            return
        children = families.get(request.key)
        if not children or (start is not None and children[0].key != start):
            # A client that walks this snapshot's tree from the root asks only for nodes that exist.
            reply.fail(f"getChildren of a node at level {level} that is not there", is_violation=True)
            return
        has_more = len(children) > most
        if has_more and not in_parts:
            reply.fail(f"a node with more than {most} children does not fit a frame", is_violation=False)
            return
        if request.key not in framed:
            framed[request.key] = encode_frame(encode_response(rpc.ChildrenResponse(list(children[:most]), has_more)))
        reply.add(framed[request.key])


def _answer_values(reply: Reply, request: rpc.GetValues, limits: ServerLimits, *, in_parts: bool) -> Plan[None]:
    """Answer a getValues. A missing key ends the stream without blame.

    So does too large an answer in a session in parts: the client then asks for less. The reference's client cannot do that, as it asks at
    once for all leaves that it lacks of a node, so it gets the first values that fit.
    """
    if request.has_more and in_parts:
        reply.fail(f"getValues of more than {rpc.KEYS_MAX} keys", is_violation=True)
        return
    values, missing = yield from _read_values(request.keys, limits)
    if missing is not None:
        reply.fail(f"getValues of {missing.hex()}, which is not in the log", is_violation=False)
        return
    reply.is_short = request.has_more or len(values) < len(request.keys)
    if reply.is_short and in_parts:
        reply.is_short = False
        reply.fail(f"more than {FRAME_BYTES_MAX} bytes of values in one answer", is_violation=False)
        return
    reply.add(encode_frame(encode_response(rpc.ValuesResponse(values))))
    reply.values += len(values)


def _read_values(wanted: Sequence[bytes], limits: ServerLimits) -> Plan[tuple[list[bytes], bytes | None]]:
    """Read values until they fill a frame. Return them, and the key at which it stopped because that is not in the log, if there is one."""
    values: list[bytes] = []
    size, chunk = _VALUE_OVERHEAD, limits.value_chunk
    while len(values) < len(wanted):
        keys = wanted[len(values) : len(values) + chunk]
        found: dict[bytes, bytes] = yield from ask(ReadValues(keys))
        is_cut = sum(map(len, found.values())) >= PAGE_BYTES_MAX
        for key in keys:
            value = found.get(key)
            if value is None and not is_cut:
                return values, key
            if value is None and not values:
                # The page was full before it: read it alone.
                chunk = 1
                break
            if value is None or size + len(value) + _VALUE_OVERHEAD > FRAME_BYTES_MAX:
                return values, None
            size += len(value) + _VALUE_OVERHEAD
            values.append(value)
        else:
            # Read about half of `run_bytes` next.
            chunk = max(limits.value_chunk, min(len(wanted), limits.run_bytes * len(values) // (2 * size)))
    return values, None
