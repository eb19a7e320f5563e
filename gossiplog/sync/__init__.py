"""Pull what another log has and ours lacks, and serve others who pull from us: both sides of a merkle sync as machines without I/O."""

from .client import SyncClient
from .result import Ending, SyncResult
from .schedule import SessionSlots, SyncSchedule
from .server import SyncServer
from .source import Source

__all__ = [
    "Ending",
    "SessionSlots",
    "Source",
    "SyncClient",
    "SyncResult",
    "SyncSchedule",
    "SyncServer",
]
