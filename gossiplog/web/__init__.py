"""What a hub serves over plain HTTP, beside WebSocket and on its port: the reference's API, and our own additions to it."""

from .app import make_app, make_http

__all__ = ["make_app", "make_http"]
