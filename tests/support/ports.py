"""Ports for servers that are told theirs."""

import random
import socket

__all__ = ["free_port"]

_UNUSED = iter(random.SystemRandom().sample(range(10_000, 30_000), 20_000))


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens.

    It is below those that a system gives to whoever asks for any (32,768 and up on Linux). So no server or client of a test beside
    this one gets it by chance. No process returns one twice.
    """
    for port in _UNUSED:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError("no port is free")
