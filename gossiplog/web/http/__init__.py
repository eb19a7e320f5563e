"""HTTP for every endpoint: connections as an ASGI application sees them, who is let in, what a request says, and what clients may hold."""

__all__: list[str] = []
