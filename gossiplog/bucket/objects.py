"""A bucket in object storage, by `obstore`: s3://, gs://, az://, and, to read only, http:// and https://.

Credentials come from the environment, as for the storage's own tools: AWS_ACCESS_KEY_ID, AWS_ENDPOINT, and so on.

Source: https://developmentseed.org/obstore/latest/getting-started.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import trio

from ..errors import BucketError

T = TypeVar("T")

_THREADS = 32
_TIMEOUT = timedelta(seconds=60)
_KEYS = re.compile("(AWS|GOOGLE|AZURE)_.*(KEY|TOKEN|CREDENTIAL|SECRET|SIGNATURE|SERVICE_ACCOUNT)")
_KEYS_HINT = (
    "keys come from the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_…, AZURE_…; "
    "AWS_SKIP_SIGNATURE=true for what anyone may read"
)
_STORAGE_ERROR = re.compile(r"<Code>([^<]+)</Code>\s*<Message>([^<]*)")
_FIRST_S = 5.0
"""How long the first call may take without keys: obstore then asks the cloud's metadata address, which outside a cloud never answers."""
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=120)}


class Objects:
    """Objects in a store; see `Storage`. Instead of a lock, `head` is written on the condition that it is unchanged, if the store can."""

    has_locks = False

    def __init__(self, url: str, only: str | None) -> None:
        self.url = url
        self.only = only
        self.is_read_only = url.startswith(("http://", "https://"))
        self._store = _open(url, is_http=self.is_read_only)
        self._threads = trio.CapacityLimiter(_THREADS)
        self._has_ranges = True
        self._lacks_keys = not self.is_read_only and not any(map(_KEYS.match, os.environ))

    async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
        """See `Storage`."""
        import obstore
        from obstore import exceptions

        def get() -> tuple[bytes, int] | None:
            skipped = 0
            try:
                if self._has_ranges:
                    try:
                        found = obstore.get(self._store, path, options={"range": (offset, offset + length)})
                    except exceptions.NotSupportedError:
                        # A simple web server such as Python's own always sends the whole file.
                        self._has_ranges = False
                if not self._has_ranges:
                    found, skipped = obstore.get(self._store, path), offset
            except FileNotFoundError:
                return None
            parts = bytearray()
            for part in found:
                parts += bytes(part)
                if len(parts) > skipped + length:
                    break
            if self._has_ranges and len(parts) > length:
                raise BucketError(f"{self.url}/{path}: the server sent more than was asked for")
            return bytes(parts[skipped : skipped + length]), found.meta["size"]

        return await self._call(path, get)

    async def write(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        import obstore

        await self._call(path, lambda: obstore.put(self._store, path, data))

    async def flush(self) -> None:
        """See `Storage`. An acknowledged write is durable already."""
        await trio.lowlevel.checkpoint()

    async def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """See `Storage`. A store without conditional writes is written to unconditionally."""
        import obstore
        from obstore import exceptions

        def put() -> bool:
            mode: Any = "create"
            try:
                found = obstore.get(self._store, path)
            except FileNotFoundError:
                if expected is not None:
                    return False
            else:
                if bytes(found.bytes()) != expected:
                    return False
                mode = {key: found.meta[key] for key in ("e_tag", "version") if found.meta.get(key)}
            try:
                obstore.put(self._store, path, data, mode=mode)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
            except exceptions.NotSupportedError:
                obstore.put(self._store, path, data)
            return True

        return await self._call(path, put)

    async def list(self, path: str) -> tuple[list[str], list[str]]:
        """See `Storage`. A web server lists nothing, so its URL must name the publisher."""
        import obstore

        if self.is_read_only:
            raise BucketError(f"{self.url} does not list what it has", hint="name the publisher: end the URL with its folder, z6Mk…")

        def look() -> tuple[list[str], list[str]]:
            found = obstore.list_with_delimiter(self._store, path or None)
            folders = sorted(str(each).rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])
            return folders, sorted(each["path"].rpartition("/")[2] for each in found["objects"])

        return await self._call(path, look)

    async def remove(self, paths: Sequence[str]) -> None:
        """See `Storage`."""
        import obstore

        await self._call(paths[0], lambda: obstore.delete(self._store, [*paths]))

    @asynccontextmanager
    async def lock(self, publisher: str) -> AsyncIterator[None]:
        """Do nothing. Of two processes that publish, the second to write `head` gets an error."""
        yield

    async def _call(self, path: str, function: Callable[[], T]) -> T:
        hint = _KEYS_HINT if self._lacks_keys else None
        try:
            with trio.move_on_after(_FIRST_S if self._lacks_keys else math.inf):
                # A limiter of its own and abandoned threads: a store that hangs blocks neither a cancelled caller nor other work.
                result = await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._threads)
                self._lacks_keys = False
                return result
        except BucketError:
            raise
        except Exception as error:  # obstore raises a class of its own for each store's faults, and ValueError for URLs and options
            reason = " ".join(str(error).partition("\n\nDebug source")[0].split())
            if (found := _STORAGE_ERROR.search(reason)) is not None:
                # The store's own message, without the request and the XML around it.
                reason = f"{found[1]}: {found[2]}"
            raise BucketError(f"{self.url}/{path}: {reason[:400]}", hint=hint) from error
        raise BucketError(f"{self.url} has not answered within {_FIRST_S:g} s", hint=hint)


def _open(url: str, *, is_http: bool) -> Any:
    try:
        from obstore.store import HTTPStore, from_url
    except ModuleNotFoundError as error:
        raise BucketError("object storage needs obstore, which is not installed", hint="pip install 'gossiplog[bucket]'") from error
    # An endpoint at http:// was named on purpose.
    options: Any = {"timeout": _TIMEOUT, "connect_timeout": timedelta(seconds=10), "allow_http": True}
    retries: Any = _RETRIES
    try:
        if is_http:
            return HTTPStore(url, client_options=options, retry_config=retries)
        return from_url(url, client_options=options, retry_config=retries)
    except Exception as error:  # as above
        raise BucketError(f"{url}: {error}") from error
