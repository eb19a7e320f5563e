"""Pull what another log has and ours lacks, and serve others who pull from us: both sides of a merkle sync as machines without I/O."""

from .client import SyncClient
from .local import InsertIntoTarget, RunOnSource, RunOnTarget, sync_steps
from .rate import Backoff, TokenBucket
from .result import Ending, SyncResult
from .schedule import SessionSlots, SyncSchedule
from .server import SyncServer
from .source import Source

__all__ = [
    "Backoff",
    "Ending",
    "InsertIntoTarget",
    "RunOnSource",
    "RunOnTarget",
    "SessionSlots",
    "Source",
    "SyncClient",
    "SyncResult",
    "SyncSchedule",
    "SyncServer",
    "TokenBucket",
    "sync_steps",
]
