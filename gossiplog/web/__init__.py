"""What a hub serves over plain HTTP on the same port as WebSocket: the reference's API and our additions to it."""

from .app import make_app, make_http

__all__ = ["make_app", "make_http"]
