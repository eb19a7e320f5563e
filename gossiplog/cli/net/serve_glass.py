"""The options of `serve` that let one look into it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from ...errors import LocalProtocolError
from ..exits import ExitCode, Failure
from ..options import complete_key

if TYPE_CHECKING:
    import ssl

    from ...entry.signing import Signer
    from ...gossip_log import GossipLog
    from ...web.glass import GlassSettings

__all__ = ["GlassOptions", "glass_options"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GlassOptions:
    """What the command line says of looking in."""

    dashboard: bool = False
    may_append: bool = False
    watched: tuple[str, ...] = ()
    facts_file: str | None = None
    key_name: str | None = None

    def check(self, *, has_api: bool, has_hubs: bool) -> None:
        """Say what does not fit together.

        Raises:
            UsageError: Something does not.
            KeyFileError: There is no key to sign with, or it is not said which.
            Failure: The file cannot be written.
        """
        from ...net.hub.asking import parse_server_url

        if self.dashboard and not has_api:
            raise click.UsageError("--dashboard needs HTTP, which --no-api and a server that does not listen leave out")
        for option, is_given in (("--dashboard-append", self.may_append), ("--dashboard-watch", bool(self.watched))):
            if is_given and not self.dashboard:
                raise click.UsageError(f"{option} needs --dashboard")
        if self.key_name is not None and not (self.may_append or has_hubs):
            raise click.UsageError("--key needs --dashboard-append or --connect: nothing else is signed here")
        self.signer()
        for url in self.watched:
            try:
                parse_server_url(url)
            except LocalProtocolError as error:
                raise click.UsageError(f"--dashboard-watch: {error}; {error.hint}") from None
        if self.facts_file is not None:
            try:
                Path(self.facts_file).open("ab").close()
            except OSError as error:
                raise Failure(f"--facts {self.facts_file}: {error.strerror}", code=ExitCode.USAGE, kind="usage") from None

    def signer(self) -> Signer | None:
        """Load the key that signs what the page appends; None if it may not.

        Raises:
            KeyFileError: There is none, or it is not said which.
        """
        from ...keyring import Keyring

        return Keyring.from_environment().choose(self.key_name) if self.may_append else None

    async def settings(self, stack: AsyncExitStack, tls: ssl.SSLContext | None) -> GlassSettings:
        """Return what the HTTP server is to show; whom it shows beside itself is followed for as long as the stack is open."""
        from ...web.glass import Gather, GlassSettings

        gather = Gather(self.watched, tls) if self.watched else None
        if gather is not None:
            await stack.enter_async_context(gather.running())
        return GlassSettings(self.dashboard, self.may_append, gather)

    def observing(self, log: GossipLog) -> AbstractContextManager[None]:
        """Have facts made of a log, if any are wanted, for the length of a block that begins before anything brings it on the network."""
        from ...net.service.registry import observed

        if not self.dashboard and self.facts_file is None:
            return nullcontext()
        return observed(log, None if self.facts_file is None else Path(self.facts_file))


def glass_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options; the command gets a `GlassOptions` named `glass`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        dashboard: bool,
        dashboard_append: bool,
        dashboard_watch: tuple[str, ...],
        facts: str | None,
        key_name: str | None,
        **options: Any,
    ) -> R:
        return command(*args, glass=GlassOptions(dashboard, dashboard_append, dashboard_watch, facts, key_name), **options)

    options = (
        click.option("--dashboard", is_flag=True, help="Serve a page at / that shows the log, its network, and what happens."),
        click.option("--dashboard-append", is_flag=True, help="Let the page append, signed by --key; else it only looks."),
        click.option(
            "--key",
            "key_name",
            metavar="NAME",
            shell_complete=complete_key,
            help="The keyring's key: signs the page's appends, and lets us in at hubs of --connect that know its did.",
        ),
        click.option("--dashboard-watch", metavar="URL", multiple=True, help="Show this server on the page as well; repeatable."),
        click.option("--facts", metavar="FILE", type=click.Path(dir_okay=False), help="Append all facts to this file, as JSON lines."),
    )
    decorated: Callable[..., R] = run
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
