"""Advice on addresses that cannot be reached."""

from __future__ import annotations

_ADVICE = (
    ((" 401", " 403"), "it lets nobody in without a token that it knows: look at --token-file, or ask its operator for a token"),
    ((" 404",), "it does not serve this log's topic: look at the end of its URL, /TOPIC if it has several logs"),
    ((" 429", " 503"), "it takes no more at the moment, as it says; try again later, which a lasting connection does by itself"),
    ((" 507",), "it has no room for more: ask its operator"),
    (("mismatch", "not valid for"), "its certificate is for another name: write that name in the URL"),
    (("has expired",), "its certificate has expired: its operator has to renew it"),
    (("not yet valid",), "its certificate is not valid yet: is the clock of this machine right?"),
    (("certificate",), "trust its CA with --tls-ca FILE (in Python, tls=ssl.create_default_context(cafile=FILE))"),
    (("tls", "ssl"), "does it use TLS there? URLs with wss:// use it, URLs with ws:// do not"),
    (("the handshake", "not speak", "reset", " 400"), "is that a hub, and does it use TLS there? Then its URL begins with wss://"),
    (
        ("our own peer id",),
        "remove it from --bootstrap if it is this server; else every server needs a key of its own: remove the copy there",
    ),
    (("no answer", "not answer", "timed out", "unreachable"), "is the machine on, is that its address, and is a firewall in between?"),
)
"""Advice by words in the reason, which may come from the operating system, from TLS, or from the other side."""


def advice_on(reason: str) -> str:
    """Return advice for the reason that an address cannot be reached."""
    said = reason.lower()
    return next(
        (advice for words, advice in _ADVICE if any(word in said for word in words)), "is the server running, and is that its address?"
    )


def bare_reason(address: str, reason: str) -> str:
    """Remove the beginning of a reason that repeats the address."""
    return reason.removeprefix(f"cannot connect to {address}: ").removeprefix(f"{address}: ")
