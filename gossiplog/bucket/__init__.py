"""A log in a bucket: what publishes a log into a folder or object storage, and takes what others have published there.

Source: docs/spec/bucket.md.
"""

from .evidence import prove, read_checkpoints
from .exchange import Exchanged, exchange
from .publish import Published, publish
from .storage import Storage, is_bucket, open_storage
from .take import Fault, Taken, TakenFrom, find_topic, take

__all__ = [
    "Exchanged",
    "Fault",
    "Published",
    "Storage",
    "Taken",
    "TakenFrom",
    "exchange",
    "find_topic",
    "is_bucket",
    "open_storage",
    "prove",
    "publish",
    "read_checkpoints",
    "take",
]
