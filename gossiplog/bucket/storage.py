"""What publishing and taking need of a storage, and which storage a URL names."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

from ..errors import BucketError, LocalProtocolError
from ..store.open import path_text
from ..tlog.note import check_publisher, is_publisher

_SCHEMES = frozenset({"file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https"})
_OURS = frozenset({"s3", "gs", "az", "azure", "http", "https"})


class Storage(Protocol):
    """Named objects below a prefix. Paths are relative to it, with slashes. An object is only replaced as a whole.

    Each method raises BucketError, with the object's path, if the storage fails.

    Attributes:
        url: The location for messages, without secrets.
        only: The one publisher to read, if the user named one; None for all.
        has_locks: Whether `lock` keeps other processes out. If not, a publisher claims its folder by an object, `owner`.
        is_read_only: Whether nothing can be written there, whatever the credentials.
    """

    url: str
    only: str | None
    has_locks: bool
    is_read_only: bool

    async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
        """Read a part of an object, from an offset within it, and no further than its end.

        Returns:
            The bytes, and the size of the whole object in bytes; None if there is no such object.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write an object. Readers see either the old one or all of the new one."""
        ...

    async def flush(self) -> None:
        """Return once everything written survives a loss of power."""
        ...

    async def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """Write an object if it still holds `expected` (None: if it does not exist); return whether it was written."""
        ...

    async def list(self, path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the objects directly below a path, ascending; empty if there is no such path."""
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
        ...

    def lock(self, publisher: str) -> AbstractAsyncContextManager[None]:
        """Hold the exclusive right to write below a publisher's folder for a block; raise LogBusy if another process holds it."""
        ...


def check_writable(storage: Storage) -> None:
    """Raise BucketError where nothing can be written."""
    if storage.is_read_only:
        raise BucketError(f"{storage.url} can be read, and not written to", hint="publish where the web server takes its files from")


async def read_whole(storage: Storage, path: str, bytes_max: int) -> bytes | None:
    """Read an object; None if there is none. Raises BucketError if it has more than `bytes_max` bytes."""
    found = await storage.read(path, 0, bytes_max)
    if found is None:
        return None
    data, size = found
    if size > bytes_max:
        raise BucketError(f"{storage.url}/{path} has {size:,} bytes, at most {bytes_max:,} are expected")
    return data


def is_bucket(place: str | os.PathLike[str]) -> bool:
    """Whether a place is a bucket rather than a log or a hub: by its scheme, a slash at its end, or because a folder is there."""
    text = os.fspath(place)
    if "://" not in text:
        return text.endswith(os.sep) or os.path.isdir(text)  # noqa: PTH112  (a name may be too long)
    is_web = text.startswith(("http://", "https://"))
    return text.partition("://")[0] in _SCHEMES and (not is_web or is_publisher(text.rstrip("/").rpartition("/")[2]))


def in_place(place: str, topic: str) -> str:
    """Return the bucket of a topic, given a place with `{topic}` in it."""
    return place.replace("{topic}", quote(topic, safe=""))


def is_published(location: str) -> bool:
    """Whether a location is a bucket rather than files or a log: by its scheme, or because the folder is a publisher's or contains one.

    Spark's own file systems have other schemes, such as s3a or abfss, and locations that end with .parquet.
    """
    scheme, sign, _ = location.partition("://")
    last = location.rstrip("/").rpartition("/")[2]
    if sign and scheme != "file":
        return scheme in _OURS and not last.endswith(".parquet") and (scheme not in ("http", "https") or is_publisher(last))
    folder = Path(location.removeprefix("file://"))
    return folder.is_dir() and (is_publisher(last) or any(is_publisher(each.name) for each in folder.iterdir()))


def open_storage(place: str | os.PathLike[str], publisher: str | None = None) -> Storage:
    """Return the storage that a path or a URL names; nothing is read or created yet.

    Args:
        place: A path or a URL. Its last part may name the one publisher to read.
        publisher: The did of that publisher, instead.

    Raises:
        LocalProtocolError: The place is empty or not a path, the URL is not supported, or the did cannot be a publisher's.
    """
    from .folder import Folder

    hint = "a bucket is a folder, or a URL that begins with s3://, gs://, az:// or https://, without a name and a password"
    text = path_text(place)
    if "://" in text and not text.partition("://")[2].strip("/"):
        raise LocalProtocolError(f"{text!r} names no bucket", hint=hint)
    text = text.rstrip("/") or "/"
    head, _, last = text.rpartition("/")
    only = last if is_publisher(last) else None
    text = text if only is None else head or "."
    if publisher is not None:
        only = check_publisher(publisher)
    if "://" in text:
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise LocalProtocolError(f"no URL: {error}", hint=hint) from None
        if parts.scheme not in _SCHEMES or parts.username is not None or (parts.scheme == "file" and parts.netloc not in ("", "localhost")):
            raise LocalProtocolError(f"{parts.scheme}://{parts.hostname or ''} is no storage", hint=hint)
        if parts.scheme != "file":
            from .objects import Objects

            return Objects(text, only)
        text = parts.path
    folder = Path(text)
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        is_folder = True  # once something is published there
    except OSError as error:  # a loop of links, or a folder that may not be entered
        raise LocalProtocolError(f"{text!r} names no bucket: {error.strerror or error}", hint=hint) from None
    if not is_folder:
        raise LocalProtocolError(f"{text} is a file", hint="a bucket is a folder; two logs in files are made equal by `gossiplog sync`")
    return Folder(folder.absolute(), only)
