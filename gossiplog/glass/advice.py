"""Advice about an address that cannot be reached, as far as the reason allows."""

from __future__ import annotations

_ADVICE = (
    ((" 401", " 403"), "it lets nobody in without a token that it knows: look at --token-file, or ask whoever runs it for a token"),
    ((" 404",), "it does not serve this log's topic: look at the end of its URL, /TOPIC where it serves several"),
    ((" 429", " 503"), "it has enough connections, or none to spare for this address: it is tried again by itself"),
    (("mismatch", "not valid for"), "its certificate is for another name: write that in the URL"),
    (("has expired",), "its certificate has expired: whoever runs it has to renew it"),
    (("not yet valid",), "its certificate is not valid yet: is the clock of this machine right?"),
    (("certificate",), "trust its CA with --tls-ca FILE (in Python, tls=ssl.create_default_context(cafile=FILE))"),
    (("tls", "ssl"), "does it speak TLS there? A URL with wss:// is with it, one with ws:// without"),
    (("the handshake", "not speak", "reset", " 400"), "is that a hub, and does it speak TLS there? Then its URL begins with wss://"),
    (("our own peer id",), "take it off --bootstrap if it is this server; else every server needs a key of its own: remove the copy there"),
    (("no answer", "not answer", "timed out", "unreachable"), "is the machine on, is that its address, and does a firewall stand between?"),
)
"""Advice by words in the reason, which may come from an operating system, from TLS, or from the other side."""


def advice_on(reason: str) -> str:
    """Return what to do."""
    said = reason.lower()
    return next(
        (advice for words, advice in _ADVICE if any(word in said for word in words)), "is the server running, and is that its address?"
    )


def bare_reason(address: str, reason: str) -> str:
    """Remove from a reason that the address cannot be reached, which the finding says anyway."""
    return reason.removeprefix(f"cannot connect to {address}: ").removeprefix(f"{address}: ")
