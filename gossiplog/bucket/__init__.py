"""A log in a bucket: publish a log in a folder or in object storage, and take the entries that others have published there.

Source: docs/spec/bucket.md.
"""

from .cosigning import WitnessPlace, cosign_published
from .evidence import prove
from .peer import BucketPeer, Exchanged, exchange, keep_exchanging, peers_of
from .publish import Published, publish
from .reading import read_heads
from .scan import look
from .storage import Storage, check_writable, in_place, is_bucket, is_published, open_storage
from .take import Taken, take
from .witness import Cosigner

__all__ = [
    "BucketPeer",
    "Cosigner",
    "Exchanged",
    "Published",
    "Storage",
    "Taken",
    "WitnessPlace",
    "check_writable",
    "cosign_published",
    "exchange",
    "in_place",
    "is_bucket",
    "is_published",
    "keep_exchanging",
    "look",
    "open_storage",
    "peers_of",
    "prove",
    "publish",
    "read_heads",
    "take",
]
