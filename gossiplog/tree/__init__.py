"""The prolly tree over a log's entries: its shape, its batched update, differences of two trees, and the checks of a peer's nodes."""

from .builder import Root, build, build_stream
from .check import check_children, check_root
from .diff import LeafDifference, Question, Side, diff
from .memory import MemoryTree
from .node import (
    ANCHOR_HASH,
    CHILDREN_MAX,
    FANOUT,
    HASH_BYTES,
    KEY_BYTES,
    LEVEL_MAX,
    SIBLINGS_WARN,
    Node,
    NodeRun,
    ReadNodes,
    ReadRoot,
    ReadRuns,
    TreeChange,
    boundary_limit,
    leaf_hash,
    node_hash,
)
from .writer import update

__all__ = [
    "ANCHOR_HASH",
    "CHILDREN_MAX",
    "FANOUT",
    "HASH_BYTES",
    "KEY_BYTES",
    "LEVEL_MAX",
    "SIBLINGS_WARN",
    "LeafDifference",
    "MemoryTree",
    "Node",
    "NodeRun",
    "Question",
    "ReadNodes",
    "ReadRoot",
    "ReadRuns",
    "Root",
    "Side",
    "TreeChange",
    "boundary_limit",
    "build",
    "build_stream",
    "check_children",
    "check_root",
    "diff",
    "leaf_hash",
    "node_hash",
    "update",
]
